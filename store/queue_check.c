/* queue_check.c: what an operation's arguments say is wrong with them, before it is begun. */
#include "store/pull.h"
#include "store/queue.h"
#include "store/remote.h"

#include <errno.h>

static int check_pull(struct berth *b, const struct berth_op *op)
{
    bool pull = op->opcode == BERTH_OP_PULL;
    unsigned flags = pull ? BERTH_PEERS | BERTH_VERIFY | BERTH_WAIT | BERTH_FRESH : 0;
    if (op->reserved0 || op->offset || (op->flags & ~flags) || (pull ? op->n > BERTH_PULL_MAX : !op->data)) {
        return berth_fail(-EINVAL, "a pull or cancel with a flag, offset or count that is not known");
    }
    if (!pull) {
        return 0;
    }
    const struct berth_key *keys = op->n ? op->data : &op->key;
    int rc = keys ? 0 : -EINVAL;
    for (size_t i = 0; rc == 0 && i < (op->n ? op->n : 1); i++) {
        rc = client_check_key(b, &keys[i]);
    }
    return rc;
}

int queue_check(const struct berth_queue *q, const struct berth_op *op)
{
    struct berth *b = q->b;
    if (client_life(b) == LIFE_REMOTE) {
        return remote_check_op(b, op);
    }
    int rc = client_check(b);
    if (rc) {
        return rc;
    }
    if (op->opcode == BERTH_OP_PULL || op->opcode == BERTH_OP_CANCEL) {
        return check_pull(b, op);
    }
    if (op->opcode == BERTH_OP_PURGE) {
        return berth_fail(-EOPNOTSUPP, "operation %u belongs to a later version", op->opcode);
    }
    bool reads = op->opcode == BERTH_OP_GET || op->opcode == BERTH_OP_GET_INTO || op->opcode == BERTH_OP_GET_RANGE;
    if (op->opcode >= BERTH_OPCODES || op->reserved0 || op->offset || (op->flags && !reads)) {
        return berth_fail(-EINVAL, "operation %u is not known, or has a flag or offset that is not", op->opcode);
    }
    if (!pull_flags_agree(op->flags)) {
        return pull_check_flags(op->flags);
    }
    switch (op->opcode) {
    case BERTH_OP_NOP:
        return 0;
    case BERTH_OP_PUT:
        rc = build_check_put(b, &op->key, op->size, op->put, BERTH_PUBLISHED);
        return rc ? rc : op->size && !op->data ? -EINVAL : 0;
    case BERTH_OP_CREATE:
        rc = build_check_put(b, &op->key, op->size, op->put, BERTH_JOIN | BERTH_PUBLISHED);
        return rc ? rc : op->draft ? 0 : -EINVAL;
    case BERTH_OP_ABORT:
        return op->draft && op->n <= BERTH_GROUP_MAX ? 0 : -EINVAL;
    case BERTH_OP_SEAL:
        return build_check_drafts(b, op->draft, op->n);
    case BERTH_OP_HOLD:
    case BERTH_OP_DROP:
        rc = client_check_key(b, &op->key);
        rc = rc ? rc : build_check_label(op->label);
        return rc ? rc : op->ttl_ns < 0 ? -EINVAL : 0;
    case BERTH_OP_STAT:
        return op->stat ? client_check_key(b, &op->key) : -EINVAL;
    default:
        return client_check_key(b, &op->key);
    }
}
