/* wired.h: two nodes for a test, with a relay between them: `near` connects through it to `far`. */
#ifndef BERTH_TESTS_WIRED_H
#define BERTH_TESTS_WIRED_H

#include "tests/support/daemon.h"
#include "tests/support/relay.h"

struct wired {
    struct relay relay;
    uint16_t port[2];     /* on which near and far listen */
    char list[160];       /* the members: near, and far at the relay's port */
    char listen[2][32];   /* of daemons: they have it until they end */
    struct berth *b[2];   /* handles: of an embedded node, or a client's of a daemon */
    struct daemon *as[2]; /* daemons; NULL: embedded */
};

enum { NEAR, FAR };

/* Chooses ports and starts the relay. */
void wired_init(struct wired *d);
/* Opens one as an embedded node of 64 MiB; more: further settings, "&lease=1s". */
void wired_embed(struct wired *d, unsigned which, const char *more);
/* Starts one as a berthd of `pool`; more: further flags, NULL-terminated, or NULL. */
void wired_daemon(struct wired *d, unsigned which, struct daemon *daemon, const char *pool, const char *const *more);
/* Until each sees the other up. */
void wired_meet(struct wired *d);
/* A text or a number of the other one in the node's own status: "state", "ups". */
void wired_text(struct wired *d, unsigned which, const char *field, char *out, size_t size);
bool wired_is(struct wired *d, unsigned which, const char *state, int timeout_ms); /* becomes so in time */
double wired_number(struct wired *d, unsigned which, const char *field);
/* Puts a payload of the key's at the node, and waits until the homes have heard of it. */
void wired_put(struct wired *d, unsigned which, const char *key, size_t size);
void wired_end(struct wired *d);

#endif
