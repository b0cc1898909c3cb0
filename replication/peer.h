/* peer.h: one connection between two nodes, a deterministic state machine over any transport that carries whole
 * messages.
 *
 * (event, now) in, commands out, as store/node.h: peer_event, peer_ask, peer_answer, peer_tell or peer_stop, then
 * peer_command until it gives NULL, each carried out in turn. A command's pointers are valid until the next call that
 * is not peer_command; what it gives of an incoming message points into the event's bytes. One thread at a time;
 * nothing here reads a clock, and `now` is any clock of this host in ns that never goes back.
 *
 * Negotiation: who dialled sends HELLO, the other answers WELCOME with the greatest version and the features that
 * both have, or REFUSE with a sentence. Requests carry ids that grow; an answer is matched by its id and must be the
 * one to that op with that many items. Each request that peer_ask took ends exactly once: PEER_ANSWERED with the
 * message, or with -ETIMEDOUT, or with -ECONNRESET or BERTH_ENODE when the connection goes. Keep-alive: PING after
 * `silence` ns with nothing received, be it a message or payload (PEER_EV_ALIVE); gone after `gone` ns, but never
 * before a PING has had gone - silence ns to be answered, so that a process that was stopped looks once more before it
 * gives its peers up.
 *
 * Bounds: PEER_PENDING_MAX requests out, as many in (more are answered -EAGAIN without troubling the owner), commands
 * PEER_QUEUE. All memory is taken by peer_create, about 76 KiB.
 */
#ifndef BERTH_REPLICATION_PEER_H
#define BERTH_REPLICATION_PEER_H

#include "replication/wire.h"

#define PEER_PENDING_MAX 1024u
#define PEER_QUEUE 16u
#define PEER_SILENCE_NS INT64_C(1000000000)
#define PEER_GONE_NS INT64_C(3000000000)
#define PEER_HELLO_NS INT64_C(3000000000)

struct peer;

struct peer_identity {
    char cluster[WIRE_NAME_MAX + 1]; /* may be empty; the same on both sides */
    char node[WIRE_NAME_MAX + 1];
    char address[WIRE_ADDRESS_MAX + 1]; /* [scheme://]host[:port] at which others reach it; a client's is empty */
    uint8_t region[16];                 /* uuid of the region directory: no two members have the same */
    uint64_t region_id;
    uint64_t incarnation;
    uint64_t pool_bytes;
    uint64_t revision; /* of the member list: members of different ones refuse each other. A client's is 0 */
    int64_t tombstone_ns, fresh_ns; /* of all members the same, or they refuse each other; a client's are 0 */
    uint64_t replaceable;           /* which namespaces are, as a sum of their names' hashes; likewise */
    uint64_t features;
    uint32_t largest; /* bytes of the largest message that it takes */
    uint16_t version_min, version_max;
    bool client; /* no member: it only reads */
};

struct peer_config {
    struct peer_identity self;
    bool dials;           /* this side opens the connection, and sends HELLO */
    uint32_t pending_max; /* requests out, 1..PEER_PENDING_MAX */
    int64_t silence_ns;   /* nothing received for so long: PING */
    int64_t gone_ns;      /* and so long: the other side is gone; > silence_ns */
    int64_t hello_ns;     /* from peer_create until up */
    /* NULL, or: whether the owner takes the other side for a peer, once it has said who it is and before it is told
     * anything: 0, or the negative code of the refusal with a sentence in why (at most `size` bytes with its NUL). */
    int32_t (*fit)(void *env, const struct peer_identity *other, char *why, size_t size);
    void *env;
};

/* The constants above, version WIRE_VERSION, messages of WIRE_MESSAGE_MAX bytes; self's names, region, address to
 * fill. */
void peer_config_init(struct peer_config *c);

/* config is copied. -EINVAL: a bound is off, or self can't be said in a HELLO; -EADDRNOTAVAIL: self.address is one that
 * nobody can reach; -ENOMEM. */
int peer_create(struct peer **out, const struct peer_config *config, int64_t now);
void peer_destroy(struct peer *p); /* ends nothing: after PEER_DOWN. NULL is passed over */

enum peer_event_kind {
    PEER_EV_OPENED,  /* the transport is connected; once, first. Who did not dial needs none */
    PEER_EV_MESSAGE, /* bytes, n: one whole message */
    PEER_EV_ALIVE,   /* at: the transport received something then, of whatever kind: payload is a sign of life too */
    PEER_EV_CLOSED,  /* status: the connection is gone, 0 if the other side ended it in order; once, last */
    PEER_EV_TICK     /* time passed: no earlier than peer_timer. Give what has been received first, ALIVE too */
};

struct peer_event {
    enum peer_event_kind kind;
    int32_t status;
    const void *bytes;
    size_t n;
    int64_t at; /* ns, by the clock of now; a time after now counts as now */
};

enum peer_command_kind {
    PEER_SEND,     /* bytes, n: in order, whole */
    PEER_CLOSE,    /* status, text: send what was given to be sent, close, then PEER_EV_CLOSED */
    PEER_UP,       /* other, version, features: requests may be made */
    PEER_REQUEST,  /* message, reader, deadline: answer it by peer_answer with message->head.id; one way if that is 0 */
    PEER_ANSWERED, /* user, id, status; message and reader if it was answered, else NULL */
    PEER_DOWN      /* status, text, other (NULL: it has not said who it is): once, last; whatever was up is over */
};

struct peer_command {
    enum peer_command_kind kind;
    int32_t status; /* ANSWERED: the message's, or the error without one */
    const void *bytes;
    size_t n;
    const char *text; /* a sentence for the log */
    const struct peer_identity *other;
    uint64_t features; /* both have them */
    uint16_t version;
    const struct wire_message *message;
    struct wire_reader *reader; /* its items */
    int64_t deadline;           /* by our clock; INT64_MAX: none */
    uint64_t user, id;
};

/* 0, or -EBUSY: commands of an earlier call are still there, the event was not taken. */
int peer_event(struct peer *p, const struct peer_event *ev, int64_t now);
const struct peer_command *peer_command(struct peer *p);

/* When PEER_EV_TICK is wanted; may be earlier than anything is due; INT64_MAX: not at all. */
int64_t peer_timer(const struct peer *p);

/* Sends a request; `message` is encoded and gets its id, counter and time left here, and stays in place until the
 * command that sends it was carried out. 0: it will end in one PEER_ANSWERED with `user`, and *id (may be NULL) is
 * its id. Else it was not sent: -EAGAIN: pending_max are under way, ask again when one has ended (the back-pressure);
 * -ENOTCONN: not up; -EMSGSIZE: the other side takes no message so large; -ETIMEDOUT: deadline (INT64_MAX: none) is
 * not after now; -EINVAL: no request, or until is before deadline; -EBUSY: commands first.
 * deadline is what the other side is told; until is when this side stops to wait for the answer: later, where an answer
 * that comes too late for its purpose still has to be heard (a lease that it gives has to be released). */
int peer_ask(struct peer *p, void *message, size_t n, int64_t deadline, int64_t until, uint64_t user, int64_t now,
             uint64_t *id);

/* Answers an incoming request, once, in any order. -ENOENT: no such request is open; -EINVAL: the message does not
 * answer that op; -ENOTCONN, -EMSGSIZE, -EBUSY as above. */
int peer_answer(struct peer *p, void *message, size_t n, uint64_t id);

/* RELEASE, RECALL, CORRUPT. -EINVAL, -ENOTCONN, -EMSGSIZE, -EBUSY. */
int peer_tell(struct peer *p, void *message, size_t n);

/* GOODBYE if it is up, then close. Nothing if it is closing already. -EBUSY. */
int peer_stop(struct peer *p, int64_t now);

/* Greatest version counter of this node, for every message from now on (rule 28); it never goes back. */
void peer_counter(struct peer *p, uint64_t counter);

struct peer_stats {
    uint64_t messages_in, messages_out, bytes_in, bytes_out; /* of messages; payload is the transport's to count */
    uint64_t strays;                                         /* answers and PONGs that nobody waited for */
    uint64_t timeouts;                                       /* of our requests */
    uint64_t again;                                          /* requests of ours refused for a full table */
    uint64_t busy;                                           /* requests of theirs answered -EAGAIN here */
    uint64_t pings;                                          /* sent */
    int64_t rtt_ns;                                          /* of the last PING that was answered; 0: none yet */
    uint64_t counter;          /* greatest version counter received: the shell hands it to the core (rule 28) */
    uint32_t pending, serving; /* now: requests out, requests in */
};
void peer_stats(const struct peer *p, struct peer_stats *out);

#endif
