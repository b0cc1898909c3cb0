/* whatif_sim.c: see whatif_sim.h. What it does with a request is what a client does with the node: the leading keys are
 * used in one call, the others are put in groups, and those of the request are in use while room is made. */
#include "store/whatif_sim.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BATCH 256u
#define LOOKS_MAX (WHATIF_CHAIN / BATCH + 2)

static uint64_t key_of(void *arg, uint32_t slot)
{
    const struct mini *s = arg;
    return s->key[slot];
}

static void resident(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory & -page;
    madvise((void *)from, (uintptr_t)memory + bytes - from, MADV_POPULATE_WRITE); /* else they come with their use */
}

bool mini_open(struct mini *s, const struct evict_policy *policy, uint32_t max)
{
    struct evict_env env = {.key = key_of, .arg = s};
    uint32_t chains = 1024;
    while (chains < max) {
        chains *= 2;
    }
    *s = (struct mini){.policy = policy, .max = max, .n_vacant = max, .mask = chains - 1};
    s->p = policy->create(max, &env);
    s->key = calloc(max, sizeof *s->key);
    s->pages = calloc(max, sizeof *s->pages);
    s->next = calloc(max, sizeof *s->next);
    s->vacant = calloc(max, sizeof *s->vacant);
    s->head = calloc(chains, sizeof *s->head);
    s->level = calloc(max, sizeof *s->level);
    s->pinned = calloc(max, sizeof *s->pinned);
    s->chain = calloc(WHATIF_CHAIN, sizeof *s->chain);
    if (!s->p || !s->key || !s->pages || !s->next || !s->vacant || !s->head || !s->level || !s->pinned || !s->chain) {
        return false;
    }
    /* Nobody asks for room while it grows, and a node that is close to its memory's limit has none to give. */
    policy->expect(s->p, max);
    resident(s->key, max * sizeof *s->key);
    resident(s->pages, max * sizeof *s->pages);
    resident(s->next, max * sizeof *s->next);
    resident(s->vacant, max * sizeof *s->vacant);
    resident(s->head, chains * sizeof *s->head);
    resident(s->level, max * sizeof *s->level);
    resident(s->pinned, max * sizeof *s->pinned);
    return true;
}

void mini_close(struct mini *s)
{
    if (s->p) {
        s->policy->destroy(s->p);
    }
    free(s->key);
    free(s->pages);
    free(s->next);
    free(s->vacant);
    free(s->head);
    free(s->level);
    free(s->pinned);
    free(s->chain);
}

static uint32_t *head_of(const struct mini *s, uint64_t key)
{
    return &s->head[key >> 20 & s->mask];
}

uint32_t mini_find(const struct mini *s, uint64_t key)
{
    for (uint32_t at = *head_of(s, key); at; at = s->next[at - 1]) {
        if (s->key[at - 1] == key) {
            return at - 1;
        }
    }
    return SLOT_NONE;
}

void mini_remove(struct mini *s, uint32_t slot)
{
    uint32_t *link = head_of(s, s->key[slot]);
    s->policy->remove(s->p, slot);
    while (*link != slot + 1) {
        link = &s->next[*link - 1];
    }
    *link = s->next[slot];
    s->used -= s->pages[slot];
    s->pages[slot] = 0;
    s->vacant[s->given_back++] = slot;
    s->n_vacant++;
}

/* Objects have pages, vacant slots none. */
void mini_drop_below(struct mini *s, uint8_t level)
{
    for (uint32_t i = 0; i < s->seen; i++) {
        if (s->pages[i] && s->level[i] < level) {
            mini_remove(s, i);
        }
    }
}

/* Where a request is larger than the cache all may be in use: looks that find nothing else are bounded. */
static void make_room(struct mini *s)
{
    uint32_t victim[BATCH], n = BATCH;
    for (uint32_t idle = 0; idle < LOOKS_MAX && n && s->used > s->low; idle++) {
        uint64_t want = s->used - s->low; /* pages, of which an object has one at least */
        n = s->policy->victims(s->p, 0, victim, want < BATCH && !idle ? (uint32_t)want : BATCH);
        for (uint32_t i = 0; i < n && s->used > s->low; i++) {
            if (s->pinned[victim[i]]) {
                s->policy->skip(s->p, victim[i]);
            } else if (s->policy->may(s->p, victim[i])) {
                mini_remove(s, victim[i]);
                idle = 0;
            }
        }
    }
}

/* Slots that were never used come last: their memory is not there yet. */
static uint32_t take_slot(struct mini *s)
{
    s->n_vacant--;
    return s->given_back ? s->vacant[--s->given_back] : s->seen++;
}

static void put(struct mini *s, const struct whatif_object *o, uint32_t n, uint8_t level)
{
    s->request++;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = take_slot(s), *head = head_of(s, o[i].key);
        s->key[slot] = o[i].key;
        s->pages[slot] = o[i].pages;
        s->level[slot] = level;
        s->next[slot] = *head;
        *head = slot + 1;
        s->used += o[i].pages;
        s->chain[i] = slot;
    }
    for (uint32_t i = n; i-- > 0;) { /* deepest first, as the node publishes */
        struct evict_hint h = {.parent = o[i].parent,
                               .key = o[i].key,
                               .prefix = o->parent,
                               .request = s->request,
                               .pages = o[i].pages,
                               .position = i,
                               .count = n,
                               .above = i && o[i].parent == o[i - 1].key ? s->chain[i - 1] : SLOT_NONE,
                               .priority = o[i].priority};
        s->policy->insert(s->p, s->chain[i], &h);
    }
}

static void set_pinned(struct mini *s, const struct whatif_object *o, uint32_t n, bool pinned)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = mini_find(s, o[i].key);
        if (slot != SLOT_NONE) {
            s->pinned[slot] = pinned;
        }
    }
}

static uint32_t use(struct mini *s, const struct whatif_object *o, uint32_t n, uint8_t level)
{
    uint32_t run = 0;
    for (uint32_t slot; run < n && (slot = mini_find(s, o[run].key)) != SLOT_NONE; run++) {
        s->chain[run] = slot;
        s->level[slot] = s->level[slot] > level ? s->level[slot] : level;
    }
    for (uint32_t i = 0; i < run; i++) {
        s->chain[i] |= i && o[i].parent == o[i - 1].key ? TOUCH_CHILD : 0;
    }
    for (uint32_t i = 0; i < run / 2; i++) { /* deepest first */
        uint32_t slot = s->chain[i];
        s->chain[i] = s->chain[run - 1 - i];
        s->chain[run - 1 - i] = slot;
    }
    if (run) {
        s->policy->touch(s->p, s->chain, run, ++s->request);
    }
    return run;
}

uint32_t mini_request(struct mini *s, const struct whatif_object *o, uint32_t n, uint8_t level)
{
    uint32_t run = use(s, o, n, level);
    for (uint32_t i = run, end; i < n; i = end) {
        end = i + 1;
        if (mini_find(s, o[i].key) != SLOT_NONE) {
            continue;
        }
        while (end < n && mini_find(s, o[end].key) == SLOT_NONE) {
            end++;
        }
        put(s, o + i, end - i, level);
    }
    if (s->used > s->high) {
        set_pinned(s, o, n, true);
        make_room(s);
        set_pinned(s, o, n, false);
    }
    return run;
}
