#include "tests/support/lookup_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

const uint8_t table_uuid[16] = "lookup-test-pool";

void table_make(struct table *f, uint64_t objects)
{
    free(f->map);
    f->bytes = lookup_bytes(objects);
    assert_int_equal(posix_memalign(&f->map, 4096, f->bytes), 0);
    memset(f->map, 0xa5, f->bytes);
    lookup_format(f->map, f->bytes, table_uuid, TABLE_SEED);
    assert_int_equal(lookup_attach(&f->l, f->map, f->bytes), 0);
}

int table_setup(void **out)
{
    struct table *f = calloc(1, sizeof *f);
    f->headers = aligned_alloc(128, TABLE_SLOTS * sizeof *f->headers);
    memset(f->headers, 0, TABLE_SLOTS * sizeof *f->headers);
    f->tails = calloc(TABLE_CELLS, TAIL_CELL);
    f->l = (struct lookup){.headers = f->headers, .tails = f->tails, .n_headers = TABLE_SLOTS, .n_tails = TABLE_CELLS};
    table_make(f, TABLE_SLOTS);
    *out = f;
    return 0;
}

int table_teardown(void **in)
{
    struct table *f = *in;
    free(f->map);
    free(f->headers);
    free(f->tails);
    free(f);
    return 0;
}

void table_header(struct table *f, uint32_t slot, struct key_ref key, uint32_t tail)
{
    struct slot_header *h = &f->headers[slot];
    const uint8_t *p = key.data;
    uint32_t head = key.size <= KEY_INLINE ? key.size : KEY_HEAD;
    h->ns = key.ns;
    h->key_size = (uint16_t)key.size;
    memcpy((uint8_t *)h + offsetof(struct slot_header, key), p, head);
    if (key.size > KEY_INLINE) {
        h->tail = tail;
        atomic_store(&h->flags, SLOT_TAIL);
        memcpy(f->tails + (size_t)tail * TAIL_CELL, p + KEY_HEAD, key.size - KEY_HEAD);
    }
    slot_store(h, 1, SLOT_READY);
}

struct key_ref table_key(uint32_t i, char buf[32])
{
    int n = snprintf(buf, 32, "key-%08u-of-the-test", i);
    return (struct key_ref){.data = buf, .size = (uint32_t)n, .ns = i % 3};
}

struct key_hash table_hash(const struct table *f, uint32_t i)
{
    char buf[32];
    return lookup_hash(f->l.seed, table_key(i, buf));
}

void table_headers(struct table *f)
{
    char buf[32];
    for (uint32_t i = 0; i < TABLE_SLOTS / 2; i++) {
        table_header(f, 2 * i, table_key(i, buf), 0);
        table_header(f, 2 * i + 1, table_key(i, buf), 0);
    }
}

uint32_t table_find(const struct table *f, uint32_t i, bool *ask)
{
    char buf[32];
    struct key_ref key = table_key(i, buf);
    return lookup_find(&f->l, lookup_hash(f->l.seed, key), key, ask, NULL);
}
