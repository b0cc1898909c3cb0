/* read.c: see read.h. */
#include "store/read.h"

#include <errno.h>
#include <string.h>

#define ASK_TRIES 16u
#define ASK_NOW_NS INT64_C(1000000000) /* a caller that can't wait still wants the right answer */

/* ---- asking the node ---- */

static int take_token(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    (void)b;
    if (status < 0) {
        return status;
    }
    if (bytes < sizeof *r + sizeof(struct msg_token)) {
        return -EPROTO;
    }
    memcpy(arg, r + 1, sizeof(struct msg_token));
    return 0;
}

static int ask(struct berth *b, const struct wanted *w, int64_t deadline, struct msg_token *out)
{
    struct call *c = call_new(MSG_FIND, sizeof(struct msg_key) + w->size);
    struct call_result r;
    if (!c) {
        return -ENOMEM;
    }
    struct msg_key *m = (struct msg_key *)c->message;
    m->ns = w->ns;
    m->key_size = (uint16_t)w->size;
    memcpy(m + 1, w->key, w->size);
    if (deadline != BERTH_FOREVER) {
        int64_t now = client_now();
        int64_t wait = ASK_NOW_NS < b->timeout_ns ? ASK_NOW_NS : b->timeout_ns;
        c->limit = deadline > now ? deadline : now + wait;
        c->limit_code = deadline > now ? -ETIMEDOUT : BERTH_ENODE;
    }
    return call_run(b, c, &r, take_token, out);
}

static int pin_asked(struct berth *b, struct client_thread *t, const struct wanted *w, int64_t deadline,
                     struct found *out)
{
    struct msg_token token;
    stat_add(b, t, LANE_ASKS, 1);
    for (unsigned i = 0; i < ASK_TRIES; i++) {
        int rc = ask(b, w, deadline, &token);
        if (rc) {
            return rc;
        }
        if (token.slot >= b->lookup.n_headers) {
            return -EPROTO;
        }
        uint32_t entry = pin_take(b, t, token.slot);
        if (entry == PIN_NONE) {
            return BERTH_EPINS;
        }
        const struct slot_header *h = find_header(&b->lookup, token.slot);
        if (slot_load(h) == slot_word(token.gen, SLOT_READY) && find_group_ready(&b->lookup, h) &&
            find_same_key(&b->lookup, h, w)) {
            *out = (struct found){.slot = token.slot, .entry = entry};
            return 0;
        }
        pin_drop(b, t, entry); /* it went in between */
    }
    return -ENOENT;
}

__attribute__((noinline)) int read_pin_slowly(struct berth *b, struct client_thread *t, const struct wanted *w,
                                              int64_t deadline, struct found *out)
{
    for (unsigned i = 0; i < FIND_TRIES; i++) {
        bool must_ask = find_must_ask(w);
        enum find_step step = find_pin_walk(b, t, w, out);
        if (step == STEP_DONE) {
            return 0;
        }
        if (step == STEP_FULL) {
            return BERTH_EPINS;
        }
        if (step == STEP_OTHER) {
            if (!must_ask) {
                return -ENOENT;
            }
            break;
        }
        stat_add(b, t, LANE_RETRIES, 1);
        __builtin_ia32_pause();
    }
    return pin_asked(b, t, w, deadline, out);
}

/* ---- batches ---- */

static __attribute__((flatten)) void look_ahead(const struct lookup *l, const struct berth_key *keys, uint32_t n,
                                                struct wanted *w, uint32_t *slot)
{
    for (uint32_t i = 0; i < n; i++) {
        find_start(l, &w[i], &keys[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        slot[i] = find_first(l, &w[i]);
        if (slot[i] != SLOT_NONE) {
            find_prefetch(find_header(l, slot[i]));
        }
    }
}

__attribute__((flatten)) void read_pin_batch(struct berth *b, struct client_thread *t, const struct berth_key *keys,
                                             uint32_t n, int64_t deadline, struct found *out, int *status)
{
    const struct lookup *l = &b->lookup;
    struct wanted w[READ_BATCH];
    uint32_t slot[READ_BATCH];
    look_ahead(l, keys, n, w, slot);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t entry = slot[i] == SLOT_NONE ? PIN_NONE : pin_take_next(b, t, slot[i]);
        out[i] = (struct found){.slot = slot[i], .entry = entry};
    }
    for (uint32_t i = 0; i < n; i++) {
        status[i] = 0;
        if (out[i].entry != PIN_NONE) {
            const struct slot_header *h = find_header(l, slot[i]);
            if (__builtin_expect(find_ready(l, h) && find_same_key(l, h, &w[i]), 1)) {
                continue;
            }
            pin_drop(b, t, out[i].entry);
        }
        status[i] = read_pin_slowly(b, t, &w[i], deadline, &out[i]);
    }
}

bool read_whole(const struct berth *b, const struct slot_header *h, const struct read_segments *some)
{
    const uint8_t *data = read_payload(b, h);
    uint32_t count, shift = slot_segment(h);
    const uint64_t *sums = lookup_sums(&b->lookup, h, &count);
    if (!sums) {
        return count == 0 && berth_checksum(data, h->size) == h->checksum;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)i << shift, part = UINT64_C(1) << shift;
        part = h->size - at < part ? h->size - at : part;
        if ((!some || (some->bits[i / 64] >> (i % 64) & 1)) && berth_checksum(data + at, part) != sums[i]) {
            return false;
        }
    }
    return true;
}

int read_accept_slowly(struct berth *b, struct client_thread *t, struct found f, unsigned flags)
{
    const struct slot_header *h = find_header(&b->lookup, f.slot);
    if (!read_bounded(b, h)) {
        return -EPROTO;
    }
    if (b->lineage && h->lineage != b->lineage) {
        return BERTH_ELINEAGE;
    }
    if ((flags & BERTH_VERIFY) && !read_whole(b, h, NULL)) {
        stat_add(b, t, LANE_VERIFY_FAILED, 1);
        return BERTH_ECORRUPT;
    }
    return 0;
}

/* ---- exists ---- */

static bool peek_slowly(struct berth *b, const struct wanted *w)
{
    for (unsigned i = 0; i < FIND_TRIES; i++) {
        bool must_ask = find_must_ask(w);
        enum find_step step = find_peek_walk(&b->lookup, w);
        if (step == STEP_DONE) {
            return true;
        }
        if (step == STEP_OTHER && !must_ask) {
            return false;
        }
        if (step == STEP_OTHER) {
            break;
        }
        __builtin_ia32_pause();
    }
    struct msg_token token;
    return ask(b, w, BERTH_FOREVER, &token) == 0;
}

/* What ThreadSanitizer can follow: a pin instead of the word before and after. */
static bool peek_pinned(struct berth *b, struct client_thread *t, const struct wanted *w)
{
    struct found f;
    if (read_pin_slowly(b, t, w, BERTH_FOREVER, &f) != 0) {
        return false;
    }
    pin_drop(b, t, f.entry);
    return true;
}

bool read_there(struct berth *b, struct client_thread *t, const struct berth_key *key)
{
    struct wanted w;
    find_start(&b->lookup, &w, key);
    return FIND_TSAN ? peek_pinned(b, t, &w) : find_peek_walk(&b->lookup, &w) == STEP_DONE;
}

void read_peek_batch(struct berth *b, struct client_thread *t, const struct berth_key *keys, uint32_t n,
                     uint8_t *present)
{
    struct wanted w[READ_BATCH];
    uint32_t slot[READ_BATCH];
    look_ahead(&b->lookup, keys, n, w, slot);
    for (uint32_t i = 0; i < n; i++) {
        present[i] = FIND_TSAN ? peek_pinned(b, t, &w[i])
                               : find_peek_walk(&b->lookup, &w[i]) == STEP_DONE || peek_slowly(b, &w[i]);
    }
}
