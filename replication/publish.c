/* publish.c: events, passes and commands of an owner that publishes; see publish.h. */
#include "replication/publish_private.h"

#include "replication/home.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int publish_create(struct publish **out, const struct publish_config *config)
{
    uint32_t entries = config->queue_entries;
    if (entries < PUBLISH_QUEUE_MIN || entries > 1u << 24 || (entries & (entries - 1)) || config->window < 1 ||
        config->window > PUBLISH_WINDOW_MAX || config->resend_ns < 1 || config->full_ns < 1) {
        return -EINVAL;
    }
    struct publish *p = calloc(1, sizeof *p);
    if (!p) {
        return -ENOMEM;
    }
    p->config = *config;
    p->held = config->held;
    p->first = p->last = MEMBER_NONE;
    *out = p;
    return 0;
}

static void free_targets(struct publish *p)
{
    for (uint32_t i = 0; i < p->n_targets; i++) {
        target_restart(p, &p->targets[i]);
    }
    free(p->targets);
    p->targets = NULL;
    p->n_targets = 0;
    p->first = p->last = MEMBER_NONE;
}

void publish_destroy(struct publish *p)
{
    if (p) {
        free_targets(p);
        free(p);
    }
}

/* ---- members ---- */

int publish_members(struct publish *p, uint16_t self, const struct rendezvous *r, int64_t now)
{
    uint32_t n = rendezvous_count(r);
    if (self >= n) {
        return -EINVAL;
    }
    struct target *targets = calloc(n, sizeof *targets);
    if (!targets) {
        return -ENOMEM;
    }
    free_targets(p);
    p->targets = targets;
    p->n_targets = n;
    p->list = r;
    p->self = self;
    p->unheard = rendezvous_revision(r) == p->config.settled ? 0 : n;
    for (uint32_t i = 0; i < n; i++) {
        targets[i].heard = p->unheard == 0;
    }
    p->config.settled = 0;
    p->passing = false;
    p->look = true;
    p->now = now;
    return 0;
}

/* A pass that feeds nobody any more is given up. */
static void end_empty_pass(struct publish *p)
{
    for (uint32_t i = 0; p->passing && i < p->n_targets; i++) {
        if (p->targets[i].state == TARGET_LISTING) {
            return;
        }
    }
    p->passing = false;
}

void publish_up(struct publish *p, uint16_t member, struct home_life life, int64_t now)
{
    p->now = now;
    if (member >= p->n_targets) {
        return;
    }
    struct target *t = &p->targets[member];
    if (!t->known || !life_equal(t->life, life)) {
        target_restart(p, t);
        end_empty_pass(p);
    }
    t->known = t->up = true;
    t->life = life;
    for (uint32_t i = 0; i < t->n_flights; i++) {
        t->flight[i].due = now;
    }
    p->look = true;
    target_wake(p, t);
}

void publish_down(struct publish *p, uint16_t member, int64_t now)
{
    p->now = now;
    if (member >= p->n_targets) {
        return;
    }
    struct target *t = &p->targets[member];
    t->up = false;
    if (t->state == TARGET_LISTING) {
        target_restart(p, t);
        end_empty_pass(p);
    }
}

/* ---- what is told ---- */

static void restart_homes(struct publish *p, const uint16_t *home, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        p->stat.overflows++;
        target_restart(p, &p->targets[home[i]]);
    }
    end_empty_pass(p);
}

/* To all homes of the key; owed: it counts as published when they have it. */
static void tell(struct publish *p, const struct publication_entry *entry, uint64_t number, bool owed)
{
    uint16_t home[HOMES_MAX];
    uint32_t n = p->list ? rendezvous_homes(p->list, rendezvous_place(&entry->key), home) : 0, in = 0;
    struct item *item = n ? item_make(entry, number) : NULL;
    if (n && !item) {
        restart_homes(p, home, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct target *t = &p->targets[home[i]];
        in += t->state != TARGET_WAIT && target_push(p, t, item);
    }
    if (owed && in == n && n) {
        item->owed = n;
    }
    item_release(item);
    end_empty_pass(p);
}

int64_t publish_tell(struct publish *p, const struct publication_entry *entry, int64_t now)
{
    p->now = now;
    if (!publication_entry_good(entry)) {
        return -EINVAL;
    }
    p->stat.told = ++p->number;
    tell(p, entry, p->number, entry->kind != PUBLICATION_GONE);
    return (int64_t)p->number;
}

int publish_renew(struct publish *p, const struct publication_entry *entry, int64_t now)
{
    p->now = now;
    if (!publication_entry_good(entry) || entry->kind != PUBLICATION_OBJECT || entry->fresh) {
        return -EINVAL;
    }
    tell(p, entry, p->number + 1, false); /* as list_one: it may stand behind what was listed */
    return 0;
}

/* To the homes of the key that take part in the pass. The number is the next one's: a home that has something told
 * since at its head has this. */
static void list_one(struct publish *p, const struct publication_entry *entry)
{
    uint16_t home[HOMES_MAX];
    uint32_t n = rendezvous_homes(p->list, rendezvous_place(&entry->key), home);
    struct item *item = NULL;
    for (uint32_t i = 0; i < n; i++) {
        struct target *t = &p->targets[home[i]];
        if (t->state != TARGET_LISTING) {
            continue;
        }
        item = item ? item : item_make(entry, p->number + 1);
        if (!item) {
            restart_homes(p, &home[i], 1);
        } else if (target_push(p, t, item)) {
            p->stat.listed++;
        }
    }
    item_release(item);
}

int publish_listed(struct publish *p, uint64_t pass, const struct publication_entry *entries, uint32_t n, bool end,
                   int64_t now)
{
    p->now = now;
    if (!p->passing || pass != p->pass || !p->asked) {
        return 0;
    }
    if (n > PUBLISH_STEP) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!publication_entry_good(&entries[i]) || entries[i].kind == PUBLICATION_GONE) {
            return -EINVAL;
        }
    }
    p->asked = false;
    for (uint32_t i = 0; i < n; i++) {
        list_one(p, &entries[i]);
    }
    for (uint32_t i = 0; end && i < p->n_targets; i++) {
        struct target *t = &p->targets[i];
        if (t->state == TARGET_LISTING) {
            t->state = TARGET_LISTED;
            t->complete_at = t->tail;
            target_wake(p, t);
        }
    }
    end_empty_pass(p);
    return 0;
}

/* ---- answers and time ---- */

int publish_answered(struct publish *p, uint16_t member, const struct publication_answer *answer, int64_t now)
{
    p->now = now;
    return member < p->n_targets ? target_answered(p, &p->targets[member], answer) : -EINVAL;
}

/* The home may have lost the stream without another life: its list dropped this owner for a while. */
static bool unheard(const struct publish *p, const struct target *t)
{
    const struct flight *f = &t->flight[0];
    return t->up && t->n_flights && !f->answered && f->tries >= PUBLISH_TRIES && f->due <= p->now;
}

void publish_tick(struct publish *p, int64_t now)
{
    p->now = now;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        struct target *t = &p->targets[i];
        if ((t->state == TARGET_PARTIAL && t->retry_at <= now) || unheard(p, t)) {
            target_restart(p, t);
        }
        target_wake(p, t);
    }
    end_empty_pass(p);
}

int64_t publish_timer(const struct publish *p)
{
    int64_t at = INT64_MAX;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        const struct target *t = &p->targets[i];
        if (t->state == TARGET_PARTIAL && t->retry_at < at) {
            at = t->retry_at;
        }
        for (uint32_t j = 0; t->up && j < t->n_flights; j++) {
            if (!t->flight[j].answered && t->flight[j].due < at) {
                at = t->flight[j].due;
            }
        }
    }
    return at;
}

/* ---- commands ---- */

static void begin_pass(struct publish *p)
{
    if (p->held || !p->look) {
        return;
    }
    p->look = false;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        struct target *t = &p->targets[i];
        if (t->state == TARGET_WAIT && t->up) {
            target_begin(p, t);
            p->passing = true;
        }
    }
    if (p->passing) {
        p->pass++;
        p->stat.passes++;
        p->starting = true;
        p->asked = false;
    }
}

/* Half of a queue is for what is told meanwhile. */
static bool has_room(const struct publish *p)
{
    for (uint32_t i = 0; i < p->n_targets; i++) {
        const struct target *t = &p->targets[i];
        if (t->state == TARGET_LISTING && t->tail - t->head + PUBLISH_STEP > p->config.queue_entries / 2) {
            return false;
        }
    }
    return true;
}

static const struct publish_command *list_command(struct publish *p)
{
    if (!p->passing) {
        begin_pass(p);
    }
    if (!p->passing || p->asked || !has_room(p)) {
        return NULL;
    }
    p->asked = true;
    p->command =
        (struct publish_command){.kind = PUBLISH_LIST, .pass = p->pass, .start = p->starting, .most = PUBLISH_STEP};
    p->starting = false;
    return &p->command;
}

static void leave_line(struct publish *p)
{
    struct target *t = &p->targets[p->first];
    p->first = t->behind;
    t->ready = false;
}

/* Who is in front retires all that was acknowledged, then sends one batch and goes to the end of the line. */
const struct publish_command *publish_command(struct publish *p)
{
    for (;;) {
        uint16_t member = p->first;
        struct target *t = member == MEMBER_NONE ? NULL : &p->targets[member];
        while (t && target_retirable(t)) {
            if (target_retire(p, t)) {
                return &p->command;
            }
        }
        const struct publish_command *c = list_command(p);
        if (c || !t) {
            return c;
        }
        leave_line(p);
        c = target_send(p, member);
        if (c) {
            target_wake(p, t);
            return c;
        }
    }
}

/* ---- state ---- */

bool publish_settled(const struct publish *p)
{
    return p->list && p->unheard == 0;
}

bool publish_done(const struct publish *p, uint64_t place, int64_t number)
{
    uint16_t home[HOMES_MAX];
    uint32_t n = p->list ? rendezvous_homes(p->list, place, home) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct target *t = &p->targets[home[i]];
        if (t->state != TARGET_CURRENT || t->refused ||
            (t->head < t->tail && target_queued(t, t->head)->item->number <= (uint64_t)number)) {
            return false;
        }
    }
    return n > 0 && publish_settled(p) && number > 0 && (uint64_t)number <= p->number;
}

void publish_stat(const struct publish *p, struct publish_stat *out)
{
    *out = p->stat;
    out->members = p->n_targets;
    out->current = 0;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        out->current += p->targets[i].state == TARGET_CURRENT;
    }
}

static const char *check_target(const struct publish *p, const struct target *t)
{
    if (t->head > t->sent || t->sent > t->tail || t->tail - t->head > t->room || t->room > p->config.queue_entries) {
        return "a queue's marks are out of order";
    }
    uint64_t at = t->n_flights && t->head > t->flight[0].first ? t->flight[0].first : t->head;
    for (uint32_t i = 0; i < t->n_flights; i++) {
        if (t->flight[i].first != at) {
            return "batches under way have a gap";
        }
        at += t->flight[i].n;
    }
    if (at != t->sent) {
        return "batches under way don't end where sending goes on";
    }
    if ((t->state == TARGET_WAIT) != (t->stream == 0) || (t->state == TARGET_WAIT && (t->tail || t->n_flights))) {
        return "a member that waits for a pass has a queue";
    }
    for (at = t->head + 1; at < t->tail; at++) {
        if (target_queued(t, at)->item->number < target_queued(t, at - 1)->item->number) {
            return "numbers of a queue fall";
        }
    }
    if (!t->ready && (target_retirable(t) || target_sendable(p, t))) {
        return "a member has something to do and is not in the line";
    }
    return t->state == TARGET_LISTING && !p->passing ? "a member is listed to and no pass runs" : NULL;
}

const char *publish_check(const struct publish *p)
{
    uint64_t queued = 0;
    uint32_t unheard = 0;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        const char *why = check_target(p, &p->targets[i]);
        unheard += !p->targets[i].heard;
        if (why) {
            return why;
        }
        queued += p->targets[i].tail - p->targets[i].head;
    }
    if (unheard != p->unheard) {
        return "members that heard are miscounted";
    }
    return queued == p->stat.queued ? NULL : "queued entries are miscounted";
}

/* ---- a node that was away ---- */

enum absence publish_absence(int64_t away_ns, int64_t tombstone_ns, uint32_t others)
{
    return others > 0 && (away_ns < 0 || away_ns > tombstone_ns) ? ABSENCE_LONG : ABSENCE_SHORT;
}

enum unlisted publish_confirm(const struct home_answer *answer, struct object_version own, bool replaceable,
                              uint16_t self, uint32_t missing, bool last)
{
    struct object_version removed = answer->removed;
    if (removed.counter && !version_less(removed, own)) {
        return UNLISTED_DROP;
    }
    for (uint32_t i = 0; answer->kind == ANSWER_FOUND && i < answer->n; i++) {
        struct object_version v = answer->at[i].version;
        if (answer->at[i].member == self) {
            continue;
        }
        if (replaceable && version_less(own, v)) {
            return UNLISTED_DROP;
        }
        if (!replaceable || version_equal(own, v)) {
            return UNLISTED_KEEP;
        }
    }
    return last || (missing == 0 && !answer->everyone) ? UNLISTED_DROP : UNLISTED_WAIT;
}

void publish_release(struct publish *p, int64_t now)
{
    p->held = false;
    p->look = true;
    p->now = now;
}
