/* node_evict.c: making room (PROTOCOLS rules 4 and 32).
 *
 * In steps, each of which is: choose candidates, scan them for pins, delete those that nobody reads in the next commit,
 * retire them, scan again, free. Above the high watermark the oldest go, whatever their size, down to the low one. A
 * request that finds no slot tries its own size's oldest, or empties a window: whole slabs that become one free block.
 * Which comes first is a matter of age: a size whose oldest object is much younger than the pool's oldest takes a
 * window from the others.
 *
 * What one put evicts: at most twice its size of its own size, or a window, which is one slab of its class or the slabs
 * that overlap it.
 */
#include "store/node_internal.h"

#include <stdlib.h>

#define LOOKS_MAX 64u /* at lists of victims that are all leased */

bool scan_take(struct node *n, uint32_t slot)
{
    if (n->n_scan == n->scan_room) {
        uint32_t room = n->scan_room ? n->scan_room * 2 : 1024;
        uint32_t *p = realloc(n->scan_slots, room * sizeof *p);
        if (!p) {
            return false;
        }
        n->scan_slots = p;
        n->scan_room = room;
    }
    n->scan_slots[n->n_scan++] = slot;
    return true;
}

void scan_start(struct node *n, enum scan_kind kind)
{
    struct node_command *c = command_add(n, CMD_SCAN, 0);
    if (!c) {
        return;
    }
    n->scanning = kind;
    c->scan = ++n->scan_id;
    c->slots = n->scan_slots;
    c->n_slots = n->n_scan;
    n->counters[NODE_SCANS]++;
    n->counters[NODE_SCANNED_SLOTS] += n->n_scan;
}

static bool evictable(const struct node *n, uint32_t slot)
{
    return word_state(slot_load(header_of(n, slot))) == SLOT_READY && !busy(n, slot) && !slot_held(n, slot) &&
           !slot_leased(n, slot);
}

static uint32_t waiting_for(const struct node *n, uint32_t pages)
{
    uint32_t count = 0;
    for (const struct waiter *w = n->waiters; w; w = w->next) {
        count += w->pages == pages;
    }
    return count;
}

static void set_tried(struct node *n, uint32_t bit)
{
    for (struct waiter *w = n->waiters; w; w = w->next) {
        if (w->pages == n->scan_pages) {
            w->tried = bit ? w->tried | bit : 0;
        }
    }
}

/* ---- victims by age ---- */

static bool start_victims(struct node *n, uint32_t pages, uint64_t goal)
{
    uint32_t list[EVICT_MAX], count = EVICT_MAX;
    n->n_scan = 0;
    n->scan_guarded = shares_guard(n);
    for (uint32_t look = 0; look < LOOKS_MAX && n->n_scan == 0 && count == EVICT_MAX; look++) {
        count = n->policy->victims(n->evict, pages, list, EVICT_MAX);
        for (uint32_t i = 0; i < count; i++) {
            if (slot_leased(n, list[i])) {
                n->policy->skip(n->evict, list[i]); /* as pinned ones: others come first */
            } else if (evictable(n, list[i]) && !scan_take(n, list[i])) {
                break;
            }
        }
    }
    if (n->n_scan == 0) {
        return false;
    }
    n->scan_pages = pages;
    n->scan_goal = goal;
    scan_start(n, SCAN_VICTIMS);
    return true;
}

/* Nothing could go: everything is in use, held or new. Looked at again, ever less often. */
static void drain_later(struct node *n)
{
    n->drain_step = n->drain_step ? 2 * n->drain_step : RETRY_NS;
    if (n->drain_step > DRAIN_MAX_NS) {
        n->drain_step = DRAIN_MAX_NS;
    }
    n->drain_at = n->now.mono + n->drain_step;
}

void evict_watermark(struct node *n)
{
    uint64_t sealed = n->sealed_bytes - n->evicting;
    n->draining = sealed > (n->draining ? n->c.low_bytes : n->c.high_bytes);
    bool quiet = n->scanning == SCAN_NOTHING && n->evicting_slots == 0 && n->now.mono >= n->drain_at;
    if (n->draining && quiet && !n->stopping && !start_victims(n, 0, sealed - n->c.low_bytes)) {
        drain_later(n);
    }
}

static bool evict_slot(struct node *n, struct effect *e, uint32_t slot)
{
    uint8_t buf[KEY_MAX];
    struct key_ref key = slot_key(n, slot, buf);
    struct member m = {.slot = SLOT_NONE, .old = slot, .hash = lookup_hash(n->c.super->hash_seed, key)};
    if (pending_has(&n->pending, m.hash.home) || !member_add(n, e, &m)) {
        return false;
    }
    batch_delete(n->open->batch, key);
    mark_busy(n, slot);
    n->evicting += slot_bytes(n, slot);
    share_evicting(n, slot, true);
    n->evicting_slots++;
    return true;
}

static void victims_scanned(struct node *n, const uint64_t *pinned)
{
    struct effect *e = effect_add(n, EFFECT_EVICT, CONTROL_SESSION, NULL, n->now.mono);
    uint64_t done = 0;
    if (e) {
        e->need = n->scan_pages ? NEED_SIZE : NEED_WATERMARK;
    }
    for (uint32_t i = 0; e && i < n->n_scan && done < n->scan_goal; i++) {
        uint32_t slot = n->scan_slots[i];
        /* Above the watermark with everything else in use, what was acknowledged last still stays for a moment. */
        bool newest = n->scan_pages == 0 && header_of(n, slot)->version == n->published;
        bool kept =
            share_guarded(n, slot) && !(n->scan_guarded >> share_of_slot(n, slot) & 1); /* it comes to its share */
        if (!evictable(n, slot) || kept) {
            continue;
        }
        if (newest || scan_bit(pinned, i)) {
            n->policy->skip(n->evict, slot);
        } else if (n->policy->may(n->evict, slot) && evict_slot(n, e, slot)) {
            done += slot_bytes(n, slot);
        }
    }
    if (e && e->n == 0) {
        work_undo(n, e);
    }
    if (n->scan_pages == 0) {
        if (done) {
            n->drain_at = n->drain_step = 0;
        } else {
            drain_later(n);
        }
    } else {
        set_tried(n, done ? 0 : TRIED_CLASS);
    }
}

/* An effect of the key that is not committed yet decides over it: it is passed over then, and whoever gave the event
 * sees that the copy is still there. */
void evict_copy(struct node *n, struct key_ref key, uint64_t counter, uint64_t region)
{
    if (!key.data || key.size == 0 || key.size > KEY_MAX || n->start_status || n->stopping) {
        return;
    }
    uint32_t slot = key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
    if (slot == SLOT_NONE || busy(n, slot) || word_state(slot_load(header_of(n, slot))) != SLOT_READY ||
        header_of(n, slot)->version != counter || slot_region(n, slot) != region) {
        return;
    }
    bool held = slot_held(n, slot);
    struct effect *e = effect_add(n, EFFECT_EVICT, CONTROL_SESSION, NULL, n->now.mono);
    if (e && !evict_slot(n, e, slot)) {
        work_undo(n, e);
    } else if (e) {
        n->counters[NODE_COPIES_DROPPED]++;
        n->counters[NODE_HOLDS_LOST] += held;
    }
}

/* ---- windows ---- */

/* Takes a window for the scan if nothing in it but pins can stand in the way. guard: nor objects within a share. */
static bool take_window(struct node *n, const struct slabs_window *w, bool guard, uint32_t *passed)
{
    uint32_t first = n->n_scan;
    uint64_t cursor = 0;
    for (uint32_t slot; (slot = slabs_window_next(n->slabs, w, &cursor)) != SLOT_NONE; ++*passed) {
        bool blocks = !evictable(n, slot) || (guard && share_guarded(n, slot));
        if (blocks || n->n_scan >= WINDOW_SLOTS || !scan_take(n, slot)) {
            n->n_scan = first;
            return false;
        }
    }
    n->tries[n->n_tries++] = (struct window_try){.window = *w, .first = first, .n = n->n_scan - first};
    return true;
}

static bool seen_window(const struct node *n, const struct slabs_window *w)
{
    for (uint32_t i = 0; i < n->n_tries; i++) {
        if (n->tries[i].window.unit == w->unit) {
            return true;
        }
    }
    return false;
}

static bool start_windows(struct node *n, uint32_t pages)
{
    uint32_t list[EVICT_MAX], passed = 0;
    shares_guard(n);
    uint32_t count = n->policy->victims(n->evict, 0, list, EVICT_MAX);
    n->n_scan = n->n_tries = 0;
    n->scan_pages = pages;
    for (uint32_t i = 0; i < count; i++) {
        struct slabs_window w;
        for (uint32_t shift = 0; shift < 4 && n->n_tries < WINDOW_TRIES && passed < SWEEP_SLOTS; shift++) {
            if (slabs_window(n->slabs, list[i], pages, shift, &w) && !seen_window(n, &w)) {
                take_window(n, &w, true, &passed);
            }
        }
    }
    if (n->n_tries == 0) {
        return false;
    }
    n->scan_sweep = false;
    scan_start(n, SCAN_WINDOWS);
    return true;
}

/* Looks at every window of the pool, a bounded stretch a step. false: at the end, nothing was found. */
static bool step_sweep(struct node *n, uint32_t pages)
{
    if (!n->sweeping || n->sweep_pages != pages) {
        n->sweep = 0;
        n->sweep_last = UINT32_MAX;
        n->sweep_pages = pages;
        n->sweeping = true;
        n->pinned_seen = 0;
    }
    n->n_scan = n->n_tries = 0;
    n->scan_pages = pages;
    uint32_t slot = 0, passed = 0;
    while (n->n_tries < WINDOW_TRIES && passed < SWEEP_SLOTS && (slot = slabs_next(n->slabs, &n->sweep)) != SLOT_NONE) {
        struct slabs_window w;
        passed++;
        if (slabs_window(n->slabs, slot, pages, 0, &w) && w.unit != n->sweep_last && !seen_window(n, &w)) {
            n->sweep_last = w.unit;
            take_window(n, &w, false, &passed);
        }
    }
    n->sweeping = slot != SLOT_NONE;
    n->scan_sweep = true;
    if (n->n_tries) {
        scan_start(n, SCAN_WINDOWS);
    }
    return n->n_tries || n->sweeping;
}

static void empty_window(struct node *n, const struct window_try *t)
{
    struct effect *e = effect_add(n, EFFECT_EVICT, CONTROL_SESSION, NULL, n->now.mono);
    if (e) {
        e->need = NEED_OTHER;
    }
    for (uint32_t i = 0; e && i < t->n; i++) {
        if (evictable(n, n->scan_slots[t->first + i])) {
            evict_slot(n, e, n->scan_slots[t->first + i]);
        }
    }
    if (e && e->n == 0) {
        work_undo(n, e);
    }
    n->window = t->window;
    n->window_closed = true;
    slabs_close(n->slabs, &n->window);
    n->sweeping = false;
    set_tried(n, 0);
}

static void windows_scanned(struct node *n, const uint64_t *pinned)
{
    const struct window_try *best = NULL;
    for (uint32_t i = 0; i < n->n_tries; i++) {
        const struct window_try *t = &n->tries[i];
        bool free_of_pins = true;
        for (uint32_t k = t->first; k < t->first + t->n; k++) {
            if (scan_bit(pinned, k)) {
                free_of_pins = false;
                n->pinned_seen += slot_bytes(n, n->scan_slots[k]);
            }
        }
        best = free_of_pins && !best ? t : best; /* candidates come oldest first */
    }
    if (best) {
        empty_window(n, best);
    } else if (!n->scan_sweep) {
        set_tried(n, TRIED_WINDOWS);
    } else if (!n->sweeping) {
        set_tried(n, TRIED_SWEEP);
    }
}

void window_settle(struct node *n)
{
    if (!n->window_closed) {
        return;
    }
    uint64_t cursor = 0;
    bool empty = slabs_window_next(n->slabs, &n->window, &cursor) == SLOT_NONE;
    bool over = n->evicting_slots == 0 && n->fresh.count == 0 && n->scanning == SCAN_NOTHING;
    if (empty || over) { /* over: a reader came in between and keeps a slot; what is free may be used */
        slabs_open(n->slabs, &n->window);
        n->window_closed = false;
    }
}

void evict_scanned(struct node *n, const uint64_t *pinned)
{
    enum scan_kind kind = n->scanning;
    n->scanning = SCAN_NOTHING;
    if (kind == SCAN_VICTIMS) {
        victims_scanned(n, pinned);
    } else {
        windows_scanned(n, pinned);
    }
}

/* ---- for one request ---- */

/* The pool's oldest is of another size and more than twice as old as this size's oldest. */
static bool others_are_older(struct node *n, uint32_t pages)
{
    uint32_t mine, oldest;
    shares_guard(n);
    if (n->policy->victims(n->evict, pages, &mine, 1) == 0) {
        return true;
    }
    n->policy->victims(n->evict, 0, &oldest, 1);
    return slabs_slot_pages(n->slabs, oldest) != pages &&
           n->policy->age(n->evict, oldest) / 2 > n->policy->age(n->evict, mine);
}

static bool try_class(struct node *n, struct waiter *w)
{
    uint64_t goal = 2 * (uint64_t)waiting_for(n, w->pages) * w->pages * PAGE_BYTES;
    if (start_victims(n, w->pages, goal)) {
        return true;
    }
    w->tried |= TRIED_CLASS;
    return false;
}

bool evict_start(struct node *n, struct waiter *w)
{
    bool rescan = n->rescan && n->waiting.count;
    if (n->scanning != SCAN_NOTHING || n->evicting_slots || n->window_closed || n->fresh.count || rescan) {
        return true; /* room is on its way, or may be */
    }
    if (!(w->tried & TRIED_CLASS) && !others_are_older(n, w->pages) && try_class(n, w)) {
        return true;
    }
    if (!(w->tried & TRIED_WINDOWS)) {
        if (start_windows(n, w->pages)) {
            return true;
        }
        w->tried |= TRIED_WINDOWS;
    }
    if (!(w->tried & TRIED_CLASS) && try_class(n, w)) {
        return true;
    }
    if (!(w->tried & TRIED_SWEEP)) {
        if (step_sweep(n, w->pages)) {
            n->retry_at = n->now.mono;
            return true;
        }
        w->tried |= TRIED_SWEEP;
    }
    if (!(w->tried & TRIED_RESCAN) &&
        n->waiting.count) { /* before a refusal: readers may have let go since the last look */
        w->tried |= TRIED_RESCAN;
        n->rescan = true;
        return true;
    }
    return false;
}
