/* pull.h: the puller, a deterministic state machine: (event, now) in, commands out, as store/node.h.
 *
 * A pull of one key: the caller has looked into its own pool. A good lease in the cache: READ at once. Else ASK a home
 * of the key (this node's own table first, where it is a home: ASK with member == self, which the shell answers), LEASE
 * at an owner that it names (a home that is an owner gives the lease with its answer), READ, the clock check after the
 * last completion, verification, SEAL of the local replica, DONE. Asks and leases of one event, or of several in a row
 * (`more`), are batched: one request a home, one an owner.
 *
 * A transfer's bytes pass through three states. Posted: a READ was handed out, its destination belongs to the
 * transport. Completed: its EV_PULL_READ came; its fate is known, its bytes prove nothing. Consumable: all READs of the
 * transfer completed, the lease's time was not over after the last one (rule 20), and the checksum matched, or it was
 * not asked for and the transport's completion stands for it (rule 22). Only consumable bytes are told of.
 *
 * Of an object with segments each range is proved by the segments that it touches: what lacks of them is read too,
 * into memory of the puller (16 MiB a transfer, 64 MiB in all; more: -EOPNOTSUPP). A part of one without segments can't
 * be proved.
 *
 * Late, or another generation: STALE, which is asked again, PULL_STALE_MAX times, and never reaches the caller. A wrong
 * checksum under a good lease is proved by STATE (rule 21). A source that fails is passed over: other locations, other
 * homes, then the members that every home still waits for (rule 30).
 *
 * Life of a call: pull_event(..), then pull_command(..) until it returns NULL, each carried out before the next call of
 * pull_event. A command's pointers are valid until the next pull_command or pull_event; DONE's results until the next
 * pull_event. Requests, answers and all else that an event points to are copied. What the shell owes: exactly one
 * EV_PULL_READ a READ, CANCEL or not, after which nothing writes to its destination (for all READs of a member whose
 * connection is lost, too); one EV_PULL_RESERVED a RESERVE, one EV_PULL_SEALED a SEAL, one EV_PULL_HASHED a HASH.
 * Peers' answers may be lost, doubled, late and wrong.
 *
 * Bounds: max_requests requests with PULL_KEYS_MAX keys each, max_keys in all; one transfer a key and one seek a
 * transfer at most; PULL_RPCS_MAX requests without answer a member; READs up to the windows; leases as lease.h says;
 * max_floors remembered versions; about 2 KiB a key that is being pulled. One thread at a time.
 */
#ifndef BERTH_REPLICATION_PULL_H
#define BERTH_REPLICATION_PULL_H

#include "replication/lease.h"

#define PULL_KEYS_MAX 256u
#define PULL_RANGES_MAX 1024u /* of one key */
#define PULL_LOCATIONS_MAX 8u /* in one answer of a home */
#define PULL_HOMES_MAX 8u     /* of one key */
#define PULL_MISSING_MAX 64u  /* members that one LEARNING names; more is taken as a home that can't be reached */
#define PULL_RPCS_MAX 256u
#define PULL_STALE_MAX 3u
#define PULL_FORGET_NS (2 * LEASE_TTL_MAX_NS) /* an answer that brings leases is heard so long after its deadline */
#define PULL_MEMBER_NONE UINT16_MAX

/* ---- requests ---- */

enum pull_destination {
    PULL_REPLICA, /* the local pool: RESERVE, READ into the slot, SEAL */
    PULL_BUFFER,  /* memory of the caller, which is the transport's until DONE */
    PULL_SCRATCH  /* only in commands: memory of the puller, beside a caller's; its name is its address */
};

enum pull_flags {
    PULL_VERIFY = 1u << 0, /* always; without it 1 in `sample` */
    PULL_WAIT = 1u << 1,   /* a key that is not there yet, or not to be found for want of a member: ask again until the
                              deadline, which is -ETIMEDOUT in both cases */
    PULL_FRESH = 1u << 2,  /* ask the home, use no lease of earlier */
    PULL_PREFIX = 1u << 3  /* keys in order: only the longest run that is there */
};

enum pull_key_flags {
    PULL_REPLACEABLE = 1u << 0, /* its namespace is: rule 27 */
    PULL_PRESENT = 1u << 1      /* the local pool has it: nothing to do, counts for the run of PREFIX */
};

/* Object bytes [offset, offset + length) to bytes [to, to + length) of the buffer. */
struct pull_range {
    uint64_t offset, length, to;
};

struct pull_key {
    struct key_ref key;
    uint64_t route; /* 0: none */
    uint32_t flags; /* enum pull_key_flags */
    uint32_t n_ranges;
    const struct pull_range *ranges; /* BUFFER; none: the whole object to [to, to + room) */
    uint64_t buffer;                 /* BUFFER: the shell's name for the memory */
    uint64_t to, room;               /* bytes; without ranges */
    struct object_version here; /* FRESH: of the local pool's copy, counter 0: it has none. Where a home knows of none
                                   that is newer, the answer is BERTH_KEPT */
};

struct pull_request {
    uint64_t id; /* the caller's, unique among those not done */
    const struct pull_key *keys;
    uint32_t n_keys; /* 1 .. PULL_KEYS_MAX */
    enum pull_destination destination;
    uint32_t flags;
    uint32_t sample;  /* without VERIFY: verify 1 in this many; 1 all, 0 none ("lease only") */
    uint64_t lineage; /* 0: any */
    int64_t deadline; /* CLOCK_MONOTONIC ns; INT64_MAX: none */
    int64_t asked;    /* CLOCK_MONOTONIC ns when the caller asked, for the record; 0: now */
};

/* Where a key's time went. A transfer is in one phase at any moment, so the phases before TOTAL add up to TOTAL for the
 * request that the transfer was begun for. A phase that is come to again (a retry) is added to. */
enum pull_phase {
    PULL_PREPARE,  /* asked -> the first step */
    PULL_HOME,     /* a home's answer is awaited (ASK) */
    PULL_ADMIT,    /* an owner's lease is awaited (LEASE) */
    PULL_PAUSE,    /* WAIT: until the key is asked for again; PREFIX: until it is known that the run comes so far */
    PULL_REGISTER, /* room for the local replica */
    PULL_QUEUE,    /* for a window: the puller's, then the transport's */
    PULL_TRANSFER, /* the first READ left its last queue -> the last bytes came */
    PULL_COMPLETE, /* until the last completion is seen here; after one that was of no use: quiet, STATE */
    PULL_PROOF,    /* verification */
    PULL_PUBLISH,  /* the local replica's seal */
    PULL_TOTAL,
    PULL_PHASES
};
extern const char *const pull_phase_names[PULL_PHASES];

/* Why a key failed. */
enum pull_cause {
    CAUSE_ABSENT,   /* it is nowhere */
    CAUSE_UNSURE,   /* a home or a member that may have it could not be asked */
    CAUSE_LOST,     /* a source was lost or did not answer, and there was no other */
    CAUSE_STALE,    /* the lease or the slot's generation was over too often */
    CAUSE_REFUSED,  /* its owners gave no lease, or only an older version */
    CAUSE_CORRUPT,  /* proved */
    CAUSE_LINEAGE,  /* another one */
    CAUSE_DEADLINE, /* the request's */
    CAUSE_CANCELED,
    CAUSE_ROOM,  /* this node's pool or the caller's memory can't take it, or too much is being pulled */
    CAUSE_OTHER, /* bad requests, no memory, ranges outside of it or that can't be verified */
    PULL_CAUSES
};
extern const char *const pull_cause_names[PULL_CAUSES];

/* One key's outcome and record. A key that shared another request's transfer has that transfer's phases, its own TOTAL,
 * and shared = true, moved = 0. */
struct pull_result {
    int status; /* 0; 1 (BERTH_KEPT): the local pool had it by then; -ENOENT; -ETIMEDOUT; -ECANCELED; -ENOSPC: it is
                   larger than `room`, size says; -ERANGE: a range outside of it; -EOPNOTSUPP: these ranges can't be
                   verified by themselves, and it was asked for (VERIFY, or a sample of 1) or the transport can't do
                   without: pull all of it; BERTH_EUNSURE, BERTH_ENOTNOW,
                   BERTH_ECORRUPT, BERTH_ELINEAGE; -ENOMEM; RESERVE's and SEAL's errors; with WAIT BERTH_EABORTED and
                   BERTH_EDIED */
    bool verified, shared;
    bool no_room;      /* with -ETIMEDOUT and BERTH_EFULL: it was this node's pool that had no room, for `size` bytes */
    uint8_t stale;     /* times that it was asked again for STALE */
    uint16_t member;   /* whose bytes; PULL_MEMBER_NONE */
    uint16_t requests; /* ASK, LEASE, RENEW and STATE that it took part in */
    uint32_t unasked;  /* BERTH_EUNSURE, -ETIMEDOUT: a member that could not be asked, + 1; 0: none, or not known */
    uint64_t lease;    /* under whose permission: the owner's lease id */
    uint64_t size;     /* of the object */
    uint64_t moved;    /* bytes that came into its destination, useless ones included */
    uint64_t copied;   /* of these by a CPU of this node, as the transport says; tcp: all of them, by the kernel */
    const char *transport; /* its name, as EV_PULL_UP gave it; NULL */
    struct object_version version;
    uint64_t checksum, lineage;
    uint32_t segment_log2; /* of its segments' bytes; 0: none */
    int64_t phase_ns[PULL_PHASES];
};

/* ---- what peers say ---- */

enum home_says {
    HOME_FOUND,    /* locations */
    HOME_ABSENT,   /* every member is complete: it is nowhere */
    HOME_LEARNING, /* these members' marks are missing */
    HOME_SKIPPED   /* PREFIX: behind the run's end at this home, not looked for */
};

struct pull_location {
    uint16_t member;
    struct object_version version;
};

struct pull_grant {
    int status; /* 0: terms; -ENOENT; -EBUSY: it is being written; any other: this owner is no source now */
    struct lease_terms terms;
};

struct pull_answer {
    enum home_says says;
    uint32_t n_locations, n_missing;
    struct pull_location location[PULL_LOCATIONS_MAX];
    const uint16_t *missing; /* LEARNING */
    bool many;               /* LEARNING: more members than can be named may know; this home says nothing then */
    bool unsure;             /* FOUND: a member's mark is missing, so that others may have it too (rule 30) */
    bool granted;            /* the home is an owner and grants */
    struct pull_grant grant;
};

/* ---- events ---- */

enum pull_event_kind {
    EV_PULL_REQUEST,  /* request */
    EV_PULL_CANCEL,   /* id: of the request; unknown ids are passed over */
    EV_PULL_ANSWER,   /* id: of the ASK; status, answers, n: one a key, in order */
    EV_PULL_LEASED,   /* id: of the LEASE; status, grants, n. It and ANSWER may come up to PULL_FORGET_NS too late */
    EV_PULL_RENEWED,  /* id: of the RENEW; status, ttl_ns */
    EV_PULL_STATED,   /* id: of the STATE; status: 0 generation is the slot's, -ENOENT the lease is unknown */
    EV_PULL_READ,     /* id: of the READ; status, received, copied, began, ended, sums (optional): completed */
    EV_PULL_RESERVED, /* id: of the RESERVE; status, token; BERTH_KEPT: the pool has it; -EAGAIN: there was no room in
                        the time that the shell gives it: it is asked for again while a deadline allows */
    EV_PULL_SEALED,   /* id: of the SEAL; status; BERTH_KEPT: the pool had it. The token is used up in any case */
    EV_PULL_HASHED,   /* id: of the HASH; status, sums, n */
    EV_PULL_RECALL,   /* member, leases, n */
    EV_PULL_OUTDATED, /* key, version: removed or replaced up to there: leases on it serve no further pull */
    EV_PULL_WATCHED,  /* id: of the WATCH; n: answers to it that are still to come; status: 0 it has been sealed
                        somewhere, BERTH_EABORTED or BERTH_EDIED: its writer there has given it up, or has ended; any
                        other: nothing is known */
    EV_PULL_UP,       /* member, incarnation, transport, proven */
    EV_PULL_DOWN,     /* member: a connection to it is lost, control or data */
    EV_PULL_TICK,
    EV_PULL_STOP /* ends all requests with -ECANCELED and gives all leases back */
};

struct pull_event {
    enum pull_event_kind kind;
    int status; /* 0 or negative; of answers as a whole */
    uint64_t id;
    uint16_t member;
    bool more;   /* REQUEST: another event follows at once, always: what is to be asked waits for it, and the keys of
                    several requests go into one message */
    bool proven; /* UP: a READ's completion says that the owner held the slot until then (TCP), so that lease only is
                    allowed */
    /* UP: 0: not met yet: the shell keeps what is asked of it until a second UP says who it is, or DOWN.
     * LEASED, ANSWER: the sender's; 0: as in UP. */
    uint64_t incarnation;
    const char *transport; /* UP: static string */
    const struct pull_request *request;
    const struct pull_answer *answers;
    const struct pull_grant *grants;
    const uint64_t *leases;        /* RECALL */
    const struct key_ref *key;     /* OUTDATED .. */
    struct object_version version; /* .. likewise */
    uint32_t n;
    int64_t ttl_ns;      /* RENEWED */
    uint64_t generation; /* STATED */
    uint64_t token;      /* RESERVED: the shell's name for the slot */
    uint64_t received; /* READ that failed: bytes in its destination all the same; of one that did not: not looked at */
    uint64_t copied;   /* READ: bytes that a CPU of this node moved */
    int64_t began;     /* READ: CLOCK_MONOTONIC ns: it left the transport's queue; 0: not known */
    int64_t ended;     /* READ: its last bytes came; likewise */
    const uint64_t *sums; /* HASHED: XXH3-64 of each part; READ: of the piece, if the transport hashed it in passing */
};

/* ---- commands ---- */

enum pull_command_kind {
    CMD_PULL_ASK,     /* id, member, keys, n, flags, deadline -> EV_PULL_ANSWER */
    CMD_PULL_LEASE,   /* id, member, keys, n, deadline -> EV_PULL_LEASED */
    CMD_PULL_RENEW,   /* id, member, lease -> EV_PULL_RENEWED */
    CMD_PULL_STATE,   /* id, member, lease, slot -> EV_PULL_STATED */
    CMD_PULL_RELEASE, /* member, releases, n: one way; stands before the LEASE that it may ride with */
    CMD_PULL_CORRUPT, /* member, lease, slot, generation, keys[0]: one way */
    CMD_PULL_READ,    /* id, member, lease, generation, offset (in the owner's pool), length, target -> EV_PULL_READ */
    CMD_PULL_CANCEL_READ, /* id: end it soon; its EV_PULL_READ still comes */
    CMD_PULL_RESERVE,     /* id, keys[0], terms, deadline: of the wait for room -> EV_PULL_RESERVED, -EAGAIN then */
    CMD_PULL_HASH,        /* id, target, parts, n: XXH3-64 of each part of what was read -> EV_PULL_HASHED */
    CMD_PULL_SEAL,        /* id, token, keys[0], terms -> EV_PULL_SEALED */
    CMD_PULL_ABORT,       /* token: give the slot back, nothing writes to it any more; one way */
    CMD_PULL_WATCH,       /* id, keys[0]: it is nowhere and waited for: who writes it? -> EV_PULL_WATCHED, any number */
    CMD_PULL_DONE         /* id: of the request; results, n: one a key; run */
};

enum pull_ask_flags {
    ASK_WANT_LEASE = 1u << 0, /* if you are an owner, grant */
    ASK_PREFIX = 1u << 1      /* stop at the first that is not FOUND, SKIPPED from there */
};

/* Where bytes go: [at, at + length) of a slot or buffer. */
struct pull_target {
    enum pull_destination kind;
    uint64_t name; /* token or buffer */
    uint64_t at;   /* bytes */
};

/* Bytes to hash: count ranges of the target, one behind the other; a part ends where `last` is set. */
struct pull_part {
    uint64_t at, length;
    bool last;
    bool scratch; /* at: in the command's `scratch`, not in its target */
};

/* A pull without a deadline waits so long for room, from when it came or found that there is none: what is pinned may
 * never go, and may be what the same call has brought. */
#define PULL_ROOM_NS INT64_C(1000000000)

struct pull_command {
    enum pull_command_kind kind;
    uint64_t id;
    uint16_t member;
    uint32_t flags;
    uint32_t n;
    uint32_t run; /* DONE: leading keys with status >= 0 */
    int64_t deadline;
    const struct pull_key *keys; /* key, route and flags only */
    const struct lease_release *releases;
    const struct pull_result *results;
    const struct pull_part *parts;
    const struct lease_terms *terms;
    uint64_t lease, generation, offset, length, token;
    uint32_t slot;
    struct pull_target target;
    uint8_t *scratch; /* HASH: of parts that say so */
    bool sum; /* READ: of all of an object without segments that will be verified: a checksum made in passing is used */
};

/* ---- the puller ---- */

/* For tests that have to see a rule's absence caught; 0 in every product. */
enum pull_unsafe {
    UNSAFE_NO_VERIFY = 1u << 0,
    UNSAFE_NO_CHECK = 1u << 1,    /* no clock check after the last completion */
    UNSAFE_LATE_START = 1u << 2,  /* D counts from the reply's arrival */
    UNSAFE_KEEP_LOST = 1u << 3,   /* leases outlive their connection */
    UNSAFE_KEEP_WAITERS = 1u << 4 /* a waiter that leaves takes the transfer with it */
};

struct pull_config {
    uint16_t self;      /* PULL_MEMBER_NONE: a client, who is no member */
    uint16_t n_members; /* members are 0 .. n_members - 1; at most LEASE_MEMBERS_MAX */
    /* The key's homes, best first, at most max; how many. The key's own order of members for all nodes. */
    uint32_t (*homes)(void *env, const struct pull_key *key, uint16_t *out, uint32_t max);
    void *env;
    uint32_t absent_homes; /* how many homes must say ABSENT; 0: all of them */
    uint32_t max_requests, max_keys;
    uint32_t max_leases;
    uint64_t max_lease_bytes;
    int64_t lease_idle_ns;            /* 0: 1 s */
    int64_t release_ns;               /* a release waits this long for a LEASE to ride with; 0: 50 ms */
    int64_t rpc_ns;                   /* a peer's time to answer; 0: 2 s */
    int64_t wait_min_ns, wait_max_ns; /* WAIT: pauses, doubled; 0: 1 ms, 100 ms */
    /* Whether the local pool has the key by now: asked where it is nowhere else. NULL: never. */
    bool (*here)(void *env, const struct pull_key *key);
    /* Whether a member that can't be asked won't be there later: asked where a WAIT would go on. NULL: never. */
    bool (*hopeless)(void *env);
    bool watch;                                 /* the shell takes CMD_PULL_WATCH */
    uint64_t window_bytes, source_window_bytes; /* in flight in all, from one member; 0: 64 MiB, 32 MiB. READs of up to
                                                   64 KiB have an eighth of each besides */
    uint64_t read_bytes;                        /* of one READ; 0: 4 MiB */
    uint64_t rate;       /* bytes per second that a transfer makes at least, for estimates; 0: 100 MB/s */
    int64_t latency_ns;  /* and its latency; 0: 1 ms */
    int64_t fresh_ns;    /* T of rule 27; 0: 60 s */
    uint32_t max_floors; /* versions remembered; 0: 4,096 */
    uint64_t hash_seed;
    uint32_t unsafe; /* enum pull_unsafe */
};

struct puller;

/* 0, -ENOMEM, -EINVAL. Members are down until EV_PULL_UP, but self. */
int pull_create(struct puller **out, const struct pull_config *config);
void pull_destroy(struct puller *p);

/* EV_PULL_REQUEST of a bad or a surplus request gives DONE with its error for every key: -EINVAL, -ENOMEM, -EAGAIN
 * (over max_requests or max_keys); of an id in use nothing. `now` is read after what the event tells of (lease.h). */
void pull_event(struct puller *p, const struct pull_event *ev, struct reader_now now);
const struct pull_command *pull_command(struct puller *p);

/* When EV_PULL_TICK is wanted, CLOCK_MONOTONIC ns; INT64_MAX: not at all. */
int64_t pull_timer(const struct puller *p);

/* NULL if every count agrees with what it counts, else a sentence. */
const char *pull_check(const struct puller *p);

enum pull_counter {
    PULL_DONE,       /* keys with status >= 0 */
    PULL_DONE_BYTES, /* that their requests got */
    PULL_FAILED,     /* keys with another status */
    PULL_SHARED,     /* keys that joined another's transfer */
    PULL_TRANSFERS,  /* transfers whose bytes were of use */
    PULL_LEASE_HITS, /* transfers that began under a lease of earlier */
    PULL_ASKS,       /* requests */
    PULL_ASK_KEYS,   /* keys in them */
    PULL_LEASES,
    PULL_LEASE_KEYS,
    PULL_GRANTS, /* leases that came, with an ANSWER or a LEASED */
    PULL_RENEWS,
    PULL_STATES,
    PULL_RELEASES, /* leases given back */
    PULL_READS,
    PULL_READ_BYTES,   /* asked for */
    PULL_MOVED_BYTES,  /* that came, in vain too */
    PULL_COPIED_BYTES, /* of these by a CPU of this node */
    PULL_CANCELLED_READS,
    PULL_LATE,        /* transfers whose lease was over after the last completion */
    PULL_STALE,       /* transfers asked again: late, or another generation */
    PULL_MISMATCHES,  /* wrong checksums */
    PULL_CORRUPT,     /* proved */
    PULL_NEXT_SOURCE, /* sources passed over */
    PULL_WAITS,       /* pauses of WAIT */
    PULL_VERIFIED,    /* transfers whose checksum was compared */
    PULL_UNVERIFIED,  /* transfers taken without */
    PULL_RPC_TIMEOUTS,
    PULL_BAD_ANSWERS, /* of peers, refused */
    PULL_COUNTERS
};
extern const char *const pull_counter_names[PULL_COUNTERS];

struct pull_histogram {
    uint64_t count, sum_ns;
    uint64_t bucket[40]; /* ns in [2^i, 2^(i+1)) */
};

/* What went wrong with a source, so that it was passed over or asked again. */
enum pull_fault { FAULT_LOST, FAULT_STALE, FAULT_REFUSED, FAULT_CORRUPT, PULL_FAULTS };
extern const char *const pull_fault_names[PULL_FAULTS];

/* Of one member as a source. Over all members they add up to the counters of the same name. */
struct pull_source {
    uint64_t leases;    /* that it granted */
    uint64_t reads;     /* READs to it */
    uint64_t transfers; /* from it, whose bytes were of use */
    uint64_t bytes;     /* that came from it, in vain too */
    uint64_t copied;    /* of these by a CPU of this node */
    uint64_t fault[PULL_FAULTS];
    uint64_t in_flight;    /* bytes asked for now */
    const char *transport; /* of the last connection; NULL: none yet */
};
void pull_source(const struct puller *p, uint16_t member, struct pull_source *out);

struct pull_status {
    uint64_t counter[PULL_COUNTERS];
    uint64_t cause[PULL_CAUSES]; /* together PULL_FAILED */
    /* One count a transfer that was in the phase, PREPARE and TOTAL a key. */
    struct pull_histogram phase[PULL_PHASES];
    struct leases_usage leases;
    uint64_t requests, keys, transfers, seeks, rpcs, reads, reserves, hashes, seals; /* now */
    uint64_t window_bytes;                                                           /* in flight now */
    uint64_t floors;
};
void pull_status(const struct puller *p, struct pull_status *out);

#endif
