/* pull_internal.h: the puller's own structures, shared by the pull_*.c files.
 *
 *   request   what a caller asked for; has one item a key
 *   item      one key of a request; waits for a fetch
 *   fetch     one transfer of one key to one destination; items of many requests share one to the local pool
 *   seek      the search for a lease on a key; fetches of the key share it
 *   rpc       a request to a member that was not answered yet
 *   flow      the fetches of one request that wait for a window towards one member
 *
 * A fetch and its states:
 *   SEEK -> (HELD) -> (RESERVE) -> READ -> HASH -> SEAL -> ended
 *   any but SEAL -> QUIET -> ended, SEEK or PAUSE: QUIET lasts until nothing writes to or reads from the destination
 *   HASH -> STATE -> READ (once more) or QUIET
 */
#ifndef BERTH_REPLICATION_PULL_INTERNAL_H
#define BERTH_REPLICATION_PULL_INTERNAL_H

#include "replication/pull.h"
#include "replication/timer.h"
#include "store/berth.h"

#define MEMBER_WORDS (LEASE_MEMBERS_MAX / 64)
#define SEEK_LOCATIONS (PULL_LOCATIONS_MAX * 2)
#define RELEASES_MAX 256u                 /* in one command */
#define PARTS_MAX 16384u                  /* of one HASH */
#define RANGE_SCRATCH (UINT64_C(1) << 63) /* in a range's `to`: a place in scratch; no place of a caller has it */

struct out { /* a command that waits to be taken */
    struct list node;
    enum pull_command_kind kind;
};

struct keybox { /* a key, counted */
    uint32_t refs;
    uint32_t flags;
    uint64_t hash;
    uint64_t route;
    uint32_t size, ns;
    uint8_t data[];
};

enum timer_kind { TIMER_REQUEST, TIMER_FETCH, TIMER_RPC, TIMER_MEMBER };

struct request;
struct fetch;

struct item {
    struct request *request;
    struct fetch *fetch;
    struct list node; /* in fetch.items */
    uint32_t round;   /* of the fetch that serves it: a later one if it came too late for this */
    uint32_t index;
    int left; /* its caller gave it up with this status; the destination is not quiet yet */
    bool done, located, released;
    bool late;      /* it joined a search that was under way: that the key was nowhere then says nothing to it */
    int64_t joined; /* its round began */
    int64_t came;   /* it joined its fetch */
};

struct request {
    struct pull_link by_id;
    struct list grave, flows;
    struct list turning; /* in puller.turning: the run of PREFIX is to be looked at, at the event's end */
    struct timer timer;
    struct out done;
    uint64_t id, serial, lineage;
    int64_t deadline, asked;
    enum pull_destination destination;
    uint32_t flags, sample;
    uint32_t n, open;         /* items; of them not done */
    uint32_t bound, released; /* PREFIX: the run ends here; items before this may be pulled */
    struct item *items;
    struct pull_result *results;
};

struct flow {
    struct list node;       /* in source.flows */
    struct list in_request; /* in request.flows */
    struct list fetches;
    struct request *request;
    uint16_t member;
};

struct rpc;

struct seek {
    struct pull_link by_key;
    struct list pending; /* in puller.asks or .grants until the event's end */
    struct list fetches;
    struct keybox *key;
    struct rpc *rpc;
    uint32_t rpc_entry;
    uint32_t n_homes, home, n_answered, n_absent, n_locations;
    uint16_t homes[PULL_HOMES_MAX];
    uint16_t member;                               /* that the pending request goes to */
    struct pull_location location[SEEK_LOCATIONS]; /* not asked yet */
    uint64_t skip[MEMBER_WORDS];                   /* no sources for its fetches */
    uint64_t tried[MEMBER_WORDS];                  /* these, and those that were asked already */
    uint64_t missing[MEMBER_WORDS];                /* LEARNING: in the answers of all homes */
    struct object_version least, here;
    uint64_t prefix; /* serial of the request whose run it belongs to; 0: none */
    bool shared, fresh, narrowed, parked, held;
    bool home_lost, source_lost, refused, busy;
    uint32_t unasked; /* one of those lost, + 1; 0: none */
    bool full;        /* an owner gives this node no more leases before it has some back */
    bool unsure;      /* a home that found it does not know what all members have */
};

enum fetch_state {
    FETCH_SEEK,
    FETCH_HELD,
    FETCH_PAUSE,
    FETCH_RESERVE,
    FETCH_READ,
    FETCH_HASH,
    FETCH_STATE,
    FETCH_SEAL,
    FETCH_QUIET,
    FETCH_ENDED
};
enum fetch_after { AFTER_END, AFTER_RETRY };

struct fetch {
    struct pull_link by_key, by_id;
    struct list all, grave, items, in_seek, in_flow, reads;
    struct timer timer;
    struct out reserve, hash, seal, abort, corrupt, watch;
    uint64_t id;
    struct keybox *key;
    enum pull_destination destination;
    enum fetch_state state;
    enum fetch_after after;
    int end;
    uint32_t round;
    bool fresh, hold;
    bool late;                  /* as an item is: it joined its seek after a home was asked */
    struct object_version here; /* of the local pool's copy, as the last FRESH that joined has said */
    bool watching;              /* answers to its WATCH are still to come */
    bool last_look;             /* the one under way began after `lost` was known */
    int lost;                   /* why the key's writer did not seal it: it is looked for once more; 0 */
    struct seek *seek;
    struct rpc *rpc; /* STATE */
    struct reader_lease *lease;
    uint64_t avoid[MEMBER_WORDS];
    int worst; /* what a source that failed makes of "nowhere" */
    uint32_t stale, waits, rereads;
    struct pull_target target;
    bool reserved, reserving, hashing;
    int64_t full_since; /* no room has been found since; 0: not looked for, or found */
    bool served;        /* the lease's use counts */
    uint64_t abort_token;
    struct lease_terms corrupt_terms;
    uint16_t corrupt_member;
    uint64_t room;
    struct pull_range whole, *asked;    /* asked: own copy, or &whole */
    struct pull_range *ranges, *padded; /* what is read: asked, or padded: with the rest of their segments */
    uint8_t *scratch;                   /* n_scratch bytes: where that rest goes */
    uint64_t n_scratch;
    uint32_t n_asked, n_ranges, range;
    uint64_t range_at, total, unposted, flying;
    uint32_t n_reads, reads_made;
    uint64_t piece_sum;
    bool has_piece_sum, blocked, renewed, verifiable;
    struct flow *flow;
    struct pull_part *parts;
    uint64_t *expect;
    uint32_t n_parts, n_sums;
    struct pull_result record;
    enum pull_phase phase;
    int64_t since;        /* it is in this phase, CLOCK_MONOTONIC ns */
    int64_t began, ended; /* of its READs, as the transport said: the first, the last; 0: not known */
    uint32_t visited;     /* phases that it was in: bits */
    bool source_lost;     /* a source of it was lost */
    bool removed;         /* what it brought was older than a removal of this node */
};

struct read {
    struct pull_link by_id;
    struct list node; /* in fetch.reads */
    struct out post, cancel;
    struct fetch *fetch;
    uint64_t id, offset, length, at;
    uint16_t member;
    bool cancelled, scratch; /* at: of the fetch's scratch */
    uint64_t lease, generation;
};

struct rpc_entry {
    struct keybox *key;
    struct seek *seek; /* NULL: nobody waits any more */
};

struct rpc {
    struct pull_link by_id;
    struct list by_member;
    struct timer timer;
    struct out out;
    enum pull_command_kind kind;
    uint64_t id;
    uint16_t member;
    uint32_t flags;
    bool abandoned;
    int64_t start, deadline;
    struct reader_lease *lease; /* RENEW; a user of it */
    struct fetch *fetch;        /* STATE */
    uint32_t n;
    struct rpc_entry entry[];
};

struct member {
    struct list rpcs;
    struct list active; /* in puller.sources while it has flows */
    struct list flows;
    struct timer timer; /* release */
    struct out release;
    uint64_t incarnation;
    uint64_t flying, small; /* bytes in flight; of these in small READs */
    const char *transport;
    struct pull_source sums; /* in_flight, transport: not kept here */
    uint32_t n_rpcs;
    bool up, proven;
};

struct floor {
    struct pull_link by_key;
    struct list by_time;
    struct keybox *key;
    struct object_version version;
    int64_t at;
};

struct floor_bucket { /* of versions that were forgotten too early */
    struct object_version version;
    int64_t at;
};

struct puller {
    struct pull_config config;
    struct reader_now now;
    int64_t mono, check;
    uint64_t serial;
    struct leases *leases;
    struct timers timers;
    struct pull_table requests, fetches_by_key, fetches_by_id, seeks, reads, rpcs, floors;
    struct list fetches, asks, grants, sources, outs, dead_requests, dead_fetches, turning, floors_by_time;
    struct member *members;
    uint64_t n_keys, n_seeks, flying, small, n_timers;
    uint64_t scratch;                  /* bytes of all fetches */
    struct floor_bucket *floor_bucket; /* max_floors of them */
    uint32_t sample_turn;
    struct pull_command command;
    struct pull_key keys[PULL_KEYS_MAX];
    struct lease_release releases[RELEASES_MAX];
    uint64_t counter[PULL_COUNTERS];
    uint64_t cause[PULL_CAUSES];
    struct pull_histogram phase[PULL_PHASES];
    bool stopping;
};

/* ---- pull.c ---- */
void out_add(struct puller *p, struct out *o, enum pull_command_kind kind); /* nothing if it waits already */
struct keybox *key_new(struct puller *p, const struct pull_key *k);
struct keybox *key_keep(struct keybox *k);
void key_drop(struct keybox *k);
bool key_same(const struct keybox *a, const struct keybox *b);
struct key_ref pull_key_ref(const struct keybox *k);
void key_show(const struct keybox *k, struct pull_key *out);
void histogram_add(struct pull_histogram *h, int64_t ns);
bool timer_room(struct puller *p); /* for one object more with a timer; false: no memory */
static inline void bit_set(uint64_t *words, uint16_t i)
{
    words[i / 64] |= UINT64_C(1) << i % 64;
}
static inline bool bit_get(const uint64_t *words, uint16_t i)
{
    return words[i / 64] >> i % 64 & 1;
}

/* ---- pull_request.c ---- */
void request_start(struct puller *p, const struct pull_request *r);
void request_cancel(struct puller *p, struct request *r, int status);
struct request *pull_request_find(struct puller *p, uint64_t id);
void request_free(struct puller *p, struct request *r);
void item_done(struct puller *p, struct item *i, const struct fetch *f, int status); /* f: whose record, or NULL */
void item_located(struct puller *p, struct item *i);
void item_parked(struct puller *p, struct item *i); /* a home has passed over its key: behind the end of a run */
void requests_turn(
    struct puller *p); /* PREFIX: what became of the runs; from the end of an event, where no loop runs */

/* ---- pull_record.c ---- */
void fetch_phase(struct puller *p, struct fetch *f, enum pull_phase next);
void fetch_phases_end(struct puller *p, struct fetch *f); /* into the histograms; the next round begins at 0 */
void fetch_fault_at(struct puller *p, struct fetch *f, enum pull_fault fault); /* of the source that it has */
void source_fault(struct puller *p, uint16_t member, enum pull_fault fault);
void seek_phase(struct puller *p, struct seek *s, enum pull_phase next); /* of all fetches that share it */
enum pull_cause cause_of(const struct fetch *f, int status);

/* ---- pull_seek.c ---- */
void seek_join(struct puller *p, struct fetch *f);
void seek_leave(struct puller *p, struct fetch *f);
void seek_step(struct puller *p, struct seek *s);
void seek_go_on(struct puller *p, struct seek *s); /* its fetch is held no more, or its place in the run has come */
void seek_answer(struct puller *p, struct seek *s, uint16_t member, const struct pull_answer *a,
                 struct reader_lease *granted);
void seek_granted(struct puller *p, struct seek *s, const struct pull_grant *g, struct reader_lease *granted);
void seek_lost(struct puller *p, struct seek *s, enum pull_command_kind kind);

/* ---- pull_rpc.c ---- */
void rpcs_flush(struct puller *p);
void rpc_renew(struct puller *p, struct reader_lease *l); /* one at a time */
bool rpc_state(struct puller *p, struct fetch *f);        /* false: it can't be asked */
void rpc_forget_fetch(struct fetch *f);
void rpc_answered(struct puller *p, const struct pull_event *ev);
void rpc_timeout(struct puller *p, struct rpc *r);
void rpcs_lost(struct puller *p, uint16_t member);
void rpc_free(struct puller *p, struct rpc *r);
void releases_flush(struct puller *p);

/* ---- pull_wait.c ---- */
bool fetch_wanted(const struct fetch *f); /* somebody waits for this round of it */
/* After a reservation that came to nothing: whether it goes on to wait, or has ended, for want of room (-EAGAIN). */
bool fetch_waits_for_room(struct puller *p, struct fetch *f, int status);
int64_t fetch_room_until(const struct puller *p, const struct fetch *f); /* how long it may wait for room now */
bool fetch_hold(struct fetch *f); /* sets and gives f->hold: all who wait are behind a run's known part */
void fetch_detach(struct puller *p, struct fetch *f, struct item *i, int status);

/* It asks for no byte of an object that has some: whoever wants to know whether it is there. No transfer, no use.
 * Once it is located. */
static inline bool fetch_only_looks(const struct fetch *f)
{
    return f->total == 0 && f->asked != &f->whole;
}

/* ---- pull_fetch.c ---- */
void fetch_begin(struct puller *p, struct fetch *f);
void fetch_join(struct puller *p, struct item *i, const struct pull_key *k, struct keybox *key);
void fetch_leave(struct puller *p, struct item *i, int status); /* its caller gives it up */
void fetch_release(struct puller *p, struct fetch *f);          /* held no more */
void fetch_quiet(struct puller *p, struct fetch *f);            /* in QUIET: goes on if it is */
void fetch_accept(struct puller *p, struct fetch *f);           /* consumable */
void fetch_again(struct puller *p, struct fetch *f);            /* PAUSE is over */
void fetch_located(struct puller *p, struct fetch *f, struct reader_lease *l);
void fetch_named(struct puller *p, struct fetch *f);                 /* a location is known, the fetch is held */
void fetch_unlocated(struct puller *p, struct fetch *f, int status); /* BERTH_EQUOTA: of leases */
void fetch_watched(struct puller *p, const struct pull_event *ev);
void fetch_stop(struct puller *p, struct fetch *f, enum fetch_after after, int status);
void fetch_stale(struct puller *p, struct fetch *f);
void fetch_fault(struct puller *p, struct fetch *f, int worst);
void fetch_free(struct puller *p, struct fetch *f);
void fetch_timer(struct puller *p, struct fetch *f);
void fetch_reserved(struct puller *p, const struct pull_event *ev);
void fetch_sealed(struct puller *p, const struct pull_event *ev);
struct fetch *fetch_find(struct puller *p, uint64_t id);

/* ---- pull_read.c ---- */
void read_begin(struct puller *p, struct fetch *f);
void read_completed(struct puller *p, const struct pull_event *ev);
void read_cancel_all(struct puller *p, struct fetch *f);
void read_pump(struct puller *p);
void read_timer(struct puller *p, struct fetch *f);
void read_unblock(struct puller *p, const struct reader_lease *l);
void flow_add(struct puller *p, struct fetch *f);
void flow_remove(struct puller *p, struct fetch *f);
int64_t read_estimate(const struct puller *p, uint64_t bytes);
int64_t read_first_estimate(const struct puller *p, uint64_t bytes); /* of a transfer that may be renewed */

/* ---- pull_prove.c ---- */
/* log2 of the segment size; of an object without segments that of one segment that has all of it. */
static inline uint32_t prove_shift(const struct lease_terms *t)
{
    return t->n_sums ? t->segment_log2 : t->size > 1 ? 64u - (uint32_t)__builtin_clzll(t->size - 1) : 0;
}
bool prove_ranges(const struct fetch *f);                   /* what the ranges cover can be hashed and compared */
bool prove_wanted(struct puller *p, const struct fetch *f); /* by those who wait now; a sample is drawn */
/* It will be verified, whatever 1 in `sample` falls on: what is not sure is hashed afterwards, if it is to be. */
bool prove_sure(const struct puller *p, const struct fetch *f);
void prove_begin(struct puller *p, struct fetch *f);
void prove_hashed(struct puller *p, const struct pull_event *ev);
void prove_stated(struct puller *p, struct fetch *f, int status, uint64_t generation);

/* ---- pull_pad.c ---- */
bool pad_ranges(struct puller *p, struct fetch *f); /* so that they can be proved; false: as they were */
void pad_drop(struct puller *p, struct fetch *f);   /* nothing reads into scratch any more */

/* ---- pull_floor.c ---- */
struct object_version floor_get(struct puller *p, const struct keybox *k);
void floor_set(struct puller *p, struct keybox *k, struct object_version v);
void floors_free(struct puller *p);

#endif
