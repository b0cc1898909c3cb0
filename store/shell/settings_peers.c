/* settings_peers.c: the settings that make a node one of several: read, shown, and checked together. */
#include "replication/address.h"
#include "store/shell/log.h"
#include "store/shell/settings_value.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SCHEME "tcp://"
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define VERIFY_MAX 1000000000u

_Static_assert(SETTINGS_PEERS == 128 && SETTINGS_WEIGHT_MAX == 65535, "sentences say so");

/* ---- one value ---- */

void default_name(char *out, size_t size)
{
    char host[SETTINGS_NODE_NAME] = "";
    gethostname(host, sizeof host);
    host[sizeof host - 1] = '\0';
    for (char *c = host; *c; c++) {
        if (!strchr(NAME_LETTERS, *c))
            *c = '-';
    }
    snprintf(out, size, "%s", *host ? host : "node");
}

int parse_node_name(const char *text, char *out, size_t size)
{
    size_t n = strspn(text, NAME_LETTERS);
    if (n == 0 || n >= size || text[n] != '\0')
        return -EINVAL;
    memcpy(out, text, n + 1);
    return 0;
}

static int number(const char *text, uint32_t most, uint32_t *out)
{
    uint64_t n = 0;
    if (*text == '\0')
        return -EINVAL;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text))
            return -EINVAL;
        n = n * 10 + (uint64_t)(*text - '0');
        if (n > most)
            return -ERANGE;
    }
    *out = (uint32_t)n;
    return 0;
}

/* tcp://HOST:PORT; -ERANGE: a wildcard, which is no address that others can reach, and listens to everybody. */
static int check_address(const char *text, bool port_0)
{
    struct address_text a;
    if (strncmp(text, SCHEME, strlen(SCHEME)) != 0 || strlen(text) >= SETTINGS_ADDRESS)
        return -EINVAL;
    if (address_split(text, &a) < 0 || a.port < (port_0 ? 0 : 1))
        return -EINVAL;
    for (const char *c = a.host; *c; c++) {
        if (!isgraph((unsigned char)*c) || strchr(",=*/", *c))
            return *c == '*' ? -ERANGE : -EINVAL;
    }
    return address_reachable(text) ? 0 : -ERANGE;
}

int parse_listen(const char *text, char *out, size_t size)
{
    int e = strcmp(text, "off") == 0 ? 0 : check_address(text, true);
    if (e == 0)
        snprintf(out, size, "%s", text);
    return e;
}

/* Keeps what is wrong with one of the list, whose name is one by now; foreign: what was written. */
static int wrong(struct settings *s, const char *name, const char *format, const char *foreign)
{
    char shown[100], what[200];
    escape_bytes(shown, sizeof shown, foreign, strlen(foreign));
    snprintf(what, sizeof what, format, shown);
    snprintf(s->peers_wrong, sizeof s->peers_wrong, "peer '%s' %s", name, what);
    return -ERANGE;
}

static int parse_peer_address(struct settings *s, struct settings_peer *peer, const char *address)
{
    int e = check_address(address, false);
    if (e == -ERANGE)
        return wrong(s, peer->name,
                     "has the address '%s', which no other host can connect to: write one of that node's own", address);
    if (e != 0)
        return wrong(s, peer->name, "has the address '%s': write tcp://HOST:PORT, with a port of 1 to 65535", address);
    snprintf(peer->address, sizeof peer->address, "%s", address);
    return 0;
}

/* NAME, NAME=tcp://HOST:PORT, with *WEIGHT behind the address. The text is cut. */
static int parse_peer(struct settings *s, struct settings_peer *peer, char *text)
{
    char *address = strchr(text, '='), *weight = strrchr(text, '*');
    *peer = (struct settings_peer){.weight = 1};
    if (weight)
        *weight++ = '\0';
    if (address)
        *address++ = '\0';
    int e = parse_node_name(text, peer->name, sizeof peer->name);
    if (e == 0 && address)
        e = parse_peer_address(s, peer, address);
    if (e == 0 && weight && (number(weight, SETTINGS_WEIGHT_MAX, &peer->weight) != 0 || peer->weight == 0))
        e = wrong(s, peer->name, "has the weight '%s': it is a number of 1 to 65535", weight);
    return e;
}

static int add_peer(struct settings *s, char *text)
{
    struct settings_peer peer;
    int e = parse_peer(s, &peer, text);
    for (uint32_t i = 0; e == 0 && i < s->n_peers; i++) {
        if (strcmp(s->peers[i].name, peer.name) == 0)
            e = wrong(s, peer.name, "stands in the list twice: each node has a name of its own%s", "");
    }
    if (e == 0 && s->n_peers == SETTINGS_PEERS)
        e = wrong(s, peer.name, "is one too many: a list has 128 members at most%s", "");
    if (e == 0)
        s->peers[s->n_peers++] = peer;
    return e;
}

int parse_peers(struct settings *s, const char *text)
{
    return parse_list(s, text, add_peer);
}

int parse_verify(const char *text, uint32_t *out)
{
    uint32_t n = strcmp(text, "always") == 0;
    if (n == 0 && strcmp(text, "lease") != 0) {
        int e = strncmp(text, "1/", 2) == 0 ? number(text + 2, VERIFY_MAX, &n) : -EINVAL;
        if (e != 0 || n == 0)
            return -EINVAL;
    }
    *out = n;
    return 0;
}

/* ---- showing ---- */

void show_peers(const struct settings *s, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "none");
    for (uint32_t i = 0; i < s->n_peers && at < size; i++) {
        const struct settings_peer *p = &s->peers[i];
        char weight[16] = "";
        if (p->weight != 1)
            snprintf(weight, sizeof weight, "*%u", p->weight);
        at += (size_t)snprintf(out + at, size - at, "%s%s%s%s%s", i > 0 ? "," : "", p->name, *p->address ? "=" : "",
                               p->address, weight);
    }
}

void show_verify(uint32_t sample, char *out, size_t size)
{
    if (sample < 2)
        snprintf(out, size, "%s", sample ? "always" : "lease");
    else
        snprintf(out, size, "1/%u", sample);
}

/* ---- together ---- */

bool settings_wants_peers(const struct settings *s)
{
    return strcmp(s->listen, "off") != 0 || s->n_peers > 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct settings_peer *)a)->name, ((const struct settings_peer *)b)->name);
}

static struct settings_peer *own_entry(struct settings *s)
{
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (strcmp(s->peers[i].name, s->name) == 0)
            return &s->peers[i];
    }
    return NULL;
}

static int check_trust(const struct settings *s, const char *what, const char *address, char *why, size_t size)
{
    if (s->peer_trust == TRUST_NETWORK || address_is_loopback(address + strlen(SCHEME)))
        return 0;
    snprintf(why, size,
             "%s is '%s', no loopback address: there is no authentication yet, so whoever reaches it could read and "
             "write all objects: if every host of that network is trusted, set peer-trust to network",
             what, address);
    return -EINVAL;
}

/* One place by two names: as far as their texts tell, nobody is asked who a name is. */
static bool same_place(const char *a, const char *b)
{
    struct address_text x, y;
    struct in6_addr p, q;
    if (address_split(a, &x) < 0 || address_split(b, &y) < 0 || x.port != y.port || x.port <= 0)
        return false;
    if (inet_pton(AF_INET6, x.host, &p) == 1 && inet_pton(AF_INET6, y.host, &q) == 1)
        return memcmp(&p, &q, sizeof p) == 0;
    return strcasecmp(x.host, y.host) == 0;
}

/* Where one of the list is; this node's entry may leave it to `listen`. "off": not known. */
static const char *place_of(const struct settings *s, uint32_t i)
{
    return *s->peers[i].address ? s->peers[i].address : s->listen;
}

static int check_places(const struct settings *s, char *why, size_t size)
{
    for (uint32_t i = 0; i < s->n_peers; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (!same_place(place_of(s, i), place_of(s, k)))
                continue;
            snprintf(why, size, "peers '%s' and '%s' have one address, %s: each node has its own", s->peers[k].name,
                     s->peers[i].name, place_of(s, i));
            return -EINVAL;
        }
    }
    return 0;
}

static int check_members(const struct settings *s, char *why, size_t size)
{
    char what[SETTINGS_NODE_NAME + 16];
    for (uint32_t i = 0; i < s->n_peers; i++) {
        const struct settings_peer *p = &s->peers[i];
        snprintf(what, sizeof what, "peer '%s'", p->name);
        int e = *p->address ? check_trust(s, what, p->address, why, size) : 0;
        if (e != 0)
            return e;
        if (!*p->address && strcmp(p->name, s->name) != 0) {
            snprintf(why, size, "peer '%s' has no address: write %s=tcp://HOST:PORT (only this node, '%s', needs none)",
                     p->name, p->name, s->name);
            return -EINVAL;
        }
    }
    return check_places(s, why, size);
}

int finish_peers(struct settings *s, char *why, size_t size)
{
    qsort(s->peers, s->n_peers, sizeof s->peers[0], by_name);
    struct settings_peer *own = own_entry(s);
    if (s->n_peers > 0 && !own) {
        snprintf(why, size, "this node, '%s', is not among the peers: all nodes have the same list, themselves in it",
                 s->name);
        return -EINVAL;
    }
    if (own && *own->address && s->source[SET_LISTEN].origin == ORIGIN_DEFAULT)
        snprintf(s->listen, sizeof s->listen, "%s", own->address);
    bool listens = strcmp(s->listen, "off") != 0;
    if (s->n_peers > 1 && !listens) {
        snprintf(why, size, "there are peers, but 'listen' is off: they must be able to connect to this node");
        return -EINVAL;
    }
    int e = listens ? check_trust(s, "'listen'", s->listen, why, size) : 0;
    if (e == 0)
        e = check_members(s, why, size);
    uint32_t members = s->n_peers ? s->n_peers : 1;
    if (s->homes > members)
        s->homes = members;
    return e;
}
