/* duo.h: two nodes for a test, with a relay between them: `near` connects through it to `far`. */
#ifndef BERTH_TESTS_DUO_H
#define BERTH_TESTS_DUO_H

#include "tests/support/daemon.h"
#include "tests/support/relay.h"

#define DUO_MS INT64_C(1000000)

struct duo {
    struct relay relay;
    uint16_t port[2];     /* on which near and far listen */
    char list[160];       /* the members: near, and far at the relay's port */
    char listen[2][32];   /* of daemons: they have it until they end */
    struct berth *b[2];   /* handles: of an embedded node, or a client's of a daemon */
    struct daemon *as[2]; /* daemons; NULL: embedded */
};

enum { NEAR, FAR };

/* Chooses ports and starts the relay. */
void duo_init(struct duo *d);
/* Opens one as an embedded node of 64 MiB; more: further settings, "&lease=1s". */
void duo_embed(struct duo *d, unsigned which, const char *more);
/* Starts one as a berthd of `pool`; more: further flags, NULL-terminated, or NULL. */
void duo_daemon(struct duo *d, unsigned which, struct daemon *daemon, const char *pool, const char *const *more);
/* Until each sees the other up. */
void duo_meet(struct duo *d);
/* A text or a number of the other one in the node's own status: "state", "ups". */
void duo_text(struct duo *d, unsigned which, const char *field, char *out, size_t size);
bool duo_is(struct duo *d, unsigned which, const char *state, int timeout_ms); /* becomes so in time */
double duo_number(struct duo *d, unsigned which, const char *field);
/* Puts a payload of the key's at the node, and waits until the homes have heard of it. */
void duo_put(struct duo *d, unsigned which, const char *key, size_t size);
void duo_end(struct duo *d);

#endif
