/* record.h: what the index knows of an object, and its bytes in LMDB.
 *
 * Key: namespace as 4 big-endian bytes, then the key: a namespace's keys are one range, in byte order.
 * Value: 64 bytes, little-endian, then the holds:
 *   0 version counter 8, 8 created (wall clock us) 8, 16 checksum 8, 24 lineage 8, 32 parent 8,
 *   40 generation 7, 47 flags 1 (bit 0 ready, bits 1..3 tier, bit 4 sealed with others, others 0), 48 slot 4,
 *   52 size 4,   56 region index 2, 58 priority 1, 59 log2 segment 1, 60 ttl seconds 4;
 *   each hold: expiry 8 (CLOCK_BOOTTIME ns, 0 none), label size 1, label.
 */
#ifndef BERTH_INDEX_RECORD_H
#define BERTH_INDEX_RECORD_H

#include "store/layout.h"

#include <stdbool.h>

struct key_ref {
    const void *data;
    uint32_t size; /* 1..KEY_MAX */
    uint32_t ns;
};

struct hold {
    int64_t expiry; /* CLOCK_BOOTTIME ns; 0: none */
    uint8_t label_size;
    char label[LABEL_MAX];
};

struct record {
    uint64_t counter;
    uint64_t created_us;
    uint64_t checksum;
    uint64_t lineage;
    uint64_t parent;
    uint64_t generation;
    uint32_t slot;
    uint32_t size;
    uint32_t ttl_s;
    uint16_t region;
    uint8_t priority;
    uint8_t segment;
    uint8_t tier;
    bool ready;
    bool grouped; /* sealed together with others, which have its version */
    uint8_t n_holds;
    struct hold holds[HOLDS_MAX];
};

#define RECORD_FIXED 64u
#define RECORD_MAX (RECORD_FIXED + HOLDS_MAX * (9u + LABEL_MAX))
#define RECORD_KEY_MAX (4u + KEY_MAX)

uint32_t record_key(uint8_t out[RECORD_KEY_MAX], struct key_ref key);    /* bytes written */
int record_key_parse(const void *data, uint32_t n, struct key_ref *out); /* points into data; -EBADMSG */
uint32_t record_encode(uint8_t out[RECORD_MAX], const struct record *r); /* bytes written */
int record_decode(const void *data, uint32_t n, struct record *out);     /* 0, -EBADMSG */

#endif
