/* hostile.h: a berthd that a test attacks by hand (hand.h), and beside it a client that only wants to work. */
#ifndef BERTH_TESTS_HOSTILE_H
#define BERTH_TESTS_HOSTILE_H

#include "tests/support/hand.h"

#include <stdbool.h>

/* Fixtures of a group: the node at hand_path, and the bystander, which puts, reads, verifies and removes without end.
 * After the last test it must have met no error, and the pool must hold sealed objects only. */
int hostile_setup(void **unused);
int hostile_teardown(void **unused);

/* The bystander gets on. */
void bystander_works(void);
/* It finishes what it is at: looks without a pause, and no longer than 20 s. */
bool bystander_finishes(void);
/* And nothing is left of any other session: no connection, draft or retired slot; index, slots and lookup agree. */
void hostile_gone(void);

int64_t hostile_now(void); /* CLOCK_MONOTONIC ns */
void hostile_bell(const struct hand *h);
/* Whether the node has hung up, now or within so long. */
bool hostile_cut(const struct hand *h, int timeout_ms);
/* The status of the reply, which is copied to `reply`, of RING_MESSAGE_MAX bytes. */
int hostile_ask(struct hand *h, void *message, size_t bytes, void *reply);

#endif
