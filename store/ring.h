/* ring.h: one direction of a ring: a byte queue of one producer and one consumer in shared memory.
 *
 * Each end keeps its own index in private memory and only reads the other's; what it reads is bounded before use, so a
 * scribbling client is an error of its own session (-EPROTO) and nothing else.
 */
#ifndef BERTH_STORE_RING_H
#define BERTH_STORE_RING_H

#include "store/layout.h"

struct ring_end {
    uint8_t *data;
    uint32_t size;          /* a power of two, a multiple of RING_ALIGN */
    _Atomic uint64_t *tail; /* producer's index, shared */
    _Atomic uint64_t *head; /* consumer's index, shared */
    uint64_t mine;          /* private copy of the index that this end owns */
};

/* The four ends of a session's memfd. */
void ring_request_producer(struct ring_end *e, struct ring_shared *s);
void ring_request_consumer(struct ring_end *e, struct ring_shared *s);
void ring_reply_producer(struct ring_end *e, struct ring_shared *s);
void ring_reply_consumer(struct ring_end *e, struct ring_shared *s);

/* Producer: bytes that one message may take now (a whole message, the pad before it counted); -EPROTO. */
long ring_room(const struct ring_end *e);

/* Producer: copies a message of n bytes in and publishes it (release). 0, -EAGAIN (no room), -EPROTO. */
int ring_push(struct ring_end *e, const void *message, uint32_t n);

/* Consumer: copies the next message into out (of at least RING_MESSAGE_MAX bytes) and frees its room. Its length in
 * bytes; 0 when the ring is empty; -EPROTO if the producer's index or the length is impossible. */
long ring_pop(struct ring_end *e, void *out);

/* Consumer: length of the next message without taking it (its head is copied to `head`, 32 bytes); 0 when empty. */
long ring_peek(struct ring_end *e, void *head);

#endif
