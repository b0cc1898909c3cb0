/* node_purge.c: many keys removed by lineage, namespace or prefix.
 *
 * A purge has a version. It removes what is older than that and covered: everything that was sealed, or decided to be,
 * when it came. Drafts that were open then can't be sealed any more: a flag in their headers says so, which a restart
 * of the node leaves. What comes later is newer and stays.
 *
 * First its mark is committed, so that a start goes on with it; with the mark everything that was decided before it is
 * in the index. Then a pass, in steps: each looks at a bounded number of slots (lineage: headers have it) or of records
 * (namespace and prefix are one range of the index) and deletes as many keys as one commit takes beside others' work.
 * Two steps are uncommitted at most. A key with an uncommitted effect ends the step in front of it: its commit decides
 * what it is. When all of it is committed the mark goes, and with that commit comes the answer: each key went as a
 * removed one does (commit, project, retire), so that readers keep their views and nothing is FREE under them.
 *
 * Where there are peers each key gets its removal for the homes (rule 29), at the speed at which they acknowledge: not
 * more than half of what is kept waits for them. Once nobody has acknowledged anything for PURGE_PATIENCE_NS the keys
 * go here only, and are counted: to forget others' removals instead would bring those keys back.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum outcome { WENT, PASSED, STOPPED };

static bool covers(const struct node *n, const struct purge_row *r, uint32_t slot)
{
    const struct slot_header *h = header_of(n, slot);
    uint8_t buf[KEY_MAX];
    if (r->kind == PURGE_LINEAGE) {
        return h->lineage == r->lineage;
    }
    if (r->kind == PURGE_NAMESPACE || h->ns != r->ns) {
        return h->ns == r->ns;
    }
    struct key_ref key = slot_key(n, slot, buf);
    return key.size >= r->prefix_size && memcmp(key.data, r->prefix, r->prefix_size) == 0;
}

static struct purge *find(struct node *n, uint64_t counter)
{
    uint32_t i = 0;
    while (i < n->n_purges && n->purge[i].row.counter != counter) {
        i++;
    }
    return i < n->n_purges ? &n->purge[i] : NULL;
}

bool purge_covers(const struct node *n, uint32_t slot, uint64_t counter)
{
    for (uint32_t i = 0; i < n->n_purges; i++) {
        if (counter < n->purge[i].row.counter && covers(n, &n->purge[i].row, slot)) {
            return true;
        }
    }
    return false;
}

void purge_draft(struct node *n, uint32_t slot)
{
    atomic_fetch_or_explicit(&header_of(n, slot)->flags, SLOT_PURGED, memory_order_relaxed);
    writing_lost(n, slot, WAIT_ABORTED);
}

/* ---- begin ---- */

static uint32_t flag_drafts(struct node *n, const struct purge_row *r, const struct slot_list *l)
{
    uint32_t flagged = 0;
    for (uint32_t slot = l->head; slot != SLOT_NONE; slot = n->next[slot]) {
        const struct slot_header *h = header_of(n, slot);
        uint8_t flags = atomic_load_explicit(&h->flags, memory_order_relaxed);
        if (h->key_size && !(flags & (SLOT_GRANT | SLOT_PURGED)) && covers(n, r, slot)) {
            purge_draft(n, slot);
            flagged++;
        }
    }
    return flagged;
}

/* Sent again over a new connection while it is under way: that one is answered. */
static bool asked_before(struct node *n, const struct session *s, const struct msg_head *m)
{
    for (uint32_t i = 0; (m->flags & MSG_AGAIN) && i < n->n_purges; i++) {
        if (n->purge[i].session == s->id && n->purge[i].head.id == m->id) {
            n->purge[i].connection = s->connection;
            return true;
        }
    }
    return false;
}

static bool mark(struct node *n, const struct purge_row *row)
{
    struct effect *e = effect_add(n, EFFECT_PURGE_MARK, CONTROL_SESSION, NULL, n->now.mono);
    if (e) {
        e->pend = row->counter;
        batch_purge(n->open->batch, row);
    }
    return e;
}

void request_purge(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_purge *q = (const struct msg_purge *)m;
    if (asked_before(n, s, m) || applied_before(n, s, m)) {
        return;
    }
    struct purge_row row = {.lineage = q->lineage, .kind = q->kind, .ns = q->ns, .prefix_size = q->prefix_size};
    memcpy(row.prefix, q + 1, q->prefix_size);
    int32_t status = !names_known(n, q->ns) ? -EINVAL : n->n_purges == PURGES_MAX ? -EAGAIN : 0;
    row.counter = status ? 0 : counter_next(n);
    if (status == 0 && !mark(n, &row)) {
        status = -ENOMEM;
    }
    if (status) {
        refuse(n, s->id, m, status);
        return;
    }
    session_mark_applied(n, s, m->id);
    struct purge *p = &n->purge[n->n_purges++];
    *p = (struct purge){.row = row, .session = s->id, .connection = s->connection, .head = *m};
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        p->drafts += flag_drafts(n, &row, &n->session[i]->drafts);
    }
    p->drafts += flag_drafts(n, &row, &n->orphan.drafts);
    n->counters[NODE_PURGES]++;
}

/* ---- the pass ---- */

static bool add_member(struct node *n, const struct purge *p, struct effect *e, uint32_t slot, struct key_ref key)
{
    struct member m = {.slot = SLOT_NONE, .old = slot, .hash = lookup_hash(n->c.super->hash_seed, key)};
    bool told = n->c.publish && !p->local;
    m.tomb = told ? tomb_make(key, m.hash.home, e->counter) : NULL;
    if ((told && !m.tomb) || !member_add(n, e, &m)) {
        free(m.tomb);
        return false;
    }
    if (m.tomb) {
        tomb_write(n, m.tomb); /* before the delete, as with any removal */
    }
    batch_delete(n->open->batch, key);
    mark_busy(n, slot);
    return true;
}

static enum outcome look_at(struct node *n, struct purge *p, struct effect *e, uint32_t slot)
{
    uint8_t buf[KEY_MAX];
    const struct slot_header *h = header_of(n, slot);
    if (word_state(slot_load(h)) != SLOT_READY || h->version >= p->row.counter || !covers(n, &p->row, slot)) {
        return PASSED;
    }
    struct key_ref key = slot_key(n, slot, buf);
    if (busy(n, slot) || pending_has(&n->pending, lookup_hash(n->c.super->hash_seed, key).home)) {
        p->stopped = true;
        return STOPPED;
    }
    if (slot_held(n, slot)) {
        p->held++;
        return PASSED;
    }
    return e->n < PURGE_STEP && add_member(n, p, e, slot, key) ? WENT : STOPPED;
}

/* true: at the end. */
static bool walk_slots(struct node *n, struct purge *p, struct effect *e)
{
    for (uint32_t looked = 0; looked < PURGE_LOOKS; looked++) {
        uint64_t before = p->cursor;
        uint32_t slot = slabs_next(n->slabs, &p->cursor);
        if (slot == SLOT_NONE) {
            return true;
        }
        if (look_at(n, p, e, slot) == STOPPED) {
            p->cursor = before;
            return false;
        }
    }
    return false;
}

struct range {
    struct node *n;
    struct purge *p;
    struct effect *e;
    uint32_t looked;
};

static int each_record(void *arg, struct key_ref key, const struct record *r)
{
    struct range *w = arg;
    if (w->looked++ == PURGE_LOOKS) {
        return 1;
    }
    bool here = r->slot < w->n->max_headers && word_gen(slot_load(header_of(w->n, r->slot))) == r->generation;
    if (here && look_at(w->n, w->p, w->e, r->slot) == STOPPED) {
        return 1;
    }
    memcpy(w->p->after, key.data, key.size);
    w->p->after_size = key.size;
    return 0;
}

static bool walk_records(struct node *n, struct purge *p, struct effect *e)
{
    struct range w = {.n = n, .p = p, .e = e};
    uint8_t after[KEY_MAX]; /* the walk reads it while the callback moves on */
    memcpy(after, p->after, p->after_size);
    int rc =
        n->c.index->list(n->c.ix, p->row.ns, p->row.prefix, p->row.prefix_size, after, p->after_size, each_record, &w);
    if (rc < 0) {
        node_log(n, 0, "a purge can't read the index, and what it has not come to stays: %s", berth_error_text(rc));
        p->status = rc;
    }
    return rc <= 0;
}

/* How the removals of the next step are kept, or false: not yet. */
static bool may_step(struct node *n, struct purge *p)
{
    p->local = false;
    if (!n->c.publish || !tombs_crowded(n)) {
        p->patience = 0;
        return true;
    }
    uint32_t waiting = n->tombs.waiting.count;
    if (p->patience == 0 || waiting < p->crowd) {
        p->patience = n->now.mono + PURGE_PATIENCE_NS;
    }
    p->crowd = waiting;
    p->local = n->now.mono >= p->patience;
    p->at = p->local ? 0 : n->now.mono + RETRY_NS;
    return p->local;
}

static void step(struct node *n, struct purge *p)
{
    struct effect *e = effect_add(n, EFFECT_PURGE, CONTROL_SESSION, NULL, n->now.mono);
    if (!e) {
        p->at = n->now.mono + RETRY_NS;
        return;
    }
    e->pend = p->row.counter;
    e->counter = counter_next(n);
    p->stopped = false;
    p->passed = p->row.kind == PURGE_LINEAGE ? walk_slots(n, p, e) : walk_records(n, p, e);
    if (e->n == 0) {
        work_undo(n, e);
        return;
    }
    p->steps++;
    p->last = n->open;
}

static void end(struct node *n, struct purge *p)
{
    struct effect *e = effect_add(n, EFFECT_PURGE_END, CONTROL_SESSION, NULL, n->now.mono);
    if (!e) {
        p->at = n->now.mono + RETRY_NS;
        return;
    }
    e->pend = p->row.counter;
    batch_end_purge(n->open->batch, p->row.counter);
    p->ending = true;
    p->steps++;
    p->last = n->open;
}

static bool in_open(const struct node *n, const struct purge *p)
{
    return p->steps && p->last == n->open;
}

void purges_turn(struct node *n)
{
    struct purge *p = n->n_purges ? &n->purge[0] : NULL;
    if (!p || n->stopping || n->start_status || !p->marked || p->ending || in_open(n, p) || n->now.mono < p->at) {
        return;
    }
    if (!p->passed && may_step(n, p)) {
        step(n, p);
    }
    if (p->passed && p->steps == 0) {
        end(n, p);
    }
}

/* What is in the open work wants a turn; a step that a key with an uncommitted effect stopped goes on with that
 * commit, any other at once. */
int64_t purges_timer(const struct node *n)
{
    const struct purge *p = n->n_purges ? &n->purge[0] : NULL;
    if (!p || n->stopping || !p->marked) {
        return INT64_MAX;
    }
    if (in_open(n, p) && !n->flying) {
        return n->now.mono;
    }
    bool commit_comes = in_open(n, p) || p->ending || (p->passed && p->steps) || (p->stopped && n->flying);
    return commit_comes ? INT64_MAX : p->at > n->now.mono ? p->at : n->now.mono;
}

/* ---- commits ---- */

static void answer(struct node *n, const struct purge *p)
{
    const struct session *s = session_find(n, p->session);
    if (!s || !s->attached || s->connection != p->connection) {
        return;
    }
    n->silent = false; /* the effect is nobody's, the answer is not */
    struct msg_reply *r = reply_add(n, s->id, &p->head, p->status, sizeof(struct msg_purged));
    n->silent = true;
    if (r) {
        r->count = 1;
        r->counter = p->row.counter;
        r->region = n->c.super->region_id;
        *(struct msg_purged *)(r + 1) = (struct msg_purged){
            .removed = p->removed, .bytes = p->bytes, .held = p->held, .drafts = p->drafts, .untold = p->untold};
        answered(n, &p->head);
    }
}

static void forget(struct node *n, struct purge *p)
{
    uint32_t i = (uint32_t)(p - n->purge);
    n->n_purges--;
    memmove(p, p + 1, (n->n_purges - i) * sizeof *p);
}

static void keys_gone(struct node *n, struct purge *p, const struct effect *e, const struct member *m)
{
    tell_gone(n, e, m);
    node_whatif_gone(n, e, m);
    for (uint32_t i = 0; i < e->n; i++) {
        p->bytes += header_of(n, m[i].old)->size;
        p->untold += n->c.publish && !m[i].tomb;
        fate_add(n, m[i].hash, (struct fate){.kind = FATE_PURGED, .counter = header_of(n, m[i].old)->version});
        unpublish(n, &m[i]);
        if (m[i].tomb) {
            tomb_keep(n, m[i].tomb);
        }
    }
    p->removed += e->n;
    n->counters[NODE_PURGED] += e->n;
}

void purge_complete(struct node *n, const struct effect *e, const struct member *m)
{
    struct purge *p = find(n, e->pend);
    if (!p) {
        return;
    }
    if (e->kind == EFFECT_PURGE_MARK) {
        p->marked = true;
        return;
    }
    p->steps--;
    if (e->kind == EFFECT_PURGE) {
        keys_gone(n, p, e, m);
    } else {
        answer(n, p);
        forget(n, p);
    }
}

/* As with a remove it goes again, in a batch that holds nothing that needs room. */
void purge_failed(struct node *n, const struct effect *e)
{
    struct purge *p = find(n, e->pend);
    if (!p) {
        return;
    }
    if (e->kind == EFFECT_PURGE_MARK) {
        const struct session *s = session_find(n, p->session);
        if (!mark(n, &p->row)) {
            forget(n, p); /* no memory: its drafts can't be sealed all the same */
        } else if (s) {
            batch_session(n->open->batch, s->id, &s->row);
        }
        return;
    }
    p->last = n->open; /* a step was sent again there; the end is made anew */
    if (e->kind == EFFECT_PURGE_END) {
        p->steps--;
        p->ending = false;
    }
}

/* ---- start, check ---- */

static int each_row(void *arg, const struct purge_row *row)
{
    struct node *n = arg;
    if (n->n_purges == PURGES_MAX) {
        return 1;
    }
    n->purge[n->n_purges++] = (struct purge){.row = *row, .session = CONTROL_SESSION, .marked = true};
    return 0;
}

int purges_recover(struct node *n)
{
    int e = n->c.index->purges(n->c.ix, each_row, n);
    if (n->n_purges) {
        node_log(n, 2, "purges that were under way go on: %u", n->n_purges);
    }
    return e > 0 ? -EBADMSG : e;
}

const char *purges_check(const struct node *n)
{
    for (uint32_t i = 0; i < n->n_purges; i++) {
        const struct purge *p = &n->purge[i];
        if (p->steps > 2 || (p->steps && !p->marked) || (i && (p->steps || p->passed))) {
            return "a purge has steps out of its turn";
        }
        if (i && p->row.counter <= n->purge[i - 1].row.counter) {
            return "purges are out of order";
        }
    }
    return NULL;
}
