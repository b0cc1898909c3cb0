/* await.c: see await.h. */
#include "store/await.h"

#include <errno.h>
#include <string.h>

static uint32_t padded(uint32_t n)
{
    return (n + 7) & ~7u;
}

struct call *await_build(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n,
                         uint32_t flags, int64_t deadline, uint32_t *taken)
{
    uint32_t bytes = sizeof(struct msg_wait), count = 0;
    for (; count < n && count < AWAIT_KEYS; count++) {
        uint32_t more = (uint32_t)sizeof(struct msg_wait_key) + padded(keys[index ? index[count] : count].size);
        if (bytes + more > RING_MESSAGE_MAX) {
            break;
        }
        bytes += more;
    }
    struct call *c = call_new(MSG_WAIT, bytes);
    if (!c) {
        return NULL;
    }
    struct msg_wait *m = (struct msg_wait *)c->message;
    uint8_t *at = (uint8_t *)(m + 1);
    m->count = *taken = count;
    m->flags = flags;
    for (uint32_t i = 0; i < count; i++) {
        const struct berth_key *key = &keys[index ? index[i] : i];
        struct msg_wait_key k = {.ns = key->ns, .key_size = (uint16_t)key->size};
        memcpy(at, &k, sizeof k);
        memcpy(at + sizeof k, key->data, key->size);
        at += sizeof k + padded(key->size);
    }
    call_deadline(b, c, deadline);
    return c;
}

int await_states(int status, const struct msg_reply *r, uint32_t bytes, uint32_t n, uint8_t *state)
{
    if (status == -ETIMEDOUT) { /* the node's answer is late: it would say no more */
        memset(state, WAIT_OPEN, n);
        return 0;
    }
    if (status < 0) {
        return status;
    }
    if (r->count != n || bytes < sizeof *r + n) {
        return -EPROTO;
    }
    memcpy(state, r + 1, n);
    for (uint32_t i = 0; i < n; i++) {
        if (state[i] >= WAIT_STATES) {
            return -EPROTO;
        }
    }
    return 0;
}

struct awaited {
    uint8_t *state;
    uint32_t n;
};

static int take_states(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    const struct awaited *a = arg;
    (void)b;
    return await_states(status, r, bytes, a->n, a->state);
}

int await_keys(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n, uint32_t flags,
               int64_t deadline, uint8_t *state, uint32_t *taken)
{
    struct call *c = await_build(b, keys, index, n, flags, deadline, taken);
    struct call_result r;
    if (!c) {
        return -ENOMEM;
    }
    struct awaited a = {.state = state, .n = *taken};
    return call_run(b, c, &r, take_states, &a);
}

int await_error(uint8_t state)
{
    static const int errors[WAIT_STATES] = {
        [WAIT_OPEN] = -ETIMEDOUT, [WAIT_ABORTED] = BERTH_EABORTED, [WAIT_DIED] = BERTH_EDIED};
    return errors[state];
}

int await_outcome(uint8_t state, int64_t deadline)
{
    if (state == WAIT_READY) {
        return BERTH_KEPT;
    }
    return state == WAIT_OPEN && await_over(deadline) ? -ETIMEDOUT : 0;
}

int await_writer(struct berth *b, const struct berth_key *key, int64_t deadline)
{
    uint8_t state;
    uint32_t taken;
    int rc = await_keys(b, key, NULL, 1, MSG_WAIT_WRITTEN, deadline, &state, &taken);
    return rc ? rc : await_outcome(state, deadline);
}
