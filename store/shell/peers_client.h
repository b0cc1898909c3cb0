/* peers_client.h: peers without a node: a client that reads from the members of a fleet and is none of them.
 *
 * It has the puller and the connections of a node (peers_pull*.c, peers_link.c, peers_dial.c), but neither a core nor a
 * home's table: it serves nothing, and takes no request but RECALL. It is told one address. The node that answers there
 * says who the members are (MEMBERS, LISTED); after that the list is fixed: a node with another one is refused, and
 * what is asked says BERTH_ERESTART, as after a change of the pool.
 *
 * Nodes are connected to when something is asked of them. The puller takes a member for reachable until it is known not
 * to be: what it asks of one without a connection is kept (peers_park.h), and sent when the connection is up, or fails
 * with it.
 * After a failure the member is down for a while (PEERS_BACKOFF_NS, doubled), then it may be tried again.
 *
 * Bounds: WIRE_MEMBERS_MAX members.
 */
#ifndef BERTH_SHELL_PEERS_CLIENT_H
#define BERTH_SHELL_PEERS_CLIENT_H

#include "store/shell/peers_internal.h"

enum client_state {
    CLIENT_GREETS, /* connects to the address that it was told */
    CLIENT_LEARNS, /* asks for the list */
    CLIENT_READY,
    CLIENT_FAILED /* for good: status, why */
};

struct client_member {
    bool failed; /* the puller is to be told that it is down */
    bool hidden; /* it has been told: until `next_dial` of the member */
};

struct peers_client {
    enum client_state state;
    int32_t status;              /* FAILED: negative .. */
    char why[TRANSPORT_WHY_MAX]; /* .. and the sentence */
    bool network;                /* hosts that are not this one may be connected to (peer-trust) */
    bool changed;                /* a node has another list now, or another fresh_ns */
    bool again;                  /* members' flags have changed */
    struct member *learned;      /* total of them, when the first LISTED has come */
    uint32_t total, n_learned;
    int64_t fresh_ns;             /* as the first node's WELCOME says: all nodes have the same */
    uint64_t revision;            /* as LISTED says */
    uint8_t homes;                /* of a key */
    struct client_member *member; /* READY: n_members */
};

/* What a client is opened with. */
struct client_target {
    const char *address; /* tcp://HOST:PORT */
    const char *name; /* of the client, for the nodes' logs and reports; other bytes than printable ones become '-' */
};

/* Begins to connect. s: a server without core and region, with a loop and settings (cluster, peer-trust, verify). 0, or
 * a negative error with a sentence: -EINVAL, -ENOMEM, -EMFILE. What becomes of it stands in p->client: state. */
int peers_open_client(struct peers **out, struct server *s, const struct client_target *target, char *why,
                      size_t why_size);

/* Whether a member is connected. */
bool client_has_link(const struct peers *p);

/* ---- between the files peers*.c; turn context unless said otherwise ---- */

/* Whether what is asked of this member, which has no connection, is to be kept (peers_park.h): it is not known to be
 * unreachable. Any context. */
bool client_awaits(const struct peers *p, uint16_t number);
/* It is connected to in the next turn. Any context. */
void client_dial(struct peers *p, uint16_t number);

/* Who is there: 0, or the refusal's code and sentence. */
int32_t client_fit(const struct link *l, const struct peer_identity *other, char *why, size_t size);
void client_up(struct peers *p, uint16_t number, const struct peer_identity *other);
void client_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status);
/* No connection could be made to this member. */
void client_unreached(struct peers *p, struct member *m, int32_t status, const char *why);
/* Whether this address, in digits, may be connected to. */
bool client_may_dial(const struct peers *p, const char *digits);
void client_turn(struct peers *p, int64_t now);
int64_t client_timer(const struct peers *p);
void client_free(struct peers *p);

#endif
