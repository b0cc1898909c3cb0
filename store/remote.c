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
#define READ_FLAGS ((unsigned)(BERTH_VERIFY | BERTH_NO_TOUCH | BERTH_LOCAL | BERTH_WAIT | BERTH_PEERS | BERTH_FRESH))

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

static int pull_one(struct berth *b, struct call *c, struct msg_pulled *out)
{
    int rc = pull_wait(b, c, 1, out);
    return rc ? rc : out->status;
}

long remote_get_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
                     int64_t deadline)
{
    return pull_into(b, key, buffer, size, flags, deadline);
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
static bool too_long(const struct berth_range *ranges, size_t n, size_t *which)
{
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].offset > BERTH_OBJECT_MAX || ranges[i].size > BERTH_OBJECT_MAX) {
            *which = i;
            return true;
        }
    }
    return false;
}

/* -ERANGE, with the first range that goes beyond an object of so many bytes. */
static int fail_range(uint64_t size, const struct berth_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct berth_range *r = &ranges[i];
        if (r->offset > size || r->size > size - r->offset) {
            return read_fail_range(size, i, r);
        }
    }
    return berth_fail_plain(-ERANGE);
}

/* A part of the ranges at a time; the version of all is that of the first. */
static int pull_parts(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                      unsigned flags, int64_t deadline, struct msg_pulled *out)
{
    struct msg_pulled first = {0};
    for (size_t i = 0; i < n; i += CALL_RANGES) {
        uint32_t part = n - i < CALL_RANGES ? (uint32_t)(n - i) : CALL_RANGES;
        int rc = pull_one(b, pull_build_ranges(b, key, ranges + i, part, flags, deadline), out);
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
    int rc = bytes ? pull_one(b, pull_build_into(b, key, bytes, size, flags, deadline), out) : -ENOMEM;
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
    size_t which;
    int rc = -ESTALE;
    if (deadline <= BERTH_NOW) {
        return berth_fail_plain(-ETIMEDOUT);
    }
    if (too_long(ranges, n, &which)) {
        return read_fail_range(BERTH_OBJECT_MAX, which, &ranges[which]);
    }
    for (unsigned i = 0; rc == -ESTALE && i < PULL_TRIES; i++) {
        rc = pull_parts(b, key, ranges, n, flags, deadline, &p);
        if (rc == -EOPNOTSUPP && (flags & BERTH_VERIFY)) {
            rc = pull_whole(b, key, ranges, n, flags, deadline, &p);
        }
    }
    if (rc == -ERANGE) {
        return fail_range(p.size, ranges, n);
    }
    return rc ? berth_fail_plain(rc == -ESTALE ? BERTH_ENOTNOW : rc) : range_bytes(ranges, n);
}

/* ---- exists ---- */

long remote_exists(struct berth *b, const struct berth_key *keys, size_t n, uint8_t *present, unsigned flags)
{
    struct msg_pulled pulled[MSG_PULL_KEYS];
    int64_t deadline = berth_deadline(b->timeout_ns);
    long found = 0;
    uint32_t taken = 0;
    for (size_t i = 0; i < n; i += taken) {
        uint32_t part = n - i < MSG_PULL_KEYS ? (uint32_t)(n - i) : MSG_PULL_KEYS;
        struct call *c = pull_build_probe(b, keys + i, part, flags, deadline, &taken);
        int rc = pull_wait(b, c, taken, pulled);
        for (uint32_t k = 0; rc == 0 && k < taken; k++) {
            present[i + k] = pulled[k].status == 0;
            found += pulled[k].status == 0;
            rc = pulled[k].status < 0 && pulled[k].status != -ENOENT ? pulled[k].status : 0;
        }
        if (rc) {
            return berth_fail_plain(rc);
        }
    }
    return found;
}

int remote_namespace(const char *name, uint32_t *ns)
{
    *ns = node_namespace_id(name, strlen(name));
    return 0;
}

/* ---- queues ---- */

static int check_ranges(const struct berth_op *op)
{
    size_t which;
    if (op->n < 1 || op->n > CALL_RANGES || !op->ranges || too_long(op->ranges, op->n, &which)) {
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
    if (op->reserved0 || op->offset || (op->flags & ~flags)) {
        return berth_fail(-EINVAL, "operation %u has a flag or offset that is not known", op->opcode);
    }
    if (op->opcode == BERTH_OP_NOP) {
        return 0;
    }
    if (op->opcode == BERTH_OP_CANCEL) {
        return op->data ? 0 : berth_fail(-EINVAL, "no operation to cancel was given");
    }
    int rc = client_check_key_any(b, &op->key);
    if (rc == 0 && op->opcode == BERTH_OP_GET_RANGE) {
        return check_ranges(op);
    }
    bool place = op->opcode == BERTH_OP_STAT ? op->stat != NULL : op->data || !op->size;
    return rc || place ? rc : berth_fail(-EINVAL, "no place for the result was given");
}

struct call *remote_build_read(struct berth *b, const struct berth_op *op)
{
    return op->opcode == BERTH_OP_GET_RANGE
               ? pull_build_ranges(b, &op->key, op->ranges, (uint32_t)op->n, op->flags, op->deadline)
               : pull_build_into(b, &op->key, op->data, op->size, op->flags, op->deadline);
}

long remote_result(const struct berth_op *op, const struct msg_pulled *p)
{
    return op->opcode == BERTH_OP_GET_RANGE ? range_bytes(op->ranges, op->n) : (long)p->size;
}
