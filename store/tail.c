/* tail.c: cells by extents: best fit, so that the file grows only where no gap is large enough. */
#include "store/tail.h"

#include "store/extent.h"
#include "store/layout.h"

#include <errno.h>
#include <stdlib.h>

struct tails {
    uint8_t *cells;
    uint32_t n;
    uint32_t usable; /* cells [0, usable) have been asked of grow */
    int (*grow)(void *env, uint32_t cells);
    void *env;
    struct extents *free;
};

int tails_create(struct tails **out, uint8_t *cells, uint32_t n, int (*grow)(void *env, uint32_t cells), void *env)
{
    struct tails *t = calloc(1, sizeof *t);
    if (t == NULL)
        return -ENOMEM;
    *t = (struct tails){.cells = cells, .n = n, .grow = grow, .env = env};
    int e = extents_create(&t->free, n, n / 2 + 1);
    if (e != 0) {
        free(t);
        return e;
    }
    *out = t;
    return 0;
}

void tails_destroy(struct tails *t)
{
    if (t == NULL)
        return;
    extents_destroy(t->free);
    free(t);
}

static int usable_to(struct tails *t, uint32_t end)
{
    if (end <= t->usable)
        return 0;
    int e = t->grow(t->env, end);
    if (e == 0)
        t->usable = end;
    return e;
}

uint32_t tails_alloc(struct tails *t, uint32_t cells)
{
    if (cells == 0 || cells > TAIL_RUN_MAX)
        return TAIL_NONE;
    uint32_t cell = extents_take(t->free, cells);
    if (cell == EXTENT_NONE)
        return TAIL_NONE;
    if (usable_to(t, cell + cells) != 0) {
        extents_give(t->free, cell, cells);
        return TAIL_NONE;
    }
    return cell;
}

void tails_free(struct tails *t, uint32_t cell, uint32_t cells)
{
    extents_give(t->free, cell, cells);
}

int tails_claim(struct tails *t, uint32_t cell, uint32_t cells)
{
    if (cells == 0 || cells > TAIL_RUN_MAX || cell >= t->n || cells > t->n - cell)
        return -EINVAL;
    int e = usable_to(t, cell + cells); /* reading a cell of the file that has no memory could be SIGBUS */
    return e != 0 ? e : extents_claim(t->free, cell, cells);
}

void tails_recovered(struct tails *t)
{
    extents_recovered(t->free);
}

uint8_t *tails_at(struct tails *t, uint32_t cell)
{
    return t->cells + (size_t)cell * TAIL_CELL;
}

uint32_t tails_used(const struct tails *t)
{
    return t->n - extents_free(t->free);
}
