/* peers_client.c: see peers_client.h. */
#include "store/shell/peers_client.h"

#include "replication/pull.h"
#include "replication/tcp.h"
#include "store/shell/peers_park.h"
#include "store/shell/settings_value.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LEARN_NS INT64_C(3000000000) /* a node's time to answer MEMBERS */
#define SCHEME "tcp://"

static void fail(struct peers *p, int32_t status, const char *why)
{
    struct peers_client *c = p->client;
    if (c->state == CLIENT_FAILED || c->state == CLIENT_READY)
        return;
    c->state = CLIENT_FAILED;
    c->status = status < 0 ? status : BERTH_ENODE;
    snprintf(c->why, sizeof c->why, "%s", why);
}

bool client_has_link(const struct peers *p)
{
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (p->members[i].link)
            return true;
    }
    return false;
}

/* ---- what waits for a connection ---- */

bool client_awaits(const struct peers *p, uint16_t number)
{
    const struct peers_client *c = p->client;
    return c->state == CLIENT_READY && !c->member[number].hidden && !c->member[number].failed;
}

void client_dial(struct peers *p, uint16_t number)
{
    struct member *m = &p->members[number];
    if (!m->dials) { /* it is dialled in the next turn */
        m->dials = true;
        m->next_dial = peers_mono(p);
    }
}

/* ---- the list ---- */

static void ask_list(struct peers *p);

static int take_member(struct peers_client *c, const struct wire_item *i, int64_t now)
{
    if (c->n_learned == c->total)
        return -EBADMSG;
    struct member *m = &c->learned[c->n_learned];
    *m = (struct member){.weight = i->member.weight,
                         .state = MEMBER_WAITING,
                         .next_dial = INT64_MAX,
                         .backoff = PEERS_BACKOFF_NS,
                         .since = now};
    snprintf(m->name, sizeof m->name, "%.*s", (int)i->member.name.size, i->member.name.data);
    snprintf(m->address, sizeof m->address, "%.*s", (int)i->member.address.size, i->member.address.data);
    if (c->n_learned > 0 && strcmp(c->learned[c->n_learned - 1].name, m->name) >= 0)
        return -EBADMSG;
    c->n_learned++;
    return 0;
}

static int take_list(struct peers *p, const struct wire_message *m, struct wire_reader *items)
{
    struct peers_client *c = p->client;
    struct wire_item item;
    uint32_t before = c->n_learned;
    if (!c->learned) {
        c->total = m->listed.total;
        c->revision = m->listed.revision;
        c->homes = m->listed.homes;
        c->learned = calloc(c->total, sizeof *c->learned);
        if (!c->learned)
            return -ENOMEM;
    }
    if (m->listed.total != c->total || m->listed.revision != c->revision || m->listed.homes != c->homes)
        return -EBADMSG;
    while (wire_next(items, &item) == 1) {
        int e = take_member(c, &item, peers_mono(p));
        if (e < 0)
            return e;
    }
    return c->n_learned > before ? 0 : -EBADMSG;
}

/* The member that the first connection leads to keeps it, and the address that was given. */
static int adopt(struct peers *p)
{
    struct peers_client *c = p->client;
    struct member *first = &p->members[0], *to = NULL;
    uint16_t number = 0;
    for (uint32_t i = 0; i < c->total && !to; i++) {
        if (strcmp(c->learned[i].name, first->name) == 0) {
            to = &c->learned[i];
            number = (uint16_t)i;
        }
    }
    if (!to || !first->link)
        return -EBADMSG;
    first->weight = to->weight;
    *to = *first;
    to->link->number = to->link->wanted = number;
    free(p->members);
    p->members = c->learned;
    p->n_members = c->total;
    c->learned = NULL;
    return peers_make_homes(p, c->homes) == 0 && p->revision == c->revision ? 0 : -EBADMSG;
}

static void say_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    static const struct peer_identity nobody;
    pull_part_up(p, number, other ? other : &nobody);
}

static void ready(struct peers *p)
{
    struct peers_client *c = p->client;
    char why[TRANSPORT_WHY_MAX] = "no memory for the members";
    int e = adopt(p);
    if (e < 0) {
        fail(p, -EPROTO, "the node's list of members contradicts itself");
        return;
    }
    c->member = calloc(p->n_members, sizeof *c->member);
    e = c->member ? pull_part_open(p, why, sizeof why) : -ENOMEM;
    if (e < 0) {
        fail(p, e, why);
        return;
    }
    c->state = CLIENT_READY;
    for (uint32_t i = 0; i < p->n_members; i++)
        say_up(p, (uint16_t)i, p->members[i].link ? &p->members[i].link->other : NULL);
}

static void listed(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items)
{
    struct peers *p = arg;
    struct peers_client *c = p->client;
    if (c->state != CLIENT_LEARNS)
        return;
    int e = status ? status : m ? take_list(p, m, items) : -ECONNRESET;
    if (e < 0)
        fail(p, e == -EBADMSG ? -EPROTO : BERTH_ENODE, "the node does not say who the members are");
    else if (c->n_learned < c->total)
        ask_list(p);
    else
        c->again = p->again = true; /* the link is in the middle of an event of its own: in the turn */
}

static void ask_list(struct peers *p)
{
    struct wire_message m = {.head = {.op = WIRE_MEMBERS}};
    struct wire_writer w;
    m.from = p->client->n_learned;
    long n = wire_begin(&w, p->buffer, sizeof p->buffer, &m) < 0 ? -EINVAL : wire_end(&w);
    int64_t deadline = peers_mono(p) + LEARN_NS;
    int e = n < 0 ? (int)n : link_ask(p, 0, p->buffer, (size_t)n, deadline, deadline, listed, p);
    if (e < 0)
        fail(p, BERTH_ENODE, "the node can't be asked who the members are");
}

/* ---- members ---- */

int32_t client_fit(const struct link *l, const struct peer_identity *other, char *why, size_t size)
{
    struct peers *p = l->peers;
    struct peers_client *c = p->client;
    struct member *m = l->wanted < p->n_members ? &p->members[l->wanted] : NULL;
    if (!m || other->client) {
        snprintf(why, size, "'%s' is no node", other->node);
        return -EACCES;
    }
    if (c->state == CLIENT_GREETS) {
        snprintf(m->name, sizeof m->name, "%s", other->node);
        c->fresh_ns = other->fresh_ns;
        return 0;
    }
    if (strcmp(m->name, other->node) != 0) {
        snprintf(why, size, "'%.63s' was looked for at %.80s, but '%.63s' is there", m->name, m->address, other->node);
        return -EADDRNOTAVAIL;
    }
    if (other->revision != p->revision || other->fresh_ns != c->fresh_ns) {
        snprintf(why, size, "'%s' has another %s now: the client has to be opened again", other->node,
                 other->revision != p->revision ? "list of members" : "setting `fresh`");
        c->changed = true;
        return BERTH_EVERSION;
    }
    return 0;
}

void client_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    struct peers_client *c = p->client;
    p->members[number].dials = false;
    if (c->state == CLIENT_GREETS) {
        c->state = CLIENT_LEARNS;
        ask_list(p);
    } else if (c->state == CLIENT_READY) {
        c->member[number] = (struct client_member){0};
        say_up(p, number, other);
        park_end(p, number, 0);
    }
}

void client_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    struct peers_client *c = p->client;
    struct member *m = &p->members[number];
    if (c->state != CLIENT_READY) {
        fail(p, BERTH_ENODE, m->why);
        return;
    }
    pull_part_down(p, number, serial, status);
    m->dials = false;
    m->next_dial = peers_mono(p); /* it was there: it may be so again at once */
    c->member[number] = (struct client_member){.hidden = true};
    park_end(p, number, -ECONNRESET);
}

/* From dialling, where the puller may not be told. */
void client_unreached(struct peers *p, struct member *m, int32_t status, const char *why)
{
    struct peers_client *c = p->client;
    m->dials = false;
    p->again = true;
    if (c->state == CLIENT_READY)
        c->member[m - p->members].failed = c->again = true;
    else
        fail(p, status, why);
}

bool client_may_dial(const struct peers *p, const char *digits)
{
    return p->client->network || address_is_loopback(digits);
}

static void tend(struct peers *p, uint16_t number, int64_t now)
{
    struct client_member *x = &p->client->member[number];
    if (x->failed) {
        *x = (struct client_member){.hidden = true};
        pull_part_down(p, number, 0, BERTH_ENODE);
        park_end(p, number, -ENOTCONN);
    }
    if (x->hidden && !p->members[number].link && p->members[number].next_dial <= now) {
        x->hidden = false;
        say_up(p, number, NULL);
    }
}

void client_turn(struct peers *p, int64_t now)
{
    struct peers_client *c = p->client;
    if (c->state == CLIENT_LEARNS && c->again && c->n_learned == c->total)
        ready(p);
    if (c->state != CLIENT_READY || p->stopping || (!c->again && client_timer(p) > now))
        return;
    c->again = false;
    for (uint32_t i = 0; i < p->n_members; i++)
        tend(p, (uint16_t)i, now);
}

int64_t client_timer(const struct peers *p)
{
    const struct peers_client *c = p->client;
    int64_t at = INT64_MAX;
    for (uint32_t i = 0; c->state == CLIENT_READY && !p->stopping && i < p->n_members; i++) {
        if (c->member[i].hidden && p->members[i].next_dial < at)
            at = p->members[i].next_dial;
    }
    return at;
}

/* ---- open and close ---- */

static void client_name(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s", name && *name ? name : "client");
    for (char *c = out; *c; c++) {
        if (*c < 0x21 || *c > 0x7e)
            *c = '-';
    }
}

static void make_identity(struct peers *p, const struct client_target *target)
{
    struct peer_config config;
    peer_config_init(&config);
    p->identity = config.self;
    struct peer_identity *me = &p->identity;
    snprintf(me->cluster, sizeof me->cluster, "%s", p->server->settings.cluster);
    client_name(me->node, sizeof me->node, target->name);
    if (getrandom(me->region, sizeof me->region, 0) != (ssize_t)sizeof me->region)
        memcpy(me->region, &p, sizeof p); /* no node's uuid: that of a random one has a version in it */
    me->incarnation = 1;
    me->client = true;
}

static int make_first(struct peers *p, const struct client_target *target)
{
    p->members = calloc(1, sizeof *p->members);
    p->client->network = p->server->settings.peer_trust == TRUST_NETWORK;
    if (!p->members)
        return -ENOMEM;
    struct member *m = p->members;
    p->n_members = 1;
    p->self = MEMBER_NONE;
    snprintf(m->name, sizeof m->name, "node"); /* until it says its own */
    snprintf(m->address, sizeof m->address, "%s", target->address);
    m->weight = 1;
    m->state = MEMBER_WAITING;
    m->backoff = PEERS_BACKOFF_NS;
    m->dials = true;
    m->since = m->next_dial = peers_mono(p);
    return 0;
}

int peers_open_client(struct peers **out, struct server *s, const struct client_target *target, char *why,
                      size_t why_size)
{
    struct peers *p = calloc(1, sizeof *p);
    *out = NULL;
    snprintf(why, why_size, "no memory for the client");
    if (!p)
        return -ENOMEM;
    p->server = s;
    p->strangers_due = p->visits.due = INT64_MAX;
    TAILQ_INIT(&p->links);
    TAILQ_INIT(&p->parked);
    p->client = calloc(1, sizeof *p->client);
    int e = p->client ? 0 : -ENOMEM;
    if (e == 0)
        e = make_first(p, target);
    if (e == 0)
        e = peers_open_transport(p, NULL, why, why_size);
    if (e == 0)
        make_identity(p, target);
    p->again = true;
    if (e < 0) {
        peers_close(p);
        return e;
    }
    *out = p;
    return 0;
}

void client_free(struct peers *p)
{
    struct peers_client *c = p->client;
    if (!c)
        return;
    free(c->learned);
    free(c->member);
    free(c);
    p->client = NULL;
}
