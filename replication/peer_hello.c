/* peer_hello.c: who the other side is, and which version and features both have. */
#include "replication/address.h"
#include "replication/peer_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct wire_text text_of(const char *s)
{
    return (struct wire_text){s, (uint16_t)strlen(s)};
}

static struct wire_message greeting(const struct peer_identity *self, enum wire_op op)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = (uint16_t)op;
    m.head.flags = op == WIRE_HELLO && self->client ? WIRE_CLIENT : 0;
    m.hello = (struct wire_hello){.version_min = self->version_min,
                                  .version_max = self->version_max,
                                  .features = self->features,
                                  .region_id = self->region_id,
                                  .incarnation = self->incarnation,
                                  .pool_bytes = self->pool_bytes,
                                  .revision = self->revision,
                                  .tombstones = (uint64_t)self->tombstone_ns,
                                  .fresh = (uint64_t)self->fresh_ns,
                                  .replaceable = self->replaceable,
                                  .largest = self->largest,
                                  .cluster = text_of(self->cluster),
                                  .node = text_of(self->node),
                                  .address = text_of(self->address)};
    memcpy(m.hello.region, self->region, sizeof m.hello.region);
    return m;
}

bool peer_can_say(const struct peer_identity *self)
{
    uint8_t buffer[WIRE_HELLO_MAX];
    struct wire_writer w;
    struct wire_message m = greeting(self, WIRE_HELLO);
    return wire_begin(&w, buffer, sizeof buffer, &m) == 0;
}

void peer_hello(struct peer *p)
{
    struct wire_message m = greeting(&p->config.self, WIRE_HELLO);
    peer_send_own(p, &m);
}

static void copy(char *to, const struct wire_text *from)
{
    memcpy(to, from->data, from->size); /* within the codec's bounds, which are those of peer_identity */
    to[from->size] = '\0';
}

static void learn(struct peer *p)
{
    const struct wire_hello *h = &p->message.hello;
    struct peer_identity *o = &p->other;
    *o = (struct peer_identity){.region_id = h->region_id,
                                .incarnation = h->incarnation,
                                .pool_bytes = h->pool_bytes,
                                .revision = h->revision,
                                .tombstone_ns = (int64_t)h->tombstones,
                                .fresh_ns = (int64_t)h->fresh,
                                .replaceable = h->replaceable,
                                .features = h->features,
                                .largest = h->largest,
                                .version_min = h->version_min,
                                .version_max = h->version_max,
                                .client = p->message.head.flags & WIRE_CLIENT};
    memcpy(o->region, h->region, sizeof o->region);
    copy(o->cluster, &h->cluster);
    copy(o->node, &h->node);
    copy(o->address, &h->address);
    p->send_max = h->largest < WIRE_MESSAGE_MAX ? h->largest : WIRE_MESSAGE_MAX;
}

static const char *seconds(char out[32], int64_t ns)
{
    if (ns % 1000000000 == 0)
        snprintf(out, 32, "%llds", (long long)(ns / 1000000000));
    else
        snprintf(out, 32, "%lldns", (long long)ns);
    return out;
}

#define REMEDY "compare `berthd --print-config` on both"

/* Settings that the guarantees need to be the same: a home with a shorter `tombstones` than a copy's owner would forget
 * a removal before that owner tells of its copy again, and the key would be back (rule 29); with another `fresh` one
 * node's copies are older than a reader on the other is promised (rule 27), and where only one takes a namespace for
 * replaceable, the other's copies are never told of again, and its puts end no older version.
 * Sentences stay below WIRE_SENTENCE_MAX. */
static bool settings_differ(struct peer *p)
{
    const struct peer_identity *us = &p->config.self, *them = &p->other;
    char a[32], b[32];
    bool removals = us->tombstone_ns != them->tombstone_ns;
    if (removals || us->fresh_ns != them->fresh_ns)
        snprintf(p->text, sizeof p->text,
                 "'%s' is %s on '%.40s' and %s on '%.40s': it must be the same on all nodes: " REMEDY,
                 removals ? "tombstones" : "fresh", seconds(a, removals ? us->tombstone_ns : us->fresh_ns), us->node,
                 seconds(b, removals ? them->tombstone_ns : them->fresh_ns), them->node);
    else if (us->replaceable != them->replaceable)
        snprintf(
            p->text, sizeof p->text,
            "other namespaces are 'replaceable' on '%.40s' than on '%.40s', and they must be the same: declare all "
            "on both, those too that a region has from before",
            us->node, them->node);
    else
        return false;
    return true;
}

static int32_t differs(struct peer *p)
{
    const struct peer_identity *us = &p->config.self, *them = &p->other;
    if (us->client || them->client)
        return 0;
    if (us->revision == them->revision)
        return settings_differ(p) ? BERTH_EVERSION : 0;
    snprintf(p->text, sizeof p->text,
             "the member lists of '%.40s' and '%.40s' differ: names, weights and 'homes' must be the same on all "
             "nodes: " REMEDY,
             us->node, them->node);
    return BERTH_EVERSION;
}

/* A client is no member: what only members have would be taken for one's by whoever reads it later. */
static int32_t overstates(struct peer *p)
{
    const struct peer_identity *them = &p->other;
    const char *what = them->revision       ? "a member list's revision"
                       : them->tombstone_ns ? "'tombstones'"
                       : them->fresh_ns     ? "'fresh'"
                       : them->replaceable  ? "'replaceable' namespaces"
                       : them->pool_bytes   ? "a pool"
                                            : NULL;
    if (!them->client || !what)
        return 0;
    snprintf(p->text, sizeof p->text, "client '%.63s' says that it has %s: only members have one, a client says 0",
             them->node, what);
    return -EPROTO;
}

/* Why the other side can't be a peer: 0, or the code of the refusal, and p->text. */
static int32_t unfit(struct peer *p)
{
    const struct peer_identity *us = &p->config.self, *them = &p->other;
    char *why = p->text;
    size_t room = sizeof p->text;
    if (strcmp(us->cluster, them->cluster) != 0 && us->client != them->client) {
        const struct peer_identity *node = us->client ? them : us, *client = us->client ? us : them;
        snprintf(why, room,
                 "node '%.40s' is of the cluster '%.45s', client '%.40s' was told '%.45s': correct cluster= in its URL",
                 node->node, node->cluster, client->node, client->cluster);
        return -EACCES;
    }
    if (strcmp(us->cluster, them->cluster) != 0) {
        snprintf(why, room, "'%s' is of the cluster '%.45s', '%s' of '%.45s'", us->node, us->cluster, them->node,
                 them->cluster);
        return -EACCES;
    }
    if (memcmp(us->region, them->region, sizeof us->region) == 0) {
        snprintf(why, room, "'%s' and '%s' have the same region: a node is no peer of its own", us->node, them->node);
        return -EADDRINUSE;
    }
    int32_t other = overstates(p);
    other = other ? other : differs(p);
    if (other)
        return other;
    bool fits = them->client ? !them->address[0] : address_reachable(them->address);
    if (!fits) {
        snprintf(why, room, "nobody can reach '%s' at its address '%.100s': it must say one of its own", them->node,
                 them->address);
        return -EADDRNOTAVAIL;
    }
    return p->config.fit ? p->config.fit(p->config.env, them, why, room) : 0;
}

/* The greatest version that both have, or 0 and p->text. */
static uint16_t common_version(struct peer *p)
{
    const struct peer_identity *us = &p->config.self, *them = &p->other;
    uint16_t most = us->version_max < them->version_max ? us->version_max : them->version_max;
    if (most >= us->version_min && most >= them->version_min)
        return most;
    if (p->config.dials)
        snprintf(p->text, sizeof p->text, "'%s' chose version %u, '%s' offered %u to %u", them->node, them->version_max,
                 us->node, us->version_min, us->version_max);
    else
        snprintf(p->text, sizeof p->text, "no common version: '%s' speaks %u to %u, '%s' %u to %u", us->node,
                 us->version_min, us->version_max, them->node, them->version_min, them->version_max);
    return 0;
}

static void refuse(struct peer *p, int32_t code)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_REFUSE;
    m.refuse.code = code;
    m.refuse.sentence = text_of(p->text);
    peer_send_own(p, &m);
    peer_close(p, code, -ECONNRESET);
}

static void up(struct peer *p, uint16_t version, uint64_t features)
{
    p->state = PEER_STATE_UP;
    p->received = p->now;
    struct peer_command *c = peer_push(p, PEER_UP);
    c->other = &p->other;
    c->version = version;
    c->features = features;
}

static void welcome(struct peer *p, uint16_t version)
{
    struct wire_message m = greeting(&p->config.self, WIRE_WELCOME);
    m.hello.version_min = m.hello.version_max = version;
    m.hello.features &= p->other.features;
    peer_send_own(p, &m);
    up(p, version, m.hello.features);
}

static void welcomed(struct peer *p, uint16_t version)
{
    const struct peer_identity *us = &p->config.self, *them = &p->other;
    if (them->features & ~us->features) {
        snprintf(p->text, sizeof p->text, "'%s' chose features that '%s' did not offer", them->node, us->node);
        refuse(p, BERTH_EFORMAT);
    } else {
        up(p, version, them->features);
    }
}

void peer_greeted(struct peer *p)
{
    unsigned op = p->message.head.op;
    if (op != (p->config.dials ? WIRE_WELCOME : WIRE_HELLO)) {
        snprintf(p->text, sizeof p->text, "%s came where %s was due", wire_name(op),
                 p->config.dials ? "WELCOME" : "HELLO");
        peer_close(p, -EPROTO, -ECONNRESET);
        return;
    }
    learn(p);
    /* The version comes first: what another one means by the rest is not known here. */
    uint16_t version = common_version(p);
    int32_t code = version ? unfit(p) : BERTH_EFORMAT;
    if (code)
        refuse(p, code);
    else if (p->config.dials)
        welcomed(p, version);
    else
        welcome(p, version);
}

void peer_refused(struct peer *p)
{
    snprintf(p->text, sizeof p->text, "%.*s", (int)p->message.refuse.sentence.size, p->message.refuse.sentence.data);
    peer_close(p, p->message.refuse.code, -ECONNRESET);
}
