/* remote.c: see remote.h. */
#include "store/remote.h"

#include "store/node.h"
#include "store/read.h"
#include "store/shell/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_RANGES 1024u /* ranges of one PULL: the puller's bound */
#define READ_FLAGS ((unsigned)(BERTH_VERIFY | BERTH_NO_TOUCH | BERTH_WAIT | BERTH_PEERS | BERTH_FRESH))

/* ---- open ---- */

int remote_attach(struct berth *b, const char *url)
{
    char why[256] = "";
    int socket, doorbell;
    struct remote_config config = {
        .url = url, .name = b->name, .timeout_ns = b->timeout_ns, .ring = b->ring_fd.fd, .wake = b->calls.wake_fd.fd};
    int rc = remote_start(&b->remote, &config, &socket, &doorbell, why, sizeof why);
    fd_keep(&b->calls.socket, socket);
    fd_keep(&b->calls.doorbell, doorbell);
    if (rc) {
        b->remote = NULL;
        return berth_fail(rc, "%s", why);
    }
    atomic_store_explicit(b->life, LIFE_REMOTE, memory_order_relaxed);
    return 0;
}

/* ---- pulls ---- */

static uint8_t nothing; /* an address for 0 bytes */

static uint32_t padded(uint32_t n)
{
    return (n + 7) & ~7u;
}

/* What is written belongs to the thread until it answers: it is not given up before, and answers at the deadline. */
static struct call *build(struct berth *b, uint32_t bytes, uint32_t count, const void *low, unsigned flags,
                          int64_t deadline)
{
    struct call *c = call_new(MSG_PULL, bytes);
    if (c) {
        struct msg_pull *m = (struct msg_pull *)c->message;
        m->flags =
            (uint16_t)((flags & BERTH_VERIFY ? MSG_PULL_VERIFY : 0) | (flags & BERTH_WAIT ? MSG_PULL_WAIT : 0) |
                       (flags & BERTH_FRESH ? MSG_PULL_FRESH : 0) | (flags & PULL_WANT_RECORD ? MSG_PULL_RECORD : 0));
        m->lineage = b->lineage;
        m->count = count;
        m->kind = MSG_PULL_BUFFER;
        m->buffer = (uint64_t)(uintptr_t)low;
        call_deadline(b, c, deadline);
        c->limit = INT64_MAX;
    }
    return c;
}

static uint32_t key_bytes(const struct berth_key *key, uint32_t n_ranges)
{
    return (uint32_t)sizeof(struct msg_pull_key) + padded(key->size) +
           n_ranges * (uint32_t)sizeof(struct msg_pull_range);
}

/* Where its ranges go; they are zero. */
static struct msg_pull_range *add_key(void *at, const struct berth_key *key, uint64_t room, uint32_t n_ranges)
{
    struct msg_pull_key *k = at;
    *k = (struct msg_pull_key){.route = key->route,
                               .room = room,
                               .ns = key->ns,
                               .key_size = (uint16_t)key->size,
                               .n_ranges = (uint16_t)n_ranges};
    memcpy(k + 1, key->data, key->size);
    return (struct msg_pull_range *)(void *)((uint8_t *)(k + 1) + padded(key->size));
}

static struct call *build_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
                               int64_t deadline)
{
    struct call *c =
        build(b, (uint32_t)sizeof(struct msg_pull) + key_bytes(key, 0), 1, buffer ? buffer : &nothing, flags, deadline);
    if (c) {
        add_key((struct msg_pull *)c->message + 1, key, size < OBJECT_MAX ? size : OBJECT_MAX, 0);
    }
    return c;
}

/* Below all of them, so that every place is so many bytes above it. */
static const uint8_t *lowest(const struct berth_range *ranges, uint32_t n)
{
    const uint8_t *low = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *at = ranges[i].data;
        low = ranges[i].size && (!low || (uintptr_t)at < (uintptr_t)low) ? at : low;
    }
    return low ? low : &nothing;
}

/* n: 1 to CALL_RANGES. */
static struct call *build_ranges(struct berth *b, const struct berth_key *key, const struct berth_range *ranges,
                                 uint32_t n, unsigned flags, int64_t deadline)
{
    const uint8_t *low = lowest(ranges, n);
    struct call *c = build(b, (uint32_t)sizeof(struct msg_pull) + key_bytes(key, n), 1, low, flags, deadline);
    struct msg_pull_range *r = c ? add_key((struct msg_pull *)c->message + 1, key, 0, n) : NULL;
    for (uint32_t i = 0; r && i < n; i++) {
        uint64_t to = ranges[i].size ? (uint64_t)((uintptr_t)ranges[i].data - (uintptr_t)low) : 0;
        r[i] = (struct msg_pull_range){.offset = ranges[i].offset, .length = ranges[i].size, .to = to};
    }
    return c;
}

/* No bytes of each of the keys, as many as one message takes: whether they are there, whoever made them. */
static struct call *build_probe(struct berth *b, const struct berth_key *keys, uint32_t n, int64_t deadline,
                                uint32_t *taken)
{
    uint32_t bytes = sizeof(struct msg_pull), count = 0;
    while (count < n && bytes + key_bytes(&keys[count], 1) <= RING_MESSAGE_MAX) {
        bytes += key_bytes(&keys[count++], 1);
    }
    struct call *c = build(b, bytes, count, &nothing, 0, deadline);
    *taken = count;
    if (c) {
        struct msg_pull *m = (struct msg_pull *)c->message;
        void *at = m + 1;
        m->lineage = 0;
        for (uint32_t i = 0; i < count; i++) {
            at = add_key(at, &keys[i], 0, 1) + 1;
        }
    }
    return c;
}

int remote_check_local(unsigned flags)
{
    if (flags & BERTH_LOCAL) {
        return berth_fail(-EINVAL, "a client without a node (tcp://) has no pool to look in: leave BERTH_LOCAL out");
    }
    return 0;
}

static int fail_now(void)
{
    return berth_fail(-ETIMEDOUT, "with the deadline BERTH_NOW no node is asked, and a client without one (tcp://) has "
                                  "nothing itself: give them time, as berth_deadline(1000000000)");
}

static int check_read(struct berth *b, const struct berth_key *key, unsigned flags)
{
    int rc = client_check_key_any(b, key);
    rc = rc ? rc : remote_check_local(flags);
    if (rc == 0 && (flags & ~READ_FLAGS)) {
        return berth_fail(-EINVAL, "flag 0x%x is not known here: leave it out", flags & ~READ_FLAGS);
    }
    return rc;
}

static int pull_one(struct berth *b, struct call *c, struct msg_pulled *out)
{
    int rc = pull_run(b, c, 1, out);
    return rc ? rc : out->status;
}

long remote_get_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
                     int64_t deadline)
{
    struct msg_pulled p = {0};
    int rc = check_read(b, key, flags);
    if (rc) {
        return rc;
    }
    if (size && !buffer) {
        return berth_fail(-EINVAL, "no place for the result was given");
    }
    if (deadline <= BERTH_NOW) {
        return fail_now();
    }
    rc = pull_one(b, build_into(b, key, buffer, size, flags, deadline), &p);
    if (rc == -ENOSPC) {
        return pull_too_large(p.size, size);
    }
    return rc ? berth_fail_plain(rc) : (long)p.size;
}

static long range_bytes(const struct berth_range *ranges, size_t n)
{
    long bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += (long)ranges[i].size;
    }
    return bytes;
}

/* Nothing says that their sum fits, but each is at most an object, or none is read. */
static bool too_long(const struct berth_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].offset > BERTH_OBJECT_MAX || ranges[i].size > BERTH_OBJECT_MAX) {
            return true;
        }
    }
    return false;
}

/* A part of the ranges at a time; the version of all is that of the first. */
static int pull_parts(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                      unsigned flags, int64_t deadline, struct msg_pulled *out)
{
    struct msg_pulled first = {0};
    for (size_t i = 0; i < n; i += CALL_RANGES) {
        uint32_t part = n - i < CALL_RANGES ? (uint32_t)(n - i) : CALL_RANGES;
        /* Once it is known which version is the newest, the lease on that one serves the rest. */
        unsigned more = i ? flags & ~(unsigned)BERTH_FRESH : flags;
        int rc = pull_one(b, build_ranges(b, key, ranges + i, part, more, deadline), out);
        if (rc) {
            return rc;
        }
        first = i ? first : *out;
        if (out->counter != first.counter || out->region != first.region) {
            return -ESTALE; /* it was replaced meanwhile */
        }
    }
    return 0;
}

/* Where a part can't be verified alone the whole is read, and the ranges copied out of it. */
static int pull_whole(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                      unsigned flags, int64_t deadline, struct msg_pulled *out)
{
    uint64_t size = out->size;
    uint8_t *bytes = malloc(size ? size : 1);
    int rc = bytes ? pull_one(b, build_into(b, key, bytes, size, flags, deadline), out) : -ENOMEM;
    rc = rc == -ENOSPC ? -ESTALE : rc; /* a larger one has come in its place */
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (ranges[i].offset > out->size || ranges[i].size > out->size - ranges[i].offset) {
            rc = -ERANGE;
        } else if (ranges[i].size) {
            memcpy(ranges[i].data, bytes + ranges[i].offset, ranges[i].size);
        }
    }
    free(bytes);
    return rc;
}

long remote_get_range(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                      unsigned flags, int64_t deadline)
{
    struct msg_pulled p = {0};
    int rc = check_read(b, key, flags);
    if (rc) {
        return rc;
    }
    if (deadline <= BERTH_NOW) {
        return fail_now();
    }
    if (too_long(ranges, n)) {
        return pull_check_bounds(BERTH_OBJECT_MAX, ranges, n);
    }
    rc = -ESTALE;
    for (unsigned i = 0; rc == -ESTALE && i < PULL_TRIES; i++) {
        rc = pull_parts(b, key, ranges, n, flags, deadline, &p);
        if (rc == -EOPNOTSUPP) {
            rc = pull_whole(b, key, ranges, n, flags, deadline, &p);
        }
    }
    if (rc == -ERANGE && pull_check_bounds(p.size, ranges, n)) {
        return rc;
    }
    return rc ? berth_fail_plain(rc == -ESTALE ? BERTH_ENOTNOW : rc) : range_bytes(ranges, n);
}

/* ---- exists ---- */

#define NOT_KNOWN 2

static long take_present(const struct msg_pulled *pulled, uint32_t n, uint8_t *present, int *why)
{
    long found = 0;
    for (uint32_t i = 0; i < n; i++) {
        int status = pulled[i].status;
        present[i] = status == 0 ? 1 : status == -ENOENT ? 0 : NOT_KNOWN;
        *why = present[i] == NOT_KNOWN && *why == 0 ? status : *why;
        found += status == 0;
    }
    return found;
}

/* One key that can't be learned about keeps no other from its answer; a request that fails as a whole ends it. */
long remote_exists(struct berth *b, const struct berth_key *keys, size_t n, uint8_t *present)
{
    struct msg_pulled pulled[MSG_PULL_KEYS];
    int64_t deadline = berth_deadline(b->timeout_ns);
    long found = 0;
    int why = 0;
    uint32_t taken = 0;
    for (size_t i = 0; i < n; i += taken) {
        uint32_t part = n - i < MSG_PULL_KEYS ? (uint32_t)(n - i) : MSG_PULL_KEYS;
        struct call *c = build_probe(b, keys + i, part, deadline, &taken);
        int rc = pull_run(b, c, taken, pulled), before = why;
        if (rc) {
            memset(present + i, NOT_KNOWN, n - i);
            return berth_fail_plain(why ? why : rc);
        }
        found += take_present(pulled, taken, present + i, &why);
        if (why && !before) {
            berth_fail_plain(why); /* at once: it names the member that this look missed */
        }
    }
    return why ? why : found;
}

int remote_namespace(const char *name, uint32_t *ns)
{
    *ns = node_namespace_id(name, strlen(name));
    return 0;
}

/* ---- queues ---- */

static int check_ranges(const struct berth_op *op)
{
    if (op->n < 1 || op->n > CALL_RANGES || !op->ranges || too_long(op->ranges, op->n)) {
        return berth_fail(-EINVAL, "%zu ranges in one operation of a client without a node: 1 to %u are possible",
                          op->n, CALL_RANGES);
    }
    for (size_t i = 0; i < op->n; i++) {
        if (op->ranges[i].size && !op->ranges[i].data) {
            return berth_fail(-EINVAL, "range %zu has bytes, but no place for them", i);
        }
    }
    return 0;
}

int remote_check_op(struct berth *b, const struct berth_op *op)
{
    unsigned flags = op->opcode == BERTH_OP_GET_INTO || op->opcode == BERTH_OP_GET_RANGE ? READ_FLAGS : 0;
    switch (op->opcode) {
    case BERTH_OP_NOP:
    case BERTH_OP_CANCEL:
    case BERTH_OP_STAT:
    case BERTH_OP_GET_INTO:
    case BERTH_OP_GET_RANGE:
        break;
    default:
        return client_check(b);
    }
    int rc = remote_check_local(op->flags);
    if (rc) {
        return rc;
    }
    if (op->reserved0 || op->offset || (op->flags & ~flags)) {
        return berth_fail(-EINVAL, "operation %u has a flag or offset that is not known", op->opcode);
    }
    if (op->opcode == BERTH_OP_NOP) {
        return 0;
    }
    if (op->opcode == BERTH_OP_CANCEL) {
        return op->data ? 0 : berth_fail(-EINVAL, "no operation to cancel was given");
    }
    rc = client_check_key_any(b, &op->key);
    if (rc == 0 && op->opcode == BERTH_OP_GET_RANGE) {
        return check_ranges(op);
    }
    bool place = op->opcode == BERTH_OP_STAT ? op->stat != NULL : op->data || !op->size;
    return rc || place ? rc : berth_fail(-EINVAL, "no place for the result was given");
}

struct call *remote_build_read(struct berth *b, const struct berth_op *op)
{
    unsigned flags = op->flags | (op->record ? PULL_WANT_RECORD : 0);
    return op->opcode == BERTH_OP_GET_RANGE
               ? build_ranges(b, &op->key, op->ranges, (uint32_t)op->n, flags, op->deadline)
               : build_into(b, &op->key, op->data, op->size, flags, op->deadline);
}

long remote_result(const struct berth_op *op, const struct msg_pulled *p)
{
    return op->opcode == BERTH_OP_GET_RANGE ? range_bytes(op->ranges, op->n) : (long)p->size;
}
