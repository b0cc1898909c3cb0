/* lmdb_verify.c: a walk of an LMDB 0.9 file that trusts nothing in it.
 *
 * LMDB has no checksums of pages: a node's offset that was overwritten is read, or written, wherever it points. Each
 * page is claimed once in a bitmap, by the tree or the free list that names it: what the walk accepts can neither loop
 * nor be two things at once, and no commit takes a page that is in use.
 */
#include "index/lmdb_verify.h"

#include "index/lmdb_page.h"

#include <errno.h>
#include <lmdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES_MAX 32768u
#define KEY_BYTES_MAX 511u
#define DEPTH_MAX 32u

enum node_flags { NODE_PLAIN = 0, NODE_BIG = 1, NODE_TABLE = 2 };

struct meta {
    struct page_header page;
    uint32_t magic, version;
    uint64_t address, map_bytes;
    struct tree_row free, tables; /* the pad of `free` is the page size */
    uint64_t last_page, txn;
};

_Static_assert(sizeof(struct meta) == 152, "LMDB's layout on 64-bit machines");

struct verify {
    const uint8_t *map;
    uint64_t last_page, txn;
    uint8_t *claimed; /* a bit a page */
    uint32_t page_bytes, node_max;
    const char *const *names;
    unsigned n_names;
    uint16_t sizes[PAGE_BYTES_MAX / 2]; /* of the node that begins there; all 0 between pages */
};

enum tree_kind { TREE_FREE, TREE_TABLES, TREE_RECORDS };

struct tree {
    struct verify *v;
    enum tree_kind kind;
    unsigned depth;
    struct tree_row found;
};

struct span { /* a key; without data: no bound */
    const uint8_t *data;
    uint32_t size;
};

struct node {
    struct node_header h;
    struct span key;
    const uint8_t *data; /* of a leaf */
    uint64_t size;       /* of the data, which lies elsewhere where NODE_BIG is set */
};

static bool claim(struct verify *v, uint64_t page, uint64_t count)
{
    if (page < FIRST_PAGE || page > v->last_page || count > v->last_page - page + 1)
        return false;
    for (uint64_t i = page; i < page + count; i++) {
        uint8_t bit = (uint8_t)(1u << i % 8);
        if (v->claimed[i / 8] & bit)
            return false;
        v->claimed[i / 8] |= bit;
    }
    return true;
}

static const uint8_t *page_at(const struct verify *v, uint64_t number, struct page_header *h)
{
    const uint8_t *page = v->map + number * v->page_bytes;
    memcpy(h, page, sizeof *h);
    return page;
}

/* Only its header is known to lie in the page. */
static uint32_t node_bytes(const struct node_header *h, bool leaf)
{
    uint64_t bytes = sizeof *h + h->key_bytes;
    if (leaf)
        bytes += h->flags & NODE_BIG ? sizeof(uint64_t) : (uint32_t)h->high << 16 | h->low;
    bytes += bytes & 1;
    return bytes > PAGE_BYTES_MAX ? PAGE_BYTES_MAX : (uint32_t)bytes;
}

/* The nodes fill the page from `upper` to its end, each once: that is how LMDB moves them when one goes or comes. */
static bool nodes_tile(struct verify *v, const uint8_t *page, const struct page_header *h, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct node_header node;
        uint32_t at = node_offset(page, i);
        if (at & 1 || at < h->upper || at > v->page_bytes - sizeof node || v->sizes[at / 2])
            return false;
        memcpy(&node, page + at, sizeof node);
        v->sizes[at / 2] = (uint16_t)node_bytes(&node, h->flags == PAGE_LEAF);
    }
    uint32_t at = h->upper;
    unsigned count = 0;
    while (at < v->page_bytes && v->sizes[at / 2]) {
        uint32_t size = v->sizes[at / 2];
        v->sizes[at / 2] = 0;
        at += size;
        count++;
    }
    return at == v->page_bytes && count == n;
}

static struct node node_at(const uint8_t *page, unsigned i)
{
    struct node n;
    const uint8_t *at = page + node_offset(page, i);
    memcpy(&n.h, at, sizeof n.h);
    n.key = (struct span){.data = at + sizeof n.h, .size = n.h.key_bytes};
    n.data = n.key.data + n.key.size;
    n.size = (uint32_t)n.h.high << 16 | n.h.low;
    return n;
}

static uint64_t word_at(const uint8_t *p, uint64_t i)
{
    uint64_t word;
    memcpy(&word, p + i * sizeof word, sizeof word);
    return word;
}

static int compare(const struct tree *t, struct span a, struct span b)
{
    if (t->kind == TREE_FREE) { /* both were found to be of one number */
        uint64_t x = word_at(a.data, 0), y = word_at(b.data, 0);
        return (x > y) - (x < y);
    }
    int c = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return c ? c : (a.size > b.size) - (a.size < b.size);
}

/* Keys ascend, from `low` on and below `high`. A branch's first key is not used: its first child begins at `low`. */
static bool keys_ascend(const struct tree *t, const uint8_t *page, unsigned n, bool leaf, struct span low,
                        struct span high)
{
    struct span last = low;
    for (unsigned i = leaf ? 0 : 1; i < n; i++) {
        struct span key = node_at(page, i).key;
        if (t->kind == TREE_FREE ? key.size != sizeof(uint64_t) : key.size == 0 || key.size > KEY_BYTES_MAX)
            return false;
        int c = last.data ? compare(t, last, key) : -1;
        if (c > 0 || (c == 0 && !(leaf && i == 0)))
            return false;
        last = key;
    }
    return !high.data || compare(t, last, high) < 0;
}

/* Where a leaf's value lies, its overflow pages claimed; NULL: not in the file. */
static const uint8_t *leaf_value(struct tree *t, const struct node *n)
{
    struct verify *v = t->v;
    if (!(n->h.flags & NODE_BIG))
        return sizeof n->h + n->key.size + n->size <= v->node_max ? n->data : NULL;
    uint64_t number = word_at(n->data, 0);
    if (number < FIRST_PAGE || number > v->last_page)
        return NULL;
    struct page_header h;
    const uint8_t *page = page_at(v, number, &h);
    uint32_t count = (uint32_t)h.upper << 16 | h.lower;
    uint64_t need = (sizeof h - 1 + n->size) / v->page_bytes + 1;
    if (h.number != number || h.flags != PAGE_OVERFLOW || count < need || !claim(v, number, count))
        return NULL;
    t->found.overflows += count;
    return page + sizeof h;
}

/* Page numbers that one transaction freed: their count, then they, descending. */
static bool free_entry(struct verify *v, const struct node *n, const uint8_t *value)
{
    uint64_t txn = word_at(n->key.data, 0), words = n->size / sizeof(uint64_t);
    if (n->size % sizeof(uint64_t) || words == 0 || txn == 0 || txn > v->txn)
        return false;
    uint64_t count = word_at(value, 0), last = UINT64_MAX;
    if (count >= words)
        return false;
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t page = word_at(value, i);
        if (page >= last || !claim(v, page, 1))
            return false;
        last = page;
    }
    return true;
}

static bool walk_tree(struct verify *v, enum tree_kind kind, const struct tree_row *row);

static bool table_entry(struct verify *v, const struct node *n, const uint8_t *value)
{
    struct tree_row row;
    bool named = false;
    for (unsigned i = 0; i < v->n_names; i++)
        named |= strlen(v->names[i]) == n->key.size && memcmp(v->names[i], n->key.data, n->key.size) == 0;
    if (!named || n->size != sizeof row)
        return false;
    memcpy(&row, value, sizeof row);
    return walk_tree(v, TREE_RECORDS, &row);
}

static bool walk_leaf(struct tree *t, const uint8_t *page, unsigned n)
{
    bool tables = t->kind == TREE_TABLES;
    t->found.leaves++;
    t->found.entries += n;
    for (unsigned i = 0; i < n; i++) {
        struct node node = node_at(page, i);
        if (tables ? node.h.flags != NODE_TABLE : node.h.flags & ~NODE_BIG)
            return false;
        const uint8_t *value = leaf_value(t, &node);
        if (!value || (tables && !table_entry(t->v, &node, value)) ||
            (t->kind == TREE_FREE && !free_entry(t->v, &node, value)))
            return false;
    }
    return true;
}

/* The page at `number`, `level` pages below the root's, with keys from `low` on and below `high`. */
static bool walk_page(struct tree *t, uint64_t number, unsigned level, struct span low, struct span high)
{
    struct verify *v = t->v;
    bool leaf = level + 1 == t->depth;
    if (!claim(v, number, 1))
        return false;
    struct page_header h;
    const uint8_t *page = page_at(v, number, &h);
    if (h.number != number || h.flags != (leaf ? PAGE_LEAF : PAGE_BRANCH) || h.lower > h.upper ||
        h.upper > v->page_bytes || (h.lower | h.upper) & 1 || h.lower < sizeof h)
        return false;
    unsigned n = node_count(&h);
    unsigned least = leaf || t->kind == TREE_FREE ? 1 : 2; /* LMDB asserts it, of the free list only that it is not 0 */
    if (n < least || !nodes_tile(v, page, &h, n) || !keys_ascend(t, page, n, leaf, low, high))
        return false;
    if (leaf)
        return walk_leaf(t, page, n);
    t->found.branches++;
    for (unsigned i = 0; i < n; i++) {
        struct node node = node_at(page, i);
        uint64_t child = node_child(&node.h);
        struct span end = i + 1 < n ? node_at(page, i + 1).key : high;
        if (!walk_page(t, child, level + 1, i ? node.key : low, end)) /* no deeper than DEPTH_MAX */
            return false;
    }
    return true;
}

/* The free list's counts are no part of a decision; it changes while LMDB writes it. */
static bool counts_agree(const struct tree *t, const struct verify *v, const struct tree_row *row)
{
    const struct tree_row *f = &t->found;
    if (t->kind == TREE_FREE)
        return row->branches <= v->last_page && row->leaves <= v->last_page && row->overflows <= v->last_page;
    return row->branches == f->branches && row->leaves == f->leaves && row->overflows == f->overflows &&
           row->entries == f->entries;
}

static bool walk_tree(struct verify *v, enum tree_kind kind, const struct tree_row *row)
{
    struct tree t = {.v = v, .kind = kind, .depth = row->depth};
    if (row->flags != (kind == TREE_FREE ? MDB_INTEGERKEY : 0) || t.depth > DEPTH_MAX)
        return false;
    if ((t.depth == 0) != (row->root == NO_ROOT))
        return false;
    if (t.depth > 0 && !walk_page(&t, row->root, 0, (struct span){0}, (struct span){0}))
        return false;
    return counts_agree(&t, v, row);
}

static uint32_t page_size(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return bytes < PAGE_BYTES_MAX ? (uint32_t)bytes : PAGE_BYTES_MAX;
}

static int read_meta(int fd, uint64_t number, uint32_t page_bytes, struct meta *out)
{
    ssize_t got = pread(fd, out, sizeof *out, (off_t)(number * page_bytes));
    if (got < 0)
        return -errno;
    bool whole = got == sizeof *out && out->page.number == number && out->page.flags == PAGE_META &&
                 out->magic == META_MAGIC && out->version == META_VERSION && out->free.pad == page_bytes;
    return whole ? 0 : -EBADMSG;
}

/* Commits take turns at the two, so that the newer is one ahead, except in a new file. The older may be half written
 * where a node was killed: no more of it is looked at. */
static int pick_meta(int fd, uint64_t bytes, uint32_t page_bytes, struct meta *out)
{
    struct meta m[2];
    for (unsigned i = 0; i < 2; i++) {
        int rc = read_meta(fd, i, page_bytes, &m[i]);
        if (rc < 0)
            return rc;
    }
    unsigned newer = m[0].txn < m[1].txn;
    const struct meta *n = &m[newer];
    uint64_t pages = bytes / page_bytes;
    if (n->txn != 0 ? n->txn - m[!newer].txn != 1 : m[1].txn != 0)
        return -EBADMSG;
    if ((n->txn & 1) != newer || n->txn > INT64_MAX || n->last_page < FIRST_PAGE - 1 || n->last_page >= pages)
        return -EBADMSG;
    *out = *n;
    return 0;
}

static bool walk_file(struct verify *v, const struct meta *m)
{
    bool whole = m->tables.entries == 0 || m->tables.entries == v->n_names;
    return whole && walk_tree(v, TREE_TABLES, &m->tables) && walk_tree(v, TREE_FREE, &m->free);
}

int lmdb_verify(int fd, uint64_t bytes, const char *const *names, unsigned n_names)
{
    struct meta m;
    uint32_t page_bytes = page_size();
    int rc = pick_meta(fd, bytes, page_bytes, &m);
    if (rc < 0)
        return rc;
    struct verify *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    *v = (struct verify){.last_page = m.last_page, .txn = m.txn, .names = names, .n_names = n_names};
    v->page_bytes = page_bytes;
    v->node_max = (((page_bytes - (uint32_t)sizeof(struct page_header)) / 2) & ~1u) - (uint32_t)sizeof(uint16_t);
    v->claimed = calloc(1, m.last_page / 8 + 1);
    uint64_t mapped = (m.last_page + 1) * page_bytes;
    void *map = v->claimed ? mmap(NULL, mapped, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0) : MAP_FAILED;
    rc = map != MAP_FAILED ? 0 : v->claimed ? -errno : -ENOMEM;
    if (rc == 0) {
        v->map = map;
        rc = walk_file(v, &m) ? 0 : -EBADMSG;
        munmap(map, mapped);
    }
    free(v->claimed);
    free(v);
    return rc;
}

static bool page_names(const uint8_t *page, size_t bytes, const char *const *names, unsigned n_names)
{
    for (unsigned i = 0; i < n_names; i++) {
        if (memmem(page, bytes, names[i], strlen(names[i])) == NULL)
            return false;
    }
    return true;
}

bool lmdb_names(int fd, const char *const *names, unsigned n_names)
{
    uint8_t page[PAGE_BYTES_MAX];
    uint32_t page_bytes = page_size();
    for (unsigned i = 0; i < 2; i++) {
        struct meta m;
        if (read_meta(fd, i, page_bytes, &m) < 0 || m.tables.root < FIRST_PAGE ||
            m.tables.root > INT64_MAX / page_bytes)
            continue;
        ssize_t got = pread(fd, page, page_bytes, (off_t)(m.tables.root * page_bytes));
        if (got == (ssize_t)page_bytes && page_names(page, page_bytes, names, n_names))
            return true;
    }
    return false;
}
