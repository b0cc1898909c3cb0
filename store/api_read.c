/* api_read.c: get, get_many, prefix, exists, release. */
#include "store/await.h"
#include "store/pull.h"
#include "store/read.h"
#include "store/remote.h"

#include <errno.h>
#include <string.h>

#define KEYS_MAX 65536u
#define GROUP_TRIES 64u
#define GET_FLAGS (BERTH_VERIFY | BERTH_NO_TOUCH | BERTH_LOCAL | BERTH_WAIT | BERTH_PEERS | BERTH_FRESH)
#define MANY_FLAGS (GET_FLAGS | BERTH_SAME_GROUP)
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

static int check_flags(unsigned flags, unsigned allowed)
{
    if (flags & ~allowed) {
        return berth_fail(-EINVAL, "flag 0x%x is not known here: leave it out", flags & ~allowed);
    }
    return pull_check_flags(flags);
}

/* ---- one key ---- */

static inline bool bad_get(struct berth *b, const struct berth_key *key, const void *out, unsigned flags)
{
    return !b || !client_lives(b) || !key->data || key->size - 1 >= BERTH_KEY_MAX || !out || (flags & ~GET_FLAGS) ||
           !pull_flags_agree(flags);
}

static int refuse_get(struct berth *b, const struct berth_key *key, unsigned flags)
{
    int rc = client_check_key(b, key);
    rc = rc ? rc : check_flags(flags, GET_FLAGS);
    return rc ? rc : berth_fail(-EINVAL, "no place for the result was given");
}

int read_check_get(struct berth *b, const struct berth_key *key, const void *out, unsigned flags)
{
    return bad_get(b, key, out, flags) ? refuse_get(b, key, flags) : 0;
}

/* Who waits wants to know that there is no node to wait for; to others what can't be found is not there. */
static int fail_get(struct berth *b, struct client_thread *t, unsigned flags, int rc)
{
    rc = rc == BERTH_ENODE && !(flags & (BERTH_WAIT | BERTH_PEERS)) ? -ENOENT : rc;
    if (rc != -ENOENT || !(flags & READ_LOOK)) {
        read_count_missed(b, t);
    }
    if ((flags & BERTH_PEERS) && (rc == BERTH_EFULL || rc == -ETIMEDOUT) && t->room[0]) {
        return client_fail_full(rc, t->room);
    }
    return flags & BERTH_PEERS ? berth_fail_asked(rc) : berth_fail_plain(rc);
}

/* After a miss: until it is there, or the node says why it will not be. */
static __attribute__((noinline)) int await_pin(struct berth *b, struct client_thread *t, const struct berth_key *key,
                                               const struct wanted *w, int64_t deadline, struct found *f)
{
    uint8_t state;
    uint32_t taken;
    int rc = -ENOENT;
    if (deadline <= BERTH_NOW) {
        return rc;
    }
    while (rc == -ENOENT) { /* again, where it went between the node's answer and the look */
        rc = await_keys(b, key, NULL, 1, 0, deadline, &state, &taken);
        rc = rc ? rc : await_error(state);
        rc = rc ? rc : read_pin_slowly(b, t, w, deadline, f);
    }
    return rc;
}

/* After a miss, or at once where the newest is wanted: from peers into this pool, and pinned here. */
static __attribute__((noinline)) int peers_pin(struct berth *b, struct client_thread *t, const struct berth_key *key,
                                               const struct wanted *w, unsigned flags, int64_t deadline,
                                               struct found *f, bool *pulled)
{
    for (unsigned i = 0; i < PULL_TRIES; i++) {
        int rc = pull_key(b, key, flags, deadline);
        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
        int here = read_pin_slowly(b, t, w, deadline, f);
        *pulled = *pulled || rc == 0;
        if (here != -ENOENT || rc < 0) {
            return here; /* which a put of this node may have brought meanwhile */
        }
    }
    return BERTH_ENOTNOW;
}

/* Pinned and accepted, or the error. */
static inline int pin_one(struct berth *b, struct client_thread *t, const struct berth_key *key, unsigned flags,
                          int64_t deadline, struct found *f)
{
    struct wanted w;
    bool pulled = flags & READ_PULLED;
    find_start(&b->lookup, &w, key);
    if (__builtin_expect(read_refused(b), 0)) {
        return berth_fail_plain(BERTH_EQUOTA);
    }
    if (__builtin_expect((flags & BERTH_FRESH) || find_pin_walk(b, t, &w, f) != STEP_DONE, 0)) {
        t->room[0] = 0;
        int rc = flags & BERTH_FRESH ? -ENOENT : read_pin_slowly(b, t, &w, deadline, f);
        if (rc == -ENOENT && (flags & BERTH_PEERS)) {
            rc = peers_pin(b, t, key, &w, flags, deadline, f, &pulled);
        } else if (rc == -ENOENT && (flags & BERTH_WAIT)) {
            rc = await_pin(b, t, key, &w, deadline, f);
        }
        if (rc) {
            rc = fail_get(b, t, flags, rc);
            bool nobody = rc == -ETIMEDOUT && (flags & BERTH_PEERS) && deadline <= BERTH_NOW;
            return nobody ? pull_fail_now() : rc;
        }
    }
    int rc = read_accept(b, t, *f, flags);
    if (__builtin_expect(rc != 0, 0)) {
        pin_drop(b, t, f->entry);
        return fail_get(b, t, flags, rc);
    }
    if (__builtin_expect(!b->unmeasured, 1)) {
        stat_add(b, t, pulled ? LANE_PULLED : LANE_HITS, 1);
        stat_add(b, t, pulled ? LANE_PULLED_BYTES : LANE_HIT_BYTES, find_header(&b->lookup, f->slot)->size);
    }
    if (!(flags & BERTH_NO_TOUCH)) {
        touch_one(b, t, f->slot);
    }
    return 0;
}

int read_pin(struct berth *b, struct client_thread *t, const struct berth_key *key, unsigned flags, int64_t deadline,
             struct found *f)
{
    return pin_one(b, t, key, flags, deadline, f);
}

static int get_one(struct berth *b, struct client_thread *t, const struct berth_key *key, struct berth_view *view,
                   unsigned flags, int64_t deadline)
{
    struct found f;
    int rc = pin_one(b, t, key, flags, deadline, &f);
    if (rc == 0) {
        read_view(b, find_header(&b->lookup, f.slot), f, view);
    }
    return rc;
}

int read_get(struct berth *b, const struct berth_key *key, struct berth_view *view, unsigned flags, unsigned count,
             int64_t deadline)
{
    int rc = read_check_get(b, key, view, flags);
    if (rc) {
        return rc;
    }
    struct client_thread *t = thread_self();
    touch_adopt(b, t);
    return get_one(b, t, key, view, flags | count, deadline);
}

/* Every STAT_TURNS turns of a thread, or so many gets of one that shares its lane. */
static bool is_sample(const struct berth *b, struct client_thread *t)
{
    if (t->handle != b) {
        return ++t->turns % (STAT_TURNS * THREAD_TURN) == 0 && !b->unmeasured;
    }
    bool sample = t->fast != b && !b->unmeasured;
    t->fast = b;
    return sample;
}

/* Everything that a get can meet. */
static __attribute__((noinline)) int get_whole(struct berth *b, struct berth_key key, struct berth_view *view,
                                               unsigned flags, int64_t deadline)
{
    if (bad_get(b, &key, view, flags)) {
        return refuse_get(b, &key, flags);
    }
    struct client_thread *t = thread_self();
    touch_adopt(b, t);
    if (!is_sample(b, t)) {
        return get_one(b, t, &key, view, flags, deadline);
    }
    int64_t start = client_now();
    int rc = get_one(b, t, &key, view, flags, deadline);
    stat_get_ns(b, t, client_now() - start);
    return rc;
}

/* After a get that was the last of its thread's turn. */
static __attribute__((noinline)) int end_turn(struct berth *b, struct client_thread *t)
{
    (void)touch_tell(b, t);
    client_look(b);
    if (++t->turns % STAT_TURNS == 0) {
        t->fast = THREAD_NOBODY;
    }
    return 0;
}

/* What nearly every get is: a short key, the first entry with its tag, nothing to wait for; whatever is not so begins
 * again in get_whole. It makes no call and does as little as it can: the reads of the next get begin, out of order,
 * while those of this one are under way, if both fit the CPU's window. */
__attribute__((flatten)) int berth_get(struct berth *b, struct berth_key key, struct berth_view *view, unsigned flags,
                                       int64_t deadline)
{
    struct client_thread *t = &client_thread;
    if (unlikely(t->fast != b) || unlikely(client_life(b) != LIFE_LIVE) || unlikely(!key.data) || unlikely(!view) ||
        unlikely(key.size - 1 >= KEY_INLINE) || unlikely(flags & ~BERTH_LOCAL) || unlikely(read_refused(b))) {
        return get_whole(b, key, view, flags, deadline);
    }
    const struct lookup *l = &b->lookup;
    struct wanted w;
    find_start(l, &w, &key);
    uint32_t slot = find_first(l, &w), entry = t->cursor;
    const struct slot_header *h = find_header(l, slot);
    find_prefetch(h);
    if (unlikely(slot == SLOT_NONE) || unlikely(!pin_below(b, entry)) || unlikely(!pin_try(b, entry, slot))) {
        return get_whole(b, key, view, flags, deadline);
    }
    bool good = word_state(slot_load(h)) == SLOT_READY && !atomic_load_explicit(&h->group, memory_order_acquire) &&
                find_same_short(h, &w) && read_plain(b, h);
    if (unlikely(!good)) {
        pin_drop(b, t, entry);
        return get_whole(b, key, view, flags, deadline);
    }
    read_view(b, h, (struct found){.slot = slot, .entry = entry}, view);
    if (likely(!b->unmeasured)) {
        stat_hit(b, t, h->size);
    }
    uint32_t n = t->n++;
    t->touch[n] = slot + 1;
    return unlikely(n == THREAD_TURN - 1) ? end_turn(b, t) : likely(!touch_asked(b, t)) ? 0 : touch_tell(b, t);
}

static inline void release_one(struct berth *b, struct client_thread *t, struct berth_view *v)
{
    uint32_t entry = v->entry;
    if (likely(v->data != NULL) && likely(entry < PINS_CAPACITY)) {
        v->data = NULL;
        pin_drop(b, t, entry);
    }
}

void berth_release(struct berth *b, struct berth_view *v, size_t n)
{
    if (unlikely(!b) || unlikely(!v) || unlikely(client_life(b) == LIFE_FORKED)) {
        return;
    }
    struct client_thread *t = &client_thread;
    if (likely(n == 1)) {
        release_one(b, t, v);
        return;
    }
    while (n-- > 0) { /* backwards: the thread's next pin takes the first entry again */
        release_one(b, t, &v[n]);
    }
}

/* ---- many keys ---- */

static int check_many(const struct berth_key *keys, size_t n, const void *out, unsigned flags, unsigned allowed)
{
    int rc = check_flags(flags, allowed);
    if (rc) {
        return rc;
    }
    if (n > KEYS_MAX || (n && (!keys || !out))) {
        return berth_fail(-EINVAL, "%zu keys in one call: at most %u, and none of the arrays may be NULL", n, KEYS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        if (!keys[i].data || keys[i].size - 1 >= BERTH_KEY_MAX) {
            return berth_fail(-EINVAL, "key %zu has %u bytes: 1 to %u are possible", i, keys[i].size, BERTH_KEY_MAX);
        }
    }
    return 0;
}

/* In a replaceable namespace members of one seal have one version; elsewhere equal keys mean equal bytes, whichever
 * seal they came with (PROTOCOLS rule 13). */
static bool one_group(const struct berth *b, const struct berth_key *keys, const struct berth_view *v, size_t n)
{
    uint64_t counter = 0;
    for (size_t i = 0; i < n; i++) {
        if (!v[i].data || client_keeps(b, keys[i].ns)) {
            continue;
        }
        if (counter && v[i].version.counter != counter) {
            return false;
        }
        counter = v[i].version.counter;
    }
    return true;
}

/* Pins one batch into v; the first failure of `run` ends it. How many were pinned; *end where the run ended, n if not.
 */
static uint32_t pin_views(struct berth *b, struct client_thread *t, const struct berth_key *keys, uint32_t n,
                          unsigned flags, int64_t deadline, bool run, struct berth_view *v, int *why)
{
    struct found f[READ_BATCH];
    int status[READ_BATCH];
    read_pin_batch(b, t, keys, n, deadline, f, status);
    uint32_t pinned = 0;
    bool ended = false;
    for (uint32_t i = 0; i < n; i++) {
        int rc = status[i];
        if (rc == 0 && (ended || (rc = read_accept(b, t, f[i], flags)) != 0)) {
            pin_drop(b, t, f[i].entry);
        }
        if (ended) {
            continue;
        }
        if (rc == 0) {
            read_view(b, find_header(&b->lookup, f[i].slot), f[i], &v[i]);
            pinned++;
            continue;
        }
        *why = rc;
        if (run) {
            ended = true;
        } else {
            v[i] = (struct berth_view){.status = rc == BERTH_ENODE ? -ENOENT : rc};
        }
    }
    return pinned;
}

static long pin_run(struct berth *b, struct client_thread *t, const struct berth_key *keys, size_t n, unsigned flags,
                    int64_t deadline, struct berth_view *v, int *why)
{
    size_t got = 0;
    *why = 0;
    while (got < n && *why == 0) {
        uint32_t part = n - got < READ_BATCH ? (uint32_t)(n - got) : READ_BATCH;
        got += pin_views(b, t, keys + got, part, flags, deadline, true, v + got, why);
    }
    if (*why == BERTH_EPINS || *why == -ENOMEM) {
        berth_release(b, v, got);
        return *why;
    }
    return (long)got;
}

/* Waits for keys[got .. n), as many as one message takes. One that was given up ends the run before it: *n. *last: the
 * time is up. */
static int await_run(struct berth *b, const struct berth_key *keys, size_t got, size_t *n, int64_t deadline, bool *last)
{
    uint8_t state[AWAIT_KEYS];
    uint32_t taken, part = *n - got < AWAIT_KEYS ? (uint32_t)(*n - got) : AWAIT_KEYS;
    int rc = await_keys(b, keys + got, NULL, part, MSG_WAIT_RUN, deadline, state, &taken);
    bool open = false;
    for (uint32_t i = 0; rc == 0 && i < taken; i++) {
        open |= state[i] == WAIT_OPEN;
        if (state[i] == WAIT_ABORTED || state[i] == WAIT_DIED) {
            *n = got + i;
            return 0;
        }
    }
    *last = open;
    return rc;
}

/* The run as far as it goes here, then what peers have of the rest, a message at a time. */
static long peers_prefix(struct berth *b, struct client_thread *t, const struct berth_key *keys, size_t n,
                         unsigned flags, int64_t deadline, struct berth_view *v, struct read_brought *brought)
{
    size_t got = 0, pulled = 0; /* keys[0, pulled) have been pulled */
    unsigned tries = 0;
    for (;;) {
        struct msg_pulled result[MSG_PULL_KEYS];
        size_t end = flags & BERTH_FRESH ? pulled : n;
        uint32_t taken = 0, more = 0;
        int why = 0;
        long run = pin_run(b, t, keys + got, end - got, flags, deadline, v + got, &why);
        got += run > 0 ? (size_t)run : 0;
        tries += got < pulled; /* gone again */
        if (run < 0 || got == n || (why && why != -ENOENT) || tries > PULL_TRIES) {
            return run < 0 ? berth_fail_plain((int)run) : (long)got;
        }
        int rc = pull_keys(b, keys + got, NULL, (uint32_t)(n - got < MSG_PULL_KEYS ? n - got : MSG_PULL_KEYS), flags,
                           true, deadline, result, &taken);
        if (rc && rc != -ETIMEDOUT) {
            berth_release(b, v, got);
            return berth_fail_plain(rc);
        }
        while (rc == 0 && more < taken && result[more].status >= 0) {
            brought->n += result[more].status == 0;
            brought->bytes += result[more].status == 0 ? result[more].size : 0;
            more++;
        }
        pulled = got + more;
        n = more < taken ? pulled : n;
        if (got == n) {
            return (long)got;
        }
    }
}

static long pin_prefix(struct berth *b, struct client_thread *t, const struct berth_key *keys, size_t n, unsigned flags,
                       int64_t deadline, struct berth_view *v, struct read_brought *brought)
{
    size_t got = 0;
    bool last = !(flags & BERTH_WAIT) || deadline <= BERTH_NOW;
    if (n == 0) {
        return 0; /* keys may be NULL */
    }
    if (flags & BERTH_PEERS) {
        return peers_prefix(b, t, keys, n, flags, deadline, v, brought);
    }
    for (;;) {
        int why;
        long more = pin_run(b, t, keys + got, n - got, flags, deadline, v + got, &why);
        got += more > 0 ? (size_t)more : 0;
        int rc = more < 0 ? (int)more : 0;
        if (rc == 0 && (got == n || last || why != -ENOENT)) {
            return (long)got;
        }
        rc = rc ? rc : await_run(b, keys, got, &n, deadline, &last);
        if (rc) {
            berth_release(b, v, got);
            return berth_fail_plain(rc);
        }
    }
}

/* Of those that are not there, as many as one wait takes, from *from on: where they are. */
static uint32_t find_missing(const struct berth_view *v, size_t n, size_t *from, uint32_t *index)
{
    uint32_t count = 0;
    for (size_t i = *from; i < n && count < AWAIT_KEYS; i++) {
        if (!v[i].data && v[i].status == -ENOENT) {
            *from = count ? *from : i;
            index[count++] = (uint32_t)i;
        }
    }
    return count;
}

/* How many more there are after a wait for those that were missing. */
static size_t await_missing(struct berth *b, struct client_thread *t, const struct berth_key *keys, size_t n,
                            unsigned flags, int64_t deadline, struct berth_view *v)
{
    uint32_t index[AWAIT_KEYS], count, taken;
    uint8_t state[AWAIT_KEYS];
    size_t got = 0, from = 0;
    int rc = 0;
    while ((count = find_missing(v, n, &from, index)) > 0) {
        taken = count;
        rc = rc ? rc : await_keys(b, keys, index, count, 0, deadline, state, &taken);
        for (uint32_t i = 0; i < taken; i++) {
            uint32_t k = index[i];
            int why = 0;
            if (rc == 0 && state[i] == WAIT_READY) { /* still not there: it is among those missing again */
                got += pin_views(b, t, &keys[k], 1, flags, deadline, false, &v[k], &why);
            } else {
                v[k].status = rc ? rc : await_error(state[i]);
            }
        }
    }
    return got;
}

/* How many more there are after a pull of what is missing, a message at a time. */
static size_t pull_missing(struct berth *b, struct client_thread *t, const struct berth_key *keys, size_t n,
                           unsigned flags, int64_t deadline, struct berth_view *v, struct read_brought *brought)
{
    uint32_t index[MSG_PULL_KEYS];
    struct msg_pulled result[MSG_PULL_KEYS];
    size_t got = 0, at = 0;
    for (;;) {
        uint32_t count = 0, taken = 0;
        for (; at < n && count < MSG_PULL_KEYS; at++) {
            if (!v[at].data && v[at].status == -ENOENT) {
                index[count++] = (uint32_t)at;
            }
        }
        if (count == 0) {
            return got;
        }
        int rc = pull_keys(b, keys, index, count, flags, false, deadline, result, &taken);
        at = taken < count ? index[taken] : at;
        for (uint32_t i = 0; i < taken; i++) {
            struct berth_view *one = &v[index[i]];
            int why = rc ? rc : result[i].status < 0 ? result[i].status : 0;
            size_t more = why ? 0 : pin_views(b, t, &keys[index[i]], 1, flags, deadline, false, one, &why);
            got += more;
            if (more && result[i].status == 0) {
                brought->n++;
                brought->bytes += one->size;
            }
            one->status = more ? 0 : why ? why : BERTH_ENOTNOW;
            one->status = !more && rc == 0 && result[i].status >= 0 && why == -ENOENT ? BERTH_ENOTNOW : one->status;
        }
    }
}

static long pin_all(struct berth *b, struct client_thread *t, const struct berth_key *keys, size_t n, unsigned flags,
                    int64_t deadline, struct berth_view *v, struct read_brought *brought)
{
    size_t got = 0;
    for (size_t i = 0; i < n && (flags & BERTH_FRESH); i++) {
        v[i] = (struct berth_view){.status = -ENOENT};
    }
    for (size_t i = 0; i < n && !(flags & BERTH_FRESH); i += READ_BATCH) {
        uint32_t part = n - i < READ_BATCH ? (uint32_t)(n - i) : READ_BATCH;
        int why = 0;
        got += pin_views(b, t, keys + i, part, flags, deadline, false, v + i, &why);
    }
    if (got < n && (flags & BERTH_PEERS)) {
        got += pull_missing(b, t, keys, n, flags, deadline, v, brought);
    } else if (got < n && (flags & BERTH_WAIT) && deadline > BERTH_NOW) {
        got += await_missing(b, t, keys, n, flags, deadline, v);
    }
    return (long)got;
}

static long read_many(struct berth *b, const struct berth_key *keys, size_t n, struct berth_view *v, unsigned flags,
                      int64_t deadline, bool run)
{
    struct client_thread *t = thread_self();
    if (read_refused(b)) {
        return berth_fail_plain(BERTH_EQUOTA);
    }
    long got = 0;
    struct read_brought brought = {0};
    for (unsigned i = 0;; i++) {
        got = run ? pin_prefix(b, t, keys, n, flags, deadline, v, &brought)
                  : pin_all(b, t, keys, n, flags, deadline, v, &brought);
        if (got < 0) {
            return got;
        }
        if (!(flags & BERTH_SAME_GROUP) || one_group(b, keys, v, run ? (size_t)got : n)) {
            break;
        }
        berth_release(b, v, run ? (size_t)got : n);
        if (i == GROUP_TRIES) {
            return berth_fail_plain(BERTH_EGROUP);
        }
    }
    size_t shown = run ? (size_t)got : n;
    read_count_views(b, t, v, (size_t)got, shown, &brought);
    stat_add(b, t, LANE_MISSES, run ? (size_t)got < n : n - (size_t)got);
    if (!(flags & BERTH_NO_TOUCH)) {
        read_touch_views(b, t, v, shown, run);
    }
    return got;
}

long berth_get_many(struct berth *b, const struct berth_key *keys, size_t n, struct berth_view *v, unsigned flags,
                    int64_t deadline)
{
    int rc = client_check(b);
    rc = rc ? rc : check_many(keys, n, v, flags, MANY_FLAGS);
    if (rc) {
        return rc;
    }
    if (read_refused(b)) { /* each member says why it is not there */
        for (size_t i = 0; i < n; i++) {
            v[i] = (struct berth_view){.status = BERTH_EQUOTA};
        }
        return 0;
    }
    return read_many(b, keys, n, v, flags, deadline, false);
}

long berth_prefix(struct berth *b, const struct berth_key *keys, size_t n, struct berth_view *v, unsigned flags,
                  int64_t deadline)
{
    int rc = client_check(b);
    rc = rc ? rc : check_many(keys, n, v, flags, MANY_FLAGS);
    return rc ? rc : read_many(b, keys, n, v, flags, deadline, true);
}

long berth_exists(struct berth *b, const struct berth_key *keys, size_t n, uint8_t *present, unsigned flags)
{
    int rc = client_check_any(b);
    rc = rc ? rc : check_many(keys, n, present, flags, BERTH_LOCAL);
    if (rc) {
        return rc;
    }
    if (b->remote) {
        rc = remote_check_local(flags);
        return rc ? rc : remote_exists(b, keys, n, present);
    }
    struct client_thread *t = thread_self();
    long found = 0;
    for (size_t i = 0; i < n; i += READ_BATCH) {
        uint32_t part = n - i < READ_BATCH ? (uint32_t)(n - i) : READ_BATCH;
        read_peek_batch(b, t, keys + i, part, present + i);
        for (uint32_t k = 0; k < part; k++) {
            found += present[i + k];
        }
    }
    stat_add(b, t, LANE_EXISTS, n);
    return found;
}
