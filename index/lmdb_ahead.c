/* lmdb_ahead.c: the keys of a batch go down the tree side by side before LMDB takes them one after the other.
 *
 * In a tree that is larger than the caches a search waits for some fifteen lines, each of which says where the next one
 * is: the head of each page, and of a page the nodes that its binary search compares. Here each key asks for the line
 * that it needs next, and the other keys have their turns until it is there. Only these lines are asked for: whole
 * pages are as many bytes as LMDB copies afterwards, and take as long as they save.
 *
 * The tree is the last commit's: nobody but the caller's transaction changes pages, and that has not begun to. What it
 * says is not believed all the same: a page number or an offset that leads elsewhere ends its key's walk.
 */
#include "index/lmdb_ahead.h"

#include "index/lmdb_page.h"

#define LANES 64u
#define LEAST_LANES 4u /* fewer wait about as long as LMDB would */
#define LINE 64u

struct walk {
    const uint8_t *map;
    uint64_t last_page;
    uint32_t page_bytes;
    unsigned depth;
    uint64_t root;
};

struct lane {
    const uint8_t *key;
    uint32_t key_size;
    const uint8_t *page;
    unsigned level;
    int low, high, at; /* nodes of the page; at < 0: its head was asked for */
    bool leaf;
};

enum step { GOES_ON, FOUND, ENDED };

/* Where LMDB has mapped the file it does not say, but each page bears its number. The row of a table is in one. */
static bool find_tree(struct lmdb_index *ix, MDB_txn *txn, struct walk *w)
{
    MDB_val key = {.mv_size = sizeof LMDB_OBJECTS_NAME - 1, .mv_data = LMDB_OBJECTS_NAME}, value;
    struct tree_row row;
    struct page_header h;
    MDB_envinfo info;
    if (mdb_get(txn, LMDB_MAIN_DBI, &key, &value) != 0 || value.mv_size != sizeof row)
        return false;
    memcpy(&row, value.mv_data, sizeof row);
    if (row.root == NO_ROOT || row.leaves * ix->page_bytes < ix->ahead_least)
        return false;
    const uint8_t *page = (const uint8_t *)value.mv_data - (uintptr_t)value.mv_data % ix->page_bytes;
    memcpy(&h, page, sizeof h);
    if (mdb_env_info(ix->env, &info) != 0 || h.number > info.me_last_pgno)
        return false;
    *w = (struct walk){.map = page - h.number * ix->page_bytes,
                       .last_page = info.me_last_pgno,
                       .page_bytes = ix->page_bytes,
                       .depth = row.depth,
                       .root = row.root};
    return true;
}

static bool enter(const struct walk *w, struct lane *l, uint64_t number)
{
    if (number < FIRST_PAGE || number > w->last_page || l->level++ == w->depth)
        return false;
    l->page = w->map + number * w->page_bytes;
    l->at = -1;
    for (unsigned i = 0; i < 3; i++) /* the header, and the offsets of some 90 nodes */
        __builtin_prefetch(l->page + (size_t)i * LINE);
    return true;
}

static bool begin_page(const struct walk *w, struct lane *l)
{
    struct page_header h;
    memcpy(&h, l->page, sizeof h);
    l->leaf = h.flags & PAGE_LEAF;
    l->low = l->leaf ? 0 : 1; /* a branch's first node has no key */
    l->high = (int)node_count(&h) - 1;
    return h.lower <= w->page_bytes && l->high >= 0;
}

/* Goes on in the half of the nodes where the key is. */
static enum step compare(const struct walk *w, struct lane *l)
{
    struct node_header h;
    const uint8_t *node = l->page + node_offset(l->page, (unsigned)l->at);
    memcpy(&h, node, sizeof h);
    node += sizeof h;
    if ((size_t)(node - l->page) + h.key_bytes > w->page_bytes)
        return ENDED;
    int c = memcmp(l->key, node, l->key_size < h.key_bytes ? l->key_size : h.key_bytes);
    c = c ? c : (l->key_size > h.key_bytes) - (l->key_size < h.key_bytes);
    if (c < 0)
        l->high = l->at - 1;
    else
        l->low = l->at + 1;
    return c == 0 && l->leaf ? FOUND : GOES_ON;
}

/* One line further. */
static enum step step(const struct walk *w, struct lane *l)
{
    struct node_header h;
    enum step s = l->at >= 0 ? compare(w, l) : begin_page(w, l) ? GOES_ON : ENDED;
    if (s != GOES_ON)
        return s;
    bool down = l->low > l->high;
    if (down && l->leaf)
        return ENDED;
    l->at = down ? l->low - 1 : (l->low + l->high) / 2;
    uint32_t offset = node_offset(l->page, (unsigned)l->at);
    if (offset > w->page_bytes - sizeof h)
        return ENDED;
    if (down) {
        memcpy(&h, l->page + offset, sizeof h);
        return enter(w, l, node_child(&h)) ? GOES_ON : ENDED;
    }
    __builtin_prefetch(l->page + offset);
    __builtin_prefetch(l->page + offset + sizeof h + l->key_size - 1);
    return GOES_ON;
}

static uint32_t walk(const struct walk *w, struct lane *lanes, unsigned n)
{
    uint32_t found = 0;
    for (unsigned i = 0; i < n; i++)
        if (!enter(w, &lanes[i], w->root))
            return 0;
    while (n > 0) {
        for (unsigned i = 0; i < n;) {
            enum step s = step(w, &lanes[i]);
            if (s == GOES_ON) {
                i++;
            } else {
                found += s == FOUND;
                lanes[i] = lanes[--n];
            }
        }
    }
    return found;
}

uint32_t lmdb_ahead(struct lmdb_index *ix, MDB_txn *txn, const struct batch *b, uint32_t from, uint32_t to)
{
    struct lane lanes[LANES];
    struct walk w;
    unsigned n = 0;
    uint32_t found = 0;
    if (to - from < LEAST_LANES || !find_tree(ix, txn, &w))
        return 0;
    for (uint32_t i = from; i < to; i++) {
        struct batch_op op = batch_at(b, i);
        if (op.kind != BATCH_PUT && op.kind != BATCH_DELETE)
            continue;
        lanes[n++] = (struct lane){.key = op.key, .key_size = op.key_size};
        if (n == LANES) {
            found += walk(&w, lanes, n);
            n = 0;
        }
    }
    return n < LEAST_LANES ? found : found + walk(&w, lanes, n);
}
