/* peers_pull_sums.c: leases on objects with segments are of use with the checksums of these only, which SUMS brings:
 * what an owner granted waits here until it has come, and is an event of the puller then.
 *
 * A list that comes is believed where the object's checksum proves it: lease_terms_good, when the puller takes it. Who
 * can't give it is no source. Bounds: one a request of the puller; 8 KiB a key with segments.
 */
#include "store/shell/peers_pull.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SUMS_NS INT64_C(2000000000) /* an owner's time to answer */

struct summing {
    struct taking *part;
    struct pull_event ev; /* to be given */
    void *memory;         /* that it points to: freed with this */
    struct pull_answer *answers;
    uint16_t member;
    uint32_t n, at; /* grants that lack their list; those before `at` have it, or have failed */
    struct pull_grant *grant[PULL_KEYS_MAX];
};

static uint32_t sums_of(const struct lease_terms *t)
{
    return segments_of(t->size, t->segment_log2);
}

static void give(struct summing *x)
{
    for (uint32_t i = 0; x->answers && i < x->ev.n; i++) /* without its lease the answer stands all the same */
        x->answers[i].granted = x->answers[i].granted && x->answers[i].grant.status == 0;
    pull_give(x->part, &x->ev);
    for (uint32_t i = 0; i < x->n; i++)
        free((void *)(uintptr_t)x->grant[i]->terms.sums);
    free(x->memory);
    free(x);
}

static void fail(struct summing *x, int status)
{
    for (; x->at < x->n; x->at++)
        x->grant[x->at]->status = status;
}

/* One item of the answer. */
static void take(struct pull_grant *g, const struct wire_item *item)
{
    uint32_t n = sums_of(&g->terms);
    if (item->summed.status || item->summed.n != n) {
        g->status = item->summed.status ? item->summed.status : -EBADMSG;
        return;
    }
    uint64_t *sums = pull_memory(n * sizeof *sums);
    memcpy(sums, item->summed.list, n * sizeof *sums);
    for (uint32_t i = 0; i < n; i++)
        sums[i] = le64toh(sums[i]);
    g->terms.sums = sums;
    g->terms.n_sums = n;
}

static void ask(struct summing *x);

static void answered(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items)
{
    struct summing *x = arg;
    struct wire_item item;
    bool more = false;
    if (status == 0 && !m)
        status = -ECONNRESET;
    while (status == 0 && x->at < x->n && wire_next(items, &item) == 1) {
        take(x->grant[x->at++], &item);
        more = true;
    }
    if (!more)
        fail(x, status ? status : -EBADMSG);
    if (x->at < x->n)
        ask(x);
    else
        give(x);
}

static void ask(struct summing *x)
{
    struct peers *p = x->part->peers;
    struct wire_message m;
    struct wire_writer w;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_SUMS;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = x->at; e == 0 && i < x->n; i++) {
        const struct lease_terms *t = &x->grant[i]->terms;
        e = wire_add(&w, &(struct wire_item){.sums = {.slot = t->slot, .generation = t->generation}});
    }
    long n = e < 0 ? e : wire_end(&w);
    int64_t until = peers_mono(p) + SUMS_NS;
    e = n < 0 ? (int)n : link_ask(p, x->member, p->buffer, (size_t)n, until, until, answered, x);
    if (e < 0) {
        fail(x, e);
        give(x);
    }
}

static void lacks(struct summing *x, struct pull_grant *g)
{
    if (g->status == 0 && g->terms.segment_log2 && sums_of(&g->terms) > 0)
        x->grant[x->n++] = g;
}

void pull_give_summed(struct taking *q, const struct pull_event *ev, struct pull_answer *answers,
                      struct pull_grant *grants, void *memory)
{
    struct summing *x = pull_memory(sizeof *x);
    *x = (struct summing){.part = q, .ev = *ev, .memory = memory, .answers = answers, .member = ev->member};
    x->ev.answers = answers;
    x->ev.grants = grants;
    for (uint32_t i = 0; i < ev->n && i < PULL_KEYS_MAX; i++) {
        if (grants)
            lacks(x, &grants[i]);
        else if (answers[i].granted)
            lacks(x, &answers[i].grant);
    }
    if (x->n)
        ask(x);
    else
        give(x);
}
