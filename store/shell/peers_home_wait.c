/* peers_home_wait.c: clients that wait until what they put is published (PROTOCOLS rule 30).
 *
 * Of a token the publication keeps no number. What a client asks for was told before its question came, so the last
 * number that was given then is waited for at the homes of its key: that is never too early, and at most as late as
 * what others put at the same time. An object that has gone when its homes have everything was removed, or gave way to
 * a newer one: then it will not be published. Neither will one that a home's answer took away, though it is there until
 * that is committed. One that takes a greater counter is waited for under the number that it is told anew with.
 *
 * Of a key that was kept (MSG_ANEW) homes were told long ago, and may have heard of its removal since: they are told
 * again, and their answer counts.
 */
#include "store/shell/peers_home_internal.h"
#include "store/shell/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct home_wait {
    TAILQ_ENTRY(home_wait) entry;
    uint64_t session;
    struct msg_head head;
    int64_t number;
    uint32_t n, at; /* the homes of those before `at` have them */
    bool gone;      /* a key that was kept is not here any more */
    struct {
        struct msg_token token;
        uint64_t place;
        bool dropped; /* a home's answer took it away */
        bool taking;  /* it is being given a greater counter, and told anew */
    } object[];
};

void home_wait_free(struct home_part *h, struct home_wait *w)
{
    TAILQ_REMOVE(&h->waits, w, entry);
    h->n_waits--;
    free(w);
}

static void wait_end(struct home_part *h, struct home_wait *w, int32_t status)
{
    struct session *to = sessions_find(h->peers->server, w->session);
    if (to)
        session_answer(to, &w->head, status, 0);
    home_wait_free(h, w);
}

/* true: it has been answered. */
static bool look(struct home_part *h, struct home_wait *w, int64_t now)
{
    uint8_t buf[KEY_MAX];
    struct node_publication o;
    int32_t status = w->gone ? BERTH_EVERSION : 0;
    while (w->at < w->n && !w->object[w->at].taking && publish_done(h->publish, w->object[w->at].place, w->number))
        w->at++;
    if (w->at < w->n && (w->head.deadline == INT64_MAX || now < w->head.deadline))
        return false;
    for (uint32_t i = 0; i < w->n && w->at == w->n; i++) {
        if (w->object[i].dropped || !node_object(h->peers->server->node, &w->object[i].token, buf, &o))
            status = BERTH_EVERSION;
    }
    wait_end(h, w, w->at < w->n ? BERTH_EUNPUBLISHED : status);
    return true;
}

static void add(struct home_part *h, struct home_wait *w, const struct msg_token *t)
{
    uint8_t buf[KEY_MAX];
    struct node_publication o;
    if (!node_object(h->peers->server->node, t, buf, &o))
        return; /* replaced, removed or evicted by now */
    struct home_key key = home_key_of(&o.key, o.route);
    w->object[w->n].token = *t;
    w->object[w->n++].place = rendezvous_place(&key);
    if (w->head.flags & MSG_ANEW)
        w->number = home_tell(h, &o, peers_mono(h->peers));
}

static void add_key(struct home_part *h, struct home_wait *w, const struct msg_published *m)
{
    struct server *s = h->peers->server;
    uint32_t slot = node_find(s->node, (struct key_ref){.data = m + 1, .size = m->key_size, .ns = m->ns});
    if (slot != SLOT_NONE)
        add(h, w, &(struct msg_token){.slot = slot, .gen = word_gen(slot_load(&s->region.headers[slot]))});
}

void peers_await_homes(struct peers *p, struct session *from, const struct msg_published *m)
{
    struct home_part *h = p ? p->home : NULL;
    uint32_t n = m->count ? m->count : 1;
    struct home_wait *w = h && h->n_waits < HOME_WAITS_MAX ? calloc(1, sizeof *w + n * sizeof w->object[0]) : NULL;
    const struct msg_token *token = (const struct msg_token *)(m + 1);
    struct publish_stat st;
    if (!w) {
        session_answer(from, &m->head, h ? -EAGAIN : 0, 0);
        return;
    }
    publish_stat(h->publish, &st);
    w->session = from->id;
    w->head = m->head;
    w->number = (int64_t)st.told;
    for (uint32_t i = 0; i < m->count; i++)
        add(h, w, &token[i]);
    if (m->key_size)
        add_key(h, w, m);
    w->gone = w->n == 0 && (m->head.flags & MSG_ANEW);
    TAILQ_INSERT_TAIL(&h->waits, w, entry);
    h->n_waits++;
    if (!look(h, w, peers_mono(p)) && m->head.deadline < h->wait_at)
        h->wait_at = m->head.deadline;
}

/* Where in the wait the object lies that is in this slot; w->n: nowhere. */
static uint32_t place_of(const struct home_wait *w, uint32_t slot)
{
    uint32_t i = 0;
    while (i < w->n && w->object[i].token.slot != slot)
        i++;
    return i;
}

void home_waits_judged(struct home_part *h, const struct publication_entry *e, bool taking)
{
    const struct node *node = h->peers->server->node;
    struct key_ref key = {.data = e->key.data, .size = e->key.size, .ns = (uint32_t)e->key.space};
    uint32_t slot = TAILQ_EMPTY(&h->waits) ? SLOT_NONE : node_find(node, key);
    struct home_wait *w;
    TAILQ_FOREACH(w, &h->waits, entry)
    {
        uint32_t i = slot == SLOT_NONE ? w->n : place_of(w, slot);
        uint8_t buf[KEY_MAX];
        struct node_publication o;
        /* Another home's answer to a number that it has no more says nothing. */
        if (i == w->n || !node_object(node, &w->object[i].token, buf, &o) || o.counter != e->version.counter ||
            o.region != e->version.region)
            continue;
        w->object[i].taking = w->object[i].taking || taking;
        w->object[i].dropped = w->object[i].dropped || !taking;
    }
}

void home_waits_again(struct home_part *h, const struct key_ref *key, int64_t number)
{
    uint32_t slot = TAILQ_EMPTY(&h->waits) ? SLOT_NONE : node_find(h->peers->server->node, *key);
    struct home_wait *w;
    TAILQ_FOREACH(w, &h->waits, entry)
    {
        uint32_t i = slot == SLOT_NONE ? w->n : place_of(w, slot);
        if (i == w->n)
            continue;
        w->object[i].taking = false;
        w->number = number;
        w->at = w->at < i ? w->at : i;
    }
}

void home_waits_turn(struct home_part *h, int64_t now)
{
    struct home_wait *w, *next;
    h->wait_at = INT64_MAX;
    for (w = TAILQ_FIRST(&h->waits); w; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (!look(h, w, now) && w->head.deadline < h->wait_at)
            h->wait_at = w->head.deadline;
    }
}

void home_waits_gone(struct peers *p, uint64_t session)
{
    struct home_part *h = p ? p->home : NULL;
    struct home_wait *w, *next;
    for (w = h ? TAILQ_FIRST(&h->waits) : NULL; w; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (w->session == session)
            home_wait_free(h, w);
    }
}
