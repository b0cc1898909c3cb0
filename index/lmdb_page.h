/* lmdb_page.h: how LMDB 0.9 lays out its pages, for those who look at them beside it. */
#ifndef BERTH_INDEX_LMDB_PAGE_H
#define BERTH_INDEX_LMDB_PAGE_H

#include <stdint.h>
#include <string.h>

#define META_MAGIC 0xBEEFC0DEu
#define META_VERSION 1u
#define FIRST_PAGE 2u
#define NO_ROOT UINT64_MAX

enum page_flags { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_OVERFLOW = 4, PAGE_META = 8 };

struct page_header {
    uint64_t number;
    uint16_t pad, flags;
    uint16_t lower, upper; /* of an overflow page: the count of its pages, in 32 bits */
};

struct tree_row {
    uint32_t pad;
    uint16_t flags, depth;
    uint64_t branches, leaves, overflows, entries, root;
};

struct node_header {
    uint16_t low, high, flags, key_bytes; /* low and high: data size in a leaf, child page with flags in a branch */
};

_Static_assert(sizeof(struct page_header) == 16 && sizeof(struct tree_row) == 48 && sizeof(struct node_header) == 8,
               "LMDB's layout on 64-bit machines");

/* From the page's begin. Nothing says that it lies in the page. */
static inline uint32_t node_offset(const uint8_t *page, unsigned i)
{
    uint16_t at;
    memcpy(&at, page + sizeof(struct page_header) + i * sizeof at, sizeof at);
    return at;
}

static inline unsigned node_count(const struct page_header *h)
{
    return h->lower < sizeof *h ? 0 : (h->lower - (unsigned)sizeof *h) / (unsigned)sizeof(uint16_t);
}

static inline uint64_t node_child(const struct node_header *h)
{
    return (uint64_t)h->flags << 32 | (uint64_t)h->high << 16 | h->low;
}

#endif
