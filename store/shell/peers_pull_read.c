/* peers_pull_read.c: the puller's READs as transfers, and checksums of what they brought. */
#include "store/copy.h"
#include "store/shell/peers_pull.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_TURN_BYTES (128u << 10) /* hashed at a time: some tens of microseconds of the node's thread */
#define READ_CHAINS 4096u
#define SMALL_READ (16u << 10) /* the transport sends such ahead of others */

struct read_op {
    struct told told;
    struct pull_link by_id;
    struct taking *part;
    struct transfer t;
    struct iovec to;
    uint64_t id;
    struct checksum *hash; /* of what has come so far; NULL: of no use, or no memory: the puller hashes it afterwards */
    uint64_t hashed;       /* bytes */
    uint64_t sum;
};

struct hash_op {
    struct told told;
    TAILQ_ENTRY(hash_op) entry;
    struct pull_target target;
    struct checksum *hash;
    struct pull_part *parts;
    uint8_t *scratch;     /* the puller's, until this has been told */
    uint32_t n_parts, at; /* at: the current one */
    uint64_t done;        /* bytes of it */
    uint64_t *sums;
    uint32_t n_sums;
};

int pull_reads_open(struct taking *q)
{
    TAILQ_INIT(&q->hashes);
    return pull_table_create(&q->reads, READ_CHAINS);
}

/* Where the target's bytes lie. A buffer's name is its address: jobs take it from this process's own clients only. */
static void *target_at(const struct taking *q, const struct pull_target *t, uint64_t at, uint64_t n)
{
    if (t->kind != PULL_REPLICA)
        return (void *)(uintptr_t)(t->name + at);
    return replica_at(q, t->name, at, n);
}

/* ---- READ ---- */

static struct read_op *read_find(const struct taking *q, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&q->reads, pull_table_mix(id)); l; l = pull_table_next(l)) {
        struct read_op *r = CONTAINER(l, struct read_op, by_id);
        if (r->id == id)
            return r;
    }
    return NULL;
}

static void drop_read(struct told *t)
{
    struct read_op *r = CONTAINER(t, struct read_op, told);
    checksum_free(r->hash);
    free(r);
}

/* Over tcp every byte that has come was copied from a socket's buffers into its destination by the kernel, on a CPU of
 * this node. */
static void tell_read(struct read_op *r, int status)
{
    r->told.ev = (struct pull_event){.kind = EV_PULL_READ,
                                     .id = r->id,
                                     .status = status,
                                     .received = r->t.received,
                                     .copied = r->t.received,
                                     .began = r->t.asked_ns,
                                     .ended = r->t.completed_ns};
    if (status == 0 && r->hash && r->hashed == r->t.bytes) {
        r->sum = checksum_sum(r->hash);
        r->told.ev.sums = &r->sum;
    }
    r->told.drop = drop_read;
    pull_tell(r->part, &r->told);
}

static void progress(struct transfer *t, uint64_t offset, const void *at, size_t n)
{
    struct read_op *r = t->owner;
    if (r->hash && offset == r->hashed) {
        checksum_add(r->hash, at, n);
        r->hashed += n;
    }
}

static void complete(struct transfer *t)
{
    struct read_op *r = t->owner;
    pull_table_remove(&r->part->reads, &r->by_id);
    r->part->peers->hurry |= t->bytes <= SMALL_READ;
    tell_read(r, t->status);
}

void pull_read(struct taking *q, const struct pull_command *c)
{
    struct peers *p = q->peers;
    struct link *l = link_of(p, c->member);
    struct read_op *r = pull_memory(sizeof *r);
    void *to = target_at(q, &c->target, c->target.at, c->length);
    r->part = q;
    r->id = c->id;
    r->to = (struct iovec){.iov_base = to, .iov_len = c->length};
    r->t = (struct transfer){.lease = c->lease,
                             .generation = c->generation,
                             .offset = c->offset,
                             .bytes = c->length,
                             .to = &r->to,
                             .parts = 1,
                             .deadline = INT64_MAX,
                             .progress = progress,
                             .complete = complete,
                             .owner = r};
    r->hash = c->sum ? checksum_create() : NULL;
    pull_table_add(&q->reads, &r->by_id, pull_table_mix(r->id));
    int e = !to                                  ? -EFAULT
            : !l || !l->connection || l->closing ? -ENOTCONN
                                                 : p->transport->read(p->context, l->connection, &r->t);
    if (e < 0) {
        pull_table_remove(&q->reads, &r->by_id);
        tell_read(r, e);
    }
    p->again = true;
}

void pull_cancel_read(struct taking *q, const struct pull_command *c)
{
    struct read_op *r = read_find(q, c->id);
    if (r)
        q->peers->transport->cancel(q->peers->context, &r->t); /* completes it before it returns */
}

/* ---- HASH ---- */

static void drop_hash(struct told *t)
{
    struct hash_op *h = CONTAINER(t, struct hash_op, told);
    checksum_free(h->hash);
    free(h->parts);
    free(h->sums);
    free(h);
}

static void hash_end(struct taking *q, struct hash_op *h, int status)
{
    TAILQ_REMOVE(&q->hashes, h, entry);
    h->told.ev.status = status;
    h->told.ev.sums = h->sums;
    h->told.ev.n = h->n_sums;
    pull_tell(q, &h->told);
}

void pull_hash(struct taking *q, const struct pull_command *c)
{
    struct hash_op *h = pull_memory(sizeof *h);
    h->target = c->target;
    h->n_parts = c->n;
    h->scratch = c->scratch;
    h->parts = pull_memory(c->n * sizeof *h->parts);
    h->sums = pull_memory(c->n * sizeof *h->sums);
    h->hash = checksum_create();
    memcpy(h->parts, c->parts, c->n * sizeof *h->parts);
    h->told.ev = (struct pull_event){.kind = EV_PULL_HASHED, .id = c->id};
    h->told.drop = drop_hash;
    TAILQ_INSERT_TAIL(&q->hashes, h, entry);
    if (!h->hash)
        hash_end(q, h, -ENOMEM);
    q->peers->again = true;
}

/* A piece of at most `room` bytes. How many it took. */
static uint64_t hash_piece(struct taking *q, struct hash_op *h, uint64_t room)
{
    const struct pull_part *part = &h->parts[h->at];
    uint64_t n = part->length - h->done < room ? part->length - h->done : room;
    uint64_t place = part->at + h->done;
    const void *at = part->scratch ? h->scratch + place : target_at(q, &h->target, place, n);
    if (!at) {
        hash_end(q, h, -EFAULT);
        return room;
    }
    checksum_add(h->hash, at, n);
    h->done += n;
    if (h->done < part->length)
        return n;
    if (part->last) {
        h->sums[h->n_sums++] = checksum_sum(h->hash);
        checksum_begin(h->hash);
    }
    h->done = 0;
    if (++h->at == h->n_parts)
        hash_end(q, h, 0);
    return n;
}

/* One piece of each in turn would make all of them late: the first that came ends first. */
void pull_hash_turn(struct taking *q)
{
    uint64_t room = HASH_TURN_BYTES;
    struct hash_op *h;
    while (room > 0 && (h = TAILQ_FIRST(&q->hashes))) {
        room -= hash_piece(q, h, room);
    }
}

void pull_reads_close(struct taking *q)
{
    struct hash_op *h;
    while ((h = TAILQ_FIRST(&q->hashes))) {
        TAILQ_REMOVE(&q->hashes, h, entry);
        drop_hash(&h->told);
    }
    uint64_t at = 0;
    for (struct pull_link *l; q->reads.chain && (l = pull_table_any(&q->reads, &at));) {
        pull_table_remove(&q->reads, l);
        drop_read(&CONTAINER(l, struct read_op, by_id)->told);
    }
    pull_table_destroy(&q->reads);
}
