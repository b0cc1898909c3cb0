/* peers_pull.c: what this node takes from others: the puller, its events and what its commands lead to. */
#include "store/shell/peers_pull.h"

#include "store/shell/log.h"
#include "store/shell/peers_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REQUESTS_MAX 1024u
#define CLIENT_REQUESTS_MAX 4096u /* more than one handle's reply ring has room for: none is refused */
#define KEYS_AT_A_TIME (16u << 10)
#define LEASES_AT_A_TIME 4096u
#define CLIENT_LEASE_BYTES (UINT64_C(1) << 30) /* of objects under idle leases; owners ask back what is too much */
#define WAIT_MIN_NS INT64_C(1000000)           /* pauses of a pull that waits: the first, doubled up to .. */
#define WAIT_MAX_NS INT64_C(100000000)         /* .. this */
#define READ_BYTES (32u << 20) /* one READ up to here: its checksum is made while its bytes are in the cache */

void *pull_memory(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) {
        log_event(LOG_ERROR, "no memory for a pull's own events: the node ends");
        abort();
    }
    return p;
}

/* ---- the loop ---- */

static void carry(struct taking *q, const struct pull_command *c)
{
    switch (c->kind) {
    case CMD_PULL_ASK:
        pull_ask(q, c);
        break;
    case CMD_PULL_LEASE:
        pull_lease(q, c);
        break;
    case CMD_PULL_RENEW:
        pull_renew(q, c);
        break;
    case CMD_PULL_STATE:
        pull_state(q, c);
        break;
    case CMD_PULL_RELEASE:
        pull_release(q, c);
        break;
    case CMD_PULL_CORRUPT:
        pull_corrupt(q, c);
        break;
    case CMD_PULL_WATCH:
        pull_watch(q, c);
        break;
    case CMD_PULL_READ:
        pull_read(q, c);
        break;
    case CMD_PULL_CANCEL_READ:
        pull_cancel_read(q, c);
        break;
    case CMD_PULL_HASH:
        pull_hash(q, c);
        break;
    case CMD_PULL_RESERVE:
        replica_reserve(q, c);
        break;
    case CMD_PULL_SEAL:
        replica_seal(q, c);
        break;
    case CMD_PULL_ABORT:
        replica_abort(q, c);
        break;
    case CMD_PULL_DONE:
        job_done(q, c);
        break;
    }
}

static void give(struct taking *q, const struct pull_event *ev)
{
    const struct pull_command *c;
    pull_event(q->puller, ev, peers_now(q->peers)); /* after what it tells of has happened: rule 20 */
    while ((c = pull_command(q->puller)))
        carry(q, c);
}

static void settle(struct taking *q)
{
    struct told *t;
    q->running = true;
    while ((t = TAILQ_FIRST(&q->told))) {
        TAILQ_REMOVE(&q->told, t, entry);
        give(q, &t->ev);
        t->drop(t);
    }
    q->running = false;
}

void pull_tell(struct taking *q, struct told *t)
{
    TAILQ_INSERT_TAIL(&q->told, t, entry);
    q->peers->again = true;
}

static void drop_plain(struct told *t)
{
    free(t);
}

void pull_tell_plain(struct taking *q, enum pull_event_kind kind, uint64_t id, int status)
{
    pull_told_plain(q, kind, id, status);
}

struct told *pull_told_plain(struct taking *q, enum pull_event_kind kind, uint64_t id, int status)
{
    struct told *t = pull_memory(sizeof *t);
    t->ev = (struct pull_event){.kind = kind, .id = id, .status = status};
    t->drop = drop_plain;
    pull_tell(q, t);
    return t;
}

void pull_give(struct taking *q, const struct pull_event *ev)
{
    settle(q); /* what happened before */
    q->running = true;
    give(q, ev);
    q->running = false;
    settle(q);
}

/* ---- members ---- */

void pull_part_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    if (number >= p->n_members || p->stopping)
        return;
    struct pull_event ev = {.kind = EV_PULL_UP,
                            .member = number,
                            .incarnation = other->incarnation,
                            .transport = other->incarnation ? p->transport->name : NULL,
                            .proven = p->transport->proves(p->context)};
    pull_give(p->pull, &ev);
}

void pull_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    (void)serial, (void)status;
    if (number >= p->n_members || !p->pull)
        return;
    pull_give(p->pull, &(struct pull_event){.kind = EV_PULL_DOWN, .member = number});
}

void pull_part_recall(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    struct taking *q = p->pull;
    struct wire_item item;
    uint32_t n = 0;
    (void)m, (void)deadline;
    if (from->number >= p->n_members)
        return;
    while (n < WIRE_LEASES_MAX && wire_next(items, &item) == 1)
        q->leases[n++] = item.recall;
    pull_give(q, &(struct pull_event){.kind = EV_PULL_RECALL, .member = from->number, .leases = q->leases, .n = n});
}

/* ---- the part ---- */

static uint32_t homes_of(void *env, const struct pull_key *key, uint16_t *out, uint32_t max)
{
    struct taking *q = env;
    return home_part_homes(q->peers, &key->key, key->route, out, max);
}

static bool is_here(void *env, const struct pull_key *key)
{
    const struct taking *q = env;
    return !q->peers->client && node_find(q->peers->server->node, key->key) != SLOT_NONE;
}

/* Of a client: to the next one that is opened it may look otherwise. */
static bool is_hopeless(void *env)
{
    const struct peers *p = ((const struct taking *)env)->peers;
    return p->client && (p->client->changed || !client_has_link(p));
}

static int make_puller(struct taking *q)
{
    const struct peers *p = q->peers;
    const struct server *s = p->server;
    uint64_t seed = 0;
    if (p->client && getrandom(&seed, sizeof seed, 0) < 0)
        return -errno;
    struct pull_config config = {.self = p->self,
                                 .n_members = (uint16_t)p->n_members,
                                 .homes = homes_of,
                                 .here = is_here,
                                 .hopeless = is_hopeless,
                                 .watch = true,
                                 .wait_min_ns = WAIT_MIN_NS,
                                 .wait_max_ns = WAIT_MAX_NS,
                                 .env = q,
                                 .max_requests = p->client ? CLIENT_REQUESTS_MAX : REQUESTS_MAX,
                                 .max_keys = KEYS_AT_A_TIME,
                                 .max_leases = LEASES_AT_A_TIME,
                                 .max_lease_bytes = p->client ? CLIENT_LEASE_BYTES : s->region.pool.bytes,
                                 .read_bytes = READ_BYTES,
                                 .fresh_ns = p->client ? p->client->fresh_ns : s->settings.fresh_ns,
                                 .window_bytes = 4 * READ_BYTES,
                                 .source_window_bytes = 2 * READ_BYTES, /* so that a large pull never stands still */
                                 .hash_seed = p->client ? seed : s->region.super->hash_seed};
    return pull_create(&q->puller, &config);
}

int pull_part_open(struct peers *p, char *why, size_t why_size)
{
    struct taking *q = calloc(1, sizeof *q);
    int e = -ENOMEM;
    p->pull = q;
    if (q) {
        q->peers = p;
        TAILQ_INIT(&q->told);
        e = jobs_open(q);
        e = e ? e : pull_reads_open(q);
        e = e || p->client ? e : replica_open(q);
        e = e ? e : make_puller(q);
    }
    if (e < 0)
        snprintf(why, why_size, "what is pulled from peers can't be set up: %s", strerror(-e));
    return e;
}

static void stop(struct taking *q)
{
    if (q->stopped)
        return;
    q->stopped = true;
    pull_give(q, &(struct pull_event){.kind = EV_PULL_STOP});
}

void pull_part_close(struct peers *p)
{
    struct taking *q = p->pull;
    struct told *t;
    if (!q)
        return;
    if (q->puller)
        stop(q); /* every READ has completed with its connection */
    while ((t = TAILQ_FIRST(&q->told))) {
        TAILQ_REMOVE(&q->told, t, entry);
        t->drop(t);
    }
    jobs_close(q);
    replica_close(q);
    pull_reads_close(q);
    if (q->puller)
        pull_destroy(q->puller);
    free(q);
    p->pull = NULL;
}

int64_t pull_part_timer(const struct peers *p)
{
    const struct taking *q = p->pull;
    if (!q)
        return INT64_MAX;
    return TAILQ_EMPTY(&q->told) && TAILQ_EMPTY(&q->hashes) && !q->jobs_due ? pull_timer(q->puller) : 0;
}

struct outdated {
    struct told told;
    struct key_ref key;
    uint8_t name[];
};

static void drop_outdated(struct told *t)
{
    free(CONTAINER(t, struct outdated, told));
}

void pull_part_outdated(struct peers *p, const struct key_ref *key, uint64_t counter, uint64_t region)
{
    if (!p->pull)
        return;
    struct outdated *o = pull_memory(sizeof *o + key->size);
    memcpy(o->name, key->data, key->size);
    o->key = (struct key_ref){.data = o->name, .size = key->size, .ns = key->ns};
    o->told.ev = (struct pull_event){
        .kind = EV_PULL_OUTDATED, .key = &o->key, .version = {.counter = counter, .region = region}};
    o->told.drop = drop_outdated;
    pull_tell(p->pull, &o->told);
}

void pull_part_begin(struct peers *p)
{
    if (!p->pull->jobs_due)
        return;
    jobs_turn(p->pull);
    p->transport->flush(p->context);
}

void pull_part_turn(struct peers *p, int64_t now)
{
    struct taking *q = p->pull;
    settle(q);
    jobs_turn(q);
    if (p->stopping)
        stop(q);
    if (pull_timer(q->puller) <= now)
        pull_give(q, &(struct pull_event){.kind = EV_PULL_TICK});
    pull_hash_turn(q);
    if (!q->peers->client)
        replica_turn(q);
    settle(q);
    if (!TAILQ_EMPTY(&q->hashes) || !TAILQ_EMPTY(&q->told))
        p->again = true;
}
