/* publish_queue.c: a member's queue, its batches under way, and their answers; see publish_private.h. */
#include "replication/publish_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_FIRST 64u
#define BACKOFF_MAX (INT64_C(3600) * 1000000000)

struct item *item_make(const struct publication_entry *entry, uint64_t number)
{
    struct item *item = malloc(sizeof *item + entry->key.size);
    if (item) {
        *item = (struct item){.uses = 1, .number = number, .entry = *entry};
        memcpy(item->key, entry->key.data, entry->key.size);
        item->entry.key.data = item->key;
    }
    return item;
}

void item_release(struct item *item)
{
    if (item && --item->uses == 0) {
        free(item);
    }
}

static void drop_queue(struct publish *p, struct target *t)
{
    p->stat.queued -= t->tail - t->head;
    for (; t->head < t->tail; t->head++) {
        struct item *item = target_queued(t, t->head)->item;
        item->owed = 0;
        item_release(item);
    }
    free(t->queue);
    t->queue = NULL;
    t->room = 0;
    t->head = t->sent = t->tail = 0;
    t->n_flights = 0;
}

void target_wake(struct publish *p, struct target *t)
{
    uint16_t i = (uint16_t)(t - p->targets);
    if (t->ready) {
        return;
    }
    t->ready = true;
    t->behind = MEMBER_NONE;
    *(p->first == MEMBER_NONE ? &p->first : &p->targets[p->last].behind) = i;
    p->last = i;
}

void target_restart(struct publish *p, struct target *t)
{
    drop_queue(p, t);
    p->look = true;
    t->state = TARGET_WAIT;
    t->stream = 0;
    t->refused = t->completing = false;
}

void target_begin(struct publish *p, struct target *t)
{
    t->state = TARGET_LISTING;
    t->stream = ++p->stream;
    t->next = 0;
    target_wake(p, t);
}

static bool grow(const struct publish *p, struct target *t)
{
    uint64_t room = t->room ? t->room * 2 : QUEUE_FIRST;
    struct queued *queue = room <= p->config.queue_entries ? malloc(room * sizeof *queue) : NULL;
    if (!queue) {
        return false;
    }
    for (uint64_t at = t->head; at < t->tail; at++) {
        queue[at & (room - 1)] = *target_queued(t, at);
    }
    free(t->queue);
    t->queue = queue;
    t->room = room;
    return true;
}

bool target_push(struct publish *p, struct target *t, struct item *item)
{
    if (t->tail - t->head == t->room && !grow(p, t)) {
        p->stat.overflows++;
        target_restart(p, t);
        return false;
    }
    *target_queued(t, t->tail++) = (struct queued){.item = item};
    item->uses++;
    p->stat.queued++;
    target_wake(p, t);
    return true;
}

/* ---- batches ---- */

static const struct publish_command *send(struct publish *p, uint16_t member, struct flight *f)
{
    const struct target *t = &p->targets[member];
    f->due = p->now + p->config.resend_ns;
    f->tries++;
    for (uint32_t i = 0; i < f->n; i++) {
        p->entries[i] = target_queued(t, f->first + i)->item->entry;
    }
    p->stat.batches++;
    p->command = (struct publish_command){.kind = PUBLISH_SEND,
                                          .member = member,
                                          .batch = {.from = p->config.life,
                                                    .to = t->life,
                                                    .revision = rendezvous_revision(p->list),
                                                    .stream = t->stream,
                                                    .batch = f->batch,
                                                    .member = p->self,
                                                    .complete = f->complete,
                                                    .n = f->n,
                                                    .entries = p->entries}};
    return &p->command;
}

static uint32_t batch_size(const struct target *t)
{
    uint32_t n = 0, keys = 0;
    for (; n < PUBLICATION_ENTRIES && t->sent + n < t->tail; n++) {
        keys += target_queued(t, t->sent + n)->item->entry.key.size;
        if (keys > PUBLICATION_KEYS) {
            break;
        }
    }
    return n;
}

/* The first batch goes at once, even without an entry: it takes the mark away that no longer holds. */
static bool has_news(const struct target *t, bool complete)
{
    return t->stream && (t->next == 0 || t->sent < t->tail || complete);
}

/* Everything before it was acknowledged. */
static bool completes(const struct target *t)
{
    return t->state == TARGET_LISTED && !t->completing && t->head >= t->complete_at;
}

bool target_sendable(const struct publish *p, const struct target *t)
{
    return t->up && t->n_flights < p->config.window && has_news(t, completes(t));
}

const struct publish_command *target_send(struct publish *p, uint16_t member)
{
    struct target *t = &p->targets[member];
    if (!t->up) {
        return NULL;
    }
    for (uint32_t i = 0; i < t->n_flights; i++) {
        if (!t->flight[i].answered && t->flight[i].due <= p->now) {
            p->stat.repeated++;
            return send(p, member, &t->flight[i]);
        }
    }
    bool complete = completes(t);
    if (t->n_flights == p->config.window || !has_news(t, complete)) {
        return NULL;
    }
    struct flight *f = &t->flight[t->n_flights++];
    *f = (struct flight){.first = t->sent, .n = batch_size(t), .batch = t->next++, .complete = complete};
    t->sent += f->n;
    t->completing = t->completing || complete;
    return send(p, member, f);
}

/* ---- answers ---- */

int target_answered(struct publish *p, struct target *t, const struct publication_answer *answer)
{
    struct flight *f = NULL;
    for (uint32_t i = 0; i < t->n_flights && answer->stream == t->stream; i++) {
        if (t->flight[i].batch == answer->batch && !t->flight[i].answered) {
            f = &t->flight[i];
        }
    }
    if (!f) {
        return -ENOENT;
    }
    if (answer->n != f->n) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        if (answer->results[i].verdict > VERDICT_FULL) {
            return -EINVAL;
        }
    }
    for (uint32_t i = 0; i < f->n; i++) {
        struct queued *q = target_queued(t, f->first + i);
        q->verdict = answer->results[i].verdict;
        q->counter = answer->results[i].counter;
        q->past = answer->results[i].past;
        p->stat.superseded += q->verdict == VERDICT_SUPERSEDED;
        p->stat.refused += q->verdict == VERDICT_FULL;
    }
    p->unheard -= f->batch == 0 && !t->heard;
    t->heard = t->heard || f->batch == 0;
    f->answered = true;
    f->marked = answer->complete;
    target_wake(p, t);
    return 0;
}

static void become_partial(const struct publish *p, struct target *t)
{
    t->state = TARGET_PARTIAL;
    t->backoff = t->backoff ? t->backoff * 2 : p->config.full_ns;
    t->backoff = t->backoff < BACKOFF_MAX ? t->backoff : BACKOFF_MAX;
    t->retry_at = p->now + t->backoff;
}

/* A batch of which every entry is dealt with. */
static void flight_over(const struct publish *p, struct target *t)
{
    struct flight f = t->flight[0];
    memmove(t->flight, t->flight + 1, --t->n_flights * sizeof *t->flight);
    if (f.complete) {
        t->completing = false;
        if (f.marked && !t->refused) {
            t->state = TARGET_CURRENT;
            t->backoff = 0;
        } else {
            become_partial(p, t);
        }
    } else if (t->refused && t->state == TARGET_CURRENT) {
        become_partial(p, t);
    }
}

static bool command_of(struct publish *p, const struct target *t, enum publish_command_kind kind,
                       const struct queued *q)
{
    const struct publication_entry *e = &q->item->entry;
    p->command = (struct publish_command){
        .kind = kind, .member = (uint16_t)(t - p->targets), .counter = q->counter, .past = q->past, .entry = *e};
    memcpy(p->key, e->key.data, e->key.size);
    p->command.entry.key.data = p->key;
    return true;
}

/* The owner's own version was below another: it may have been put a moment ago by a clock that is behind, and takes a
 * higher counter once; or it is an old one that was removed or replaced while this owner was not told (rule 28). A
 * tombstone that stays below has done its work: the home names nothing that is older. */
static bool judged(struct publish *p, const struct target *t, const struct queued *q)
{
    const struct publication_entry *e = &q->item->entry;
    bool below = q->verdict == VERDICT_SUPERSEDED;
    if (e->kind == PUBLICATION_GONE || q->verdict == VERDICT_FULL) {
        return false;
    }
    if (below && e->fresh && !e->again && q->counter < UINT64_MAX - 1) {
        return command_of(p, t, PUBLISH_TAKE, q);
    }
    if (e->kind == PUBLICATION_TOMBSTONE) {
        return command_of(p, t, PUBLISH_KNOWN, q);
    }
    return below ? command_of(p, t, PUBLISH_DROP, q) : q->past && command_of(p, t, PUBLISH_PAST, q);
}

bool target_retirable(const struct target *t)
{
    return t->n_flights > 0 && t->flight[0].answered;
}

bool target_retire(struct publish *p, struct target *t)
{
    bool out = false;
    const struct flight *f = &t->flight[0];
    if (t->head < f->first + f->n) {
        struct queued *q = target_queued(t, t->head++);
        p->stat.queued--;
        t->refused = t->refused || q->verdict == VERDICT_FULL;
        if (q->verdict == VERDICT_OK && q->item->owed) {
            p->stat.published += --q->item->owed == 0;
        } else {
            q->item->owed = 0;
        }
        out = judged(p, t, q);
        item_release(q->item);
    }
    if (t->head == f->first + f->n) {
        flight_over(p, t);
    }
    return out;
}
