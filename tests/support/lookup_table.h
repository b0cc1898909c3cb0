/* lookup_table.h: a lookup table in private memory, with headers and tails that its entries point to. */
#ifndef BERTH_TESTS_LOOKUP_TABLE_H
#define BERTH_TESTS_LOOKUP_TABLE_H

#include "index/lookup.h"

#define TABLE_SLOTS 4096u
#define TABLE_CELLS 64u
#define TABLE_SEED UINT64_C(0x5eed0f7ab1e)

struct table {
    struct lookup l;
    void *map;
    uint64_t bytes;
    struct slot_header *headers;
    uint8_t *tails;
};

extern const uint8_t table_uuid[16];

/* cmocka fixtures: a table for TABLE_SLOTS objects, all headers 0. */
int table_setup(void **state);
int table_teardown(void **state);
void table_make(struct table *f, uint64_t objects); /* another, empty table */

/* A READY header with this key; `tail`: the first cell of a long one. */
void table_header(struct table *f, uint32_t slot, struct key_ref key, uint32_t tail);

/* Key number i, in buf; table_headers gives it to slots 2 i and 2 i + 1, so that a replace changes no header. */
struct key_ref table_key(uint32_t i, char buf[32]);
struct key_hash table_hash(const struct table *f, uint32_t i);
void table_headers(struct table *f);
uint32_t table_find(const struct table *f, uint32_t i, bool *ask);

#endif
