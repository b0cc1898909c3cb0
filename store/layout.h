/* layout.h: what lies in the files of a region directory, to the byte.
 *
 * Every structure here is shared between processes that may be of different builds: each file begins with a
 * magic, a format number and a fingerprint of the sizes below, checked by whoever maps it. Only the node writes
 * `slots`, `lookup` and `tails`; a client writes its own pin file and its own ring and nothing else.
 */
#ifndef BERTH_STORE_LAYOUT_H
#define BERTH_STORE_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LAYOUT_FORMAT 5u
#define PAGE_BYTES 4096u
#define UNIT_BYTES (2u << 20) /* slabs are cut from, and large objects take, whole units */
#define UNIT_PAGES (UNIT_BYTES / PAGE_BYTES)
#define SLOT_NONE UINT32_MAX
#define KEY_MAX 480u
#define KEY_INLINE 70u     /* a key of up to this many bytes stands in the slot header */
#define KEY_HEAD 66u       /* of a longer one this many bytes do, the rest lies in tails */
#define KEY_SPLIT 0x8000u  /* in key_size, of 67 to 70 bytes: they lie as a longer key's do, since `tail` is needed */
#define TAIL_CELL 64u      /* bytes a cell of tails */
#define SEGMENTS_MAX 1024u /* segments an object */
#define SEGMENT_SHIFT_MIN 12u /* log2 of the smallest segment, and of the largest */
#define SEGMENT_SHIFT_MAX 30u
#define GROUP_MAX 1024u /* members that one seal publishes together */
#define OBJECT_MAX (1u << 30)
#define LABEL_MAX 63u
#define HOLDS_MAX 16u
#define REGIONS_MAX 256u   /* regions whose versions objects here may have at one time, this one included */
#define NAME_MAX_BYTES 63u /* namespace and client names */

/* ---- slots: superblock, slab directory, headers ---- */

#define SLOTS_MAGIC 0x31534854524542ULL /* "BERTHS1" */

struct slots_super {
    uint64_t magic;
    uint32_t format;
    uint32_t fingerprint;
    uint8_t uuid[16];   /* of the pool: another pool is another region */
    uint64_t region_id; /* second half of every version sealed here; new whenever a pool starts empty */
    uint64_t pool_bytes;
    uint64_t mr_bytes;   /* no slab and no run straddles a multiple of this */
    uint64_t dir_offset; /* slab_entry[n_units], with room for those of a larger pool behind them */
    uint64_t headers_offset;
    uint64_t hash_seed; /* of lookup */
    uint32_t n_units;
    uint32_t max_headers;
    uint32_t n_pools;    /* files; 1: NUMA nodes have parts of it (numa.h) */
    uint32_t page_shift; /* 12 now; 21 where the pool lies on huge pages */
    uint64_t reserved[16];
    /* By slot_header.region; [0] is not used: that is region_id. Written by the node before a header names it, and not
     * changed while one does. 0: not in use. */
    _Atomic uint64_t region_ids[REGIONS_MAX];
};
_Static_assert(sizeof(struct slots_super) <= PAGE_BYTES, "the slab directory follows");

/* One entry a 2 MiB unit. The entry of a slab's first unit describes the slab, its other units say UNIT_BODY.
 * Written fields first, kind last (release): a crash in between leaves a free unit. */
enum unit_kind {
    UNIT_FREE = 0,
    UNIT_SLAB = 1, /* first unit of a slab */
    UNIT_RUN = 2,  /* first unit of one large object's run */
    UNIT_BODY = 3  /* a further unit of either */
};

struct slab_entry {
    uint32_t header;     /* first header of its dense run */
    uint32_t slot_pages; /* pages a slot; of a run: units * UNIT_PAGES */
    uint16_t units;      /* of a slab: 1, 2, 4 .. 32; of a run up to 512 */
    _Atomic uint8_t kind;
    uint8_t pool; /* index of the NUMA node's pool file */
    uint32_t reserved;
};
_Static_assert(sizeof(struct slab_entry) == 16, "slab directory entry");

enum slot_flags {
    SLOT_HELD = 1, /* at least one hold: never evicted */
    SLOT_TAIL =
        2, /* `tail` names cells: the rest of a key above KEY_HEAD bytes, then, from a new cell on, the checksums
                      of segments */
    SLOT_GRANT = 4,   /* WRITING without a key yet: granted to a session */
    SLOT_GROUPED = 8, /* sealed together with others, which have its version */
    SLOT_PURGED = 16  /* WRITING: a purge came after it and covers it: it can't be sealed */
};

enum purge_kind {                    /* what a purge removes */
                  PURGE_LINEAGE = 1, /* of this lineage tag, in every namespace */
                  PURGE_NAMESPACE,
                  PURGE_PREFIX, /* keys of a namespace that begin so */
                  PURGE_KINDS
};

/* Two adjacent cache lines. Fields are written by the node while the slot is FREE or WRITING, then the word is
 * stored (release); a reader trusts them only under a validated pin, or if the word is the same before and after.
 * Only word, group, flags and, to a greater counter that nothing else ever has, version change while READY. Never
 * zeroed: the generation in word outlives every reuse. */
struct slot_header {
    _Atomic uint64_t word; /* generation << 8 | state, see slot.h */
    uint32_t size;         /* bytes of payload */
    uint32_t page;         /* first pool page */
    uint64_t version;      /* counter; while WRITING the session that writes */
    uint64_t checksum; /* XXH3-64 of the payload, of segments that of their checksums; while WRITING ttl seconds << 8
                              | priority */
    uint64_t lineage;
    _Atomic uint64_t group; /* leader slot + 1 while a group is being published, else 0; while WRITING the parent */
    uint32_t ns;
    uint16_t key_size;    /* KEY_SPLIT is no part of the number */
    uint16_t region;      /* of the version: index into region_ids; 0 is this one */
    uint8_t tier_segment; /* tier in bits 6..7, log2 of the segment size (0: one segment) in bits 0..5 */
    _Atomic uint8_t flags;
    uint8_t key[66];
    union {
        uint8_t key_last[4]; /* bytes 66..69 of an inline key */
        uint32_t tail;       /* first cell, where SLOT_TAIL */
    };
};
_Static_assert(sizeof(struct slot_header) == 128, "slot header");
_Static_assert(offsetof(struct slot_header, key) == 58 && offsetof(struct slot_header, tail) == 124, "slot header");

/* ---- lookup ---- */

#define LOOKUP_MAGIC 0x314c4854524542ULL /* "BERTHL1" */
#define LOOKUP_WAYS 7u
#define LOOKUP_PROBES 8u /* an entry lies in its home bucket or the next 7 */

/* An entry is one 8-byte atomic: slot + 1 in the low half, tag in the high half; 0 is empty. It never moves, and is
 * changed in place by a replace, so a reader needs no sequence word: what it loads is an entry that was there, and
 * the header under its pin says whether it is the key. */
struct lookup_bucket {
    _Atomic uint32_t passed; /* entries whose home is at or before this bucket and that lie behind it */
    _Atomic uint32_t ask;    /* keys of this home bucket that found no room: in the index only */
    _Atomic uint64_t entry[LOOKUP_WAYS];
};
_Static_assert(sizeof(struct lookup_bucket) == 64, "lookup bucket");

struct lookup_super {
    uint64_t magic;
    uint32_t format;
    uint32_t fingerprint;
    uint8_t uuid[16];
    uint64_t seed;
    uint64_t n_buckets; /* a power of two; LOOKUP_PROBES - 1 more follow, so that probing never wraps */
    uint64_t reserved[58];
};
_Static_assert(sizeof(struct lookup_super) == 512, "lookup super");
#define LOOKUP_BUCKETS_OFFSET 4096u

/* ---- a client's pin file: clients/<session> ---- */

#define PINS_MAGIC 0x31504854524542ULL /* "BERTHP1" */
#define PINS_CAPACITY 262144u          /* entries that fit the file; a session starts with PINS_SEGMENT of them */
#define PINS_SEGMENT 4096u
#define STAT_LANES 64u

enum lane_counter {
    LANE_HITS, /* gets that found their key here, prefix and batch members included */
    LANE_MISSES,
    LANE_HIT_BYTES,
    LANE_EXISTS,        /* keys asked for by exists: neither hit nor miss */
    LANE_VERIFY_FAILED, /* checksum of a get with VERIFY did not match */
    LANE_RETRIES,       /* pins taken again because the slot changed underneath */
    LANE_ASKS,          /* misses that had to ask the node */
    LANE_PUTS,          /* puts whose payload this process copied */
    LANE_PUT_BYTES,
    LANE_COPY_NS, /* time in those copies */
    LANE_SAMPLES, /* gets timed, one in 1,024 */
    LANE_KEPT,    /* puts and creates whose key was there already: the node never heard of them */
    LANE_PULLED,  /* gets whose key was not here and came from a peer: neither hit nor miss */
    LANE_PULLED_BYTES,
    LANE_COUNTERS = 16
};

/* One lane a thread (threads beyond share the last, with atomic adds): two cache lines of counters, then a
 * histogram of sampled get latencies: bucket i counts ns in [2^i, 2^(i+1)). */
struct stat_lane {
    _Atomic uint64_t counter[LANE_COUNTERS];
    _Atomic uint32_t get_ns[32];
};
_Static_assert(sizeof(struct stat_lane) == 256, "stat lane");

struct pins_file {
    uint64_t magic;
    uint32_t format;
    uint32_t fingerprint;
    uint64_t session;
    uint8_t uuid[16];
    uint8_t pad0[24];
    _Alignas(64) _Atomic uint32_t high_water; /* one above the highest entry ever used; raised before the pin */
    _Atomic uint32_t refuse;                  /* the node's word: no further pins, over the quota */
    _Alignas(4096) struct stat_lane lane[STAT_LANES];
    _Alignas(4096) _Atomic uint32_t entry[PINS_CAPACITY]; /* slot + 1, 0 none */
};
_Static_assert(sizeof(struct pins_file) == 4096 + 16384 + 4 * PINS_CAPACITY, "pin file");

/* ---- a client's ring: a sealed memfd ---- */

#define RING_MAGIC 0x31524854524542ULL /* "BERTHR1" */
#define RING_REQUEST_BYTES (256u << 10)
#define RING_REPLY_BYTES (256u << 10)
#define RING_TOUCHES 8192u
#define TOUCH_CHILD 0x80000000u /* in a touch: the next one is the object before it in its prefix */
#define RING_ALIGN 64u          /* messages begin at multiples of this */
#define RING_MESSAGE_MAX (64u << 10)

/* head and tail count bytes and never wrap; each side keeps its own index in private memory too and checks the
 * other's: tail - head is never above the ring's size. */
struct ring_shared {
    uint64_t magic;
    uint32_t format;
    uint32_t fingerprint;
    uint8_t pad0[48];
    _Alignas(64) _Atomic uint64_t request_tail; /* client */
    _Atomic uint32_t client_sleeping;           /* client: ring its eventfd after a reply */
    _Atomic uint32_t client_cpu;
    _Alignas(64) _Atomic uint64_t request_head; /* node */
    _Alignas(64) _Atomic uint64_t reply_tail;   /* node */
    _Atomic uint32_t node_sleeping;             /* node: ring its eventfd after a request */
    _Atomic uint32_t node_cpu;
    _Alignas(64) _Atomic uint64_t reply_head;  /* client */
    _Alignas(64) _Atomic uint64_t touch_tail;  /* client: touches ever written */
    _Alignas(64) _Atomic uint32_t touch_asked; /* node: changes when threads are to tell of what they keep */
    _Alignas(4096) uint8_t request[RING_REQUEST_BYTES];
    uint8_t reply[RING_REPLY_BYTES];
    _Atomic uint32_t touch[RING_TOUCHES]; /* slot + 1, TOUCH_CHILD; lossy, newest wins; deepest first within one
                                              call */
};

/* Sizes and offsets that must agree, folded; both sides compute it from their own structures. */
#define LAYOUT_FINGERPRINT                                                           \
    ((uint32_t)(sizeof(struct slots_super) * 3u + sizeof(struct slot_header) * 5u +  \
                sizeof(struct lookup_bucket) * 7u + sizeof(struct pins_file) * 11u + \
                sizeof(struct ring_shared) * 13u + LAYOUT_FORMAT * 65537u))

#endif
