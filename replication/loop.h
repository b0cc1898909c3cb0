/* loop.h: a transport inside one process, in virtual time: nodes of a net reach each other with the delays and faults
 * that a seed draws. For the simulator and for tests; deterministic, starts no thread, reads no clock.
 *
 * The caller owns the time: loop_net_step(net, now) makes what is due up to `now` happen: bytes of payload are copied
 * out of the owner's exposed memory at that very moment, everything else comes to lie before its node until that
 * takes its turn. A node that takes no turns is a node that is paused.
 *
 * Two ways to read. One-sided, as a NIC does it: the owner's process is not asked; bytes are taken whenever the net
 * gets to it, after the lease's end and after the owner's death too, and `proves` is false. Held, as tcp does it: the
 * owner admits each read and is told when the reader has it all, and `proves` is true.
 *
 * Faults are of the net's own making, counted by kind. Those of messages (dropped, doubled, out of order) break what
 * transport.h promises of `send`: whoever uses them sees whether the machines above bear a peer that does so.
 *
 * Addresses are those that were listened on, "127.0.0.1:PORT" for instance; port 0 is refused. Memory that was exposed
 * has to stay until the net is destroyed. One thread at a time, a net with all its contexts.
 */
#ifndef BERTH_REPLICATION_LOOP_H
#define BERTH_REPLICATION_LOOP_H

#include "replication/transport.h"

enum loop_fault {
    LOOP_SLOW,          /* a message or a piece takes 50 times as long */
    LOOP_DROPPED,       /* a message never arrives */
    LOOP_DOUBLED,       /* .. arrives twice */
    LOOP_REORDERED,     /* .. arrives behind those after it */
    LOOP_LATE,          /* bytes are taken from memory up to late_ns later */
    LOOP_TORN,          /* parts of one read are taken at different times */
    LOOP_NOT_COMPLETED, /* a read's completion never comes: it is cancelled, or after 5 s the connection ends */
    LOOP_DAMAGED,       /* a byte of the payload is another */
    LOOP_CUT,           /* a connection is lost; each end hears of it in its own time */
    LOOP_NOT_CONNECTED, /* an attempt to connect fails */
    LOOP_WROTE_ON,      /* the reads of a context that crashed go on writing for a while */
    LOOP_FULL,          /* send has no room, for a while */
    LOOP_FAULTS
};
extern const char *const loop_fault_names[LOOP_FAULTS];

struct loop_config {
    uint64_t seed;
    bool held;                    /* as tcp; else one-sided */
    int64_t delay_min, delay_max; /* ns, of a message and of payload, one way */
    int64_t late_ns;              /* LATE, TORN: at most so much */
    int64_t linger_ns;            /* until an end hears that the other is gone: at most so long */
    int64_t ghost_ns;             /* WROTE_ON: at most so long after the crash */
    uint32_t one_in[LOOP_FAULTS]; /* a fault in so many occasions; 0: none */
    /* NULL, or: CLOCK_MONOTONIC ns of the node whose events' env this is; else the net's own time is. */
    int64_t (*mono)(void *env);
    /* NULL, or: called before t->complete of every read that ends with 0. */
    void (*arrived)(void *env, const struct connection *c, const struct transfer *t);
};

struct loop_net;

/* config is copied. 0, -ENOMEM, -EINVAL (delays that are negative or the wrong way round). */
int loop_net_create(struct loop_net **out, const struct loop_config *config);
/* All contexts are closed or have crashed. NULL is passed over. */
void loop_net_destroy(struct loop_net *net);
/* Contexts that are opened from now on belong to this net. */
void loop_net_use(struct loop_net *net);

/* When something is due, the net's ns; INT64_MAX: nothing is. */
int64_t loop_net_timer(const struct loop_net *net);
/* Time is `now`, never before what it was; all that is due happens, in the order of its time. */
void loop_net_step(struct loop_net *net, int64_t now);
/* From now on there are no faults, and every piece under way is as it is. */
void loop_net_calm(struct loop_net *net);
const uint64_t *loop_net_faults(const struct loop_net *net); /* LOOP_FAULTS counts */
/* Whether a read that is under way may still write to any of these bytes. */
bool loop_net_writes(const struct loop_net *net, const void *at, size_t n);

/* Whether a turn of this context has something to do. */
bool loop_ready(const void *ctx);
/* Its process is killed: ctx is gone, nobody is called back. What it had posted may go on writing (WROTE_ON), and what
 * others read from its memory goes on until they hear of it. */
void loop_crash(void *ctx);
/* Ends a connection of ctx as a fault does. Each end hears of it later. */
void loop_cut(void *ctx, struct connection *c);

/* `turn` takes at most 64 events. turn_bytes, sendfile_*, chunk, small, windows and silence_ns of the configuration
 * mean nothing here. */
extern const struct transport loop_transport;

#endif
