/* node_internal.h: the core's own structures, shared by the node_*.c files.
 *
 * Where a slot stands, and which list of the core has it (at most one):
 *   WRITING  -> its session's drafts; MARK_BUSY while an uncommitted seal names it
 *   READY    -> the eviction policy, unless MARK_BUSY: an uncommitted remove, replace or eviction names it
 *   RETIRED  -> retired: `leased` while a peer may read it, then `fresh` until a first scan, then `waiting` for whoever
 *               reads it here
 *   FREE     -> nowhere but the allocator
 */
#ifndef BERTH_STORE_NODE_INTERNAL_H
#define BERTH_STORE_NODE_INTERNAL_H

#include "store/berth.h"
#include "store/evict.h"
#include "store/node.h"
#include "store/node_lease.h"
#include "store/node_purge.h"
#include "store/slot.h"
#include "store/whatif.h"

#define SESSION_CHAINS 1024u
#define BATCH_MAX 256u /* operations of one commit, evictions and the rest of one group aside */
#define SCAN_MAX 4096u /* slots of one retire scan */
#define EVICT_MAX 256u /* victims of one step */
#define WINDOW_TRIES 16u
#define WINDOW_SLOTS 65536u /* slots that one look at windows may scan */
#define SWEEP_SLOTS 262144u /* slots that one step of a sweep may pass */
#define GATHER_TIMES 15     /* a scan that was long is followed by so many times its length in which slots gather, .. */
#define GATHER_LEAST 100000 /* ns: .. what was shorter by none, .. */
#define GATHER_MAX_NS 50000000 /* .. the longest by this */
#define RESCAN_NS 10000000     /* retired slots that somebody reads are looked at again after this, then twice it .. */
#define RESCAN_MAX_NS 1000000000
#define RETRY_NS 10000000 /* a request that waits for room tries again after this */
#define DRAIN_MAX_NS 1000000000
#define WAIT_CHAINS 16384u    /* of keys that are waited for */
#define WAITS_SESSION 256u    /* WAITs of one session that are not answered: their replies' room is promised */
#define WAITED_SESSION 16384u /* keys of them */
#define WAITED_MAX 262144u    /* keys of all sessions */
#define LOST_KEYS 1024u       /* keys whose writers have gone that are remembered */
#define CONTROL_SESSION 0u    /* no session: the node's own effects */
#define TOMB_CHAINS 4096u
#define TOMBS_MAX 16384u /* removals that are kept, and a 32nd of the index's bytes */
#define TOMBSTONE_NS (INT64_C(3600) * 1000000000)

enum mark {
    MARK_BUSY = 1,    /* named by an uncommitted effect */
    MARK_SEEN = 2,    /* recovery, seal of a group: met already */
    MARK_WRITES = 4,  /* a draft whose key is counted in `writing` */
    MARK_CLAIMED = 8, /* recovery: its cells of tails are its own */
    MARK_OLD = 16     /* in use when the node started: a peer may have a lease of an earlier node */
};

struct slot_list {
    uint32_t head, tail, count;
};

struct session {
    uint64_t id;
    struct session *chain;
    uint32_t index; /* in node.session */
    bool attached, writable, dead, refused;
    uint8_t place;       /* its last request's */
    uint32_t connection; /* counts attaches: an answer goes to the connection that asked, or to nobody */
    int64_t quarantine_end;
    struct session_row row;
    struct slot_list drafts; /* WRITING slots, grants included */
    uint64_t draft_bytes;
    uint32_t waits, waited;   /* WAITs that are not answered, and their keys */
    struct msg_head *stalled; /* a request that waits for a commit */
    int64_t stalled_at;
};

enum effect_kind {
    EFFECT_SEAL,
    EFFECT_REMOVE,
    EFFECT_HOLD,
    EFFECT_DROP,
    EFFECT_EVICT,
    EFFECT_NAMESPACE,
    EFFECT_EXPIRE,
    EFFECT_TAKE,
    EFFECT_PURGE_MARK,
    EFFECT_PURGE, /* a step: its members are removed */
    EFFECT_PURGE_END,
    EFFECT_NOTHING
};

struct member {
    uint32_t slot; /* sealed; of EVICT SLOT_NONE */
    uint32_t old;  /* replaced, removed, held .. or SLOT_NONE */
    struct key_hash hash;
    uint64_t checksum;
    uint64_t parent;
    uint32_t ttl_s;
    uint8_t priority;
    struct tomb *tomb; /* PURGE: its own until it is committed, or NULL */
    bool kept;
};

/* A removal that is kept (node_tomb.c). */
struct tomb {
    struct tomb *chain;       /* of its hash, by serial */
    struct tomb *next, *prev; /* of the list that it is in */
    uint64_t serial, hash, counter;
    int64_t until;              /* boot: its end; 0: not all homes have acknowledged it in this run */
    const struct work *written; /* the work that carried its row last, of those that end */
    uint32_t ns;
    uint16_t key_size;
    uint8_t heard; /* homes that acknowledged it in this run, a bit each */
    bool known;    /* all homes did, in this run or an earlier one */
    bool taken;    /* has its second counter */
    bool taking;   /* an uncommitted effect gives it one */
    bool dirty;    /* its row has to be written */
    bool above;    /* it was taken above a copy that lies here: that one has to go */
    uint8_t key[];
};

struct tomb_list {
    struct tomb *head, *tail;
    uint32_t count;
    uint64_t bytes;
};

struct tombs {
    struct tomb *chain[TOMB_CHAINS];
    struct tomb_list waiting, ending; /* for their homes, by age; by end */
    uint64_t serial, bytes, max_bytes;
    uint32_t dirty, above;
    bool stuck; /* the first that is due could not be ended */
};

struct effect {
    enum effect_kind kind;
    uint64_t session;
    uint32_t connection;
    struct msg_head head;
    int64_t taken;     /* mono */
    uint64_t counter;  /* version given; REMOVE: of the removal */
    uint32_t first, n; /* members */
    uint32_t kept;
    uint32_t want;       /* PUT: grants to come with the reply */
    bool last_hold;      /* DROP, EXPIRE: none is left */
    uint64_t pend;       /* NAMESPACE: pending key; PURGE*: the purge's counter */
    enum node_need need; /* EVICT; NEED_NONE: a copy that is outdated */
    uint32_t ns, flags;
    char name[NAME_MAX_BYTES + 1];
    int64_t expiry;    /* HOLD */
    struct tomb *tomb; /* REMOVE: its own until it is committed; TAKE: of the table */
};

/* What one commit carries: the index's batch, and what to do when it is in. */
struct work {
    struct batch *batch;
    struct effect *effects;
    uint32_t n_effects, effects_room;
    struct member *members;
    uint32_t n_members, members_room;
    uint32_t puts;   /* effects that are not evictions */
    int64_t started; /* mono, CMD_COMMIT */
    int64_t opened;  /* mono, first effect */
    int64_t horizon; /* that its batch moves the lease horizon to, 0: it does not */
};

/* Keys with an uncommitted effect, by 64 bits of hash: two keys that share them only wait for each other. */
struct pending {
    uint64_t *key; /* 0 is empty */
    uint32_t *uses;
    uint32_t mask, count;
};
bool pending_init(struct pending *p);
void pending_free(struct pending *p);
bool pending_has(const struct pending *p, uint64_t key);
bool pending_add(struct pending *p, uint64_t key);
void pending_drop(struct pending *p, uint64_t key);

struct waiter { /* GRANT or CREATE that waits for room */
    struct waiter *next;
    uint64_t session;
    int64_t taken;
    uint32_t pages;
    uint32_t tried; /* enum tried: what has failed since `retry` */
    int64_t retry;  /* when it is worth trying all again */
    struct msg_head *message;
};

struct expiry {
    int64_t boot;
    uint32_t slot;
    bool ttl; /* of the object itself, and not of holds */
    uint64_t gen;
};

struct names {
    char name[NAME_MAX_BYTES + 1];
    uint32_t id, flags;
};
#define NAMESPACE_REPLACEABLE 1u

enum tried { TRIED_CLASS = 1, TRIED_WINDOWS = 2, TRIED_SWEEP = 4, TRIED_RESCAN = 8 };

enum scan_kind { SCAN_NOTHING, SCAN_VICTIMS, SCAN_WINDOWS, SCAN_RETIRED };

struct window_try {
    struct slabs_window window;
    uint32_t first, n; /* of scan slots */
};

struct chunk {
    struct chunk *next;
    size_t used, room;
    uint8_t data[];
};

struct node {
    struct node_config c;
    struct slabs *slabs;
    struct tails *tails;
    const struct evict_policy *policy;
    void *evict;
    struct whatif *whatif;
    uint32_t max_headers;
    uint32_t *next, *prev; /* links of drafts and retired lists, by slot */
    uint8_t *mark;         /* by slot */
    size_t side_bytes;
    struct node_now now;

    struct session *chain[SESSION_CHAINS];
    struct session **session;
    uint32_t n_sessions, sessions_room;
    struct session orphan; /* drafts that an earlier node's dead sessions left */

    struct work work[2];
    struct work *open;   /* collects */
    struct work *flying; /* at the committer, or NULL */
    struct pending pending;
    struct pending writing;   /* keys of drafts that may still be sealed */
    uint32_t n_writing;       /* those drafts */
    struct wait_call *waits;  /* node_wait.c */
    struct wait_key **waited; /* chains, by hash */
    struct lost_key {
        uint64_t home;
        int64_t at; /* mono */
        uint8_t state;
    } lost[LOST_KEYS];     /* a ring: who began to wait before that, and comes only now, is told */
    uint32_t n_lost;       /* ever */
    uint32_t n_waited;     /* keys in all waits */
    int64_t wait_at;       /* no wait ends by time before this */
    uint64_t counter;      /* last version given */
    uint64_t counter_kept; /* meta has this: no counter above it is given before a greater one is written */
    uint64_t request;      /* for eviction hints */

    struct lease_table lease;
    uint32_t region_uses[REGIONS_MAX];       /* slots that name each, FREE ones aside */
    struct slot_list fresh, waiting, leased; /* RETIRED */
    uint64_t retired_bytes;
    int64_t scan_began, gather_until; /* of scans of retired slots */
    int64_t rescan_at;
    int64_t rescan_step; /* grows while nobody lets go */
    bool rescan;         /* waiting is to be scanned again now */

    enum scan_kind scanning;
    uint32_t scan_id;
    uint32_t *scan_slots;
    uint32_t n_scan, scan_room;
    struct window_try tries[WINDOW_TRIES];
    uint32_t n_tries;
    uint32_t scan_pages; /* what it makes room for; 0: the watermark */
    uint64_t scan_goal;  /* bytes to evict */
    bool draining;       /* above the high watermark, not yet at the low one */
    int64_t drain_at;    /* the last look for victims found all in use: not before this again */
    int64_t drain_step;  /* grows while it stays so */
    uint64_t published;  /* version of the newest seal: not evicted before another one came */

    struct waiter *waiters, **waiters_end;
    uint32_t n_waiters;
    struct node_share share[EVICT_SHARES];
    uint32_t n_shares;
    uint64_t scan_guarded; /* shares that were guarded when the candidates of the scan were chosen */
    uint64_t evicting;     /* bytes of uncommitted evictions */
    uint32_t evicting_slots;
    bool window_closed;
    struct slabs_window window;       /* being emptied */
    uint64_t sweep;                   /* cursor of slabs_next over all windows */
    uint32_t sweep_pages, sweep_last; /* for which size; the window that it looked at last */
    bool sweeping;
    bool scan_sweep; /* the scan under way is one of a sweep */
    int64_t retry_at;
    uint64_t pinned_seen; /* bytes of slots that scans for room found pinned, for the error */

    struct expiry *expiries; /* heap */
    uint32_t n_expiries, expiries_room;
    struct names *names;
    uint32_t n_names, names_room;

    struct tombs tombs;
    struct purge purge[PURGES_MAX]; /* by counter: the first has its turn */
    uint32_t n_purges;
    struct fates fates;
    uint64_t noted[META_NUMBERS]; /* EV_NOTE */
    bool has_note[META_NUMBERS];

    struct node_command *commands;
    uint32_t n_commands, command_at, commands_room;
    uint32_t told; /* the CMD_PUBLISHED of this event that has room: its place + 1 */
    struct chunk *arena;
    enum node_event_kind last_event;
    bool silent;           /* what is decided now has nobody to answer to */
    uint32_t last_answers; /* effects that the last COMMITTED answered */
    bool stopping, stopped;
    int start_status;
    char start_why[256];

    uint64_t objects, sealed_bytes, object_bytes, held, drafts, draft_bytes, grants;
    uint64_t counters[NODE_COUNTERS];
    struct node_histogram phase[PHASES];
};

/* node.c */
void node_phase(struct node *n, enum node_phase phase, int64_t ns);
void node_log(struct node *n, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
struct node_command *command_add(struct node *n, enum node_command_kind kind, uint64_t session);
void *arena_take(struct node *n, size_t bytes);
/* A reply to a request: status, and room for `extra` bytes behind it, zeroed. NULL (and no reply) without memory. */
struct msg_reply *reply_add(struct node *n, uint64_t session, const struct msg_head *head, int32_t status,
                            uint32_t extra);
void reply_shrink(struct msg_reply *r, uint32_t extra);
void refuse(struct node *n, uint64_t session, const struct msg_head *head, int32_t status);
void answered(struct node *n, const struct msg_head *head);

/* node_slots.c: lists, headers */
static inline struct slot_header *header_of(const struct node *n, uint32_t slot)
{
    return &n->c.headers[slot];
}
void list_push(struct node *n, struct slot_list *l, uint32_t slot);
void list_remove(struct node *n, struct slot_list *l, uint32_t slot);
uint64_t slot_bytes(const struct node *n, uint32_t slot);
bool busy(const struct node *n, uint32_t slot);
bool slot_held(const struct node *n, uint32_t slot);
void mark_busy(struct node *n, uint32_t slot); /* READY: out of the policy until the effect is decided */
/* The key of a slot that has one; buf of KEY_MAX bytes is used where it does not stand in one piece. */
struct key_ref slot_key(const struct node *n, uint32_t slot, uint8_t *buf);
struct key_hash slot_hash(const struct node *n, uint32_t slot);
/* Gives the cells of a WRITING slot back: it has no key and no segments then. */
void slot_drop_key(struct node *n, uint32_t slot);
/* Writes all that an object is before its seal into the header of a WRITING slot without a key, with cells for a long
 * key and for its segments, whose checksums are 0. 0 or BERTH_EFULL. */
int slot_set_object(struct node *n, uint32_t slot, const struct msg_object *o, const void *key);
/* The list of its segments' checksums in tails, NULL without segments; and what proves it, the XXH3-64 of the list. */
uint64_t *slot_sums(const struct node *n, uint32_t slot);
uint64_t slot_sums_checksum(const struct node *n, uint32_t slot);
/* Any state but READY in the policy -> FREE with the next generation, cells and pages given back. */
void slot_release(struct node *n, uint32_t slot);
void slot_retire(struct node *n, uint32_t slot);
uint64_t past_peek(struct node *n, struct key_ref key); /* node_past.c: what the policy knows of a key that went */
uint64_t slot_key_tag(void *node, uint32_t slot);
/* READY: counted and in the policy; key, pages and request of the hint are filled in here. */
void slot_insert(struct node *n, uint32_t slot, struct evict_hint hint);
/* READY and counted, but back in the policy after an effect that named it failed. */
void slot_return(struct node *n, uint32_t slot);  /* a held one stays out of the policy */
void slot_uncount(struct node *n, uint32_t slot); /* READY no longer */
bool token_valid(const struct node *n, const struct session *s, const struct msg_token *t);
void draft_add(struct node *n, struct session *s, uint32_t slot, bool grant);
void draft_remove(struct node *n, struct session *s, uint32_t slot);
void draft_abort(struct node *n, struct session *s, uint32_t slot);

/* node_session.c */
struct session *session_find(const struct node *n, uint64_t id);
struct session *session_add(struct node *n, uint64_t id);
void session_free(struct node *n, struct session *s);
void session_event(struct node *n, const struct node_event *ev);
void session_timers(struct node *n);
void session_stall(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void session_unstall(struct node *n);
void request_resume(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);

/* node_request.c: one request of a session; taken is when it first came */
void request_run(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_list(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_stat(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_find(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);

/* node_work.c: batches and pending keys */
bool work_init(struct node *n);
void work_free(struct node *n);
bool work_full(const struct node *n);
struct effect *effect_add(struct node *n, enum effect_kind kind, uint64_t session, const struct msg_head *head,
                          int64_t taken);
bool member_add(struct node *n, struct effect *e, const struct member *m);
/* Whether an uncommitted effect is that of this request, sent over an earlier connection. */
bool work_holds(const struct node *n, uint64_t session, uint64_t id);
void work_undo(struct node *n, struct effect *e); /* the newest effect, before anything of it is in the batch */
void work_turn(struct node *n);
void work_committed(struct node *n, struct batch *batch, int32_t status);
uint64_t counter_next(struct node *n);
void note_event(struct node *n, enum meta_number which, uint64_t value);

/* node_origin.c */
uint64_t region_of(const struct node *n, uint16_t index);
static inline uint64_t slot_region(const struct node *n, uint32_t slot)
{
    return region_of(n, header_of(n, slot)->region);
}
bool region_known(const struct node *n, uint16_t index);
void region_recover(struct node *n, uint32_t slot);
void region_drop(struct node *n, uint32_t slot);
void counter_seen(struct node *n, uint64_t counter);
bool version_newer(uint64_t counter, uint64_t region, uint64_t than_counter, uint64_t than_region);
void request_seal_origin(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);

/* node_told.c: what the homes are told; nothing where config.publish is not set */
void tell_sealed(struct node *n, const struct effect *e, const struct member *m);
void tell_gone(struct node *n, const struct effect *e, const struct member *m);
void tell_taken(struct node *n, uint32_t slot);
void tell_removed(struct node *n, const struct tomb *t);
struct node_publication *told_add(struct node *n); /* room for one more, which is counted; NULL */

/* node_tomb.c: removals until the homes have them */
struct tomb *tomb_make(struct key_ref key, uint64_t hash, uint64_t counter); /* the caller's; NULL */
struct key_ref tomb_key(const struct tomb *t);
int tomb_write(struct node *n, const struct tomb *t); /* its row, into the open batch: 0, -ENOMEM */
void tomb_keep(struct node *n, struct tomb *t);       /* committed: it is the table's, in place of an older one */
/* Whether a removal by this node stands at or above this version. */
bool tomb_above(struct node *n, struct key_ref key, uint64_t counter, uint64_t region);
struct tomb *tomb_to_take(struct node *n, struct key_ref key, uint64_t counter); /* NULL: not now, or not any more */
void tombs_known(struct node *n, const struct node_event *ev);
void tomb_taken(struct node *n, struct tomb *t, uint64_t counter);
void tombs_turn(struct node *n);
bool tombs_crowded(const struct node *n); /* those that wait for homes are more than half of what is kept */
void tombs_failed(struct node *n, const struct work *w);
int64_t tombs_timer(const struct node *n);
bool tombs_cursor(uint64_t cursor);
bool tombs_next(const struct node *n, uint64_t *cursor, uint8_t *buf, struct node_publication *out);
int tombs_recover(struct node *n); /* 0, -EBADMSG, -EIO, -ENOMEM */
void tombs_free(struct node *n);
const char *tombs_check(const struct node *n);

/* node_take.c */
void take_event(struct node *n, const struct node_event *ev);
void take_complete(struct node *n, const struct effect *e, const struct member *m);
void take_failed(struct node *n, const struct effect *e, const struct member *m);

/* node_publish.c: what a commit makes visible */
void publish(struct node *n, const struct effect *e, const struct member *m, uint32_t count);
void unpublish(struct node *n, const struct member *m); /* a removed or evicted key */

/* node_whatif.c */
void node_whatif_used(struct node *n, const struct node_event *ev);                                /* TOUCH */
void node_whatif_sealed(struct node *n, uint64_t session, const struct member *m, uint32_t count); /* READY now */
void node_whatif_recovered(struct node *n, uint32_t slot, uint64_t parent, uint8_t priority);
void node_whatif_gone(struct node *n, const struct effect *e, const struct member *m); /* passes evicted ones over */

/* node_seal.c */
void request_put(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_sums(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_seal(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_abort(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
/* A draft of this session: nothing else that a token may name has a key to seal. 0 or why not. */
int32_t check_draft(struct node *n, const struct session *s, const struct msg_head *m, const struct msg_token *t);
int32_t seal_origin(struct node *n, struct session *s, const struct node_seal_origin *p, int64_t taken);
void record_of_slot(const struct node *n, uint32_t slot, uint64_t counter, uint64_t checksum, struct record *out);
/* Slot of a key that is READY, by lookup, then index; SLOT_NONE. */
uint32_t key_slot(const struct node *n, struct key_hash hash, struct key_ref key, bool *collides);

/* node_admin.c: remove, hold, drop, namespace */
void request_remove(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_hold(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_drop(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_namespace(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void session_mark_applied(struct node *n, struct session *s, uint64_t id);
/* A request with an effect that was applied before the node went: answered, since it is not applied twice. */
bool applied_before(struct node *n, const struct session *s, const struct msg_head *m);
bool names_known(const struct node *n, uint32_t ns);
bool names_replaceable(const struct node *n, uint32_t ns);
uint32_t names_id(const struct node *n, const char *name); /* that it has, or would get */
bool names_add(struct node *n, const char *name, uint32_t id, uint32_t flags);
int names_configure(struct node *n);

/* node_share.c: shares of the pool */
void shares_configure(struct node *n); /* once the names are known, before the first object is */
uint8_t share_of_slot(const struct node *n, uint32_t slot);
void share_count(struct node *n, uint32_t slot, bool more), share_evicting(struct node *n, uint32_t slot, bool begin);
bool share_guarded(const struct node *n, uint32_t slot);
uint64_t shares_guard(struct node *n); /* tells the policy which are guarded: before it is asked for victims */

/* node_hold.c: expiries */
bool expiry_add(struct node *n, int64_t boot, uint32_t slot, bool ttl);
/* When the ttl of a record ends, boot; 0: it has none. */
int64_t ttl_end(const struct node *n, const struct record *r);
void expiry_run(struct node *n);

/* node_space.c: grants, drafts, waiting for room, eviction */
void request_grant(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
void request_create(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
uint32_t grant_some(struct node *n, struct session *s, uint32_t pages, uint32_t count, struct msg_token *out);
void waiters_run(struct node *n);
void waiters_drop(struct node *n, uint64_t session);

/* node_wait.c: keys that are being written, and who waits for one to become ready */
void request_wait(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
/* Whether an effect or a draft that may still be sealed has the key, or one that shares its hash. */
bool key_written(const struct node *n, struct key_hash hash);
void writing_add(struct node *n, uint32_t slot);
/* The draft, if it was counted, will not be sealed; and the key, if nobody else writes it. */
void writing_lost(struct node *n, uint32_t slot, enum msg_wait_state state);
void wait_lost(struct node *n, struct key_hash hash, enum msg_wait_state state);
void lost_add(struct node *n, struct key_hash hash, enum msg_wait_state state);
void wait_published(struct node *n, const struct member *m);
void waits_drop(struct node *n, uint64_t session);
void waits_expire(struct node *n);
void waits_free(struct node *n);
const char *waits_check(const struct node *n);

/* node_evict.c */
/* Starts making room for `pages` (0: down to the low watermark). false: nothing can be done. */
bool evict_start(struct node *n, struct waiter *w);
void evict_watermark(struct node *n);
/* EV_DROP_COPY: leased, pinned or held, it goes: out of the index, and its slot when nobody reads it any more. */
void evict_copy(struct node *n, struct key_ref key, uint64_t counter, uint64_t region);
void evict_scanned(struct node *n, const uint64_t *pinned);
void window_settle(struct node *n);
void scan_start(struct node *n, enum scan_kind kind);
bool scan_take(struct node *n, uint32_t slot);
static inline bool scan_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* node_retire.c */
void retire_turn(struct node *n);
int64_t retire_timer(const struct node *n); /* when slots that gather are scanned */
void retire_scanned(struct node *n, const uint64_t *pinned);

/* node_lease_table.c: entries and accounts */
static inline bool slot_leased(const struct node *n, uint32_t slot)
{
    return (n->lease.count && n->lease.slot[slot].leases) || (n->lease.closed_until && (n->mark[slot] & MARK_OLD));
}
int leases_init(struct node *n); /* 0, -EINVAL (a configuration that can't be), -ENOMEM */
void leases_free(struct node *n);
void lease_account(struct node *n, uint32_t slot, int sign); /* before (-1) and after (1) what an account rests on */
struct lease_peer *lease_peer_find(struct node *n, uint16_t peer, uint64_t incarnation);
uint64_t lease_id(const struct node *n, const struct lease *l);
/* The live lease of this id, if it is this peer's; NULL. */
struct lease *lease_of(struct node *n, const struct lease_event *ev, uint64_t id);
/* NULL without memory; the table's bounds are the caller's to check. */
struct lease *lease_add(struct node *n, const struct lease_event *ev, uint32_t slot, int64_t end);
void lease_extend(struct node *n, struct lease *l, int64_t end); /* never backwards */
void lease_changed(struct node *n, struct lease *l); /* flags, serves or end: its class may be another, or it is over */
int64_t leases_end(const struct node *n);            /* raw, of the next to end; INT64_MAX */
void leases_expire(struct node *n);

/* node_lease.c: the events */
void lease_run(struct node *n, enum node_event_kind kind, const struct lease_event *ev);
void lease_refuse(struct node *n, enum node_event_kind kind, const struct lease_event *ev, int32_t status);
int64_t lease_hold(const struct node *n, int64_t ttl);
int64_t lease_ttl(const struct node *n, int64_t wanted);

/* node_serve.c: serves, recalls */
void serve_event(struct node *n, enum node_event_kind kind, const struct lease_event *ev);
void serves_reset(struct node *n, uint16_t peer, uint32_t connection);
bool leases_recall_oldest(struct node *n);
void leases_recall_idle(struct node *n); /* down to the bound of idle bytes, a bounded number a step */
void leases_recall_peer(struct node *n, const struct lease_peer *p, uint64_t bytes);

/* node_horizon.c: PROTOCOLS rule 19 */
void lease_event(struct node *n, enum node_event_kind kind, const struct lease_event *ev);
void horizon_recover(struct node *n);
void horizon_turn(struct node *n);
void horizon_committed(struct node *n, int64_t horizon, int32_t status);
void horizon_stop(struct node *n);
void horizon_free(struct node *n);

/* node_lease_check.c */
const char *leases_check(const struct node *n);

/* node_purge.c */
void request_purge(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
/* Whether a purge is under way that covers this slot, whose version is this counter's or was to be. */
bool purge_covers(const struct node *n, uint32_t slot, uint64_t counter);
void purge_draft(struct node *n, uint32_t slot); /* it can't be sealed any more */
void purges_turn(struct node *n);
int64_t purges_timer(const struct node *n);
void purge_complete(struct node *n, const struct effect *e, const struct member *m);
void purge_failed(struct node *n, const struct effect *e);
int purges_recover(struct node *n); /* 0, -EBADMSG, -EIO */
const char *purges_check(const struct node *n);

/* node_fate.c: f's own fields are kind, need, error and counter */
bool fates_init(struct node *n);
void fates_free(struct node *n);
void fate_add(struct node *n, struct key_hash hash, struct fate f);
void fate_draft(struct node *n, uint32_t slot, enum node_fate kind, int32_t error); /* nothing of a grant */
/* A GRANT, PUT or CREATE, whole, that was refused: nothing where it names no key. */
void fate_refused(struct node *n, const struct msg_head *m, int32_t error);

/* node_recover.c */
int recover(struct node *n);

#endif
