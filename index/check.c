/* check.c: compares what index, slot headers and lookup say of each other. */
#include "index/check.h"

#include "store/amount.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_SHOWN_MAX 511u /* the longest that LMDB can give back, damaged ones included */
#define SENTENCE_BYTES (4u * KEY_SHOWN_MAX + 256u)

enum mark { MARK_RECORD = 1, MARK_ENTRY = 2 };

struct check {
    const struct lookup *l;
    uint32_t headers;
    uint8_t *marks; /* a slot: which of the two named it */
    uint8_t *cells; /* a bit a cell of tails: a record's */
    void (*report)(void *arg, const char *sentence);
    void *arg;
    struct check_result result;
    char key[4 * KEY_SHOWN_MAX + 1]; /* of the record at hand, escaped */
};

static void show_key(struct check *c, struct key_ref key)
{
    const uint8_t *p = key.data;
    char *out = c->key;
    for (uint32_t i = 0; i < key.size && i < KEY_SHOWN_MAX; i++) {
        if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\')
            *out++ = (char)p[i];
        else
            out += sprintf(out, p[i] == '\\' ? "\\\\" : "\\x%02x", p[i]);
    }
    *out = 0;
}

__attribute__((format(printf, 2, 3))) static void differ(struct check *c, const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    c->result.differences++;
    if (!c->report)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    c->report(c->arg, sentence);
}

static void differ_number(struct check *c, const struct record *r, const char *what, uint64_t index, uint64_t header)
{
    if (index != header)
        differ(c, "%s of record '%s' is %" PRIu64 " in the index, %" PRIu64 " in the header of slot %" PRIu32, what,
               c->key, index, header, r->slot);
}

/* Cells of tails: nobody else's, and the checksums of segments in them are those that the header's own proves. */
static void check_cells(struct check *c, uint32_t slot)
{
    const struct slot_header *h = &c->l->headers[slot];
    uint32_t cell, count, cells = lookup_cells(c->l, h, &cell);
    for (uint32_t i = cell; cells > 0 && i < cell + cells; i++) {
        if (c->cells[i / 8] >> (i % 8) & 1)
            differ(c, "cell %" PRIu32 " of record '%s' is another record's too", i, c->key);
        c->cells[i / 8] |= (uint8_t)(1u << (i % 8));
    }
    (void)lookup_sums(c->l, h, &count);
    if (cell == SLOT_NONE && slot_segment(h))
        differ(c, "cells of record '%s' are none of this region's", c->key);
    else if (count == UINT32_MAX)
        differ(c, "checksums of the segments of record '%s' are not those that its checksum proves", c->key);
}

static void check_header(struct check *c, struct key_ref key, const struct record *r)
{
    const struct slot_header *h = &c->l->headers[r->slot];
    uint64_t word = slot_load(h);
    if (word_gen(word) != r->generation) {
        differ_number(c, r, "generation", r->generation, word_gen(word));
        return; /* the rest is of another use of the slot */
    }
    if (word_state(word) != SLOT_READY)
        differ(c, "slot %" PRIu32 " of record '%s' is in state %d and not ready", r->slot, c->key,
               (int)word_state(word));
    if (!lookup_key_equal(c->l, h, key))
        differ(c, "key of record '%s' is another in the header of slot %" PRIu32, c->key, r->slot);
    differ_number(c, r, "size", r->size, h->size);
    differ_number(c, r, "version", r->counter, h->version);
    differ_number(c, r, "region", r->region, h->region);
    differ_number(c, r, "checksum", r->checksum, h->checksum);
    differ_number(c, r, "segment size", r->segment, slot_segment(h));
    check_cells(c, r->slot);
    differ_number(c, r, "lineage", r->lineage, h->lineage);
    bool held = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_HELD;
    if (held != (r->n_holds > 0))
        differ(c, "record '%s' has %d hold%s in the index, but the header of slot %" PRIu32 " says %s", c->key,
               (int)r->n_holds, plural(r->n_holds), r->slot, held ? "held" : "not held");
}

static void check_lookup(struct check *c, struct key_ref key, const struct record *r)
{
    struct key_hash hash = lookup_hash(c->l->seed, key);
    if (lookup_has(c->l, hash, r->slot))
        return;
    if (atomic_load_explicit(&c->l->buckets[hash.home & c->l->mask].ask, memory_order_relaxed) > 0)
        c->result.index_only++;
    else
        differ(c, "record '%s' of slot %" PRIu32 " is missing in lookup", c->key, r->slot);
}

static int check_record(void *arg, struct key_ref key, const struct record *r)
{
    struct check *c = arg;
    c->result.records++;
    show_key(c, key);
    if (!r) {
        differ(c, "record '%s' of namespace %" PRIu32 " cannot be decoded: the index is damaged, remove the region",
               c->key, key.ns);
        return 0;
    }
    if (r->slot >= c->headers) {
        differ(c, "slot %" PRIu32 " of record '%s' is beyond the %" PRIu32 " headers in use", r->slot, c->key,
               c->headers);
        return 0;
    }
    if (c->marks[r->slot] & MARK_RECORD)
        differ(c, "slot %" PRIu32 " of record '%s' is another record's too", r->slot, c->key);
    c->marks[r->slot] |= MARK_RECORD;
    check_header(c, key, r);
    check_lookup(c, key, r);
    return 0;
}

static int check_entry(void *arg, uint32_t slot)
{
    struct check *c = arg;
    c->result.lookup_entries++;
    if (slot >= c->headers) {
        differ(c, "lookup entry of slot %" PRIu32 " is beyond the %" PRIu32 " headers in use", slot, c->headers);
        return 0;
    }
    if (!(c->marks[slot] & MARK_RECORD))
        differ(c, "lookup entry of slot %" PRIu32 " has no record", slot);
    else if (c->marks[slot] & MARK_ENTRY)
        differ(c, "slot %" PRIu32 " has more than one lookup entry", slot);
    c->marks[slot] |= MARK_ENTRY;
    return 0;
}

static void check_slots(struct check *c)
{
    for (uint32_t slot = 0; slot < c->headers; slot++) {
        const struct slot_header *h = &c->l->headers[slot];
        uint8_t buf[KEY_MAX];
        struct key_ref key;
        if (word_state(slot_load(h)) != SLOT_READY)
            continue;
        c->result.slots_ready++;
        if (c->marks[slot] & MARK_RECORD)
            continue;
        if (!lookup_key(c->l, h, buf, &key))
            key = (struct key_ref){.data = "", .size = 0};
        show_key(c, key);
        differ(c, "slot %" PRIu32 " with key '%s' is ready but has no record", slot, c->key);
    }
}

int check_region(const struct index_ops *ops, void *ix, const struct lookup *l, uint32_t headers_used,
                 void (*report)(void *arg, const char *sentence), void *arg, struct check_result *out)
{
    uint32_t headers = headers_used < l->n_headers ? headers_used : l->n_headers;
    struct check *c = calloc(1, sizeof *c);
    uint8_t *marks = calloc(headers + 1u, 1), *cells = calloc(l->n_tails / 8u + 1u, 1);
    int rc = -ENOMEM;
    if (!c || !marks || !cells)
        goto done;
    *c = (struct check){.l = l, .headers = headers, .marks = marks, .cells = cells, .report = report, .arg = arg};
    rc = ops->each(ix, check_record, c);
    if (rc < 0) {
        rc = rc == -ENOMEM ? rc : -EIO;
        goto done;
    }
    check_slots(c);
    (void)lookup_each(l, check_entry, c);
    *out = c->result;
    rc = 0;
done:
    free(marks);
    free(cells);
    free(c);
    return rc;
}
