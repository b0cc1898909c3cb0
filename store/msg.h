/* msg.h: the messages of a client's ring, to the byte.
 *
 * Little-endian, natural alignment, no pointers. A message begins with msg_head, whose `bytes` counts everything behind
 * it too. The node copies a message out once and checks the copy (msg_check): a length, count or enum is never used
 * before that. Operation codes, flags and fields of later versions are reserved here and refused: -EOPNOTSUPP.
 */
#ifndef BERTH_STORE_MSG_H
#define BERTH_STORE_MSG_H

#include "store/slot.h"

enum msg_op {
    MSG_PAD = 0,    /* skip to the ring's end */
    MSG_GRANT = 1,  /* slots to write into, for puts to come; waits for space until the deadline */
    MSG_PUT = 2,    /* seal one granted slot under a key: a whole small put */
    MSG_CREATE = 3, /* a draft: a slot with its key; waits for space until the deadline */
    MSG_SEAL = 4,   /* drafts become objects, all together */
    MSG_ABORT = 5,  /* drafts and grants given back */
    MSG_REMOVE = 6,
    MSG_HOLD = 7,
    MSG_DROP = 8,
    MSG_STAT = 9,
    MSG_LIST = 10,
    MSG_FIND = 11, /* a reader that missed where lookup is not complete, or that spun too long */
    MSG_NAMESPACE = 12,
    MSG_GROW = 13,   /* another segment of the pin table */
    MSG_QUERY = 14,  /* status, pins, check, metrics, why, whatif: text */
    MSG_RESUME = 15, /* first message after a re-attach: the open tokens; the node aborts the session's others */
    MSG_DETACH = 16, /* clean close: nothing of this session writes any more */
    MSG_REVOKE = 17, /* end the process that pins a key (pins --revoke) */
    MSG_SUMS = 18,   /* checksums of a draft's segments, ahead of its SEAL */
    MSG_OPS = 19,
    MSG_CANCEL = 32,    /* of a PULL */
    MSG_PURGE = 33,     /* remove many keys: of a lineage, of a namespace, with a prefix */
    MSG_WAIT = 34,      /* until keys are ready, given up, or time is up */
    MSG_PULL = 35,      /* objects of other nodes: into the pool, or into the caller's memory */
    MSG_BUFFER = 37,    /* memory of the client's for pulls to write into: registered, or no longer */
    MSG_PUBLISHED = 38, /* until the homes of what was sealed have acknowledged it */
    /* reserved, refused: */
    MSG_RANGE = 36,
    MSG_CODES = 39 /* above all of them */
};

struct msg_head {
    uint32_t bytes;   /* whole message, before padding to RING_ALIGN */
    uint16_t op;      /* msg_op; of a reply the request's */
    uint16_t flags;   /* msg_flags */
    uint64_t id;      /* grows by one with every request of a session, over re-attaches too */
    int64_t deadline; /* CLOCK_MONOTONIC ns; 0 does not wait, INT64_MAX waits for ever */
    uint64_t stamp;   /* CLOCK_MONOTONIC ns when the client submitted it; replies: when the node answered */
};
_Static_assert(sizeof(struct msg_head) == 32, "message head");

enum msg_flags {
    MSG_AGAIN = 1,    /* request: sent again after a re-attach */
    MSG_HAS_MORE = 2, /* reply: ask again with the next cursor; sys/socket.h has a MSG_MORE of its own */
    MSG_JOIN = 4,     /* CREATE: no draft of a key that is being written, but MSG_WRITING */
    MSG_ANEW = 8,     /* PUBLISHED: of a key that was kept: its homes are asked whether what is here is still good */
    MSG_PEERS = 16    /* STAT: of what is not here what a lease at a peer says; BERTH_KEPT: it has come meanwhile */
};
#define MSG_WRITING 2 /* status of such a CREATE; figure[1] of one that went on */

struct msg_token { /* a slot while a session writes it */
    uint64_t gen;
    uint32_t slot;
    uint32_t page; /* where its payload begins, in pool pages */
};

struct msg_object {
    uint64_t checksum; /* PUT: XXH3-64 of the payload, with segments that of their checksums; 0 in CREATE */
    uint64_t lineage;
    uint64_t parent; /* XXH3-64 of the parent's key, or 0 */
    uint32_t size;
    uint32_t ns;
    uint32_t ttl_s;    /* 0: none */
    uint16_t key_size; /* 1..KEY_MAX */
    uint8_t priority;
    uint8_t segment; /* log2 of the segment size, 12..30 and so that there are at most 1,024; 0: one segment */
};
_Static_assert(sizeof(struct msg_object) == 40, "object");

struct msg_grant {
    struct msg_head head;
    uint32_t size;     /* of the objects to be put */
    uint32_t count;    /* 1..64 slots wanted; at least one comes, or an error */
    uint32_t ns;       /* of the key for which it is asked, so that an error is remembered for that */
    uint16_t key_size; /* 0: of none */
    uint16_t reserved;
    /* key */
};

struct msg_put {
    struct msg_head head;
    struct msg_token token;
    struct msg_object object;
    uint32_t want; /* grants wanted back with the reply, 0..4; as many as are free without evicting come */
    uint32_t reserved;
    /* key_size bytes of key, then 8 of checksum for each segment */
};
static inline uint32_t msg_put_sums(const struct msg_put *p)
{
    return segments_of(p->object.size, p->object.segment);
}

struct msg_create {
    struct msg_head head;
    struct msg_object object;
    /* key */
};

struct msg_member {
    struct msg_token token;
    uint64_t checksum; /* of a draft with segments that of their checksums, which SUMS has brought */
};

struct msg_sums {
    struct msg_head head;
    struct msg_token token;
    uint32_t count; /* 1..SEGMENTS_MAX: all that the draft has */
    uint32_t reserved;
    /* uint64_t checksum[count] */
};

struct msg_seal {
    struct msg_head head;
    uint32_t count; /* 1..GROUP_MAX */
    uint32_t reserved;
    /* struct msg_member[count] */
};

struct msg_tokens { /* ABORT, RESUME */
    struct msg_head head;
    uint32_t count; /* 0..2048 */
    uint32_t reserved;
    /* struct msg_token[count] */
};

struct msg_key { /* REMOVE, STAT, FIND, REVOKE */
    struct msg_head head;
    uint64_t counter; /* REMOVE: expected version, or 0 and 0 for any */
    uint64_t region;
    uint32_t ns;
    uint16_t key_size;
    uint16_t reserved;
    /* key */
};

struct msg_hold { /* HOLD, DROP */
    struct msg_head head;
    int64_t ttl_ns; /* HOLD: 0 for no end */
    uint32_t ns;
    uint16_t key_size;
    uint16_t label_size; /* 1..LABEL_MAX */
    /* key, label */
};

/* Answered when all of it is gone, with a struct msg_purged; the version in the answer is the purge's. -EINVAL: no such
 * namespace; -EAGAIN: too many are under way. */
struct msg_purge {
    struct msg_head head;
    uint64_t lineage;     /* LINEAGE: not 0; else 0 */
    uint32_t kind;        /* enum purge_kind */
    uint32_t ns;          /* NAMESPACE, PREFIX; else 0 */
    uint16_t prefix_size; /* PREFIX: 1..KEY_MAX; else 0 */
    uint16_t reserved[3];
    /* prefix */
};

struct msg_purged {
    uint64_t removed; /* objects */
    uint64_t bytes;   /* of their payload */
    uint64_t held;    /* objects that it passed over */
    uint64_t drafts;  /* that can't be sealed any more */
    uint64_t untold;  /* of `removed`: here only, homes were not told */
};

struct msg_list {
    struct msg_head head;
    uint32_t ns;
    uint32_t max;         /* entries, 1.. ; the reply holds as many as fit */
    uint16_t prefix_size; /* 0..KEY_MAX */
    uint16_t after_size;  /* 0: from the start */
    uint32_t reserved;
    /* prefix, after */
};

#define MSG_WAIT_KEYS 256u
#define MSG_WAIT_WRITTEN 1u /* do not wait for a key that nobody writes */
#define MSG_WAIT_RUN 2u     /* the keys are a prefix's: answered as soon as one of them is lost */

struct msg_wait { /* answered when every key is settled, or at the deadline; 0: at once */
    struct msg_head head;
    uint32_t count; /* 1..MSG_WAIT_KEYS */
    uint32_t flags; /* MSG_WAIT_WRITTEN, MSG_WAIT_RUN */
    /* for each: struct msg_wait_key, key, padded to 8 */
};
struct msg_wait_key {
    uint32_t ns;
    uint16_t key_size;
    uint16_t reserved;
};

/* What has become of a key. */
enum msg_wait_state {
    WAIT_OPEN = 0,    /* nothing yet: time was up, or MSG_WAIT_WRITTEN and nobody writes it */
    WAIT_READY = 1,   /* sealed */
    WAIT_ABORTED = 2, /* its last writer gave it up */
    WAIT_DIED = 3,    /* its last writer's process has ended */
    WAIT_STATES
};

#define MSG_PULL_KEYS 256u

enum msg_pull_flags {
    MSG_PULL_VERIFY = 1,
    MSG_PULL_WAIT = 2,   /* for keys that are not there yet, until the deadline */
    MSG_PULL_FRESH = 4,  /* the home is asked for the newest version */
    MSG_PULL_PREFIX = 8, /* keys in order: the longest run that is there */
    MSG_PULL_FLAGS = 31,
    MSG_PULL_RECORD = 16 /* the reply has a struct msg_pull_record for each key, too */
};

enum msg_pull_kind {
    MSG_PULL_REPLICA = 0,    /* into the pool, as objects of this node too */
    MSG_PULL_BUFFER = 1,     /* into memory of the process that the node runs in: `buffer` is an address there */
    MSG_PULL_REGISTERED = 2, /* into a buffer of this session: `buffer` is what BUFFER gave */
    MSG_PULL_KINDS
};

struct msg_pull { /* answered when every key is settled and nothing is written to `buffer` any more */
    struct msg_head head;
    uint32_t count;   /* 1..MSG_PULL_KEYS */
    uint16_t flags;   /* msg_pull_flags */
    uint16_t kind;    /* msg_pull_kind */
    uint64_t buffer;  /* REPLICA: 0 */
    uint64_t lineage; /* objects of another are refused; 0: any */
    /* for each: struct msg_pull_key, key, padded to 8, struct msg_pull_range[n_ranges] */
};
struct msg_pull_key {
    uint64_t route;    /* 0: the key's own hash decides its homes */
    uint64_t to, room; /* BUFFER without ranges: the object goes to buffer[to, to + room); REPLICA: 0 */
    uint32_t ns;
    uint16_t key_size;
    uint16_t n_ranges; /* REPLICA: 0 */
};
struct msg_pull_range {
    uint64_t offset, length; /* in the object */
    uint64_t to;             /* in the buffer */
};

/* A range or a place that does not wrap and is no larger than an object. */
#define MSG_PULL_PLACE_MAX (UINT64_MAX / 4)

static inline const void *msg_pull_name(const struct msg_pull_key *k)
{
    return k + 1;
}
static inline const struct msg_pull_range *msg_pull_ranges(const struct msg_pull_key *k)
{
    return (const struct msg_pull_range *)(const void *)((const uint8_t *)(k + 1) + ((k->key_size + 7u) & ~7u));
}
/* The one behind it, in a message that was checked. */
static inline const struct msg_pull_key *msg_pull_next(const struct msg_pull_key *k)
{
    return (const struct msg_pull_key *)(const void *)(msg_pull_ranges(k) + k->n_ranges);
}

#define MSG_PULL_RANGES 1024u /* of one key */

enum msg_buffer_kind { MSG_BUFFER_REGISTER = 1, MSG_BUFFER_UNREGISTER = 2 };

/* REGISTER: the descriptor came over the session's socket before (attach_buffer), with this cookie: a memfd on 4 KiB
 * pages, sealed against shrinking, that may be written. Answer: counter = its number, from 1. The buffer is the
 * session's until UNREGISTER, or its connection ends. -ESTALE: no descriptor came (this is a repetition); -EPERM: it is
 * not sealed; -EINVAL: no memfd, or its size; BERTH_EQUOTA with asked, quota, had: too many, or too much.
 * UNREGISTER: -ENOENT; -EBUSY: a pull writes into it. */
struct msg_buffer {
    struct msg_head head;
    uint32_t kind;   /* msg_buffer_kind */
    uint32_t number; /* UNREGISTER; else 0 */
    uint64_t cookie; /* REGISTER; else 0 */
    uint64_t offset; /* REGISTER: in the file, a multiple of 4 KiB; else 0 */
    uint64_t bytes;  /* REGISTER: at least 1; else 0 */
};

/* Answered when the homes of each object that is there have acknowledged it, at once where there are no peers; of
 * objects that have gone nothing is waited for. BERTH_EUNPUBLISHED: not by the deadline; BERTH_EVERSION: it has gone
 * since, or with MSG_ANEW it is not there, or a removal or a newer version stands above it; -EAGAIN: too many wait. */
struct msg_published {
    struct msg_head head;
    uint32_t ns;       /* of the key */
    uint16_t key_size; /* 1..KEY_MAX: one key follows, and count is 0; 0: tokens */
    uint16_t count;    /* 1..GROUP_MAX of struct msg_token, of objects that were sealed under them; their page is not
                          looked at */
};

struct msg_cancel { /* answered when the PULL was: 0; -ENOENT: none is under way; -EALREADY: cancelled before */
    struct msg_head head;
    uint64_t target; /* id of the PULL */
};

struct msg_namespace {
    struct msg_head head;
    uint32_t name_size; /* 1..NAME_MAX_BYTES */
    uint32_t reserved;
    /* name */
};

struct msg_grow {
    struct msg_head head;
    uint32_t entries; /* wanted in all */
    uint32_t reserved;
};

enum msg_what {
    QUERY_STATUS = 0,
    QUERY_PINS = 1,
    QUERY_CHECK = 2,
    QUERY_METRICS = 3,
    QUERY_WHY = 4,
    QUERY_WHATIF = 5,
    QUERY_KINDS
};

struct msg_query {
    struct msg_head head;
    uint32_t what;     /* msg_what */
    uint32_t offset;   /* bytes of the text already had; the text of one query is made once, at offset 0 */
    uint32_t ns;       /* PINS: of one key; WHY */
    uint16_t key_size; /* 0: all; WHY: 1.. */
    uint16_t reserved;
    /* key */
};

/* Every reply is this, then what the operation adds. The figures of a refusal are counter, region, figure[0],
 * figure[1]: asked, free, largest, pinned of BERTH_EFULL, and of -ETIMEDOUT for lack of room, also of the first key of
 * a PULL with one of these; asked, quota, had of BERTH_EQUOTA for a draft. */
struct msg_reply {
    struct msg_head head;
    int32_t status;   /* 0 or a positive count, or a negative error of berth.h */
    uint32_t count;   /* items behind */
    uint64_t counter; /* version; or figures[0] */
    uint64_t region;  /* version; or figures[1] */
    uint64_t figure[2];
};
_Static_assert(sizeof(struct msg_reply) == 72, "reply");

#define MSG_NAMESPACE_REPLACEABLE 1u /* in the flags that NAMESPACE answers */

/* GRANT, CREATE, PUT: struct msg_token[count]; figure[0] is the capacity of each in bytes. CREATE: figure[1] is
 * MSG_WRITING where the key is another draft's too, or 0; status MSG_WRITING with MSG_JOIN: no token.
 * WAIT: uint8_t state[count], enum msg_wait_state; status = how many are WAIT_READY.
 * SEAL: uint8_t kept[(n + 7) / 8], bit set where the key existed and was kept; count = n; status = how many were kept.
 * DROP, -ENOENT: counter is 1 where the key is there and only the label is not.
 * STAT: struct msg_stat, key, then holds as msg_stat_hold + label; LIST: struct msg_stat + key each, padded to 8.
 * FIND: one msg_token. PURGE: one msg_purged. NAMESPACE: status = flags, counter = id.
 * GROW: counter = entries acknowledged.
 * QUERY: text; figure[0] = its whole length. */
enum msg_pulled_flags { MSG_PULLED_VERIFIED = 1, MSG_PULLED_SHARED = 2, MSG_PULLED_LOCAL = 4 };

struct
    msg_pulled { /* PULL: msg_pulled[count]; status: how many have a status from 0 on, with PREFIX the run's length */
    int32_t status;  /* 0, 1 (BERTH_KEPT): it is here already; or a negative error: replication/pull.h */
    uint16_t member; /* who sent it; UINT16_MAX: nobody */
    uint16_t flags;  /* msg_pulled_flags */
    uint64_t size;   /* bytes of the object; also of one that was larger than its room */
    uint64_t moved;  /* bytes that came for it, in vain too */
    uint64_t copied; /* of these by a CPU of the node */
    uint64_t counter, region;
};
_Static_assert(sizeof(struct msg_pulled) == 48, "pulled");

#define MSG_PULL_PHASES 11u

struct msg_pull_record {               /* PULL with RECORD: msg_pull_record[count] behind msg_pulled[count] */
    char source[64];                   /* name of the member that sent it; empty: none did */
    char transport[16];                /* over what; empty: nothing came */
    uint64_t lease;                    /* the owner's id of the lease under which it was read; 0: none */
    uint32_t requests;                 /* to other nodes that it took part in */
    uint32_t stale;                    /* times that it was read again, its lease or slot being over */
    int64_t phase_ns[MSG_PULL_PHASES]; /* in the order of enum berth_phase */
};
_Static_assert(sizeof(struct msg_pull_record) == 184, "pull record");

/* The end of the reply to a PULL or STAT where a key has BERTH_EUNSURE, or -ETIMEDOUT for want of a member, and it is
 * known of whom. The message is so much
 * longer than it would be without, which no other length is. */
struct msg_unasked {
    char name[64]; /* of a member that could not be asked, padded with 0 */
};

_Static_assert(sizeof(struct msg_reply) + MSG_PULL_KEYS * (sizeof(struct msg_pulled) + sizeof(struct msg_pull_record)) +
                       sizeof(struct msg_unasked) <=
                   65536,
               "the largest reply to a PULL is one message");

struct msg_stat {
    uint64_t counter;
    uint64_t region;
    uint64_t checksum;
    uint64_t lineage;
    uint64_t created_us; /* wall clock, for people */
    uint64_t generation;
    uint32_t size;
    uint32_t slot_bytes;
    uint32_t slot;
    uint32_t ttl_s;
    uint32_t holds;
    uint32_t ns;
    uint16_t key_size;
    uint8_t priority;
    uint8_t tier;
    uint32_t segment; /* log2; 0: one segment */
};
_Static_assert(sizeof(struct msg_stat) == 80, "stat");

struct msg_stat_hold {
    int64_t ttl_ns; /* left; 0: no end */
    uint32_t label_size;
    uint32_t reserved;
    /* label, padded to 8 */
};

/* Checks everything that can be checked without the store: known op, sizes that add up to exactly head.bytes, counts
 * and enums in range, reserved fields 0. `bytes` is what was copied. 0, -EINVAL, or -EOPNOTSUPP for a reserved op. */
int msg_check(const struct msg_head *m, uint32_t bytes);

/* The next key of a checked WAIT; at: where it begins, at first right behind the message, moved on. */
static inline const struct msg_wait_key *msg_wait_next(const uint8_t **at)
{
    const struct msg_wait_key *k = (const struct msg_wait_key *)(const void *)*at;
    *at += sizeof *k + ((k->key_size + 7u) & ~7u);
    return k;
}

/* Most bytes that the reply to this request can take: the node takes a request only when so much room is left. */
uint32_t msg_reply_max(const struct msg_head *m);
/* Bytes of the reply to a PULL with these flags, for each of its keys. */
static inline uint32_t msg_pulled_bytes(uint32_t flags)
{
    return (uint32_t)(sizeof(struct msg_pulled) + (flags & MSG_PULL_RECORD ? sizeof(struct msg_pull_record) : 0));
}

#endif
