/* extent.c: free runs in a treap ordered by (size, start); both ends of a run name its node, for merging.
 *
 * A treap's shape follows from its keys and their priorities, which are hashes of `start`: the same calls give the
 * same tree everywhere. A tag may be stale (its run was taken or grew); it is believed only where the node that it
 * names says the same.
 */
#include "store/extent.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct node {
    uint32_t start;
    uint32_t size; /* 0: not in use */
    uint32_t left, right;
};

struct extents {
    uint32_t n;
    uint32_t free;
    uint32_t root;
    uint32_t spare;    /* unused nodes, chained by left; 0: none */
    uint32_t fresh;    /* nodes [fresh, ..) were never used */
    struct node *node; /* [0] is nobody */
    uint32_t *tag;     /* node of the free run that begins or ends here */
    uint64_t *claimed; /* until recovered */
};

static uint32_t priority(const struct extents *e, uint32_t i)
{
    uint32_t x = e->node[i].start * 0x9e3779b1u + 0x7f4a7c15u;
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return x ^ x >> 15;
}

static bool before(const struct extents *e, uint32_t a, uint32_t b)
{
    const struct node *x = &e->node[a], *y = &e->node[b];
    return x->size != y->size ? x->size < y->size : x->start < y->start;
}

static void tree_insert(struct extents *e, uint32_t i)
{
    uint32_t *link = &e->root;
    while (*link != 0 && priority(e, *link) >= priority(e, i))
        link = before(e, i, *link) ? &e->node[*link].left : &e->node[*link].right;

    uint32_t t = *link, *less = &e->node[i].left, *more = &e->node[i].right;
    *link = i;
    while (t != 0) {
        if (before(e, t, i)) {
            *less = t;
            less = &e->node[t].right;
            t = *less;
        } else {
            *more = t;
            more = &e->node[t].left;
            t = *more;
        }
    }
    *less = *more = 0;
}

static void tree_remove(struct extents *e, uint32_t i)
{
    uint32_t *link = &e->root;
    while (*link != i)
        link = before(e, i, *link) ? &e->node[*link].left : &e->node[*link].right;

    uint32_t a = e->node[i].left, b = e->node[i].right;
    while (a != 0 && b != 0) {
        if (priority(e, a) >= priority(e, b)) {
            *link = a;
            link = &e->node[a].right;
            a = *link;
        } else {
            *link = b;
            link = &e->node[b].left;
            b = *link;
        }
    }
    *link = a != 0 ? a : b;
}

static void run_add(struct extents *e, uint32_t start, uint32_t size)
{
    uint32_t i = e->spare;
    if (i != 0)
        e->spare = e->node[i].left;
    else
        i = e->fresh++;
    e->node[i] = (struct node){.start = start, .size = size};
    e->tag[start] = e->tag[start + size - 1] = i;
    e->free += size;
    tree_insert(e, i);
}

static void run_drop(struct extents *e, uint32_t i)
{
    tree_remove(e, i);
    e->free -= e->node[i].size;
    e->node[i] = (struct node){.left = e->spare};
    e->spare = i;
}

int extents_create(struct extents **out, uint32_t n, uint32_t max_runs)
{
    struct extents *e = calloc(1, sizeof *e);
    if (e == NULL)
        return -ENOMEM;
    e->n = n;
    e->fresh = 1;
    e->node = calloc((size_t)max_runs + 2, sizeof *e->node);
    e->tag = calloc((size_t)n + 1, sizeof *e->tag);
    e->claimed = calloc((size_t)n / 64 + 1, sizeof *e->claimed);
    if (e->node == NULL || e->tag == NULL || e->claimed == NULL) {
        extents_destroy(e);
        return -ENOMEM;
    }
    if (n > 0)
        run_add(e, 0, n);
    *out = e;
    return 0;
}

void extents_destroy(struct extents *e)
{
    if (e == NULL)
        return;
    free(e->claimed);
    free(e->tag);
    free(e->node);
    free(e);
}

uint32_t extents_take(struct extents *e, uint32_t size)
{
    uint32_t best = 0;
    for (uint32_t t = e->root; t != 0;) {
        bool fits = e->node[t].size >= size;
        best = fits ? t : best;
        t = fits ? e->node[t].left : e->node[t].right;
    }
    if (best == 0 || size == 0)
        return EXTENT_NONE;
    uint32_t start = e->node[best].start, had = e->node[best].size;
    run_drop(e, best);
    if (had > size)
        run_add(e, start + size, had - size);
    return start;
}

void extents_give(struct extents *e, uint32_t start, uint32_t size)
{
    if (start > 0) {
        uint32_t i = e->tag[start - 1];
        const struct node *left = &e->node[i];
        if (left->size != 0 && left->start + left->size == start) {
            start = left->start;
            size += left->size;
            run_drop(e, i);
        }
    }
    if (start + size < e->n) {
        uint32_t i = e->tag[start + size];
        const struct node *right = &e->node[i];
        if (right->size != 0 && right->start == start + size) {
            size += right->size;
            run_drop(e, i);
        }
    }
    run_add(e, start, size);
}

static bool bit(const uint64_t *map, uint32_t i)
{
    return map[i >> 6] >> (i & 63) & 1;
}

int extents_claim(struct extents *e, uint32_t start, uint32_t size)
{
    if (e->claimed == NULL || size == 0 || start >= e->n || size > e->n - start)
        return -EINVAL;
    for (uint32_t i = start; i < start + size; i++) {
        if (bit(e->claimed, i))
            return -EEXIST;
    }
    for (uint32_t i = start; i < start + size; i++)
        e->claimed[i >> 6] |= UINT64_C(1) << (i & 63);
    return 0;
}

void extents_recovered(struct extents *e)
{
    if (e->claimed == NULL)
        return;
    e->root = e->spare = e->free = 0;
    e->fresh = 1;
    for (uint32_t i = 0; i < e->n;) {
        if ((i & 63) == 0 && e->claimed[i >> 6] == UINT64_MAX) {
            i += e->n - i < 64 ? e->n - i : 64;
            continue;
        }
        uint32_t start = i;
        while (i < e->n && !bit(e->claimed, i))
            i += (i & 63) == 0 && e->n - i >= 64 && e->claimed[i >> 6] == 0 ? 64 : 1;
        if (i > start)
            run_add(e, start, i - start);
        else
            i++;
    }
    free(e->claimed);
    e->claimed = NULL;
}

uint32_t extents_free(const struct extents *e)
{
    return e->free;
}

const char *extents_check(const struct extents *e, const uint64_t *used)
{
    uint64_t total = 0;
    bool free_before = false;
    for (uint32_t i = 0; i < e->n;) {
        if (bit(used, i)) {
            free_before = false;
            i++;
            continue;
        }
        const struct node *run = &e->node[e->tag[i]];
        if (run->size == 0 || run->start != i)
            return "a number is neither used nor at the beginning of a free run";
        if (free_before)
            return "two free runs touch";
        for (uint32_t k = 0; k < run->size; k++) {
            if (bit(used, i + k))
                return "a free run overlaps what is in use";
        }
        total += run->size;
        free_before = true;
        i += run->size;
    }
    return total == e->free ? NULL : "the count of free numbers is wrong";
}
