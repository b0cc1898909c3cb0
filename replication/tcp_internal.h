/* tcp_internal.h: what the files of the TCP transport share. See tcp.h and tcp_frame.h.
 *
 * Life of memory: a connection, its lanes and tables are freed at the end of the turn or call in which it ended, never
 * under a function that still uses them: whoever has called out looks at `ended` (or at the lane's fd) before going on.
 */
#ifndef BERTH_REPLICATION_TCP_INTERNAL_H
#define BERTH_REPLICATION_TCP_INTERNAL_H

#include "replication/tcp.h"
#include "replication/tcp_address.h"
#include "replication/tcp_frame.h"

#include <sys/types.h>

#define ITEMS_MAX 16u              /* DATA frames in one sendmsg */
#define BATCH_BYTES (256u << 10)   /* payload in one sendmsg, about */
#define AHEAD_BYTES (16u << 10)    /* input of a control lane that is read in one go */
#define SMALL_MAX (32u << 10)      /* of config.small */
#define LONE_MAX (128u << 10)      /* greatest transfer on the control lane */
#define LANE_QUOTA (128u << 10)    /* bytes of one lane and direction before the others have their turn */
#define GRANT_QUANTUM (2ull << 20) /* bytes that one bulk transfer may ask for before the others have their turn */
#define DONE_NS_MAX 10000000       /* of config.done_ns */
#define KEEP_BUFFER (64u << 10)    /* larger buffers are freed when they are empty */

enum source_kind { SOURCE_LISTENER, SOURCE_TIMER, SOURCE_KICK, SOURCE_LANE };

enum lane_stage {
    LANE_CONNECTING, /* connect() is under way */
    LANE_GREETING,   /* the other side's greeting is awaited */
    LANE_WAITING,    /* a control lane without its bulk lane: nothing may come */
    LANE_OPEN
};

enum lane_input { INPUT_HEAD, INPUT_MESSAGE, INPUT_DATA };

/* One DATA frame on its way out. */
struct item {
    uint8_t head[FRAME_BYTES];
    uint32_t head_at;       /* bytes of head that are sent */
    uint32_t bytes, at;     /* payload, and how much of it is sent */
    uint64_t offset;        /* of the payload in the pool */
    const uint8_t *payload; /* the same, mapped */
    struct serve *serve;
    bool file; /* by sendfile */
};

struct bytes {
    uint8_t *data;
    size_t size, capacity;
};

struct tcp_lane {
    enum source_kind source; /* SOURCE_LANE */
    enum lane_kind kind;
    enum lane_stage stage;
    int fd; /* -1: closed */
    struct tcp *ctx;
    struct tcp_connection *c; /* NULL: a stranger, that has not said who it is */
    uint32_t armed;           /* what epoll waits for */
    int64_t due;              /* of a stranger: closed then, CLOCK_MONOTONIC ns */
    bool incoming;
    bool linked; /* by `link` among the strangers; a closed one hangs by it among the dead */
    TAILQ_ENTRY(tcp_lane) link;

    /* input */
    uint8_t *in; /* in_size bytes; those from in_at to in_end are received and not looked at */
    uint32_t in_size, in_at, in_end;
    enum lane_input input;
    uint32_t left;           /* bytes of the body that are to come */
    struct bytes message;    /* INPUT_MESSAGE: what has come */
    struct request *request; /* INPUT_DATA */
    bool last;               /* INPUT_DATA: the transfer ends with this frame */

    /* output: `now` and then the items are being sent; `later` waits */
    struct bytes now, later;
    size_t now_at;
    struct item items[ITEMS_MAX];
    uint32_t item, item_count;
    TAILQ_HEAD(, serve) sending; /* serves that have something to send */
    bool dirty;                  /* there is output that nobody has tried to send */
    TAILQ_ENTRY(tcp_lane) dirty_link;
    bool lazy;        /* there is output that may wait until lazy_due for other output to go with */
    int64_t lazy_due; /* CLOCK_MONOTONIC ns */
    TAILQ_ENTRY(tcp_lane) lazy_link;
};

/* The reader's side of one transfer. It outlives the transfer when that is given up: the rest has to come first. */
struct request {
    uint64_t id;        /* 0: free */
    struct transfer *t; /* NULL: given up, payload is thrown away */
    uint64_t bytes, allowed, received;
    int64_t due; /* given up: the peer must have ended it by then */
    enum lane_kind lane;
};

enum serve_state { SERVE_FREE, SERVE_SENDING, SERVE_REFUSING, SERVE_ENDED };

/* The owner's side of one transfer. */
struct serve {
    uint64_t id, lease, token;
    uint64_t offset, bytes, allowed;
    uint64_t taken; /* bytes that are in items or sent */
    uint64_t sent;
    enum serve_state state; /* SENDING; REFUSING: the error is to be sent; ENDED: the last DATA is sent or in an item */
    int status;
    bool admitted; /* `served` is owed */
    bool last_out; /* the last DATA has left */
    bool linked;   /* in the lane's list */
    enum lane_kind lane;
    TAILQ_ENTRY(serve) link;
};

enum pair_state { PAIR_MAKING, PAIR_OPEN, PAIR_ENDED };

struct tcp_connection {
    struct connection head; /* first: what the caller sees */
    struct tcp *ctx;
    enum pair_state state;
    struct tcp_lane *lane[2];
    uint8_t token[TOKEN_BYTES];
    union tcp_address address;
    int64_t due; /* PAIR_MAKING: given up then */
    bool room_wanted;
    bool wanting;   /* in ctx->wanting */
    bool same_host; /* the peer is on this machine: both ends have one address, or loopback ones */
    TAILQ_ENTRY(tcp_connection) link, wanting_link;

    struct transfer_list small, bulk; /* that want to ask for (more) bytes */
    struct request *requests;         /* REQUESTS_MAX, or NULL */
    uint32_t request_count, request_next, small_count;
    uint64_t serial;    /* of the next request */
    uint64_t in_flight; /* bytes asked for and not received */

    struct serve *serves; /* REQUESTS_MAX, or NULL */
    uint32_t serve_count;
};

TAILQ_HEAD(lane_list, tcp_lane);
TAILQ_HEAD(connection_list, tcp_connection);

struct tcp {
    struct transport_config config; /* every default filled in */
    struct transport_events events;
    void *env;
    int epoll_fd, timer_fd, kick_fd, listen_fd;
    enum source_kind listener, timer, kick; /* what epoll hands back for them */
    union tcp_address listen;
    bool listener_off; /* out of descriptors: accepts again at listen_due */
    int64_t listen_due;
    int64_t timer_at; /* what the timer is set to; INT64_MAX: off */
    bool in_turn, kicked;
    struct tcp_lane *hot; /* that has received last: polled by itself, which is cheaper than epoll; or NULL */
    unsigned looks;
    bool hot_ready;  /* it has something to receive */
    bool ended;      /* the turn: somebody waits to hear of what was completed in it */
    bool small_done; /* in this turn */
    bool bulk_owed;  /* the last turn ended without a look at bulk */
    bool file_local; /* sendfile also to peers on this machine */
    unsigned depth;  /* calls under way, callbacks' calls included: at 0 what has ended is freed */

    int pool_fd;
    const uint8_t *pool;
    uint64_t pool_bytes;

    struct lane_list strangers, dirty, lazy, dead_lanes;
    struct connection_list connections, wanting, dead;
    uint32_t stranger_count, making_count, connection_count;
    uint64_t in_flight;
    uint64_t waiting; /* transfers in the connections' small and bulk */
    struct transport_stats stats;
};

/* tcp.c */
int64_t tcp_now(void);
void tcp_enter(struct tcp *ctx);
void tcp_leave(struct tcp *ctx);
void tcp_due(struct tcp *ctx, int64_t due);           /* the timer fires then, or before */
void tcp_arm(struct tcp_lane *lane, uint32_t events); /* what epoll waits for on this lane */
void tcp_dirty(struct tcp_lane *lane); /* there is output: it is sent at the end of the turn, or by flush */

void tcp_lazy(struct tcp_lane *lane);     /* the same, but it may wait for config.done_ns */
void tcp_not_lazy(struct tcp_lane *lane); /* it is sent, or goes */

/* tcp_connect.c */
int tcp_listen(struct tcp *ctx, char *why, size_t why_size);
void tcp_accept(struct tcp *ctx);
int tcp_connect(void *ctx, const char *peer, void *user, struct connection **c, char *why, size_t why_size);
void tcp_lane_made(struct tcp_lane *lane, uint32_t events); /* an event on a lane that is not open */
void tcp_overdue(struct tcp *ctx, int64_t now);             /* ends what is unfinished for too long */

/* tcp_end.c */
struct tcp_lane *tcp_lane_new(struct tcp *ctx, int fd, enum lane_kind kind);
void tcp_lane_close(struct tcp_lane *lane); /* resets it; freed later */
/* Ends it: transfers and serves are told; `closed` or `connected` too when `tell`. */
void tcp_end(struct tcp_connection *c, int status, const char *why, bool tell);
void tcp_protocol(struct tcp_lane *lane, const char *why); /* ends it for what the peer has sent */
void tcp_bury(struct tcp *ctx);                            /* frees what has ended */

/* tcp_input.c */
/* Receives up to about quota bytes; the number received. */
size_t tcp_receive(struct tcp_lane *lane, size_t quota);

/* tcp_output.c */
int tcp_bytes_add(struct bytes *b, const void *data, size_t n);
void tcp_frame(struct tcp_connection *c, const struct frame *f); /* on the control lane; DONE is in no haste */
/* Sends up to about quota bytes; the number sent. */
size_t tcp_transmit(struct tcp_lane *lane, size_t quota);
int tcp_send(void *ctx, struct connection *c, const void *message, size_t n);
/* No more of the serve's payload is read: what of it is in items is taken back, blanked where its head has left. True:
 * the error stands in an item now, as the serve's last frame. */
bool tcp_retract(struct tcp_lane *lane, struct serve *s, int status);

/* tcp_read.c */
int tcp_read(void *ctx, struct connection *c, struct transfer *t);
int tcp_cancel(void *ctx, struct transfer *t);
void tcp_grant(struct tcp *ctx); /* asks for what fits into the windows */
void tcp_on_data(struct tcp_lane *lane, const struct frame *f);
/* n bytes have come into the destination of lane->request (or of a given up one, and are gone). */
void tcp_took(struct tcp_lane *lane, size_t n);
void tcp_give_up(struct transfer *t, int status);
void tcp_reads_overdue(struct tcp_connection *c, int64_t now);
void tcp_reads_end(struct tcp_connection *c);

/* tcp_serve.c */
void tcp_on_read(struct tcp_lane *lane, const struct frame *f);
void tcp_on_grant(struct tcp_lane *lane, const struct frame *f);
void tcp_on_cancel(struct tcp_lane *lane, const struct frame *f);
void tcp_on_done(struct tcp_lane *lane, const struct frame *f);
void tcp_fill_items(struct tcp_lane *lane); /* from lane->sending into the empty lane->items */
void tcp_item_sent(struct tcp_lane *lane, struct item *i);
int tcp_stop(void *ctx, struct connection *c, uint64_t token, int status);
void tcp_serves_end(struct tcp_connection *c);

#endif
