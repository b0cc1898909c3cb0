/* peers_internal.h: what the files peers*.c share: members, links, and what the parts owe one another.
 *
 *   peers.c         open, close, turn, timer, commands; the member list
 *   peers_link.c    one link: asking, answering, telling, ending
 *   peers_dial.c    which links there are: connecting, who is let in, members' ups and downs
 *   peers_report.c  what is said of them
 *   peers_members.c MEMBERS
 *   peers_park.c    what is asked of members that are not met yet (peers_park.h)
 *   peers_client.c  the same without a node: a client of other nodes (peers_client.h)
 *   peers_home.c    part: the home's table, questions to it, this node's publications      home_part_*
 *   peers_serve.c   part: leases and transfers that this node gives                        serve_part_*
 *   peers_pull.c    part: what this node takes from others                                 pull_part_*
 *
 * Everything runs on the node's thread. Two contexts:
 *   turn      transport callbacks, requests, answers, X_part_up/down/turn: anything may be called, dispatch() too
 *   dispatch  X_part_command, which the core's commands lead to: dispatch() may not be called (keep it for the turn
 *             and set p->again); link_answer, link_tell and link_ask may. They call nothing back.
 *
 * Members are numbered by their place in the list sorted by name (byte by byte), the same on all nodes. A remote client
 * that is no member has a link all the same, with a number from PEERS_CLIENTS on that is its own as long as it is
 * there.
 */
#ifndef BERTH_SHELL_PEERS_INTERNAL_H
#define BERTH_SHELL_PEERS_INTERNAL_H

#include "replication/lease.h"
#include "replication/peer.h"
#include "replication/rendezvous.h"
#include "replication/transport.h"
#include "store/shell/dispatch.h"
#include "store/shell/peers.h"
#include "store/shell/resolver.h"
#include "store/shell/state.h"

#include <sys/queue.h>

#define PEERS_CLIENTS 0x8000u                     /* the first number of a link without a member */
#define PEERS_CLIENTS_MAX 256u                    /* such links at a time */
#define PEERS_BACKOFF_NS INT64_C(50000000)        /* between two attempts to connect: first, doubled up to .. */
#define PEERS_BACKOFF_MAX_NS INT64_C(2000000000)  /* .. this */
#define PEERS_BACKOFF_EARLY_NS INT64_C(200000000) /* .. and this for the first PEERS_EARLY_NS after it was lost, .. */
#define PEERS_EARLY_NS INT64_C(10000000000)       /* .. or the node began: who is started again is met soon */
#define PEERS_SPREAD_PART 4                       /* of a backoff: by which members differ */
#define PEERS_LINGER_NS INT64_C(200000000)        /* the other end's time to hang up after GOODBYE or REFUSE */
#define PEERS_BACKLOG (4u << 20)                  /* bytes that wait for a full transport; more, and the link ends */

struct link;

/* The outcome of link_ask. 0 or the answer's own status, with message and its items; or without them (message NULL):
 * -ETIMEDOUT, -ECONNRESET, BERTH_ENODE, -EOPNOTSUPP. The message's bytes are there during the call only. Turn
 * context. */
typedef void peers_answer_fn(void *arg, int32_t status, const struct wire_message *message, struct wire_reader *items);

enum member_state {
    MEMBER_SELF,       /* this node */
    MEMBER_WAITING,    /* it is the other's turn to connect, or the next attempt is not due */
    MEMBER_RESOLVING,  /* the resolver is asked, on a thread of its own */
    MEMBER_CONNECTING, /* a connection is being made, or greets */
    MEMBER_CONNECTED
};

struct member {
    char name[WIRE_NAME_MAX + 1];
    char address[WIRE_ADDRESS_MAX + 1]; /* as in the list; self without one: as it listens; empty: not known */
    uint32_t weight;                    /* 1 .. RENDEZVOUS_WEIGHT_MAX */
    enum member_state state;
    struct link *link;      /* up; NULL: not */
    struct link *dialled;   /* under way, not up yet */
    struct question *asked; /* the resolver's answer is awaited */
    bool dials;             /* this node connects to it */
    bool awaited;           /* a node's: it was not met yet, and what is asked of it is kept (peers_park.h) */
    int64_t next_dial;      /* CLOCK_MONOTONIC ns; INT64_MAX: not by the clock */
    int64_t backoff;        /* ns, of the next failure */
    uint8_t region[16];     /* of the last identity; all 0: never seen */
    uint64_t region_id;
    uint64_t incarnation;
    uint64_t pool_bytes;
    uint64_t ups, downs;          /* connections that came up, and that were lost */
    int64_t since;                /* CLOCK_MONOTONIC ns of the last change between up and down */
    int32_t status;               /* why it is not up; 0: nothing is known */
    char why[TRANSPORT_WHY_MAX];  /* the sentence; self: what is wrong with its address, or empty */
    char told[TRANSPORT_WHY_MAX]; /* what the log was told last: a failure is said once */
    struct peer_stats gone;       /* sums over its earlier connections */
};

struct link {
    TAILQ_ENTRY(link) entry;
    struct peers *peers;
    struct connection *connection; /* NULL: closed */
    struct peer *peer;
    uint16_t number;             /* member index, or from PEERS_CLIENTS on; MEMBER_NONE before it is up */
    uint16_t wanted;             /* the member that was dialled; MEMBER_NONE: it connected to us */
    uint32_t serial;             /* names the connection, never used twice: lease_event.connection */
    bool up;                     /* between peers_up and peers_down */
    bool incoming, connected;    /* connected: the transport has it */
    bool closing;                /* waits for the other end until `linger` */
    bool said;                   /* something was sent since the last event */
    bool pumping;                /* commands of its peer are being carried out */
    bool dead;                   /* told to everybody, freed at the end of the turn */
    int32_t doomed;              /* not 0: closed in the next turn for this status */
    char why[TRANSPORT_WHY_MAX]; /* of its end */
    int64_t peers_now;           /* CLOCK_MONOTONIC ns of its last event */
    int64_t linger;              /* CLOCK_MONOTONIC ns; INT64_MAX: not closing */
    struct peer_identity other;  /* from HELLO, once up, or once it has ended; node is empty: it has not said */
    uint8_t *backlog;            /* messages that the transport had no room for, each with its u32 length before it */
    size_t backlog_used, backlog_room, backlog_at;
    struct peer_command stash[PEER_QUEUE]; /* commands that stood before a message of ours in the queue */
    uint32_t n_stash, stash_at;
    uint16_t free_asked; /* the first free place; PEER_PENDING_MAX: none */
    struct asked *asked; /* PEER_PENDING_MAX, on demand: what is to be called */
};

TAILQ_HEAD(link_list, link);

struct parked; /* a message that waits for its member */
TAILQ_HEAD(parked_list, parked);

struct home_part;
struct peers_client;
struct taking;
struct serve_part;

/* Clients without a node that came and went since the log was told. */
struct visits {
    uint32_t came, went;
    char last[TRANSPORT_WHY_MAX + 160]; /* of the last one */
    int64_t told, due;                  /* CLOCK_MONOTONIC ns: of the last line, and of the next; INT64_MAX: none */
};

struct peers {
    struct server *server;
    const struct transport *transport;
    void *context;       /* the transport's */
    struct watch *watch; /* of its descriptor */
    struct resolver *resolver;
    struct member *members;                   /* n_members, sorted by name */
    uint32_t n_members;                       /* 1 .. MEMBERS_MAX */
    uint16_t self;                            /* index of this node; MEMBER_NONE: a client's */
    struct rendezvous *homes;                 /* which members are home to a place */
    uint64_t revision;                        /* rendezvous_revision: of names, weights and number of homes */
    struct peer_identity identity;            /* what this node says in HELLO */
    struct link_list links;                   /* all that are not freed */
    struct parked_list parked;                /* what is asked of members without a connection */
    int64_t begun;                            /* CLOCK_MONOTONIC ns: members are awaited from then on */
    uint64_t clients[PEERS_CLIENTS_MAX / 64]; /* bit i: the number PEERS_CLIENTS + i is in use */
    uint32_t serial;                          /* of the last link */
    bool readable;                            /* the descriptor is, or the last turn said so */
    bool hurry;                               /* something is done that is to be told at once */
    bool heard;                               /* in the last turn something had come */
    bool again;                               /* somebody wants another turn at once */
    int64_t due;                              /* CLOCK_MONOTONIC ns: of the next turn by time */
    bool stopping, broken;
    uint64_t seen, seen_told;    /* greatest version counter heard; given to the core */
    struct transport_stats last; /* when strangers were told of */
    uint64_t strangers;
    int64_t strangers_told; /* CLOCK_MONOTONIC ns */
    int64_t strangers_due;  /* .. when the next line may be written; INT64_MAX: none is due */
    struct visits visits;
    char refused[TRANSPORT_WHY_MAX]; /* what the log was told last of connections that were not let in .. */
    int64_t refused_at;              /* .. when */
    struct home_part *home;
    struct taking *pull;
    struct serve_part *serve;
    struct peers_client *client;      /* not NULL: there is no node; home and serve are NULL then */
    uint8_t buffer[WIRE_MESSAGE_MAX]; /* to encode a message in, for the next link_ask, link_answer or link_tell */
};

/* ---- peers_told.c ---- */

void client_came(struct peers *p, const struct link *l);
void client_went(struct peers *p, const struct link *l);
/* Once a turn: the lines that are due, at most one a second of each kind. */
void peers_tell(struct peers *p, int64_t now);

/* ---- for the parts: peers_link.c ---- */

/* The link that is up to this member or client; NULL: none is. */
struct link *link_of(struct peers *p, uint16_t number);

/* Sends a request, encoded in any buffer (p->buffer): id, counter and time left are stamped here, and the bytes are
 * copied. deadline, until: CLOCK_MONOTONIC ns, as peer_ask has them; INT64_MAX: none. 0: `done` is called exactly
 * once, never from here. Else it was
 * not sent and done is not called: -ENOTCONN (not up, or it is this node), -EAGAIN (too many under way), -EMSGSIZE,
 * -ETIMEDOUT (the deadline is past), -EINVAL, -ENOMEM. */
int link_ask(struct peers *p, uint16_t number, void *message, size_t n, int64_t deadline, int64_t until,
             peers_answer_fn *done, void *arg);

/* Answers the request with this id of this link, once. A link that ended meanwhile: keep its serial and find it by
 * link_serial. -ENOENT, -EINVAL, -ENOTCONN, -EMSGSIZE. */
int link_answer(struct link *l, uint64_t id, void *message, size_t n);
/* An answer without items: status is negative, and op is the request's. For one way messages: nothing. */
int link_refuse(struct link *l, unsigned op, uint64_t id, int32_t status);
/* RELEASE, RECALL, CORRUPT. -ENOTCONN, -EINVAL, -EMSGSIZE. */
int link_tell(struct link *l, void *message, size_t n);
/* The link with this serial if it is up; NULL: it has ended. */
struct link *link_serial(struct peers *p, uint32_t serial);
/* Ends a link whose other side broke the contract; in the next turn, so that it may be called from anywhere. */
void link_blame(struct link *l, int32_t status, const char *why);

/* All clocks at once, in the order of rule 20, not from a cache. */
struct reader_now peers_now(struct peers *p);
/* CLOCK_MONOTONIC now. */
int64_t peers_mono(struct peers *p);

/* ---- what the parts give: called by peers.c and peers_link.c ---- */

/* Requests and one way messages from other nodes, by op; NULL: no such request. `from` is up. A request is answered by
 * link_answer or link_refuse with m->head.id, at once or later. Turn context. */
typedef void peers_request_fn(struct peers *p, struct link *from, const struct wire_message *m,
                              struct wire_reader *items, int64_t deadline);
extern peers_request_fn *const peers_requests[WIRE_OPS];

peers_request_fn serve_part_lease, serve_part_renew, serve_part_release, serve_part_state, serve_part_corrupt;
peers_request_fn serve_part_sums;
peers_request_fn home_part_ask, home_part_publish, members_part_list;
peers_request_fn pull_part_recall;

/* A member or client has come up, with another incarnation or not, or has gone. After down, every link_ask of it has
 * had its `done`, every transfer its `complete`, every serve its `served`. down comes for each up. status:
 * BERTH_ENODE it stopped or says nothing, -ECONNRESET, -EPROTO, 0 this node stops. Turn context. */
void peers_up(struct peers *p, uint16_t number, const struct peer_identity *other);
void peers_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status);

/* Each part. open: members, homes and identity are there, no link is. 0 or a negative errno with a sentence. close: no
 * link is any more; parts that were not opened are passed over. timer: when turn is wanted, CLOCK_MONOTONIC ns,
 * INT64_MAX: not. turn: at the end of each turn of the peers, whatever the reason. command: dispatch context. up,
 * down: as above. */
/* The homes of a key, best first, at most max: how many. route 0: the key's own hash decides. */
uint32_t home_part_homes(struct peers *p, const struct key_ref *key, uint64_t route, uint16_t *out, uint32_t max);
struct pull_key;
struct pull_answer;
/* What this node's own table says of keys that it is a home of. flags: enum pull_ask_flags. out has room for n; what
 * its `missing` point to stands until the next call. 0, or a negative error: nothing is known. */
int home_part_ask_self(struct peers *p, const struct pull_key *keys, uint32_t n, uint32_t flags,
                       struct pull_answer *out);

/* Nobody waits for an answer to these any more. */
void home_waits_gone(struct peers *p, uint64_t session);
/* This node was away for long, and what it has is not confirmed yet: it gives no leases. */
bool home_part_held(const struct peers *p);

void home_part_metrics(const struct peers *p, FILE *f);

int home_part_open(struct peers *p, char *why, size_t why_size);
void home_part_close(struct peers *p);
int64_t home_part_timer(const struct peers *p);
void home_part_turn(struct peers *p, int64_t now);
void home_part_up(struct peers *p, uint16_t number, const struct peer_identity *other);
void home_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status);
void home_part_command(struct peers *p, const struct node_command *c); /* PUBLISHED */

int serve_part_open(struct peers *p, char *why, size_t why_size);
void serve_part_close(struct peers *p);
int64_t serve_part_timer(const struct peers *p);
void serve_part_turn(struct peers *p, int64_t now);
void serve_part_up(struct peers *p, uint16_t number, const struct peer_identity *other);
void serve_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status);
void serve_part_command(struct peers *p, const struct node_command *c); /* LEASED, RENEWED, RECALL, SERVE */
/* The transport's admit and served, for a link that is up. */
int serve_part_admit(struct peers *p, struct link *from, const struct transport_want *want, uint64_t *token);
void serve_part_served(struct peers *p, struct link *from, uint64_t lease, uint64_t token, int status);

/* Leases for `from` of n keys (1 to LEASE_KEYS_MAX) that are asked for in another way than by LEASE: grants as
 * CMD_LEASED has them, one a key. `done` is called exactly once: from within, or later, in dispatch context too; n = 0:
 * there are none (the link has ended, the node stops, too much waits). ttl_ns 0: the default. Turn context. -EINVAL,
 * -ENOMEM, BERTH_ENOTNOW (home_part_held): done is not called. */
typedef void serve_granted_fn(void *arg, const struct lease_grant *grants, uint32_t n);
int serve_part_grant(struct peers *p, struct link *from, const struct key_ref *keys, uint32_t n, int64_t ttl_ns,
                     serve_granted_fn *done, void *arg);
/* A grant with status 0, as messages have it. */
void serve_part_lease_of(const struct lease_grant *g, struct wire_lease *out);
void serve_part_metrics(const struct peers *p, FILE *f);

void pull_part_metrics(const struct peers *p, FILE *f);

int pull_part_open(struct peers *p, char *why, size_t why_size);
void pull_part_close(struct peers *p);
int64_t pull_part_timer(const struct peers *p);
/* The key was removed or replaced, all versions up to this one: what is pulled from now on is asked for. Any context.
 */
void pull_part_outdated(struct peers *p, const struct key_ref *key, uint64_t counter, uint64_t region);
void pull_part_begin(struct peers *p); /* what clients ask for goes out before what has come is received */
void pull_part_turn(struct peers *p, int64_t now);
void pull_part_up(struct peers *p, uint16_t number, const struct peer_identity *other);
void pull_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status);

/* ---- between peers.c, peers_link.c, peers_report.c, peers_client.c ---- */

/* peers.c. listen: HOST:PORT, or NULL: nothing is listened on and nothing shown. */
int peers_open_transport(struct peers *p, const char *listen, char *why, size_t why_size);
/* From the members, with k homes a key: homes and revision. */
int peers_make_homes(struct peers *p, uint32_t k);
/* Greatest version counter seen here, for every message (rule 28). */
uint64_t peers_counter(const struct peers *p);

/* peers_link.c */
void link_event(struct link *l, const struct peer_event *ev);
void link_goodbye(struct link *l, int64_t now);
void link_closed(struct link *l, int32_t status); /* the transport has forgotten its connection */
void link_disconnect(struct link *l);             /* at once: nothing of it is left but the structure */
void link_drain(struct link *l);                  /* sends what waits, as far as there is room */

/* peers_dial.c */
extern const struct transport_events peers_events;
void link_greeted(struct link *l, const struct peer_identity *other);
void member_lost(struct link *l, bool was_up, int32_t status);
/* A node's member that is not up, and whose turn it is to connect: what is said of it. why: as it was lost, or "". */
void member_awaited(struct member *m, const char *why);
void links_turn(struct peers *p, int64_t now); /* dial, tick, linger, doomed, backlog, free */
int64_t links_timer(const struct peers *p);
void links_stop(struct peers *p, int64_t now);
void links_end(struct peers *p); /* all of them, at once */
bool links_empty(const struct peers *p);

#endif
