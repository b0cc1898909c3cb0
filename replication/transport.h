/* transport.h: the table of a way to move payload and messages between nodes: tcp; verbs and loop follow.
 *
 * What a back end cannot do stands in null_transport as a function that answers -EOPNOTSUPP: no pointer here is NULL.
 *
 * Threads: a context is used by one thread at a time, and starts none. It has one descriptor to poll (for reading);
 * `turn` does what is there, a bounded amount of it, and makes every callback but those that read, cancel, stop,
 * disconnect, fence and close make before they return. A callback may call anything here except turn and close.
 *
 * Three states of a transfer, never mixed up: posted (the destination belongs to the transport), completed (every
 * part's fate is known and the destination is quiet: the transport never writes there again), consumable (its lease
 * was good after the last completion, or its checksum is right). The transport knows the first two, in `state`; the
 * third is the puller's to find out, and it hands out bytes in no other.
 *
 * Trust: nothing that a peer sends is believed. What does not fit the protocol ends the connection, with a cause.
 */
#ifndef BERTH_REPLICATION_TRANSPORT_H
#define BERTH_REPLICATION_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#define TRANSPORT_ADDRESS_MAX 320u          /* bytes of "HOST:PORT" with its NUL: a name has at most 255 */
#define TRANSPORT_WHY_MAX 512u              /* bytes that hold every sentence here */
#define TRANSPORT_MESSAGE_MAX (256u << 10)  /* bytes of one message */
#define TRANSPORT_TRANSFER_MAX (1ull << 40) /* bytes of one transfer */
#define TRANSPORT_IOV_MAX 1024u             /* parts of one destination */

/* A peer, from connect or `accepted` on until `closed`, a failed `connected`, or the return of disconnect or fence. */
struct connection {
    void *user;                       /* the caller's own */
    char peer[TRANSPORT_ADDRESS_MAX]; /* HOST:PORT of the other end, in digits */
    bool incoming;                    /* the other end has connected to us */
    int64_t heard_ns;                 /* CLOCK_MONOTONIC: it last sent anything, payload or message; 0: nothing yet */
};

enum transfer_state {
    TRANSFER_IDLE,
    TRANSFER_POSTED,   /* the destination belongs to the transport */
    TRANSFER_COMPLETED /* every part's fate is known, nothing is written any more; the bytes are not yet proven */
};

/* A one-sided read of `bytes` at `offset` of the peer's pool into `to`. The structure and the list are the caller's,
 * and stay as they are from read() until `complete` is called; the destination likewise. */
struct transfer {
    uint64_t lease;         /* the permission, as the owner gave it */
    uint64_t generation;    /* of the slot */
    uint64_t offset;        /* bytes from the start of the owner's pool, never a pointer */
    uint64_t bytes;         /* 1 to TRANSPORT_TRANSFER_MAX */
    const struct iovec *to; /* 1 to TRANSPORT_IOV_MAX parts, together exactly `bytes`; written by the kernel only */
    uint32_t parts;         /* of `to` */
    int64_t deadline;       /* CLOCK_MONOTONIC ns; INT64_MAX (BERTH_FOREVER): none */
    /* NULL, or: so many bytes at `offset` of the transfer have just come to lie at `at`, in order, while they are in
     * the cache. They are unproven, and `at` may fault where the destination is memory that another process can
     * truncate. */
    void (*progress)(struct transfer *t, uint64_t offset, const void *at, size_t n);
    /* Exactly once for a read that returned 0. state is COMPLETED, status set; the structure is the caller's again. */
    void (*complete)(struct transfer *t);
    void *owner; /* the caller's own */

    enum transfer_state state; /* set by the transport from read() on */
    int status;                /* 0: all bytes are there. Else a negative error, see read */
    uint64_t received;         /* bytes in the destination so far, from its start */
    int64_t posted_ns;         /* CLOCK_MONOTONIC: read() was called */
    int64_t asked_ns;          /* the request left the window's queue; 0: never */
    int64_t first_ns;          /* the first bytes came; 0: never */
    int64_t completed_ns;

    struct { /* the transport's own */
        void *connection;
        TAILQ_ENTRY(transfer) link;
        uint64_t in_part; /* bytes filled of the current part */
        uint32_t part;    /* the current part of `to` */
        uint32_t request; /* index among the connection's requests */
        bool queued;      /* wants to ask for more */
        bool small;       /* among those that go before bulk */
        bool has_request;
    } own;
};

TAILQ_HEAD(transfer_list, transfer);

/* What a peer wants to read: one transfer of its. Offset and length lie within the exposed memory. */
struct transport_want {
    uint64_t lease, generation;
    uint64_t offset, bytes;
};

/* What the transport tells. No pointer is NULL. `why` is a sentence for people, valid during the call. */
struct transport_events {
    /* The outcome of connect: 0, or a negative error, and then c is gone when this returns. */
    void (*connected)(void *env, struct connection *c, int status, const char *why);
    void (*accepted)(void *env, struct connection *c);
    /* A connection that was connected or accepted has ended by itself; c is gone when this returns. Before it, every
     * transfer completed with -ECONNRESET and every serve was told. Not called for disconnect, fence and close. */
    void (*closed)(void *env, struct connection *c, int status, const char *why);
    void (*message)(void *env, struct connection *c, const void *bytes, size_t n); /* bytes: during the call */
    void (*room)(void *env, struct connection *c); /* send answered -EAGAIN before, and there is room again */
    /* A peer asks to read. 0: yes, and *token comes back in served; a negative error goes to the reader as its status.
     * From a yes until served, the memory must stay as it is. */
    int (*admit)(void *env, struct connection *c, const struct transport_want *want, uint64_t *token);
    /* Once for each yes of admit. 0: the receiver has said that it has it all. -ECANCELED: the reader gave up, or what
     * stop was given: the receiver has taken all that was on its way. -ECONNRESET: the connection is gone, and pages
     * of the pool may still lie in sockets: the caller keeps the slot until the lease's end (rule 23). */
    void (*served)(void *env, struct connection *c, uint64_t lease, uint64_t token, int status);
};

/* 0 or NULL stands for the default of each. */
struct transport_config {
    const char *listen; /* HOST:PORT, [HOST]:PORT or INTERFACE:PORT, "tcp://" before it or not; NULL: none. Port 0: a
                                 * free one */
    bool any_address;   /* 0.0.0.0 and :: may be listened on */
    uint64_t window;    /* bytes asked for and not yet received, all peers together: 32 MiB; 64 KiB at least */
    uint64_t source_window; /* the same, of one peer: 8 MiB; 64 KiB at least */
    uint32_t chunk;         /* bytes at most of one DATA frame: 256 KiB; 4 KiB to 4 MiB */
    uint32_t small; /* transfers up to so many bytes go with the messages, ahead of bulk: 16 KiB; at most 32 KiB */
    uint32_t sendfile_min; /* sendfile serves chunks of at least so many bytes: 32 KiB .. */
    uint32_t sendfile_max; /* .. of transfers of at most so many: 256 KiB; UINT32_MAX: any size .. */
    /* .. while at least so many transfers are being served on the connection: 4, but never to a peer on this machine,
     * unless it is set */
    uint32_t sendfile_queue;
    uint32_t socket_buffer; /* bytes, SO_SNDBUF and SO_RCVBUF: the kernel's tuning */
    uint32_t message_queue; /* bytes of messages that wait for one peer: 1 MiB */
    uint32_t turn_bytes;    /* bytes moved in one turn, about: 1 MiB */
    bool flushed;           /* whoever calls send, read or cancel outside of a turn calls flush soon afterwards: the
                              * descriptor is not made readable for that */
    uint32_t connections;   /* peers at most, in and out: 1,024 */
    uint32_t unfinished;    /* connections that have not said who they are: 64; the oldest makes room for a new one */
    int64_t done_ns; /* how long the word that a transfer is done may wait for other output to go with, so that the
                      * owner wakes once for both: 0; at most 10 ms */
    int64_t connect_timeout_ns; /* from connect to connected, and from accept to accepted: 3 s */
    int64_t silence_ns;         /* a peer that acknowledges nothing, or takes nothing, for so long is gone: 5 s */
};

/* Counters grow from open on; the last four are as of now. */
struct transport_stats {
    uint64_t posted, completed;    /* transfers; completed with any status */
    uint64_t failed, cancelled;    /* of the completed: with an error; of these by cancel or deadline */
    uint64_t served, serve_errors; /* transfers of peers: to the end; refused, cancelled, broken off */
    uint64_t bytes_received;       /* payload into destinations */
    uint64_t bytes_drained;        /* payload of abandoned transfers */
    uint64_t bytes_send;           /* by send, messages and heads of frames included */
    uint64_t bytes_sendfile;
    uint64_t messages_in, messages_out;
    uint64_t send_refused;   /* send answered -EAGAIN */
    uint64_t short_sends;    /* a socket was full, the rest went later */
    uint64_t connects;       /* connect was called */
    uint64_t connect_errors; /* and failed, time-outs included */
    uint64_t accepted;       /* peers that have connected to us */
    uint64_t strangers;      /* closed: not Berth, an unknown token, or nothing within the time */
    uint64_t crowded_out;    /* closed: too many unfinished ones, or too many peers */
    uint64_t protocol;       /* peers closed for what they sent */
    uint64_t resets;         /* peers lost in any way */
    uint64_t connections;    /* now */
    uint64_t in_flight;      /* now: bytes asked for and not received */
    uint64_t waiting;        /* now: transfers that wait for the window */
    uint64_t serving;        /* now: transfers of peers under way */
};

struct transport {
    const char *name;

    /* The address in digits, for connect. Asks the resolver: may block for long, may be called from any thread.
     * -EINVAL: not an address, or one that can be no peer (0.0.0.0, ::, port 0); -EHOSTUNREACH: no such name. */
    int (*resolve)(const char *address, char *digits, size_t size, char *why, size_t why_size);

    /* Copies config and events. -EINVAL: a bad value, or an address that is not allowed; -EADDRINUSE, -EADDRNOTAVAIL,
     * -EHOSTUNREACH (a name that does not resolve), -EACCES, -EMFILE, -ENOMEM: `why` names host, port and cause. */
    int (*open)(void **ctx, const struct transport_config *config, const struct transport_events *events, void *env,
                char *why, size_t why_size);
    /* As disconnect of every peer, then everything is gone. Not from a callback. */
    void (*close)(void *ctx);

    /* The port that is listened on, or 0 if none; text becomes HOST:PORT in digits, or empty where every address is
     * bound (that one is never handed out). -ENOSPC: text is too small. */
    int (*address)(void *ctx, char *text, size_t size);

    int (*descriptor)(void *ctx); /* readable when there is something for turn; time-outs included */
    /* Whether turn has something to do, for whom polls: cheap, and best for what comes from the peer that was heard
     * last. What comes from elsewhere is noticed some calls later. */
    bool (*look)(void *ctx);
    /* Bounded work: 1: there may be more at once, 0: not, or a negative error (the context is of no use any more). */
    int (*turn)(void *ctx);
    /* Sends what send, read and cancel have queued outside of a callback. Without it that happens in the next turn, for
     * which the descriptor is readable. */
    void (*flush)(void *ctx);

    /* Begins to connect to an address in digits; `connected` tells the outcome, in time. A negative error, with why,
     * and `connected` is not called: -EINVAL (as resolve), -ENETUNREACH, -EMFILE, -EAGAIN (too many peers), -ENOMEM. */
    int (*connect)(void *ctx, const char *peer, void *user, struct connection **c, char *why, size_t why_size);
    /* Resets the connection: messages that the peer has not taken yet are lost (who says good-bye lets the other
     * close). Every transfer completes with -ECONNRESET and every serve is told so, before it returns. */
    void (*disconnect)(void *ctx, struct connection *c);
    /* The same, and says when the peer can read no more: 0: now. -EAGAIN: pages may still lie in sockets: the slots
     * that it was being served from must be kept until their leases end (always so over tcp). */
    int (*fence)(void *ctx, struct connection *c);

    /* The memory that peers may ask to read: mapped at base, and the same bytes in fd from offset 0 (-1: no file).
     * Once; -EBUSY the second time. Both stay until close. */
    int (*expose)(void *ctx, int fd, const void *base, uint64_t bytes);

    /* Queues a copy of one message of 1 to TRANSPORT_MESSAGE_MAX bytes; they arrive whole and in order, or the
     * connection ends. -EAGAIN: the queue is full, `room` will be called; -EMSGSIZE; -ENOTCONN; -ENOMEM. */
    int (*send)(void *ctx, struct connection *c, const void *message, size_t n);

    /* Posts a transfer. -EINVAL: no bytes, too many, or a list that does not fit; -ENOTCONN; -EBUSY: posted already.
     * Else 0, and complete comes with 0, the owner's refusal, -EFAULT (the destination is no memory), -ECANCELED,
     * -ETIMEDOUT or -ECONNRESET. */
    int (*read)(void *ctx, struct connection *c, struct transfer *t);
    /* Completes a posted transfer with -ECANCELED before it returns: the destination is quiet. -ENOENT: it is not
     * posted. */
    int (*cancel)(void *ctx, struct transfer *t);
    /* The owner's: ends a serve. After it returns, not a byte of the memory is read for it any more by this process;
     * the reader's status is `status` (negative); served still comes later. -ENOENT: no such token, or all of it is
     * sent already (with sendfile its pages may still lie in the socket: wait for served). */
    int (*stop)(void *ctx, struct connection *c, uint64_t token, int status);

    void (*stats)(void *ctx, struct transport_stats *out);
    /* Whether a read that completed with 0 says that the owner kept the slot until then. Where not, it is the lease's
     * time and the checksum that prove the bytes (rule 22). */
    bool (*proves)(void *ctx);
};

extern const struct transport null_transport;

#endif
