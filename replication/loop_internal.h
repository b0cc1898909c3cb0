/* loop_internal.h: what the files loop*.c share.
 *
 *   loop.c       the net: time, faults, what is on its way; the contexts and their turns
 *   loop_end.c   connections and messages
 *   loop_read.c  payload
 *
 * Something on its way is an item of the net's heap, ordered by time and then by number. When its time comes, a piece
 * of payload is copied and that was it; all others move to the inbox of their context, until its turn. Items count the
 * pair and the read that they name; the two ends of a connection stay until nobody names either.
 */
#ifndef BERTH_REPLICATION_LOOP_INTERNAL_H
#define BERTH_REPLICATION_LOOP_INTERNAL_H

#include "replication/loop.h"

enum item_kind {
    ITEM_PIECE,     /* net: bytes of a read are copied */
    ITEM_EXPIRE,    /* net: the deadline of a read */
    ITEM_STRAND,    /* net: a read of a crashed context is over */
    ITEM_LOST,      /* net: a completion has not come for too long */
    ITEM_CONNECTED, /* dialler, status */
    ITEM_ACCEPTED,  /* listener */
    ITEM_MESSAGE,
    ITEM_ROOM,
    ITEM_CLOSED, /* status */
    ITEM_WANT,   /* owner: a read to be admitted */
    ITEM_DONE,   /* owner: the reader has it all, or gave up: status */
    ITEM_ENDED   /* reader: status */
};

struct loop;
struct loop_end;
struct loop_read;

struct item {
    int64_t at;
    uint64_t serial;
    TAILQ_ENTRY(item) entry; /* of an inbox */
    enum item_kind kind;
    int status;
    struct loop_end *end;
    struct loop_read *read;
    uint64_t from; /* PIECE: first byte */
    size_t n;      /* MESSAGE, PIECE */
    uint8_t bytes[];
};
TAILQ_HEAD(item_list, item);

struct loop_end {
    struct connection c; /* first */
    TAILQ_ENTRY(loop_end) entry;
    struct loop *ctx;       /* NULL: this end is gone */
    struct loop_end *other; /* of the same pair */
    struct loop_pair *pair;
    int64_t last;          /* arrival of the last message to this end */
    uint64_t under_way;    /* bytes of messages from this end that have not arrived */
    const uint8_t *memory; /* what the other end exposed when the connection was made */
    uint64_t memory_bytes;
    bool up;      /* its context was told of it */
    bool stopped; /* its context ended it: its memory is read no more */
    bool cut;     /* it has been told, or will be, that it is closed */
    bool full;    /* send said -EAGAIN */
};

struct loop_pair {
    struct loop_net *net;
    uint32_t refs;          /* items, reads, contexts that have one of its ends */
    struct loop_end end[2]; /* who connected, who was connected to */
};

struct loop_read {
    TAILQ_ENTRY(loop_read) entry; /* of the net, until it is freed */
    struct transfer *t;           /* NULL: the reader was told, or is dead */
    struct loop_end *end;         /* the reader's */
    uint32_t refs;
    uint32_t pieces; /* not yet copied */
    bool writes;     /* may still write */
    bool lost;       /* no completion comes */
    bool damaged;    /* a byte is to be changed */
    bool serving;    /* held: admitted and not told of its end */
    uint64_t offset, bytes, lease, generation, token;
    uint32_t parts;
    struct iovec to[];
};
TAILQ_HEAD(end_list, loop_end);
TAILQ_HEAD(read_list, loop_read);

struct loop {
    TAILQ_ENTRY(loop) entry;
    struct loop_net *net;
    struct transport_config config;
    struct transport_events events;
    void *env;
    char address[TRANSPORT_ADDRESS_MAX]; /* listened on; empty: none */
    const void *memory;
    uint64_t memory_bytes;
    struct end_list ends;
    struct item_list inbox;
    uint32_t n_ends;
    struct transport_stats stats;
};
TAILQ_HEAD(loop_list, loop);

struct loop_net {
    struct loop_config config;
    uint64_t random, serial;
    int64_t now;
    struct item **heap;
    size_t n_heap, heap_room;
    struct loop_list contexts;
    struct read_list reads;
    uint64_t faults[LOOP_FAULTS];
};

uint64_t loop_random(struct loop_net *net);
int64_t loop_span(struct loop_net *net, int64_t least, int64_t most);
bool loop_fault(struct loop_net *net, enum loop_fault kind); /* draws, and counts */
int64_t loop_delay(struct loop_net *net);
int64_t loop_mono(const struct loop *ctx);

/* An item for `end`, at net->now + delay; counts end and read. No memory ends the process: what is lost would be waited
 * for for ever. */
struct item *loop_send(struct loop_net *net, enum item_kind kind, int64_t at, struct loop_end *end,
                       struct loop_read *read, const void *bytes, size_t n);

void end_drop(struct loop_end *e);                /* one count less */
void end_cut(struct loop_end *e);                 /* both ends are to hear that the connection is lost */
void end_gone(struct loop_end *e);                /* its context has it no more */
void end_hang_up(struct loop_end *e);             /* the other end is to hear that this one is gone */
void end_taken(struct loop *ctx, struct item *i); /* an item of ctx's inbox */
void end_reads(struct loop_end *e, int status);   /* ends all that it posted */

void read_drop(struct loop_read *r);
void read_quiet(struct loop_read *r); /* nothing is written any more */
void read_piece(struct loop_net *net, const struct item *i);
void read_lost(struct loop_read *r);
void read_taken(struct loop *ctx, struct item *i);
void read_strand(struct loop_end *e);             /* its process is gone: nobody there is told anything */
void read_served(struct loop_end *e, int status); /* the owner's end e is gone: its serves are told */
int loop_read(void *ctx, struct connection *c, struct transfer *t);
int loop_cancel(void *ctx, struct transfer *t);
int loop_stop(void *ctx, struct connection *c, uint64_t token, int status);

int loop_connect(void *ctx, const char *peer, void *user, struct connection **c, char *why, size_t why_size);
void loop_disconnect(void *ctx, struct connection *c);
int loop_message(void *ctx, struct connection *c, const void *message, size_t n);

static inline struct loop_end *end_of(struct connection *c)
{
    return (struct loop_end *)c;
}

#endif
