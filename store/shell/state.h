/* state.h: what the files of the shell share: the server and its sessions. Everything here belongs to the node's
 * thread, or to the caller that does its work (baton.h), but for what is named atomic or guarded.
 */
#ifndef BERTH_SHELL_STATE_H
#define BERTH_SHELL_STATE_H

#include "store/attach.h"
#include "store/ring.h"
#include "store/shell/baton.h"
#include "store/shell/commit.h"
#include "store/shell/region.h"
#include "store/shell/scan.h"
#include "store/shell/server.h"
#include "store/shell/settings.h"

#include <pthread.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

#define SESSIONS_MAX 1024u
#define GUESTS_MAX 64u /* connections that have not said hello yet */
#define GUEST_PATIENCE_NS 5000000000LL
#define SESSION_BLOCK 1024u /* ids reserved in the index at a time: a crash never gives one out twice */
#define SESSION_TURN 64u    /* messages of one session in a pass */
#define OWED_SLOTS 4096u    /* twice the requests of a session whose replies the ring has room for; a power of two */
#define HOUSEKEEPING_MS 2000u
#define LOOK_MS 1000u /* how often sessions without a connection are looked at */

/* Room in the reply ring that a request, taken and not answered yet, has been promised. */
struct owed {
    uint64_t id;
    uint32_t bytes; /* 0: free */
};

struct buffer;
TAILQ_HEAD(buffer_list, buffer);

struct session {
    struct server *server;
    uint64_t id;
    char name[NAME_MAX_BYTES + 1];
    pid_t pid; /* 0: in a PID namespace that this process does not see */
    uid_t uid;
    uint64_t start_time;
    bool writable;
    bool foreign;  /* neither the node's user nor root */
    bool attached; /* has a connection and a ring */
    bool dead;     /* the core was told: its pins count no more */
    bool closed;   /* off the list, freed at the end of the pass */
    bool wake;     /* replies were pushed since its client_sleeping was looked at */
    bool leaving;  /* said DETACH: dead once that is answered */
    int pid_fd;    /* of its process, -1 where there is none */
    int socket_fd;
    int bell_fd; /* doorbell: the client rings the node */
    int wake_fd; /* the client's eventfd: the node rings the client */
    struct watch *pid_watch, *socket_watch, *bell_watch;
    struct pin_table pins;
    struct ring_shared *ring;
    struct ring_end requests, replies;
    uint64_t touched; /* touches taken so far */
    struct owed owed[OWED_SLOTS];
    uint32_t owed_bytes, owed_count, owed_largest;
    uint32_t pending;                /* bytes of the message that was popped and waits for room or its turn; 0: none */
    int pending_status;              /* msg_check's of it */
    uint32_t pending_reply;          /* bytes that its reply may take in the ring */
    uint8_t *message;                /* RING_MESSAGE_MAX */
    int64_t taken_stamp;             /* when the client submitted the last message that was taken */
    struct buffer_list buffers;      /* of this connection */
    uint32_t n_buffers, last_buffer; /* last_buffer: number given last, of any connection */
    uint64_t buffer_bytes;           /* of all of them */
    int offered_fd;                  /* the descriptor that came last over the socket, -1; its cookie: */
    uint64_t offered;
    char *text; /* of a query in parts */
    size_t text_size;
    struct session *grave; /* closed ones are chained until they are freed */
};

/* A pin file whose session is no more but whose lock somebody still holds. */
struct leftover {
    uint64_t id;
    int fd;
};
#define LEFTOVERS_MAX 64u

/* An event that came out of a command: given to the core once all commands of the last event are carried out. */
struct later {
    enum node_event_kind kind;
    uint32_t scan;
    int32_t status;
    uint64_t session;
    uint64_t *pinned;
};

#define CHECKS_MAX 8u

/* A CHECK asked for while a commit was under way. */
struct check_wait {
    uint64_t session;
    struct msg_query query;
};

struct server {
    struct settings settings;
    struct region region;
    struct node *node;
    struct node_now now;
    int64_t boot_offset, raw_offset, wall_offset_us,
        offsets_read; /* of the other clocks from CLOCK_MONOTONIC; when they were read */
    uv_loop_t loop;
    uv_async_t async;
    uv_timer_t housekeeping, look;
    bool started;   /* the core has recovered what there was */
    bool discarded; /* a start that failed after the region was open: its clean mark stays what it was */
    struct commit *commit;
    struct scanner scanner;

    struct session *sessions[SESSIONS_MAX]; /* by id */
    unsigned n_sessions;
    unsigned last_found;
    struct session *buried;
    struct leftover leftovers[LEFTOVERS_MAX];
    unsigned n_leftovers;
    uint64_t next_session, session_limit;
    uint64_t first_session; /* of this start: those below are of earlier nodes */
    bool made_socket_dir;

    struct listener *listener;
    struct peers *peers;               /* NULL: this node is alone */
    const struct transport *transport; /* between peers, looked at when they open; NULL: tcp */

    struct later *later;
    unsigned n_later, later_size, later_at;
    bool dispatching;
    bool ask_touches; /* a commit was begun since clients were asked for their touches */
    uint32_t asks;    /* how often they were */
    int64_t asked;    /* when they were last */
    bool turn_due;    /* events came since the last EV_TURN */
    bool followed;    /* the event given last led to events of its own */
    struct check_wait checks[CHECKS_MAX];
    unsigned n_checks;

    int64_t active;    /* when there was last work */
    int64_t polled;    /* when libuv last ran */
    int64_t budget_ns; /* what is spent on polling after work */
    int64_t budget_max_ns;
    int64_t stalled_ns;   /* how long to sleep at most while a session waits for room in its reply ring; 0: none does */
    int64_t patience_ns;  /* the budget, or 0 where the client shares the node's CPU */
    bool slept;           /* since `active` */
    int64_t peers_active; /* when peers had something last, or were asked something; 0: nothing is expected of them */
    int64_t peers_budget_ns; /* what is spent on polling after that; learnt as budget_ns */
    int64_t elsewhere;       /* when a client of another CPU asked something last, and spins for it */
    bool pulled;             /* in this pass: who asks for a pull does not spin, with few CPUs */
    bool few_cpus;           /* two or one: one for this node, one for a client that spins, none for a peer */
    bool peers_slept;        /* since peers_active */
    int cpu;
    int timer_fd;
    struct watch *timer_watch, *commit_watch;
    int64_t timer_at;          /* when the core wants to hear of the time */
    int64_t timer_set;         /* what timer_fd is set to; 0: nothing */
    _Atomic uint32_t sleeping; /* an executor that finishes rings the eventfd only then */
    uint64_t sleeps, passes;

    struct baton baton;
    bool shared;         /* callers may do the node's work */
    bool driven;         /* one does */
    int64_t drive_until; /* .. until then; INT64_MAX: none does */
    uint64_t poll_until; /* libuv's ms: how long the node's thread sleeps without the baton */
    bool flushed;        /* since the last work libuv ran and found nothing */

    _Atomic uint32_t stop; /* asked for, from anywhere */
    bool stopping, stopped;
    int commit_error;      /* the last commit's, 0: it went well */
    char unlinked[256];    /* what region_linked said last; empty: all is well */
    struct lane_sums gone; /* counters of sessions that are no more */
    unsigned freed;        /* trim.h: sessions and connections since memory was given back */

    pthread_mutex_t connect_lock;
    int connects[GUESTS_MAX]; /* sockets from server_connect that wait for the node's thread */
    unsigned n_connects;

    int ro_fds[4];      /* pool, slots, lookup, tails, read-only, for welcomes */
    struct hook *hooks; /* of server_watch and server_every */
    pthread_t thread;   /* of an embedded node */
};

/* CLOCK_MONOTONIC now, and into s->now with the other clocks. */
int64_t server_clock(struct server *s);
/* Before the node sleeps: has it wake within a second where somebody has to be looked at. */
void server_look_soon(struct server *s);

#endif
