/* node.h: the node core, a deterministic state machine: (event, now) in, commands out.
 *
 * It never reads a clock, opens a socket, starts a thread or draws a random number, and dereferences no memory that a
 * client can write: the shell hands all that in and carries the commands out. The same core runs under libuv in berthd,
 * on a thread of an application, and by the hundred under the simulator. Its index and its shared memory are reached
 * through the pointers and tables of node_config. One thread at a time.
 *
 * Life of a call: node_event(..), then node_command(..) until it returns NULL, each carried out before the next call of
 * node_event. A command's pointers are valid until then, but for a COMMIT's batch, which is the shell's until the
 * COMMITTED event.
 */
#ifndef BERTH_STORE_NODE_H
#define BERTH_STORE_NODE_H

#include "index/index.h"
#include "index/lookup.h"
#include "store/lease.h"
#include "store/msg.h"
#include "store/node_origin.h"
#include "store/slab.h"
#include "store/tail.h"

struct node;

struct node_now {
    int64_t mono;     /* CLOCK_MONOTONIC ns: deadlines, quarantine */
    int64_t boot;     /* CLOCK_BOOTTIME ns: holds, the lease horizon */
    int64_t raw;      /* CLOCK_MONOTONIC_RAW ns: leases (PROTOCOLS rule 20: the others may slew by 8 %) */
    uint64_t wall_us; /* for versions and for people */
};

/* What of the configuration may change while the node runs; as in node_config. */
struct node_limits {
    uint64_t high_bytes, low_bytes, draft_quota, pin_quota;
    int64_t quarantine_ns;
};

struct node_config {
    struct slots_super *super;
    struct slot_header *headers;
    struct slab_entry *dir;
    struct lookup *lookup;
    uint8_t *tails;
    uint32_t n_tails;
    int (*grow_headers)(void *env, uint32_t n); /* make [0, n) usable: 0, -ENOSPC */
    int (*grow_tails)(void *env, uint32_t n);
    void *env;
    const struct index_ops *index;
    void *ix;
    const uint32_t *classes; /* slot pages beside the fixed ones */
    uint32_t n_classes;
    uint64_t high_bytes;                     /* slot bytes of sealed objects: above it, evict .. */
    uint64_t low_bytes;                      /* .. down to this */
    const char *policy;                      /* "lru", "pwl" */
    int64_t quarantine_ns;                   /* between a writer's death and the reuse of its slots; 1 s */
    uint64_t draft_quota;                    /* bytes that one session may have granted or unsealed */
    uint64_t pin_quota;                      /* pinned bytes a session; 0 none */
    const struct node_namespace *namespaces; /* from the configuration */
    uint32_t n_namespaces;
    struct lease_config lease;
    const struct slabs_place *places; /* NUMA nodes' parts of the pool; the caller's, as long as the node lives */
    uint32_t n_places;                /* up to 255; 0: memory is the same everywhere */
    bool publish;                     /* CMD_PUBLISHED wanted, and removals are kept for it */
    int64_t tombstone_ns; /* T of PROTOCOLS rule 29: a removal is kept so long after its homes have it; 0: 1 h */
    bool first;           /* the region is new: nothing to recover */
    bool clean;           /* the last node stopped cleanly */
    bool shrunk;          /* the pool was made smaller: records without a slot lay beyond its end */
};

struct node_namespace {
    char name[NAME_MAX_BYTES + 1];
    bool replaceable;
    uint64_t share_bytes; /* of the pool: not evicted for other namespaces; 0: none. EVICT_SHARES of them at most */
};

struct node_share {
    const char *name; /* the configuration's */
    uint32_t ns;
    uint64_t limit;    /* bytes */
    uint64_t bytes;    /* of its slots that are READY */
    uint64_t evicting; /* of these, in evictions that are not committed yet */
};

enum node_event_kind {
    EV_START,       /* once, first: recovers what the region has; sessions that live were given by EV_ADOPT before */
    EV_ADOPT,       /* session: of an earlier incarnation, alive, not attached yet */
    EV_ATTACH,      /* session (new or adopted), writable */
    EV_DETACHED,    /* its connection is gone; it may live */
    EV_DEAD,        /* its process has ended, or it said DETACH: pins are gone */
    EV_REQUEST,     /* session, message: already msg_check'ed */
    EV_TOUCH,       /* session, slots with TOUCH_CHILD or not: newest last, deepest first within a call */
    EV_COMMITTED,   /* batch, status */
    EV_SCANNED,     /* scan, pinned bits */
    EV_PINNED,      /* session, bytes: what a periodic scan found, for quotas */
    EV_LIMITS,      /* limits: other ones from now on */
    EV_TICK,        /* time passed */
    EV_TURN,        /* no more events for now: start a commit if one is due */
    EV_STOP,        /* clean stop: commit what there is, then CMD_STOPPED */
    EV_SEEN,        /* counter: of a version that another region gave: ours go on from there */
    EV_LEASE,       /* lease: CMD_LEASED follows, after a commit where the horizon had to be moved */
    EV_RENEW,       /* lease: CMD_RENEWED follows, as above */
    EV_RELEASE,     /* lease: ids that are no leases of this peer are ignored */
    EV_PEER_GONE,   /* lease: peer, connection: its serves end, its leases stay until their end and are not renewed */
    EV_SERVE_BEGIN, /* lease: ref[0].id, token: CMD_SERVE follows: the slot is in use from then on .. */
    EV_SERVE_END,   /* lease: token, reset: .. until here, even after the lease's end */
    EV_DROP_COPY,   /* key, version: retires the copy if it still has that version */
    EV_TAKE,        /* key, counter, removal: if it still has that version of this region, a greater one is given to the
                       same bytes, or to the removal, once; it is published when that is committed (rule 28) */
    EV_KNOWN,       /* key, counter, home of homes: that one has acknowledged this removal (rule 29) */
    EV_NOTE,        /* meta, counter: the value goes into the index with the next commit */
};

struct node_event {
    enum node_event_kind kind;
    int32_t status; /* COMMITTED: index_ops.commit's; DEAD: 1 after a clean DETACH (no quarantine) */
    uint64_t session;
    bool writable;
    uint8_t place; /* REQUEST: 1 + the place that its slots are wanted in, as far as there is room; 0: no matter */
    const struct msg_head *message;
    const uint32_t *slots; /* TOUCH, slot numbers */
    uint32_t n_slots;
    uint32_t scan;                    /* SCANNED: id of the command */
    const uint64_t *pinned;           /* SCANNED: bit i: slots[i] of the command is pinned by some session */
    uint64_t bytes;                   /* PINNED */
    const struct session_row *row;    /* ATTACH of a new session: kept in the index */
    const struct node_limits *limits; /* LIMITS */
    uint64_t counter;                 /* SEEN, DROP_COPY, TAKE, KNOWN; NOTE: the value */
    uint64_t region;                  /* DROP_COPY: with counter the version */
    struct key_ref key;               /* DROP_COPY, TAKE, KNOWN */
    bool removal;                     /* TAKE: the key's removal and not its object */
    uint8_t home, homes;              /* KNOWN: which one, from 0, of how many (8 at most) */
    enum meta_number meta;            /* NOTE: IN_TOUCH or SETTLED */
    const struct lease_event *lease;  /* LEASE .. SERVE_END */
};

#define PUBLISH_MAX 256u

enum node_publication_kind {
    PUBLISH_SEALED,  /* this version is here now; an older one of the key is not */
    PUBLISH_GONE,    /* evicted: this version is not here any more */
    PUBLISH_REMOVED, /* by a client: every version up to this one is to go, everywhere */
};

/* For the homes of a key (replication/publish.h). */
struct node_publication {
    enum node_publication_kind kind;
    struct key_ref key;
    uint64_t route;           /* 0: the key's own hash; nothing keeps another yet */
    uint64_t counter, region; /* REMOVED: of the removal */
    uint64_t size, lineage;
    uint64_t past;    /* GONE: what the policy knows of the key, or 0 (store/evict.h) */
    bool replaceable; /* its namespace is */
    bool fresh;       /* not known to have been with all its homes, so that rule 28's TAKE may be asked for */
    bool again;       /* its counter was taken already */
};

#define REVOKE_MAX 64u /* objects of one key that one revoke looks at: itself, and removed ones that are still read */

enum node_command_kind {
    CMD_REPLY,  /* session, reply, bytes: push into its ring */
    CMD_COMMIT, /* batch: apply, then EV_COMMITTED; one at a time */
    CMD_SCAN,   /* scan, slots: seq_cst fence, then read every session's pins, then EV_SCANNED */
    CMD_CLOSED, /* session: nothing of it is left; drop its file */
    CMD_REFUSE, /* session, flag: the pin table's refuse word */
    CMD_REVOKE, /* session, message: end who pins one of slots, n_slots of them (REVOKE_MAX at most), then reply */
    CMD_QUERY,  /* session, message: a text query that the shell answers (node_status and its own knowledge) */
    CMD_GROW,   /* session, n_slots: acknowledge this many pin entries, then reply as `reply` says */
    CMD_LOG,    /* level, text */
    CMD_STOPPED,
    CMD_PUBLISHED,   /* published: what a commit changed, in the order of its effects; several where it is much */
    CMD_LEASED,      /* lease: answers EV_LEASE */
    CMD_RENEWED,     /* lease: answers EV_RENEW */
    CMD_RECALL,      /* lease: ask the peer for these; they are renewed for transfers in flight only */
    CMD_SERVE,       /* lease: answers EV_SERVE_BEGIN */
    CMD_PULL,        /* session, message: a PULL, or a STAT with MSG_PEERS of what is not here; the shell answers it */
    CMD_CANCEL_PULL, /* session, message: the same of a CANCEL */
    CMD_BUFFER,      /* .. of a BUFFER */
    CMD_AWAIT_HOMES  /* .. of a PUBLISHED */
};

struct node_command {
    enum node_command_kind kind;
    uint64_t session;
    const struct msg_reply *reply;
    const struct msg_head *message;
    struct batch *batch;
    const uint32_t *slots;
    uint32_t n_slots;
    uint32_t scan;
    bool flag;
    int level; /* 0 error, 1 warning, 2 info */
    const char *text;
    const struct lease_answer *lease;
    const struct node_publication *published;
    uint32_t n_published; /* PUBLISH_MAX at most */
};

/* 0, -ENOMEM, -EINVAL. Nothing is read or written before EV_START. */
int node_create(struct node **out, const struct node_config *config);
void node_destroy(struct node *n);

void node_event(struct node *n, const struct node_event *ev, struct node_now now);
const struct node_command *node_command(struct node *n);

/* When the core wants EV_TICK, CLOCK_MONOTONIC ns; INT64_MAX: not at all. */
int64_t node_timer(const struct node *n);

/* false while this session waits for a commit that its next request depends on: take no further request from it. A
 * session that is not attached is not ready either. */
bool node_session_ready(const struct node *n, uint64_t session);

/* Recovery's outcome of EV_START: 0 or a negative error with a sentence in *why. */
int node_started(const struct node *n, const char **why);

/* As slabs_classes; for reports. */
uint32_t node_classes(const struct node *n, struct slabs_class *out, uint32_t max);
/* NULL if every invariant between slots, slabs, index decisions, lists and quotas holds, else a sentence. Reads all. */
const char *node_check(const struct node *n);

enum node_counter {
    NODE_PUTS,
    NODE_PUT_BYTES,
    NODE_KEPT,
    NODE_REPLACED,
    NODE_REMOVED,
    NODE_EVICTED,
    NODE_EVICTED_BYTES,
    NODE_ABORTED_WRITES, /* drafts of clients that died or closed */
    NODE_ABORTS,         /* drafts given back by their clients */
    NODE_GRANTS,
    NODE_CREATES,
    NODE_SEALS,
    NODE_GROUPS,
    NODE_FINDS,
    NODE_STATS,
    NODE_LISTS,
    NODE_HOLDS,
    NODE_DROPS,
    NODE_REFUSED_FULL,
    NODE_REFUSED_INDEX,
    NODE_REFUSED_HELD,
    NODE_REFUSED_STALE,
    NODE_REFUSED_QUOTA,
    NODE_REFUSED_READONLY,
    NODE_REFUSED_OTHER,
    NODE_TIMEOUTS,
    NODE_COMMITS,
    NODE_COMMIT_OPS,
    NODE_COMMIT_FAILED,
    NODE_SCANS,
    NODE_SCANNED_SLOTS,
    NODE_RETIRED,
    NODE_FREED,
    NODE_STALLS,     /* requests that waited for a commit of their key */
    NODE_INDEX_ONLY, /* keys that found no room in lookup, now */
    NODE_WAITS,      /* requests to wait until keys are ready */
    NODE_HOLDS_EXPIRED,
    NODE_SESSIONS_OPENED,
    NODE_SESSIONS_DEAD,
    NODE_RECOVERED,
    NODE_RECOVERED_DROPPED,
    NODE_LEASES,        /* given */
    NODE_LEASE_REFUSED, /* over a bound */
    NODE_LEASE_RENEWALS,
    NODE_LEASE_RELEASES,
    NODE_LEASE_EXPIRED, /* ended by the clock */
    NODE_LEASE_RECALLS,
    NODE_LEASE_USES, /* reads that peers reported */
    NODE_SERVES,
    NODE_COPIES_DROPPED,   /* by EV_DROP_COPY */
    NODE_HOLDS_LOST,       /* of these, such as were held */
    NODE_TAKEN,            /* objects and removals that took a greater counter */
    NODE_TOMBSTONES_KNOWN, /* removals that all homes have acknowledged */
    NODE_TOMBSTONES_LOST,  /* removals forgotten before that: there were too many */
    NODE_COPIES,           /* objects that were pulled from other nodes: not among the puts */
    NODE_COPY_BYTES,
    NODE_PURGES,      /* begun */
    NODE_PURGED,      /* objects that they removed */
    NODE_PASTS_TOLD,  /* keys that others evicted and this node is a home of */
    NODE_PASTS_NOTED, /* objects of which a home knew an eviction elsewhere */
    NODE_COUNTERS
};
extern const char *const node_counter_names[NODE_COUNTERS]; /* lower_case, for metrics and JSON */

/* Phases of a request's time; log2 histograms of ns. */
enum node_phase {
    PHASE_QUEUE,   /* submitted by the client -> taken from the ring */
    PHASE_SPACE,   /* waiting for room */
    PHASE_DECIDE,  /* taken -> decided and in a batch */
    PHASE_BATCH,   /* in a batch -> its commit starts */
    PHASE_COMMIT,  /* commit starts -> committed */
    PHASE_PUBLISH, /* committed -> projected and answered */
    PHASE_TOTAL,   /* submitted -> answered */
    PHASES
};
extern const char *const node_phase_names[PHASES];

struct node_histogram {
    uint64_t count, sum_ns;
    uint64_t bucket[40]; /* ns in [2^i, 2^(i+1)) */
};

struct node_status {
    uint64_t counter[NODE_COUNTERS];
    struct node_histogram phase[PHASES];
    struct slabs_usage slabs;
    struct index_usage index;
    uint64_t objects, sealed_bytes, object_bytes; /* slot bytes, payload bytes */
    uint64_t drafts, draft_bytes, grants;
    uint64_t retired, retired_bytes, held;
    uint64_t tombstones;         /* removals that are kept .. */
    uint64_t tombstones_unknown; /* .. and of these, those that not all homes have acknowledged in this run */
    uint64_t leases, leased_bytes, leased_idle_bytes, serves; /* slot bytes; idle: kept by idle leases only */
    int64_t closed_ns; /* until slots that an earlier node may have leased are used again, 0 now */
    uint64_t sessions;
    uint64_t high_bytes, low_bytes;
    uint32_t waiting;          /* requests that wait for room */
    uint32_t purges;           /* under way, or waiting for another */
    uint64_t slot_state_bytes; /* of process memory, of each slot that was ever used: the policy's and lists */
    uint64_t remembered, remembered_max, remembered_bytes; /* keys that node_why knows of that are not here */
};
void node_status(const struct node *n, struct node_status *out);
/* The share with this number, from 0; how many there are. */
uint32_t node_share(const struct node *n, uint32_t i, struct node_share *out);
/* The counters NODE_LEASE_USES and NODE_HOLDS_LOST alone. */
uint64_t node_lease_uses(const struct node *n);
uint64_t node_holds_lost(const struct node *n);

/* What the last commit left of it in the index; 0 if it was never set. */
uint64_t node_meta(const struct node *n, enum meta_number which);

/* Key, size and owner of a slot for reports; false if it is not READY or RETIRED. The key is copied out. */
struct node_slot_info {
    uint8_t key[KEY_MAX];
    uint32_t key_size, ns;
    uint64_t size, generation, version;
    int state;
    bool held;
};
bool node_slot(const struct node *n, uint32_t slot, struct node_slot_info *out);

/* What the policy knows of keys that were evicted (store/evict.h), for other nodes: a home is told by who evicted, and
 * tells, and forgets, when one puts the key again, which notes it. 0 and nothing where there is none, or no object. */
void node_past_told(struct node *n, struct key_ref key, uint64_t past);
uint64_t node_past_take(struct node *n, struct key_ref key);
void node_past_note(struct node *n, struct key_ref key, uint64_t past);
uint32_t node_find(const struct node *n, struct key_ref key); /* slot or SLOT_NONE */

/* What last became of a key, or of a put of it, that this node remembers. */
enum node_fate {
    FATE_NONE,
    FATE_REMOVED,
    FATE_PURGED,
    FATE_EVICTED,
    FATE_OUTDATED,   /* a copy of what was removed or replaced elsewhere */
    FATE_PUT_FAILED, /* with `error` */
    FATE_ABORTED,    /* a draft that its client gave up */
    FATE_DIED,       /* a draft of a client that ended */
    FATE_SHRUNK,     /* a start dropped it: it lay beyond the end of a smaller pool */
    FATE_LOST,       /* a start dropped its record: what the region had in its slot was not it */
    NODE_FATES
};

/* What an eviction made room for. */
enum node_need {
    NEED_NONE,
    NEED_WATERMARK, /* the pool was above it */
    NEED_SIZE,      /* an object of the same size */
    NEED_OTHER,     /* an object of another size, for which slabs had to be emptied */
    NODE_NEEDS
};

struct node_why {
    bool here;             /* in the index, as of the last commit */
    bool written;          /* a draft of it is open */
    uint64_t created_us;   /* here: sealed, wall clock .. */
    uint64_t counter;      /* .. version .. */
    uint64_t region;       /* .. */
    uint64_t size;         /* bytes */
    uint32_t holds;        /* .. */
    enum node_fate fate;   /* FATE_NONE: nothing is remembered */
    enum node_need need;   /* EVICTED */
    int32_t error;         /* PUT_FAILED */
    uint64_t gone_counter; /* version that went, 0: none did */
    uint64_t gone_us;      /* wall clock of the fate */
    uint64_t since_us;     /* what was before this is not remembered */
};
void node_why(const struct node *n, struct key_ref key, struct node_why *out);

/* What hit ratios other capacities would have (whatif.h). settle: uses that wait for a put behind them are counted. */
struct whatif_report;
void node_whatif(struct node *n, bool settle, struct whatif_report *out);
const char *node_namespace_name(const struct node *n, uint32_t ns); /* NULL: it has none that is known */

/* The id of a namespace's name, the same on every node: the low 32 bits of its XXH3-64, the high ones where those are
 * 0, else 1; of the empty name 0. Another known name with that id: the newcomer is refused with -EEXIST. */
uint32_t node_namespace_id(const char *name, size_t size);
/* A known namespace whose id is another, as nodes gave them before there were peers; NULL: all are alike. Its objects
 * mean nothing to other nodes. */
const char *node_namespace_numbered(const struct node *n);

/* Whether a put replaces in this namespace (names_replaceable). */
bool node_namespace_replaceable(const struct node *n, uint32_t ns);

/* Which known namespaces are replaceable: the sum, modulo 2^64, of the XXH3-64 of their names. 0: none. Nodes among
 * whose sums there are two are told apart by it, whatever order their namespaces came in. */
uint64_t node_replaceable(const struct node *n);

/* What a user needs to see why an object of this size finds no room: slot bytes asked, free, in the largest free run,
 * and in use by readers, peers' leases included. */
void node_room(const struct node *n, uint64_t size, uint64_t figure[4]);

/* The greatest version counter given or seen (rule 28). */
uint64_t node_seen(const struct node *n);

/* The objects that are here, then the removals, one a call, in no order that means anything: start with *cursor = 0;
 * false at the end. What comes or goes meanwhile is given or not, and is published as it does. The key lies in buf, of
 * KEY_MAX bytes. */
bool node_objects_next(const struct node *n, uint64_t *cursor, uint8_t *buf, struct node_publication *out);

/* What is READY under this token, in *out as above; false: it is not, or no more. Any token may be asked for. */
bool node_object(const struct node *n, const struct msg_token *t, uint8_t *buf, struct node_publication *out);

/* Whether a lease keeps this slot; any number may be asked for. *word: its state word. */
bool node_leased(const struct node *n, uint32_t slot, uint64_t *word);

/* The checksums of the segments of what lies in this slot under this generation, where a lease keeps it: *count of
 * them, which stay where they are for so long. NULL: no lease does, another generation, no segments. */
const uint64_t *node_sums(const struct node *n, uint32_t slot, uint64_t generation, uint32_t *count);

/* Whether the list of a READY slot's checksums of segments is what was sealed; true without segments. */
bool node_sums_sound(const struct node *n, uint32_t slot);

/* The leases, one a call, in the order of their entries: start with *cursor = 0; false at the end. */
bool node_leases_next(const struct node *n, uint32_t *cursor, struct node_lease_info *out);

#endif
