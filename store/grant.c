/* grant.c: see grant.h. */
#include "store/grant.h"

#include "store/client.h"

#include <string.h>

/* What may lie at hand of one class: a slot that waits for a put is nobody's cache. */
#define CLASS_BYTES (64u << 20)
#define CLASS_SHARE 64u /* of the pool */

static uint32_t target_max(const struct berth *b, uint32_t pages)
{
    uint64_t bytes = b->pool_bytes / CLASS_SHARE < CLASS_BYTES ? b->pool_bytes / CLASS_SHARE : CLASS_BYTES;
    uint64_t n = bytes / ((uint64_t)pages * PAGE_BYTES);
    return n < GRANT_MAX ? (uint32_t)n : GRANT_MAX;
}

/* Fire and forget: the node frees them, or has done so. */
void grant_give_back(struct berth *b, const struct msg_token *tokens, uint32_t n)
{
    struct call *c = n ? call_new(MSG_ABORT, sizeof(struct msg_tokens) + n * sizeof *tokens) : NULL;
    if (c) {
        struct msg_tokens *m = (struct msg_tokens *)c->message;
        m->count = n;
        memcpy(m + 1, tokens, n * sizeof *tokens);
        call_submit(b, c);
    }
    for (uint32_t i = 0; i < n; i++) {
        tokens_remove(&b->tokens, &tokens[i]);
    }
}

static struct grant_class *find_class(struct berth *b, uint32_t pages)
{
    for (unsigned i = 0; pages && i < GRANT_CLASSES; i++) {
        if (b->grants.class[i].pages == pages) {
            return &b->grants.class[i];
        }
    }
    return NULL;
}

/* The class for pages; the one used longest ago makes room, but none that waits for a reply. */
static struct grant_class *make_class(struct berth *b, uint32_t pages)
{
    struct grant_class *best = find_class(b, pages);
    for (unsigned i = 0; !best && i < GRANT_CLASSES; i++) {
        best = b->grants.class[i].pages ? NULL : &b->grants.class[i];
    }
    for (unsigned i = 0; i < GRANT_CLASSES && (!best || (best->pages && best->pages != pages)); i++) {
        struct grant_class *c = &b->grants.class[i];
        if (!c->coming && (!best || c->used < best->used)) {
            best = c;
        }
    }
    if (best && best->pages != pages) {
        grant_give_back(b, best->token, best->n);
        *best = (struct grant_class){.pages = pages};
    }
    return best;
}

bool grant_take(struct berth *b, uint32_t pages, struct msg_token *out)
{
    struct grant_class *c = find_class(b, pages);
    if (!c || !c->n) {
        return false;
    }
    c->used = ++b->grants.clock;
    *out = c->token[--c->n];
    return true;
}

uint32_t grant_ask(struct berth *b, uint32_t pages)
{
    struct grant_class *c = make_class(b, pages);
    uint32_t max = target_max(b, pages);
    if (!c || max < 2) {
        return 1;
    }
    c->used = ++b->grants.clock;
    c->target = c->target ? 2 * c->target : 1;
    c->target = c->target < max ? c->target : max;
    c->coming += c->target;
    return c->target;
}

uint32_t grant_want(struct berth *b, uint32_t pages)
{
    struct grant_class *c = find_class(b, pages);
    if (!c || c->target <= c->n + c->coming) {
        return 0;
    }
    uint32_t want = c->target - c->n - c->coming;
    want = want < 4 ? want : 4;
    c->coming += want;
    return want;
}

void grant_came(struct berth *b, uint32_t pages, uint32_t asked, const struct msg_token *tokens, uint32_t n)
{
    struct grant_class *c = find_class(b, pages);
    if (c) {
        c->coming -= c->coming < asked ? c->coming : asked;
    }
    uint32_t kept = 0;
    for (; c && kept < n && c->n < GRANT_MAX; kept++) {
        c->token[c->n++] = tokens[kept];
    }
    if (kept < n) {
        grant_give_back(b, tokens + kept, n - kept);
    }
}

bool grant_return_all(struct berth *b)
{
    bool any = false;
    for (unsigned i = 0; i < GRANT_CLASSES; i++) {
        struct grant_class *c = &b->grants.class[i];
        any |= c->n > 0;
        grant_give_back(b, c->token, c->n);
        c->n = c->target = 0;
    }
    return any;
}
