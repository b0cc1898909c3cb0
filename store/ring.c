/* ring.c: see ring.h. */
#include "store/ring.h"

#include "store/msg.h"

#include <errno.h>
#include <string.h>

void ring_request_producer(struct ring_end *e, struct ring_shared *s)
{
    *e = (struct ring_end){.data = s->request,
                           .size = RING_REQUEST_BYTES,
                           .tail = &s->request_tail,
                           .head = &s->request_head,
                           .mine = atomic_load_explicit(&s->request_tail, memory_order_relaxed)};
}

void ring_request_consumer(struct ring_end *e, struct ring_shared *s)
{
    *e = (struct ring_end){.data = s->request,
                           .size = RING_REQUEST_BYTES,
                           .tail = &s->request_tail,
                           .head = &s->request_head,
                           .mine = atomic_load_explicit(&s->request_head, memory_order_relaxed)};
}

void ring_reply_producer(struct ring_end *e, struct ring_shared *s)
{
    *e = (struct ring_end){.data = s->reply,
                           .size = RING_REPLY_BYTES,
                           .tail = &s->reply_tail,
                           .head = &s->reply_head,
                           .mine = atomic_load_explicit(&s->reply_tail, memory_order_relaxed)};
}

void ring_reply_consumer(struct ring_end *e, struct ring_shared *s)
{
    *e = (struct ring_end){.data = s->reply,
                           .size = RING_REPLY_BYTES,
                           .tail = &s->reply_tail,
                           .head = &s->reply_head,
                           .mine = atomic_load_explicit(&s->reply_head, memory_order_relaxed)};
}

static uint32_t padded(uint32_t n)
{
    return (n + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
}

/* Bytes from this end's place to where the ring wraps: a message never does. */
static uint32_t contiguous(const struct ring_end *e)
{
    return e->size - (uint32_t)(e->mine & (e->size - 1));
}

/* Free bytes, whole; the other end's index is shared memory and may say anything. */
static long space(const struct ring_end *e)
{
    uint64_t used = e->mine - atomic_load_explicit(e->head, memory_order_acquire);
    if (used > e->size || used % RING_ALIGN != 0) {
        return -EPROTO;
    }
    return (long)(e->size - used);
}

long ring_room(const struct ring_end *e)
{
    long free = space(e);
    if (free <= 0) {
        return free;
    }
    long end = contiguous(e);
    if (free <= end) {
        return free;
    }
    return end > free - end ? end : free - end;
}

int ring_push(struct ring_end *e, const void *message, uint32_t n)
{
    uint32_t need = padded(n);
    uint32_t end = contiguous(e);
    uint32_t pad = need > end ? end : 0;
    long free = space(e);
    if (free < 0) {
        return (int)free;
    }
    if (n < sizeof(struct msg_head) || n > RING_MESSAGE_MAX || (uint64_t)pad + need > (uint64_t)free) {
        return -EAGAIN;
    }
    if (pad) {
        struct msg_head head = {.bytes = pad, .op = MSG_PAD};
        memcpy(e->data + (e->mine & (e->size - 1)), &head, sizeof head);
    }
    memcpy(e->data + ((e->mine + pad) & (e->size - 1)), message, n);
    e->mine += pad + need;
    atomic_store_explicit(e->tail, e->mine, memory_order_release);
    return 0;
}

/* Finds the next message, over a pad if there is one, and copies its head once: what is checked here is what the caller
 * uses, whatever the producer writes into the ring meanwhile. */
static long next(struct ring_end *e, struct msg_head *head)
{
    for (;;) {
        uint64_t ready = atomic_load_explicit(e->tail, memory_order_acquire) - e->mine;
        if (ready == 0) {
            return 0;
        }
        if (ready > e->size || ready % RING_ALIGN != 0) {
            return -EPROTO;
        }
        memcpy(head, e->data + (e->mine & (e->size - 1)), sizeof *head);
        uint32_t end = contiguous(e);
        if (head->bytes < sizeof *head || padded(head->bytes) > ready || head->bytes > end) {
            return -EPROTO;
        }
        if (head->op != MSG_PAD) {
            return head->bytes <= RING_MESSAGE_MAX ? (long)head->bytes : -EPROTO;
        }
        /* At the ring's start every message has room: so there is one pad at most before a message, and a producer that
         * goes on writing pads can't keep its consumer here. */
        if (head->bytes != end || end == e->size) {
            return -EPROTO;
        }
        e->mine += end;
        atomic_store_explicit(e->head, e->mine, memory_order_release);
    }
}

long ring_pop(struct ring_end *e, void *out)
{
    struct msg_head head;
    long n = next(e, &head);
    if (n <= 0) {
        return n;
    }
    memcpy(out, &head, sizeof head);
    memcpy((uint8_t *)out + sizeof head, e->data + (e->mine & (e->size - 1)) + sizeof head, (size_t)n - sizeof head);
    e->mine += padded((uint32_t)n);
    atomic_store_explicit(e->head, e->mine, memory_order_release);
    return n;
}

long ring_peek(struct ring_end *e, void *head)
{
    struct msg_head copy;
    long n = next(e, &copy);
    if (n > 0) {
        memcpy(head, &copy, sizeof copy);
    }
    return n;
}
