#include "tools/replay/bound.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

struct reference {
    uint64_t id;
    size_t at; /* index into the trace's blocks */
};

/* When a block is used next: an entry is good while the block is there and `next` is still what it says. */
struct use {
    uint32_t next, depth, block;
};

struct bound {
    uint32_t *block; /* by place in the trace: its number, from 0 */
    uint32_t *after; /* by place in the trace: the next request that has the block, or NEVER */
    uint32_t *next;  /* by block */
    bool *here;      /* by block */
    struct use *heap;
    size_t n, room;
    uint64_t count; /* blocks that are here */
};

static int by_id(const void *a, const void *b)
{
    const struct reference *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

static void number(struct bound *b, const struct trace *t, struct reference *r)
{
    uint32_t blocks = 0, request = 0;
    size_t end = 0;

    for (size_t i = 0; i < t->n_blocks; i++)
        r[i] = (struct reference){t->blocks[i], i};
    qsort(r, t->n_blocks, sizeof(*r), by_id);
    for (size_t i = 0; i < t->n_blocks; i++) {
        blocks += i > 0 && r[i].id != r[i - 1].id;
        b->block[r[i].at] = blocks;
    }
    memset(b->next, 0xff, t->n_blocks * sizeof(*b->next));
    for (request = (uint32_t)t->n_requests; request-- > 0;) {
        const struct trace_request *q = &t->requests[request];

        for (end = q->first + q->n_blocks; end-- > q->first;) {
            b->after[end] = b->next[b->block[end]];
            b->next[b->block[end]] = request;
        }
    }
}

static bool goes_before(const struct use *x, const struct use *y)
{
    return x->next != y->next ? x->next > y->next : x->depth > y->depth;
}

static int push(struct bound *b, struct use u)
{
    size_t i = b->n;

    if (b->n == b->room) {
        size_t room = b->room ? 2 * b->room : 1024;
        struct use *heap = reallocarray(b->heap, room, sizeof(*heap));

        if (!heap)
            return -ENOMEM;
        b->heap = heap;
        b->room = room;
    }
    for (b->n++; i > 0 && goes_before(&u, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = u;
    return 0;
}

static struct use pop(struct bound *b)
{
    struct use first = b->heap[0], last = b->heap[--b->n];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < b->n; i = child) {
        child += child + 1 < b->n && goes_before(&b->heap[child + 1], &b->heap[child]);
        if (!goes_before(&b->heap[child], &last))
            break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = last;
    return first;
}

static int request(struct bound *b, const struct trace_request *q, uint64_t *hits)
{
    uint32_t run = 0;
    int error = 0;

    while (run < q->n_blocks && b->here[b->block[q->first + run]])
        run++;
    *hits += run;
    for (uint32_t i = 0; i < q->n_blocks && !error; i++) {
        uint32_t block = b->block[q->first + i];

        b->count += !b->here[block];
        b->here[block] = true;
        b->next[block] = b->after[q->first + i];
        error = push(b, (struct use){.next = b->next[block], .depth = i, .block = block});
    }
    return error;
}

static void evict(struct bound *b, uint64_t capacity)
{
    while (b->count > capacity) {
        struct use u = pop(b);

        if (b->here[u.block] && b->next[u.block] == u.next) {
            b->here[u.block] = false;
            b->count--;
        }
    }
}

int bound_hits(const struct trace *t, uint64_t capacity, uint64_t *hits)
{
    struct bound b = {0};
    size_t n = t->n_blocks ? t->n_blocks : 1;
    struct reference *r = calloc(n, sizeof(*r));
    int error;

    b.block = calloc(n, sizeof(*b.block));
    b.after = calloc(n, sizeof(*b.after));
    b.next = calloc(n, sizeof(*b.next));
    b.here = calloc(n, sizeof(*b.here));
    error = r && b.block && b.after && b.next && b.here ? 0 : -ENOMEM;
    if (!error)
        number(&b, t, r);
    free(r);
    *hits = 0;
    for (size_t i = 0; i < t->n_requests && !error; i++) {
        error = request(&b, &t->requests[i], hits);
        evict(&b, capacity);
    }
    free(b.block);
    free(b.after);
    free(b.next);
    free(b.here);
    free(b.heap);
    return error;
}
