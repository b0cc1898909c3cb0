/* record.c: the codec of index records. Bytes that come back from the map are checked whole before any is believed. */
#include "index/record.h"

#include "store/little.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define FLAG_READY 1u
#define FLAG_TIER_SHIFT 1u
#define FLAG_TIER 0x0eu
#define FLAG_GROUPED 0x10u
#define TIER_MAX 3u     /* the slot header has two bits for it */
#define SEGMENT_MAX 63u /* and six for this */
#define GENERATION_MASK ((UINT64_C(1) << 56) - 1)
#define HOLD_FIXED 9u

uint32_t record_key(uint8_t out[RECORD_KEY_MAX], struct key_ref key)
{
    uint32_t ns = htobe32(key.ns);
    memcpy(out, &ns, 4);
    memcpy(out + 4, key.data, key.size);
    return 4 + key.size;
}

int record_key_parse(const void *data, uint32_t n, struct key_ref *out)
{
    if (n < 5 || n > RECORD_KEY_MAX)
        return -EBADMSG;
    uint32_t ns;
    memcpy(&ns, data, 4);
    *out = (struct key_ref){.data = (const uint8_t *)data + 4, .size = n - 4, .ns = be32toh(ns)};
    return 0;
}

static uint8_t *encode_holds(uint8_t *p, const struct record *r)
{
    for (unsigned i = 0; i < r->n_holds; i++) {
        const struct hold *h = &r->holds[i];
        put64(p, (uint64_t)h->expiry);
        p[8] = h->label_size;
        memcpy(p + HOLD_FIXED, h->label, h->label_size);
        p += HOLD_FIXED + h->label_size;
    }
    return p;
}

uint32_t record_encode(uint8_t out[RECORD_MAX], const struct record *r)
{
    put64(out, r->counter);
    put64(out + 8, r->created_us);
    put64(out + 16, r->checksum);
    put64(out + 24, r->lineage);
    put64(out + 32, r->parent);
    put64(out + 40, r->generation & GENERATION_MASK);
    out[47] =
        (uint8_t)((r->ready ? FLAG_READY : 0) | (unsigned)r->tier << FLAG_TIER_SHIFT | (r->grouped ? FLAG_GROUPED : 0));
    put32(out + 48, r->slot);
    put32(out + 52, r->size);
    put16(out + 56, r->region);
    out[58] = r->priority;
    out[59] = r->segment;
    put32(out + 60, r->ttl_s);
    return (uint32_t)(encode_holds(out + RECORD_FIXED, r) - out);
}

static bool fixed_valid(const uint8_t *p)
{
    uint8_t flags = p[47];
    return (flags & ~(FLAG_READY | FLAG_TIER | FLAG_GROUPED)) == 0 &&
           (flags & FLAG_TIER) >> FLAG_TIER_SHIFT <= TIER_MAX && get32(p + 48) != SLOT_NONE &&
           get32(p + 52) <= OBJECT_MAX && p[59] <= SEGMENT_MAX;
}

/* Holds in p[0, n), or -EBADMSG: whole ones only, each with a label and an expiry that is a time. */
static int count_holds(const uint8_t *p, uint32_t n)
{
    int count = 0;
    while (n > 0) {
        if (n < HOLD_FIXED || count == HOLDS_MAX)
            return -EBADMSG;
        uint32_t label = p[8];
        if (label == 0 || label > LABEL_MAX || label > n - HOLD_FIXED || get64(p) > INT64_MAX)
            return -EBADMSG;
        p += HOLD_FIXED + label;
        n -= HOLD_FIXED + label;
        count++;
    }
    return count;
}

static void decode_holds(const uint8_t *p, unsigned n, struct record *out)
{
    for (unsigned i = 0; i < n; i++) {
        struct hold *h = &out->holds[i];
        h->expiry = (int64_t)get64(p);
        h->label_size = p[8];
        memcpy(h->label, p + HOLD_FIXED, h->label_size);
        p += HOLD_FIXED + h->label_size;
    }
    out->n_holds = (uint8_t)n;
}

int record_decode(const void *data, uint32_t n, struct record *out)
{
    const uint8_t *p = data;
    if (n < RECORD_FIXED || n > RECORD_MAX || !fixed_valid(p))
        return -EBADMSG;
    int holds = count_holds(p + RECORD_FIXED, n - RECORD_FIXED);
    if (holds < 0)
        return holds;
    out->counter = get64(p);
    out->created_us = get64(p + 8);
    out->checksum = get64(p + 16);
    out->lineage = get64(p + 24);
    out->parent = get64(p + 32);
    out->generation = get64(p + 40) & GENERATION_MASK;
    out->ready = p[47] & FLAG_READY;
    out->tier = (p[47] & FLAG_TIER) >> FLAG_TIER_SHIFT;
    out->grouped = p[47] & FLAG_GROUPED;
    out->slot = get32(p + 48);
    out->size = get32(p + 52);
    out->region = get16(p + 56);
    out->priority = p[58];
    out->segment = p[59];
    out->ttl_s = get32(p + 60);
    decode_holds(p + RECORD_FIXED, (unsigned)holds, out);
    return 0;
}
