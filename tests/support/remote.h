/* remote.h: a reader in the test's process, a client of a node's peers' port, by the wire's messages: to ask for leases
 * and to read, rightly and wrongly.
 */
#ifndef BERTH_TESTS_REMOTE_H
#define BERTH_TESTS_REMOTE_H

#include "replication/peer.h"
#include "replication/transport.h"
#include "tests/support/daemon.h"

struct remote {
    void *ctx;
    struct connection *c; /* NULL: it has ended */
    struct peer *peer;
    bool up, down;
    int32_t status; /* of the end */
    char why[TRANSPORT_WHY_MAX];
    struct peer_identity node; /* the other side, from its WELCOME */
    /* The last answer: of LEASED, RENEWED, STATED, ANSWER. */
    bool answered;
    int32_t answer_status;
    struct wire_message answer;
    struct wire_item item[WIRE_LEASES_MAX];
    uint32_t n;
    uint64_t recalled[4096]; /* lease ids of RECALLs so far */
    uint32_t n_recalled;
    uint8_t buffer[WIRE_MESSAGE_MAX];
};

/* The address "tcp://127.0.0.1:PORT" at which a daemon listens for peers; its own entry in the status. */
void remote_address(struct berth *b, char *out, size_t size);

/* A client by this name. Fails the test unless it is up within 20 s. */
void remote_open(struct remote *r, const char *address, const char *name);
/* As whoever `self` says; whether it was let in, else r->why. To be closed in any case. */
bool remote_greet(struct remote *r, const char *address, const struct peer_identity *self);
void remote_close(struct remote *r);
/* Moves what there is to move, waiting so long for it at most. */
void remote_turn(struct remote *r, int wait_ms);
/* Until done(arg), the end of the connection, or 20 s: whether done(arg). */
bool remote_until(struct remote *r, bool (*done)(void *arg), void *arg);

/* A request, waited for: the answer's status, with its items in item. Or -ECONNRESET. */
int32_t remote_ask(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n);
/* Sends it and waits for nothing. */
void remote_ask_only(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n);
void remote_tell(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n);
/* Bytes as they are. */
void remote_send(struct remote *r, const void *bytes, size_t n);

/* One key: its status, or the request's; the lease is in *out. */
int32_t remote_lease(struct remote *r, const char *key, uint64_t ttl, struct wire_lease *out);
int32_t remote_renew(struct remote *r, uint64_t lease, bool in_flight);
void remote_release(struct remote *r, uint64_t lease, uint32_t uses);
int32_t remote_state(struct remote *r, uint32_t slot, uint64_t generation, uint64_t *word);
void remote_corrupt(struct remote *r, const char *key, const struct wire_lease *l);

/* Reads into `to` and waits: the transfer's status. */
int remote_read(struct remote *r, const struct wire_lease *l, uint64_t offset, uint64_t bytes, void *to);
/* Posted only; wait with remote_until(r, remote_has_read, t). */
void remote_post(struct remote *r, struct transfer *t, struct iovec *to, const struct wire_lease *l, void *memory);
bool remote_has_read(void *transfer);

#endif
