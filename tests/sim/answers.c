/* answers.c: each answer of the node against what the shadow knows at that moment. */
#include "tests/sim/sim.h"

#include <errno.h>
#include <string.h>

static bool was_present(const struct key *k, uint64_t since)
{
    return k->present || k->vanishing || (k->vanished && k->vanished >= since);
}

static bool was_absent(const struct key *k, uint64_t since)
{
    return !k->present || k->appeared >= since;
}

/* From here on no reader that starts may find what this key had before. */
static void told_gone(struct sim *s, uint32_t key)
{
    struct key *k = &s->key[key];
    while (k->gone != SIM_NONE) {
        struct put *p = &s->puts[k->gone];
        p->gone_told_step = s->step;
        k->gone = p->gone_next;
    }
}

static void wrong(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply,
                  const char *why)
{
    sim_violation(s, "client %u: request %llu op %u key %d is answered %d, but %s", client,
                  (unsigned long long)r->message->id, r->message->op, (int)r->key, reply->status, why);
}

static void on_tokens(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    const struct msg_token *t = (const struct msg_token *)(reply + 1);
    if (reply->head.bytes < sizeof *reply + reply->count * sizeof *t) {
        wrong(s, client, r, reply, "its tokens don't fit");
        return;
    }
    for (uint32_t i = 0; i < reply->count && s->violations == 0; i++) {
        uint32_t put = shadow_token(s, client, &t[i], reply->figure[0], r->message->op == MSG_CREATE);
        if (put != SIM_NONE && r->message->op == MSG_CREATE) {
            s->puts[put].key = r->key;
            s->puts[put].size = ((const struct msg_create *)r->message)->object.size;
        }
    }
}

static void on_room(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    bool create = r->message->op == MSG_CREATE;
    if (reply->status == 0 && reply->count) {
        on_tokens(s, client, r, reply);
    } else if (create && reply->status == BERTH_KEPT) {
        if (s->key[r->key].replaceable || !was_present(&s->key[r->key], r->step)) {
            wrong(s, client, r, reply, "the key was not there to be kept");
        }
    } else if (reply->status != BERTH_EFULL && reply->status != -ETIMEDOUT && reply->status != BERTH_EQUOTA &&
               reply->status != -E2BIG) {
        wrong(s, client, r, reply, "that is no answer to it");
    }
    if (s->roomy && (reply->status == BERTH_EFULL || reply->status == -ETIMEDOUT) && s->n_open < 64) {
        wrong(s, client, r, reply, "there is room");
    }
}

static void on_sealed(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply,
                      uint32_t i)
{
    const struct put *p = &s->puts[r->put[i]];
    if (p->state != PUT_SEALED && p->state != PUT_GONE) {
        wrong(s, client, r, reply, "it is not committed");
        return;
    }
    if (!r->again && p->version != reply->counter) {
        wrong(s, client, r, reply, "its version is another");
    }
    told_gone(s, p->key);
}

static void on_kept(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply, uint32_t i)
{
    const struct put *p = &s->puts[r->put[i]];
    if (p->state == PUT_SEALED) {
        wrong(s, client, r, reply, "it was sealed");
    }
    if (!r->again && (s->key[p->key].replaceable || !was_present(&s->key[p->key], r->step))) {
        wrong(s, client, r, reply, "the key was not there to be kept");
    }
    shadow_close(s, r->put[i]);
}

/* A seal that failed: nothing of it may be in the index. */
static void on_refused(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    bool stays = r->message->op == MSG_SEAL && reply->status != BERTH_EUNKNOWN;
    for (uint32_t i = 0; i < r->n_puts; i++) {
        struct put *p = &s->puts[r->put[i]];
        if (p->state == PUT_SEALED && reply->status != BERTH_EUNKNOWN) {
            wrong(s, client, r, reply, "it was sealed");
        } else if (p->state == PUT_SEALED && r->again) {
            wrong(s, client, r, reply, "it is there");
        } else if (stays && p->state == PUT_ASKED) {
            p->state = PUT_OPEN; /* its client's still */
        } else if (!stays) {
            shadow_close(s, r->put[i]);
        }
    }
    bool purged = false;
    for (uint32_t i = 0; i < r->n_puts && r->message->op == MSG_SEAL; i++) {
        purged |= s->key[s->puts[r->put[i]].key].purged;
    }
    if (reply->status != BERTH_EINDEXFULL && reply->status != BERTH_EFULL && reply->status != BERTH_EHASH &&
        !(reply->status == BERTH_EUNKNOWN && r->again) && !(reply->status == BERTH_EPURGED && purged)) {
        wrong(s, client, r, reply, "that is no answer to it");
    }
}

static void on_seal(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    if (r->forged) {
        if (reply->status != BERTH_ESTALE && !(r->again && reply->status == BERTH_EUNKNOWN) &&
            !(r->again && reply->status >= 0)) {
            wrong(s, client, r, reply, "its token is not its client's");
        }
        return;
    }
    if (reply->status < 0) {
        on_refused(s, client, r, reply);
        return;
    }
    const uint8_t *bits = (const uint8_t *)(reply + 1);
    uint64_t step = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n_puts; i++) {
        bool keeps = r->message->op == MSG_PUT ? reply->status == BERTH_KEPT : bits[i / 8] >> (i % 8) & 1;
        kept += keeps;
        if (keeps) {
            on_kept(s, client, r, reply, i);
            continue;
        }
        on_sealed(s, client, r, reply, i);
        if (step && s->puts[r->put[i]].sealed_step != step) {
            wrong(s, client, r, reply, "its members were not committed together");
        }
        step = s->puts[r->put[i]].sealed_step;
    }
    if (r->message->op == MSG_SEAL && kept != (uint32_t)reply->status) {
        wrong(s, client, r, reply, "another number was kept");
    }
    if (r->message->op == MSG_PUT && reply->count) {
        on_tokens(s, client, r, reply);
    }
}

static void on_abort(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    uint32_t want = r->forged ? 0 : r->n_puts;
    if (reply->status != (int32_t)want && !(r->again && reply->status >= 0)) {
        wrong(s, client, r, reply, "another number was to be given back");
    }
    for (uint32_t i = 0; i < r->n_puts && !r->forged; i++) {
        shadow_close(s, r->put[i]);
    }
}

static void on_key(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    const struct key *k = &s->key[r->key];
    const uint64_t since = r->step;
    uint64_t came = 0, went = 0;
    if (r->label != SIM_NONE && r->label < SIM_LABELS) {
        came = k->label_came[r->label];
        went = k->label_went[r->label];
    }
    bool labelled = came > went, drop = r->message->op == MSG_DROP;
    if (reply->status == BERTH_EUNKNOWN && r->again) {
        return;
    }
    if (reply->status == -ENOENT) {
        if (!was_absent(k, since) && !(drop && (!labelled || came >= since))) {
            wrong(s, client, r, reply, "the key was there");
        }
    } else if (reply->status == BERTH_EINDEXFULL) {
        return;
    } else if (r->message->op == MSG_REMOVE) {
        if (reply->status == 0 && k->vanished < since) {
            wrong(s, client, r, reply, "it was not removed");
        } else if (reply->status == BERTH_EHELD && k->held <= k->unheld && k->unheld < since) {
            wrong(s, client, r, reply, "it was not held");
        } else if (reply->status && reply->status != BERTH_EHELD && reply->status != BERTH_EVERSION) {
            wrong(s, client, r, reply, "that is no answer to it");
        }
        if (reply->status == 0) {
            told_gone(s, r->key);
        }
    } else if (reply->status) {
        wrong(s, client, r, reply, "that is no answer to it");
    } else if (r->message->op == MSG_HOLD ? !labelled && went < since : labelled && came < since) {
        wrong(s, client, r, reply, "the index does not have it so");
    }
}

static void on_find(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    const struct key *k = &s->key[r->key];
    if (reply->status == -ENOENT) {
        if (!was_absent(k, r->step)) {
            wrong(s, client, r, reply, "the key was there");
        }
        return;
    }
    const struct msg_stat *st = (const struct msg_stat *)(reply + 1);
    const struct msg_token *t = (const struct msg_token *)(reply + 1);
    bool stat = r->message->op == MSG_STAT;
    uint32_t put = reply->status || reply->count != 1 ? SIM_NONE
                   : stat                             ? shadow_find(s, st->slot, st->generation)
                                                      : shadow_find(s, t->slot, t->gen);
    if (put == SIM_NONE) {
        wrong(s, client, r, reply, "it names no object");
        return;
    }
    const struct put *p = &s->puts[put];
    if (p->key != r->key || (p->state != PUT_SEALED && p->state != PUT_GONE) ||
        (p->gone_step && p->gone_step < r->step)) {
        wrong(s, client, r, reply, "that was not the key's object");
    }
    if (stat && (st->size != p->size || st->counter != p->version || st->checksum != put + 1u)) {
        wrong(s, client, r, reply, "the object is another");
    }
}

static const struct key *key_named(const struct sim *s, uint32_t ns, const void *data, uint32_t size)
{
    for (uint32_t i = 0; i < s->keys; i++) {
        const struct key *k = &s->key[i];
        if (k->ns == ns && k->size == size && memcmp(k->data, data, size) == 0) {
            return k;
        }
    }
    return NULL;
}

/* A listing is made from the index in one piece: it is exactly what the last commit left. */
static void on_list(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    uint32_t ns = ((const struct msg_list *)r->message)->ns, want = 0;
    const uint8_t *at = (const uint8_t *)(reply + 1), *end = (const uint8_t *)reply + reply->head.bytes;
    for (uint32_t i = 0; i < s->keys; i++) {
        want += s->key[i].ns == ns && s->key[i].present;
    }
    if (reply->status < 0 || reply->count != want || reply->head.flags & MSG_HAS_MORE) {
        wrong(s, client, r, reply, "the namespace has another number of keys");
        return;
    }
    for (uint32_t i = 0; i < reply->count; i++) {
        const struct msg_stat *st = (const struct msg_stat *)at;
        if ((size_t)(end - at) < sizeof *st || (size_t)(end - at) < sizeof *st + st->key_size) {
            wrong(s, client, r, reply, "its entries don't fit");
            return;
        }
        const struct key *k = key_named(s, ns, st + 1, st->key_size);
        if (!k || !k->present || st->counter != k->record.counter || st->size != k->record.size ||
            st->slot != k->record.slot) {
            wrong(s, client, r, reply, "an entry is no object");
            return;
        }
        at += sizeof *st + ((st->key_size + 7u) & ~7u);
    }
}

bool purge_has(const struct sim *s, const struct msg_purge *m, uint32_t key)
{
    const struct key *k = &s->key[key];
    if (m->kind == PURGE_LINEAGE) {
        return m->lineage == key + 1u;
    }
    return k->ns == m->ns && k->size >= m->prefix_size && memcmp(k->data, m + 1, m->prefix_size) == 0;
}

/* What was sealed before it was sent is gone, but what was held since; and drafts of then stay unsealed. */
static void on_purge(struct sim *s, uint32_t client, const struct request *r, const struct msg_reply *reply)
{
    const struct msg_purge *m = (const struct msg_purge *)r->message;
    if (reply->status == BERTH_EUNKNOWN && r->again) {
        return;
    }
    if (reply->status != 0 && reply->status != -EAGAIN) {
        wrong(s, client, r, reply, "that is no answer to it");
    }
    for (uint32_t i = 0; i < s->keys && reply->status == 0; i++) {
        const struct key *k = &s->key[i];
        bool held = k->held > k->unheld || k->held >= r->step || k->unheld >= r->step;
        if (purge_has(s, m, i)) {
            told_gone(s, i);
        }
        if (purge_has(s, m, i) && k->present && !held && s->puts[k->put].sealed_step < r->step) {
            wrong(s, client, r, reply, "a key that it covers is there");
        }
    }
    for (uint32_t i = 0; i < s->n_open && reply->status == 0; i++) {
        struct put *p = &s->puts[s->open[i]];
        p->doomed |= p->draft && s->open[i] < r->n_before && p->key != SIM_NONE && purge_has(s, m, p->key);
    }
}

void shadow_reply(struct sim *s, uint32_t client, struct request *r, const struct msg_reply *reply)
{
    switch ((enum msg_op)r->message->op) {
    case MSG_GRANT:
    case MSG_CREATE:
        on_room(s, client, r, reply);
        break;
    case MSG_PUT:
    case MSG_SEAL:
        on_seal(s, client, r, reply);
        break;
    case MSG_ABORT:
        on_abort(s, client, r, reply);
        break;
    case MSG_REMOVE:
    case MSG_HOLD:
    case MSG_DROP:
        on_key(s, client, r, reply);
        break;
    case MSG_STAT:
    case MSG_FIND:
        on_find(s, client, r, reply);
        break;
    case MSG_PURGE:
        on_purge(s, client, r, reply);
        break;
    case MSG_LIST:
        on_list(s, client, r, reply);
        break;
    default:
        if (reply->status) {
            wrong(s, client, r, reply, "that is no answer to it");
        }
        break;
    }
}
