#include "tools/replay/generate.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 512u
#define TOKENS_MAX 128000u
#define SIGMA 0.9

struct load {
    uint32_t prefixes, prefix_min, prefix_max; /* tokens */
    double own, turns, think_s, text;
    double sessions_a_second;
};

const char *const generate_kinds[] = {"chat", "agents", "batch", NULL};

static const struct load loads[] = {
    {8, 200, 2000, 1500, 5, 45, 700, 1},
    {4, 4000, 8000, 2000, 15, 4, 900, 0.3},
    {24, 8000, 32000, 300, 1, 0, 0, 4},
};

struct session {
    double at_s;
    uint64_t *ids; /* of its full blocks behind the shared ones */
    uint32_t n_ids, prefix, tokens;
};

struct generator {
    const struct load *load;
    uint64_t random, next_id;
    struct session **heap; /* by at_s, the earliest first */
    size_t n, room;
    uint32_t *prefix_tokens;
    uint64_t *prefix_first; /* id of its first block */
    double next_session_s;
};

static uint64_t draw(struct generator *g)
{
    uint64_t z = g->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(struct generator *g) /* in (0, 1] */
{
    return ((double)(draw(g) >> 11) + 1.0) * 0x1p-53;
}

static double log_normal(struct generator *g, double median)
{
    double radius = sqrt(-2.0 * log(uniform(g)));

    return median * exp(SIGMA * radius * cos(2.0 * M_PI * uniform(g)));
}

static uint32_t text_tokens(struct generator *g, double median)
{
    double n = log_normal(g, median);

    return n < 1 ? 1 : n > TOKENS_MAX ? TOKENS_MAX : (uint32_t)n;
}

static uint32_t draw_prefix(struct generator *g)
{
    double sum = 0, at;

    for (uint32_t i = 0; i < g->load->prefixes; i++)
        sum += 1.0 / (i + 1);
    at = uniform(g) * sum;
    for (uint32_t i = 0; i < g->load->prefixes; i++) {
        at -= 1.0 / (i + 1);
        if (at <= 0)
            return i;
    }
    return g->load->prefixes - 1;
}

static void sift_down(struct generator *g, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        struct session *moved;

        if (child + 1 < g->n && g->heap[child + 1]->at_s < g->heap[child]->at_s)
            child++;
        if (child >= g->n || g->heap[i]->at_s <= g->heap[child]->at_s)
            return;
        moved = g->heap[i];
        g->heap[i] = g->heap[child];
        g->heap[child] = moved;
        i = child;
    }
}

static int push(struct generator *g, struct session *s)
{
    size_t i = g->n;

    if (g->n == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        struct session **heap = reallocarray(g->heap, room, sizeof(struct session *));

        if (!heap)
            return -ENOMEM;
        g->heap = heap;
        g->room = room;
    }
    g->n++;
    while (i > 0 && g->heap[(i - 1) / 2]->at_s > s->at_s) {
        g->heap[i] = g->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    g->heap[i] = s;
    return 0;
}

static void session_free(struct session *s)
{
    free(s->ids);
    free(s);
}

static int begin_session(struct generator *g)
{
    struct session *s = calloc(1, sizeof(*s));
    int error;

    if (!s)
        return -ENOMEM;
    s->at_s = g->next_session_s;
    s->prefix = draw_prefix(g);
    s->tokens = g->prefix_tokens[s->prefix] + text_tokens(g, g->load->own);
    g->next_session_s -= log(uniform(g)) / g->load->sessions_a_second;
    error = push(g, s);
    if (error)
        session_free(s);
    return error;
}

static void end_earliest(struct generator *g)
{
    session_free(g->heap[0]);
    g->heap[0] = g->heap[--g->n];
    sift_down(g, 0);
}

static int prompt(struct generator *g, struct session *s, struct trace *t)
{
    uint32_t shared = g->prefix_tokens[s->prefix] / BLOCK_TOKENS, full = s->tokens / BLOCK_TOKENS, n = 0;
    struct trace_request r = {.timestamp_ms = (uint64_t)(s->at_s * 1000), .input_length = s->tokens};
    uint64_t *blocks = malloc((full + 1) * sizeof(*blocks)), *ids;
    int error;

    ids = reallocarray(s->ids, full + 1, sizeof(*ids));
    if (ids)
        s->ids = ids;
    if (!blocks || !ids) {
        free(blocks);
        return -ENOMEM;
    }
    while (shared + s->n_ids < full)
        s->ids[s->n_ids++] = g->next_id++;
    for (; n < full; n++)
        blocks[n] = n < shared ? g->prefix_first[s->prefix] + n : s->ids[n - shared];
    if (s->tokens % BLOCK_TOKENS)
        blocks[n++] = g->next_id++;
    r.output_length = text_tokens(g, 300);
    error = trace_add(t, &r, blocks, n);
    free(blocks);
    s->tokens += r.output_length;
    return error;
}

/* The earliest session has asked: it ends, or comes back after a while. */
static void go_on(struct generator *g)
{
    struct session *s = g->heap[0];

    if (uniform(g) * g->load->turns <= 1) {
        end_earliest(g);
        return;
    }
    s->tokens += text_tokens(g, g->load->text);
    s->at_s += log_normal(g, g->load->think_s);
    if (s->tokens > TOKENS_MAX)
        end_earliest(g);
    else
        sift_down(g, 0);
}

static int make_prefixes(struct generator *g)
{
    uint32_t n = g->load->prefixes, span = g->load->prefix_max - g->load->prefix_min + 1;

    g->prefix_tokens = calloc(n, sizeof(*g->prefix_tokens));
    g->prefix_first = calloc(n, sizeof(*g->prefix_first));
    if (!g->prefix_tokens || !g->prefix_first)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        g->prefix_tokens[i] = g->load->prefix_min + (uint32_t)(draw(g) % span);
        g->prefix_first[i] = g->next_id;
        g->next_id += g->prefix_tokens[i] / BLOCK_TOKENS;
    }
    return 0;
}

static int generate(struct generator *g, struct trace *t, uint32_t requests)
{
    int error = make_prefixes(g);

    while (!error && t->n_requests < requests) {
        if (g->n == 0 || g->next_session_s <= g->heap[0]->at_s) {
            error = begin_session(g);
            continue;
        }
        error = prompt(g, g->heap[0], t);
        if (!error)
            go_on(g);
    }
    return error ? error : trace_finish(t);
}

bool generate_has(const char *kind)
{
    for (unsigned i = 0; generate_kinds[i]; i++)
        if (strcmp(kind, generate_kinds[i]) == 0)
            return true;
    return false;
}

int generate_trace(struct trace *t, const char *kind, uint64_t seed, uint32_t requests)
{
    struct generator g = {.random = seed};
    int error;

    memset(t, 0, sizeof(*t));
    for (unsigned i = 0; generate_kinds[i]; i++)
        if (strcmp(kind, generate_kinds[i]) == 0)
            g.load = &loads[i];
    if (!g.load)
        return -EINVAL;
    error = generate(&g, t, requests);
    while (g.n)
        end_earliest(&g);
    free(g.heap);
    free(g.prefix_tokens);
    free(g.prefix_first);
    if (error)
        trace_free(t);
    return error;
}
