/* loop.c: the net of the loop transport: time, faults, what is on its way; contexts and their turns. */
#include "replication/loop_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_ITEMS 64u
#define SLOW_FACTOR 50

const char *const loop_fault_names[LOOP_FAULTS] = {[LOOP_SLOW] = "slow",
                                                   [LOOP_DROPPED] = "message_dropped",
                                                   [LOOP_DOUBLED] = "message_doubled",
                                                   [LOOP_REORDERED] = "message_reordered",
                                                   [LOOP_LATE] = "payload_late",
                                                   [LOOP_TORN] = "payload_torn",
                                                   [LOOP_NOT_COMPLETED] = "completion_lost",
                                                   [LOOP_DAMAGED] = "payload_damaged",
                                                   [LOOP_CUT] = "connection_cut",
                                                   [LOOP_NOT_CONNECTED] = "connect_failed",
                                                   [LOOP_WROTE_ON] = "wrote_after_death",
                                                   [LOOP_FULL] = "send_full"};

static struct loop_net *chosen; /* of loop_net_use */

/* ---- chance ---- */

uint64_t loop_random(struct loop_net *net)
{
    net->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = net->random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t loop_span(struct loop_net *net, int64_t least, int64_t most)
{
    return most > least ? least + (int64_t)(loop_random(net) % (uint64_t)(most - least + 1)) : least;
}

bool loop_fault(struct loop_net *net, enum loop_fault kind)
{
    uint32_t n = net->config.one_in[kind];
    bool hit = n && (loop_random(net) >> 32) * n >> 32 == 0;
    net->faults[kind] += hit;
    return hit;
}

int64_t loop_delay(struct loop_net *net)
{
    int64_t ns = loop_span(net, net->config.delay_min, net->config.delay_max);
    return loop_fault(net, LOOP_SLOW) ? ns * SLOW_FACTOR : ns;
}

int64_t loop_mono(const struct loop *ctx)
{
    return ctx->net->config.mono ? ctx->net->config.mono(ctx->env) : ctx->net->now;
}

/* ---- the heap ---- */

static bool before(const struct item *a, const struct item *b)
{
    return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

static void heap_push(struct loop_net *net, struct item *x)
{
    if (net->n_heap == net->heap_room) {
        net->heap_room = net->heap_room ? 2 * net->heap_room : 256;
        net->heap = realloc(net->heap, net->heap_room * sizeof *net->heap);
        if (!net->heap)
            abort();
    }
    size_t i = net->n_heap++;
    for (; i > 0 && before(x, net->heap[(i - 1) / 2]); i = (i - 1) / 2)
        net->heap[i] = net->heap[(i - 1) / 2];
    net->heap[i] = x;
}

static struct item *heap_pop(struct loop_net *net)
{
    struct item *top = net->heap[0], *x = net->heap[--net->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < net->n_heap; i = k) {
        if (k + 1 < net->n_heap && before(net->heap[k + 1], net->heap[k]))
            k++;
        if (!before(net->heap[k], x))
            break;
        net->heap[i] = net->heap[k];
    }
    net->heap[i] = x;
    return top;
}

struct item *loop_send(struct loop_net *net, enum item_kind kind, int64_t at, struct loop_end *end,
                       struct loop_read *read, const void *bytes, size_t n)
{
    struct item *i = malloc(sizeof *i + (bytes ? n : 0));
    if (!i)
        abort();
    *i = (struct item){.at = at, .serial = ++net->serial, .kind = kind, .end = end, .read = read, .n = n};
    if (bytes)
        memcpy(i->bytes, bytes, n);
    if (end)
        end->pair->refs++;
    if (read)
        read->refs++;
    heap_push(net, i);
    return i;
}

static void item_free(struct item *i)
{
    if (i->read)
        read_drop(i->read);
    if (i->end)
        end_drop(i->end);
    free(i);
}

/* ---- the net ---- */

int loop_net_create(struct loop_net **out, const struct loop_config *config)
{
    if (config->delay_min < 0 || config->delay_max < config->delay_min || config->late_ns < 0 ||
        config->linger_ns < 0 || config->ghost_ns < 0)
        return -EINVAL;
    struct loop_net *net = calloc(1, sizeof *net);
    if (!net)
        return -ENOMEM;
    net->config = *config;
    net->random = config->seed;
    net->now = INT64_MIN;
    TAILQ_INIT(&net->contexts);
    TAILQ_INIT(&net->reads);
    *out = net;
    return 0;
}

void loop_net_destroy(struct loop_net *net)
{
    if (!net)
        return;
    while (net->n_heap)
        item_free(heap_pop(net));
    free(net->heap);
    if (chosen == net)
        chosen = NULL;
    free(net);
}

void loop_net_use(struct loop_net *net)
{
    chosen = net;
}

int64_t loop_net_timer(const struct loop_net *net)
{
    return net->n_heap ? net->heap[0]->at : INT64_MAX;
}

void loop_net_step(struct loop_net *net, int64_t now)
{
    while (net->n_heap && net->heap[0]->at <= now) {
        struct item *i = heap_pop(net);
        net->now = i->at > net->now ? i->at : net->now;
        struct loop *to = i->end ? i->end->ctx : NULL;
        if (i->kind == ITEM_PIECE)
            read_piece(net, i);
        else if (i->kind == ITEM_STRAND)
            read_quiet(i->read);
        else if (i->kind == ITEM_LOST)
            read_lost(i->read);
        else if (to) {
            TAILQ_INSERT_TAIL(&to->inbox, i, entry);
            continue;
        }
        item_free(i);
    }
    net->now = now > net->now ? now : net->now;
}

void loop_net_calm(struct loop_net *net)
{
    memset(net->config.one_in, 0, sizeof net->config.one_in);
}

const uint64_t *loop_net_faults(const struct loop_net *net)
{
    return net->faults;
}

bool loop_net_writes(const struct loop_net *net, const void *at, size_t n)
{
    const uint8_t *first = at;
    const struct loop_read *r;
    TAILQ_FOREACH(r, &net->reads, entry)
    {
        for (uint32_t i = 0; r->writes && i < r->parts; i++) {
            const uint8_t *to = r->to[i].iov_base;
            if (to < first + n && first < to + r->to[i].iov_len)
                return true;
        }
    }
    return false;
}

/* ---- contexts ---- */

static int resolve(const char *address, char *digits, size_t size, char *why, size_t why_size)
{
    const char *from = strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
    snprintf(why, why_size, "'%s' is no address here", address);
    return *from && (size_t)snprintf(digits, size, "%s", from) < size ? 0 : -EINVAL;
}

static struct loop *listener(const struct loop_net *net, const char *address)
{
    struct loop *l;
    TAILQ_FOREACH(l, &net->contexts, entry)
    {
        if (*l->address && strcmp(l->address, address) == 0)
            return l;
    }
    return NULL;
}

static int loop_open(void **out, const struct transport_config *config, const struct transport_events *events,
                     void *env, char *why, size_t why_size)
{
    char digits[TRANSPORT_ADDRESS_MAX] = "";
    snprintf(why, why_size, "no net was chosen, or the address is no address, or taken");
    if (!chosen || (config->listen && resolve(config->listen, digits, sizeof digits, why, why_size) < 0))
        return -EINVAL;
    if (*digits && listener(chosen, digits))
        return -EADDRINUSE;
    struct loop *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return -ENOMEM;
    ctx->net = chosen;
    ctx->config = *config;
    ctx->events = *events;
    ctx->env = env;
    memcpy(ctx->address, digits, sizeof digits);
    TAILQ_INIT(&ctx->ends);
    TAILQ_INIT(&ctx->inbox);
    TAILQ_INSERT_TAIL(&chosen->contexts, ctx, entry);
    *out = ctx;
    return 0;
}

static void context_free(struct loop *ctx)
{
    struct item *i;
    while ((i = TAILQ_FIRST(&ctx->inbox))) {
        TAILQ_REMOVE(&ctx->inbox, i, entry);
        item_free(i);
    }
    TAILQ_REMOVE(&ctx->net->contexts, ctx, entry);
    free(ctx);
}

static void loop_close(void *ctx)
{
    struct loop *l = ctx;
    struct loop_end *e;
    while ((e = TAILQ_FIRST(&l->ends)))
        loop_disconnect(l, &e->c);
    context_free(l);
}

void loop_crash(void *ctx)
{
    struct loop *l = ctx;
    struct loop_end *e;
    while ((e = TAILQ_FIRST(&l->ends))) {
        read_strand(e);
        end_hang_up(e);
        end_gone(e);
    }
    context_free(l);
}

static int loop_address(void *ctx, char *text, size_t size)
{
    const struct loop *l = ctx;
    const char *colon = strrchr(l->address, ':');
    if ((size_t)snprintf(text, size, "%s", l->address) >= size)
        return -ENOSPC;
    return colon ? atoi(colon + 1) : 0;
}

static int loop_descriptor(void *ctx)
{
    (void)ctx;
    return -EOPNOTSUPP; /* there is nothing to poll: loop_ready */
}

bool loop_ready(const void *ctx)
{
    const struct loop *l = ctx;
    return !TAILQ_EMPTY(&l->inbox);
}

static bool loop_look(void *ctx)
{
    return loop_ready(ctx);
}

static int loop_turn(void *ctx)
{
    struct loop *l = ctx;
    struct item *i;
    for (uint32_t n = 0; n < TURN_ITEMS && (i = TAILQ_FIRST(&l->inbox)); n++) {
        TAILQ_REMOVE(&l->inbox, i, entry);
        if (i->end->ctx != l)
            ; /* it was ended since */
        else if (i->kind == ITEM_WANT || i->kind == ITEM_DONE || i->kind == ITEM_ENDED || i->kind == ITEM_EXPIRE)
            read_taken(l, i);
        else
            end_taken(l, i);
        item_free(i);
    }
    return loop_ready(l);
}

static void loop_flush(void *ctx)
{
    (void)ctx;
}

static int loop_fence(void *ctx, struct connection *c)
{
    const struct loop *l = ctx;
    bool held = l->net->config.held;
    loop_disconnect(ctx, c);
    return held ? -EAGAIN : 0; /* pieces that were admitted are on their way */
}

static int loop_expose(void *ctx, int fd, const void *base, uint64_t bytes)
{
    struct loop *l = ctx;
    (void)fd;
    if (l->memory)
        return -EBUSY;
    l->memory = base;
    l->memory_bytes = bytes;
    return 0;
}

static void loop_stats(void *ctx, struct transport_stats *out)
{
    const struct loop *l = ctx;
    *out = l->stats;
    out->connections = l->n_ends;
}

static bool loop_proves(void *ctx)
{
    const struct loop *l = ctx;
    return l->net->config.held;
}

const struct transport loop_transport = {
    "loop",    resolve,     loop_open,    loop_close,      loop_address, loop_descriptor, loop_look,
    loop_turn, loop_flush,  loop_connect, loop_disconnect, loop_fence,   loop_expose,     loop_message,
    loop_read, loop_cancel, loop_stop,    loop_stats,      loop_proves,
};
