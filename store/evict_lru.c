/* evict_lru.c: least recently used, one list a slot size and share, touched deepest first.
 *
 * 16 bytes a slot: two links, then a stamp of 48 bits over the list's number in 16. Stamps come from one logical clock,
 * so that the tails of the lists can be compared: the oldest of several lists is the tail with the smallest stamp.
 *
 * Invariant: along each list from head to tail stamps fall strictly.
 */
#include "store/evict.h"

#include <stdlib.h>
#include <sys/mman.h>

#define FIRST_STAMP (UINT64_C(1) << 40)
#define GUARDED (UINT64_C(1) << 48) /* above every stamp */
#define NO_LIST 0u                  /* lists are numbered from 1, so that untouched memory means "not in the policy" */

struct lru_slot {
    uint32_t newer, older;
    uint64_t use; /* stamp << 16 | list */
};

struct lru_list {
    uint32_t pages;
    uint8_t share;
    uint32_t head, tail; /* newest, oldest */
    uint32_t count;
    uint32_t cursor; /* of one victims call */
};

struct lru {
    struct lru_slot *slot;
    size_t slot_bytes;
    uint32_t max_slots;
    struct lru_list *list; /* 1 .. n_lists */
    uint32_t n_lists, room;
    uint64_t clock;
    uint64_t guarded; /* shares */
};

static uint32_t slot_list(const struct lru *l, uint32_t slot)
{
    return (uint32_t)(l->slot[slot].use & 0xffff);
}

static uint64_t slot_stamp(const struct lru *l, uint32_t slot)
{
    return l->slot[slot].use >> 16;
}

static void lru_destroy(void *p)
{
    struct lru *l = p;
    if (l) {
        munmap(l->slot, l->slot_bytes);
        free(l->list);
        free(l);
    }
}

static void *lru_create(uint32_t max_slots, const struct evict_env *env)
{
    (void)env;
    struct lru *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    l->max_slots = max_slots;
    l->clock = FIRST_STAMP;
    l->slot_bytes = (size_t)max_slots * sizeof *l->slot;
    /* Reserved, not allocated: pages come with the first slot of each. */
    l->slot = mmap(NULL, l->slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (l->slot == MAP_FAILED) {
        free(l);
        return NULL;
    }
    return l;
}

static uint32_t list_of(struct lru *l, uint32_t pages, uint8_t share)
{
    for (uint32_t i = 1; i <= l->n_lists; i++) {
        if (l->list[i].pages == pages && l->list[i].share == share) {
            return i;
        }
    }
    if (l->n_lists + 1 >= UINT16_MAX) {
        return NO_LIST;
    }
    if (l->n_lists + 1 >= l->room) {
        uint32_t room = l->room ? l->room * 2 : 16;
        struct lru_list *list = realloc(l->list, room * sizeof *list);
        if (!list) {
            return NO_LIST;
        }
        l->list = list;
        l->room = room;
    }
    l->n_lists++;
    l->list[l->n_lists] = (struct lru_list){.pages = pages, .share = share, .head = SLOT_NONE, .tail = SLOT_NONE};
    return l->n_lists;
}

static void unlink_slot(struct lru *l, uint32_t slot)
{
    struct lru_slot *s = &l->slot[slot];
    struct lru_list *list = &l->list[slot_list(l, slot)];
    *(s->newer == SLOT_NONE ? &list->head : &l->slot[s->newer].older) = s->older;
    *(s->older == SLOT_NONE ? &list->tail : &l->slot[s->older].newer) = s->newer;
    list->count--;
}

static void push_newest(struct lru *l, uint32_t slot, uint32_t list)
{
    struct lru_slot *s = &l->slot[slot];
    struct lru_list *q = &l->list[list];
    *s = (struct lru_slot){.newer = SLOT_NONE, .older = q->head, .use = ++l->clock << 16 | list};
    *(q->head == SLOT_NONE ? &q->tail : &l->slot[q->head].newer) = slot;
    q->head = slot;
    q->count++;
}

static void lru_insert(void *p, uint32_t slot, const struct evict_hint *hint)
{
    struct lru *l = p;
    uint32_t list = list_of(l, hint->pages, hint->share);
    if (list != NO_LIST) {
        push_newest(l, slot, list);
    }
}

static void lru_touch(void *p, const uint32_t *slots, uint32_t n, uint64_t request)
{
    (void)request;
    struct lru *l = p;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = slots[i] & ~TOUCH_CHILD, list = slot < l->max_slots ? slot_list(l, slot) : NO_LIST;
        if (list != NO_LIST) {
            unlink_slot(l, slot);
            push_newest(l, slot, list);
        }
    }
}

static void lru_remove(void *p, uint32_t slot)
{
    struct lru *l = p;
    if (slot_list(l, slot) != NO_LIST) {
        unlink_slot(l, slot);
        l->slot[slot].use = NO_LIST;
    }
}

static void lru_link(void *p, uint32_t slot, uint64_t parent)
{
    (void)p;
    (void)slot;
    (void)parent;
}

static bool lru_may(void *p, uint32_t slot)
{
    (void)p;
    (void)slot;
    return true;
}

/* Of the next one of a list: what is guarded comes after all that is not. */
static uint64_t turn_of(const struct lru *l, const struct lru_list *q)
{
    return slot_stamp(l, q->cursor) | (l->guarded >> q->share & 1 ? GUARDED : 0);
}

static struct lru_list *next_list(struct lru *l, uint32_t pages)
{
    struct lru_list *best = NULL;
    for (uint32_t i = 1; i <= l->n_lists; i++) {
        struct lru_list *q = &l->list[i];
        if ((pages == 0 || q->pages == pages) && q->cursor != SLOT_NONE &&
            (!best || turn_of(l, q) < turn_of(l, best))) {
            best = q;
        }
    }
    return best;
}

static uint32_t lru_victims(void *p, uint32_t pages, uint32_t *out, uint32_t max)
{
    struct lru *l = p;
    uint32_t n = 0;
    for (uint32_t i = 1; i <= l->n_lists; i++) {
        l->list[i].cursor = l->list[i].tail;
    }
    for (struct lru_list *q; n < max && (q = next_list(l, pages)); n++) {
        out[n] = q->cursor;
        q->cursor = l->slot[q->cursor].newer;
    }
    return n;
}

static void lru_guard(void *p, uint64_t shares)
{
    struct lru *l = p;
    l->guarded = shares;
}

/* Below the oldest of its size: stamps begin so high that there is room for it. */
static void lru_expire(void *p, uint32_t slot)
{
    struct lru *l = p;
    uint32_t list = slot_list(l, slot);
    struct lru_list *q = &l->list[list];
    if (list == NO_LIST || q->tail == slot) {
        return;
    }
    unlink_slot(l, slot);
    l->slot[slot] =
        (struct lru_slot){.newer = q->tail, .older = SLOT_NONE, .use = (slot_stamp(l, q->tail) - 1) << 16 | list};
    l->slot[q->tail].older = slot;
    q->tail = slot;
    q->count++;
}

static void lru_skip(void *p, uint32_t slot)
{
    lru_touch(p, &slot, 1, 0);
}

static uint64_t lru_age(void *p, uint32_t slot)
{
    const struct lru *l = p;
    bool guarded = l->guarded >> l->list[slot_list(l, slot)].share & 1;
    return guarded ? 0 : l->clock - slot_stamp(l, slot);
}

static const char *lru_check(void *p)
{
    const struct lru *l = p;
    for (uint32_t i = 1; i <= l->n_lists; i++) {
        uint32_t n = 0, newer = SLOT_NONE;
        for (uint32_t s = l->list[i].head; s != SLOT_NONE; s = l->slot[s].older, n++) {
            if (slot_list(l, s) != i || l->slot[s].newer != newer || n >= l->list[i].count) {
                return "an eviction list is not linked both ways";
            }
            if (newer != SLOT_NONE && slot_stamp(l, s) >= slot_stamp(l, newer)) {
                return "an eviction list is not in the order of use";
            }
            newer = s;
        }
        if (n != l->list[i].count || l->list[i].tail != newer) {
            return "an eviction list's count is wrong";
        }
    }
    return NULL;
}

/* What was evicted does not matter here. */
static uint64_t lru_recall(void *p, uint64_t key, bool forget)
{
    (void)p, (void)key, (void)forget;
    return 0;
}

static void lru_remember(void *p, uint64_t key, uint64_t past)
{
    (void)p, (void)key, (void)past;
}

static bool lru_note(void *p, uint32_t slot, uint64_t past)
{
    (void)p, (void)slot, (void)past;
    return false;
}

static void lru_expect(void *p, uint32_t slots)
{
    (void)p, (void)slots; /* nothing here grows */
}

static void lru_ahead(void *p, uint64_t key)
{
    (void)p, (void)key;
}

static uint32_t lru_find(void *p, uint64_t key)
{
    (void)p, (void)key;
    return SLOT_NONE;
}

const struct evict_policy evict_lru = {
    .name = "lru",
    .slot_bytes = sizeof(struct lru_slot),
    .create = lru_create,
    .destroy = lru_destroy,
    .expect = lru_expect,
    .ahead = lru_ahead,
    .insert = lru_insert,
    .link = lru_link,
    .touch = lru_touch,
    .remove = lru_remove,
    .victims = lru_victims,
    .guard = lru_guard,
    .may = lru_may,
    .skip = lru_skip,
    .age = lru_age,
    .recall = lru_recall,
    .remember = lru_remember,
    .note = lru_note,
    .expire = lru_expire,
    .find = lru_find,
    .check = lru_check,
};
