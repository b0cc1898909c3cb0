/* wire.h: the messages between nodes, to the byte; the same over TCP and over SEND/RECV. docs/formats.md has the
 * tables.
 *
 * A message is carried whole by its transport (transport.h; over TCP as a frame, tcp_frame.h), which also moves the
 * objects' bytes: those are no messages.
 *
 * A message is a head of WIRE_HEAD bytes, a body that its op fixes, and `count` items. Little-endian, byte by byte,
 * no padding: nothing depends on the host. What a peer sent is believed only after wire_open has walked the whole of
 * it: op, flags, counts, enums and ranges, reserved bytes 0, and lengths that add up to exactly the message. Times
 * are durations: a peer's clock is never sent. Names, addresses and sentences are printable ASCII, since they reach
 * logs.
 *
 * Bounds: a message WIRE_MESSAGE_MAX bytes, WIRE_KEYS_MAX keys or entries, WIRE_LEASES_MAX lease ids, a key KEY_MAX
 * bytes, WIRE_OWNERS_MAX owners and WIRE_MISSING_MAX missing members a key. Nothing here allocates, blocks, or keeps
 * state but in the caller's structures; any thread.
 */
#ifndef BERTH_REPLICATION_WIRE_H
#define BERTH_REPLICATION_WIRE_H

#include "index/record.h"
#include "store/berth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC 0x31574854524542ULL /* "BERTHW1" */
#define WIRE_VERSION 4u                /* the one spoken; HELLO, WELCOME and REFUSE are read in all */
#define WIRE_VERSION_MEMORY 2u /* HELLO and WELCOME of this one and later have tombstones, fresh and replaceable */
#define WIRE_HEAD 40u          /* bytes of the head */
#define WIRE_MESSAGE_MAX (256u << 10) /* bytes of a message */
#define WIRE_MESSAGE_MIN 4096u        /* what every node takes at least: the least that HELLO may say */
#define WIRE_HELLO_MAX 544u           /* HELLO, WELCOME and REFUSE fit: the bound for a connection that is not up */
#define WIRE_KEYS_MAX 256u            /* keys of a request, items of its answer, entries of a publication */
#define WIRE_LEASES_MAX 1024u         /* lease ids of a RENEW, RELEASE or RECALL */
#define WIRE_OWNERS_MAX 8u            /* owners named for a key */
#define WIRE_MISSING_MAX 64u          /* members named as missing for a key */
#define WIRE_MEMBERS_MAX 1024u        /* members of a list */
#define WIRE_HOMES_MAX 8u             /* homes of a key */
#define WIRE_WEIGHT_MAX 65535u        /* of a member */
#define WIRE_NAME_MAX 63u             /* bytes of a cluster's or a node's name */
#define WIRE_ADDRESS_MAX 255u         /* bytes of an address */
#define WIRE_SENTENCE_MAX 255u        /* bytes of a refusal's sentence */
#define WIRE_TTL_MAX UINT64_C(30000000000)     /* ns: rule 19's longest lease */
#define WIRE_NO_DEADLINE ((uint64_t)INT64_MAX) /* time_left of a request that may take for ever */
#define WIRE_COUNTER_MAX ((uint64_t)INT64_MAX) /* a version counter: the next one never wraps (rule 28) */
#define WIRE_GENERATION_MAX ((UINT64_C(1) << 56) - 1)
#define WIRE_OFFSET_MAX ((uint64_t)INT64_MAX) /* of any place in a pool, its end included */
#define WIRE_SEGMENT_MAX 30u                  /* log2 of a segment's bytes */
#define WIRE_SUMS_MAX 1024u                   /* segments of an object */
#define WIRE_STATUS_MAX 8191                  /* a status is in -WIRE_STATUS_MAX..0 */
#define WIRE_MEMBER_NONE UINT16_MAX           /* no member has this index */

enum wire_op {
    WIRE_HELLO = 1,   /* first message of who opened the connection */
    WIRE_WELCOME = 2, /* its answer: versions and features chosen, and the same identity */
    WIRE_REFUSE = 3,  /* or this, and the connection is closed */
    WIRE_PING = 4,
    WIRE_PONG = 5, /* with the PING's token */
    WIRE_GOODBYE = 6,
    WIRE_LEASE = 16, /* reader to owner */
    WIRE_LEASED = 17,
    WIRE_RENEW = 18,
    WIRE_RENEWED = 19,
    WIRE_RELEASE = 20, /* one way */
    WIRE_RECALL = 21,  /* owner to reader, one way */
    WIRE_STATE = 22,   /* reader to owner: what rule 21 asks */
    WIRE_STATED = 23,
    WIRE_CORRUPT = 24, /* reader to owner, one way */
    WIRE_SUMS = 25,    /* reader to owner: checksums of segments of what it has a lease on */
    WIRE_SUMMED = 26,
    WIRE_ASK = 32, /* reader to home */
    WIRE_ANSWER = 33,
    WIRE_PUBLISH = 34, /* owner to home */
    WIRE_PUBLISHED = 35,
    WIRE_MEMBERS = 36, /* client to any node: which members there are */
    WIRE_LISTED = 37,
    WIRE_OPS /* one more than the greatest */
};

/* Flags of the head; all others are refused. */
enum wire_flags {
    WIRE_CLIENT = 1,  /* HELLO: no member, only reads; has no address */
    WIRE_WAIT = 1,    /* LEASE: wait until a key that is being written is sealed, within time_left */
    WIRE_PREFIX = 4,  /* LEASE, ASK: the longest run from the first key; the answer has the run's items only, that of
                          ASK the first one behind the run too */
    WIRE_WANT = 1,    /* ASK: lease at once what the home owns itself */
    WIRE_COMPLETE = 1 /* PUBLISH: with this the owner has published everything of this stream; PUBLISHED: the home has
                          set its mark */
};

/* What an op is: what its id, time_left and status have to be. */
enum wire_class {
    WIRE_ONE_WAY, /* id 0 */
    WIRE_REQUEST, /* id at least 1, time_left 0..WIRE_NO_DEADLINE */
    WIRE_REPLY    /* the request's id; body begins with a status, and if that is negative nothing follows */
};

/* Why a message was refused, or could not be encoded. Name, sentence. */
#define WIRE_FAULTS(X)                                                                 \
    X(WIRE_FAULT_NONE, "nothing is wrong")                                             \
    X(WIRE_FAULT_SHORT, "the message is cut off")                                      \
    X(WIRE_FAULT_LONG, "there are bytes behind the message")                           \
    X(WIRE_FAULT_SIZE, "the message is larger or smaller than a message may be")       \
    X(WIRE_FAULT_OP, "unknown op")                                                     \
    X(WIRE_FAULT_FLAG, "unknown flag, or flags that exclude each other")               \
    X(WIRE_FAULT_COUNT, "too many items or too few")                                   \
    X(WIRE_FAULT_RESERVED, "a reserved byte is not 0")                                 \
    X(WIRE_FAULT_ID, "the request id is not what the op demands")                      \
    X(WIRE_FAULT_TIME, "a duration is out of range")                                   \
    X(WIRE_FAULT_COUNTER, "a version counter is out of range")                         \
    X(WIRE_FAULT_MAGIC, "the other side does not speak this protocol")                 \
    X(WIRE_FAULT_VERSION, "the range of protocol versions is empty or begins at 0")    \
    X(WIRE_FAULT_NAME, "a name, address or sentence has a bad length or byte")         \
    X(WIRE_FAULT_KEY, "a key's length is out of range")                                \
    X(WIRE_FAULT_ENUM, "unknown kind")                                                 \
    X(WIRE_FAULT_STATUS, "a status is out of range")                                   \
    X(WIRE_FAULT_SLOT, "a slot number is out of range")                                \
    X(WIRE_FAULT_GENERATION, "a generation is out of range")                           \
    X(WIRE_FAULT_RANGE, "an offset, length or object size is out of range")            \
    X(WIRE_FAULT_SEGMENT, "a segment size is out of range")                            \
    X(WIRE_FAULT_MEMBER, "a member's number or the number of members is out of range") \
    X(WIRE_FAULT_LEASE, "a lease id is 0")                                             \
    X(WIRE_FAULT_USE, "a field that this kind does not use is not 0")                  \
    X(WIRE_FAULT_ROOM, "the buffer has no room for it")

enum wire_fault {
#define WIRE_FAULT_ENUM_LINE(name, sentence) name,
    WIRE_FAULTS(WIRE_FAULT_ENUM_LINE)
#undef WIRE_FAULT_ENUM_LINE
        WIRE_FAULT_KINDS
};

struct wire_head {
    uint32_t bytes; /* of the whole message */
    uint16_t op;    /* wire_op */
    uint16_t flags;
    uint32_t count;     /* items */
    uint64_t id;        /* of the request; an answer has its request's; 0 one way */
    uint64_t counter;   /* greatest version counter that the sender has seen (rule 28) */
    uint64_t time_left; /* ns until a request's deadline, or WIRE_NO_DEADLINE; 0 in everything else */
};

/* A string in the buffer, not ended by a 0. */
struct wire_text {
    const char *data;
    uint16_t size;
};

struct wire_hello {                    /* HELLO, WELCOME */
    uint16_t version_min, version_max; /* WELCOME: both the one chosen */
    uint64_t features;                 /* offered; WELCOME: chosen. Unknown bits are no fault */
    uint8_t region[16];                /* uuid of the region directory */
    uint64_t region_id;                /* region part of versions sealed here */
    uint64_t incarnation;              /* of the node on its region; leases end with it */
    uint64_t pool_bytes;
    uint64_t revision;        /* of the member list, and of how homes are chosen; 0: a client, who has none */
    uint64_t tombstones;      /* ns: how long a removal is remembered (rule 29); 0: a client, or below .. */
    uint64_t fresh;           /* ns: rule 27's T; 0 likewise */
    uint64_t replaceable;     /* node_replaceable: which namespaces are; .. WIRE_VERSION_MEMORY, whose messages have
                                 none of the three */
    uint32_t largest;         /* bytes of the largest message that this side takes, >= WIRE_MESSAGE_MIN */
    struct wire_text cluster; /* 0..WIRE_NAME_MAX bytes */
    struct wire_text node;    /* 1..WIRE_NAME_MAX */
    struct wire_text address; /* 0..WIRE_ADDRESS_MAX; where others reach it */
};

struct wire_lease { /* as an owner gives it; there is one only where the status is 0 */
    uint64_t id;
    uint32_t slot;
    uint8_t segment; /* log2 of the segment size, 0: one segment */
    uint64_t generation;
    uint64_t offset; /* of the payload in the owner's pool; offset + size does not wrap, see wire_lease_within */
    uint64_t size;   /* bytes, 0..OBJECT_MAX */
    struct berth_version version;
    uint64_t checksum; /* XXH3-64 */
    uint64_t lineage;
    uint64_t duration; /* ns, 1..WIRE_TTL_MAX, from before the request on the reader's clock */
};

enum wire_answer_kind { WIRE_FOUND = 1, WIRE_ABSENT = 2, WIRE_LEARNING = 3 };

enum wire_answer_flags {
    WIRE_LEASED_TOO = 1, /* FOUND: `lease` is there */
    WIRE_SURE = 2,       /* FOUND: no member's mark is missing; ABSENT: always; LEARNING: never */
    WIRE_TOMBSTONE = 4,  /* `removed` is there: the removal that the home knows, newer than no location */
    WIRE_MORE = 8,       /* LEARNING: more members are missing than are named: asking those named proves nothing */
    WIRE_EVERYONE = 16   /* LEARNING: any member may know, not only those whose mark is missing; then none is named */
};

struct wire_location {
    uint16_t member; /* index in the static list, not checked against it */
    bool down;       /* the home can't reach it */
    struct berth_version version;
    uint64_t size; /* bytes */
    uint64_t lineage;
};

struct wire_answer {
    uint8_t kind;  /* wire_answer_kind */
    uint8_t flags; /* of that kind */
    uint8_t n;     /* FOUND: locations, 1..WIRE_OWNERS_MAX; LEARNING: missing members, 0..WIRE_MISSING_MAX, 0 only with
                      MORE or EVERYONE; ABSENT 0 */
    uint16_t missing[WIRE_MISSING_MAX];       /* LEARNING: indices in the static list, not checked against it */
    struct berth_version removed;             /* with TOMBSTONE */
    struct wire_location at[WIRE_OWNERS_MAX]; /* FOUND: the newest version first, those that are down last */
    struct wire_lease lease;                  /* FOUND with LEASED_TOO: the home's own, as an owner */
};

/* As publication_kind of publication.h. */
enum wire_entry_kind { WIRE_OBJECT = 1, WIRE_GONE = 2, WIRE_BURIED = 3 };

struct wire_entry {   /* of a publication */
    uint8_t kind;     /* wire_entry_kind: the owner has it; has it and older ones no more; tombstone (rule 29) */
    bool replaceable; /* its namespace is */
    struct key_ref key;
    uint64_t route;               /* not 0: homes are chosen by it and not by the key */
    struct berth_version version; /* counter from 1 */
    uint64_t size, lineage;       /* OBJECT; else 0 */
    uint64_t past;                /* GONE: PAST_BITS of store/evict.h, not checked; else 0 */
};

/* As publication_verdict. */
enum wire_published_kind { WIRE_TAKEN = 0, WIRE_SUPERSEDED = 1, WIRE_FULL = 2 };

struct wire_message {
    struct wire_head head;
    int32_t status; /* replies: 0, or a negative error for the request as a whole, which ends the message */
    union {
        struct wire_hello hello; /* HELLO, WELCOME */
        struct {
            int32_t code; /* negative */
            struct wire_text sentence;
        } refuse;
        uint64_t token; /* PING, PONG */
        uint64_t ttl;   /* LEASE: ns wanted, 0: the owner's default */
        struct {
            uint64_t revision;
            uint64_t ttl; /* with WANT */
        } ask;
        struct {
            uint64_t owner_region, owner_incarnation; /* the owner's life .. */
            uint64_t home_region, home_incarnation;   /* .. and the home's that it is meant for */
            uint64_t revision;                        /* of the owner's member list */
            uint64_t stream;                          /* from 1 */
            uint32_t batch;                           /* of the stream, from 0: the one that starts it */
        } publish;
        struct {
            uint64_t stream;
            uint32_t batch; /* that is answered */
        } published;
        struct {
            uint32_t slot;
            uint64_t generation;
        } state;
        uint32_t from; /* MEMBERS: the first member that is wanted, by its place in the list */
        struct {
            uint64_t revision; /* of the list, never 0 */
            uint16_t total;    /* members, 1..WIRE_MEMBERS_MAX */
            uint8_t homes;     /* of a key, 1..WIRE_HOMES_MAX */
        } listed;              /* LISTED: items are members from `from` on, in the list's order: all that fit */
        uint64_t word;         /* STATED: the state word */
        struct {
            uint64_t lease;
            struct berth_version version;
            struct key_ref key;
        } corrupt;
    };
};

/* One item; which member, the op says. */
struct wire_item {
    union {
        struct key_ref key; /* LEASE, ASK */
        struct {
            int32_t status; /* of this key */
            struct wire_lease lease;
        } leased; /* LEASED */
        struct {
            uint64_t lease;
            bool in_flight; /* a transfer runs: renew it though the object is retired (rule 24) */
        } renew;            /* RENEW */
        struct {
            int32_t status;
            uint64_t duration; /* ns, 0 unless status is 0 */
        } renewed;             /* RENEWED */
        struct {
            uint64_t lease;
            uint32_t uses; /* pulls that it served */
        } release;         /* RELEASE */
        uint64_t recall;   /* RECALL: lease id */
        struct {
            uint32_t slot;
            uint64_t generation;
        } sums; /* SUMS */
        struct {
            int32_t status;   /* of this slot */
            uint16_t n;       /* 1..WIRE_SUMS_MAX where the status is 0, else 0 */
            const void *list; /* n XXH3-64 of 8 bytes, little-endian, in order; not aligned */
        } summed;             /* SUMMED */
        struct wire_answer answer;
        struct wire_entry entry; /* PUBLISH */
        struct {
            uint32_t weight;          /* 1..WIRE_WEIGHT_MAX */
            struct wire_text name;    /* 1..WIRE_NAME_MAX bytes */
            struct wire_text address; /* 0..WIRE_ADDRESS_MAX: where it is reached; empty: not known */
        } member;                     /* LISTED */
        struct {
            uint8_t kind;     /* wire_published_kind */
            uint64_t counter; /* SUPERSEDED: the counter to go beyond; else 0 */
            uint64_t past;    /* TAKEN: PAST_BITS, not checked; else 0 */
        } published;          /* PUBLISHED */
    };
};

/* ---- encoding ---- */

struct wire_writer {
    uint8_t *base;
    size_t room; /* bytes of base, at most WIRE_MESSAGE_MAX of them are used */
    uint32_t used;
    uint32_t count;
    struct wire_head head;
    int32_t status;
    enum wire_fault fault; /* of the last call that failed */
};

/* Begins a message in buffer: head and body. head.bytes and head.count of m are not looked at; id, counter and
 * time_left may be given by wire_stamp instead, so they are checked there and by the receiver. 0, -ENOSPC, or -EINVAL
 * with the fault in w. */
int wire_begin(struct wire_writer *w, void *buffer, size_t room, const struct wire_message *m);

/* Adds an item. -ENOSPC: no room, -E2BIG: as many as the op takes, -EINVAL: a field is out of range or the op has no
 * items; then the message is as it was before the call, and may be ended. */
int wire_add(struct wire_writer *w, const struct wire_item *item);

/* Ends it: bytes of the whole message, or -EINVAL (too few items). */
long wire_end(struct wire_writer *w);

/* Writes id, counter and time_left into the head of an encoded message. */
void wire_stamp(void *message, uint64_t id, uint64_t counter, uint64_t time_left);

/* The head of a message that this side has encoded or wire_open has accepted; message has WIRE_HEAD bytes at least. */
struct wire_head wire_peek(const void *message);

/* ---- decoding ---- */

struct wire_reader {
    const uint8_t *data;
    uint32_t bytes, at;
    uint32_t left; /* items */
    struct wire_head head;
    enum wire_fault fault; /* of wire_open */
};

/* Reads a message of exactly n bytes and checks the whole of it, items included. 0, or -EBADMSG with r->fault; m is
 * written only on success. Pointers in m and in items point into data, which must stay as it is while they are used. */
int wire_open(struct wire_reader *r, struct wire_message *m, const void *data, size_t n);

/* The next item: 1; 0: there are no more. -EBADMSG only if the bytes changed after wire_open. */
int wire_next(struct wire_reader *r, struct wire_item *item);

/* ---- about ops ---- */

bool wire_known(unsigned op);
const char *wire_name(unsigned op); /* "LEASE"; "?" */
enum wire_class wire_class(unsigned op);
unsigned wire_reply_of(unsigned op); /* of a request; 0: it is none */
const char *wire_fault_text(enum wire_fault fault);

/* Whether the lease lies in a pool of so many bytes: what a reader checks before it posts. */
static inline bool wire_lease_within(const struct wire_lease *l, uint64_t pool_bytes)
{
    return l->size <= pool_bytes && l->offset <= pool_bytes - l->size;
}

#endif
