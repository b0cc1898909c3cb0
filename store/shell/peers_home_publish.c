/* peers_home_publish.c: what this node tells the homes of its keys, and what others tell this home. */
#include "store/shell/peers_home_internal.h"

#include "store/amount.h"
#include "store/shell/log.h"

#include <errno.h>
#include <string.h>

/* ---- told by the core ---- */

static struct publication_entry entry_of(const struct node_publication *n)
{
    static const uint8_t kinds[] = {[PUBLISH_SEALED] = PUBLICATION_OBJECT,
                                    [PUBLISH_GONE] = PUBLICATION_GONE,
                                    [PUBLISH_REMOVED] = PUBLICATION_TOMBSTONE};
    bool object = n->kind == PUBLISH_SEALED;
    return (struct publication_entry){.key = home_key_of(&n->key, n->route),
                                      .version = {.counter = n->counter, .region = n->region},
                                      .size = object ? n->size : 0,
                                      .lineage = object ? n->lineage : 0,
                                      .past = n->past,
                                      .kind = kinds[n->kind],
                                      .replaceable = n->replaceable,
                                      .fresh = n->fresh,
                                      .again = n->again};
}

void home_part_command(struct peers *p, const struct node_command *c)
{
    struct home_part *h = p->home;
    int64_t now = peers_mono(p);
    for (uint32_t i = 0; h && i < c->n_published; i++) {
        struct publication_entry e = entry_of(&c->published[i]);
        if (e.kind == PUBLICATION_TOMBSTONE)
            pull_part_outdated(p, &c->published[i].key, e.version.counter, e.version.region);
        int64_t number = publish_tell(h->publish, &e, now);
        if (number < 0)
            log_event(LOG_ERROR, "a change of a key of %u bytes can't be published: error %lld",
                      c->published[i].key.size, (long long)number);
        else if (e.again && e.kind == PUBLICATION_OBJECT)
            home_waits_again(h, &c->published[i].key, number);
    }
}

int64_t home_tell(struct home_part *h, const struct node_publication *o, int64_t now)
{
    struct publication_entry e = entry_of(o);
    return publish_tell(h->publish, &e, now);
}

static struct key_ref key_of(const struct publication_entry *e)
{
    return (struct key_ref){.data = e->key.data, .size = e->key.size, .ns = (uint32_t)e->key.space};
}

/* ---- batches to homes ---- */

/* The answer's items, if they are those of a PUBLISHED. */
static struct publication_answer answer_of(struct home_part *h, const struct wire_message *m, struct wire_reader *items)
{
    struct publication_answer a = {.stream = m->published.stream,
                                   .batch = m->published.batch,
                                   .complete = m->head.flags & WIRE_COMPLETE,
                                   .results = h->results};
    struct wire_item item;
    while (a.n < PUBLICATION_ENTRIES && wire_next(items, &item) == 1)
        h->results[a.n++] = (struct publication_result){
            .counter = item.published.counter, .past = item.published.past, .verdict = item.published.kind};
    return a;
}

/* A batch that was refused, or got no answer, goes again by the publication's own timer. */
static void answered(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items)
{
    struct home_target *t = arg;
    struct home_part *h = t->part;
    if (status < 0 || !m)
        return;
    struct publication_answer a = answer_of(h, m, items);
    if (publish_answered(h->publish, t->member, &a, peers_mono(h->peers)) == -EINVAL) {
        struct link *l = link_of(h->peers, t->member);
        if (l)
            link_blame(l, -EPROTO, "it answers a publication that it was not sent");
    }
    h->peers->again = true;
}

static struct wire_item item_of(const struct publication_entry *e)
{
    return (struct wire_item){.entry = {.kind = e->kind,
                                        .replaceable = e->replaceable,
                                        .key = {.data = e->key.data, .size = e->key.size, .ns = (uint32_t)e->key.space},
                                        .route = e->key.route,
                                        .version = {.counter = e->version.counter, .region = e->version.region},
                                        .size = e->kind == PUBLICATION_OBJECT ? e->size : 0,
                                        .lineage = e->kind == PUBLICATION_OBJECT ? e->lineage : 0,
                                        .past = e->kind == PUBLICATION_GONE ? e->past : 0}};
}

static long encode_batch(struct peers *p, const struct publication *b)
{
    struct wire_message m;
    struct wire_writer w;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_PUBLISH;
    m.head.flags = b->complete ? WIRE_COMPLETE : 0;
    m.publish.owner_region = b->from.region;
    m.publish.owner_incarnation = b->from.incarnation;
    m.publish.home_region = b->to.region;
    m.publish.home_incarnation = b->to.incarnation;
    m.publish.revision = b->revision;
    m.publish.stream = b->stream;
    m.publish.batch = b->batch;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = 0; e == 0 && i < b->n; i++) {
        struct wire_item item = item_of(&b->entries[i]);
        e = wire_add(&w, &item);
    }
    return e < 0 ? e : wire_end(&w);
}

static void send_self(struct home_part *h, const struct publication *b, int64_t now)
{
    struct publication_answer a;
    if (home_publish(h->home, b, now, &a, h->results) == 0)
        publish_answered(h->publish, h->peers->self, &a, now);
}

static void send_batch(struct home_part *h, const struct publish_command *c, int64_t now)
{
    struct peers *p = h->peers;
    if (c->member == p->self) {
        send_self(h, &c->batch, now);
        return;
    }
    long n = encode_batch(p, &c->batch);
    if (n < 0)
        log_event(LOG_ERROR, "a publication to '%s' can't be encoded: error %ld", p->members[c->member].name, n);
    else /* what can't be sent now is as good as lost on its way: it goes again */
        link_ask(p, c->member, p->buffer, (size_t)n, now + HOME_RESEND_NS, now + HOME_RESEND_NS, answered,
                 &h->targets[c->member]);
}

/* ---- listings ---- */

static void list_step(struct home_part *h, const struct publish_command *c, int64_t now)
{
    struct node_publication o;
    uint32_t n = 0, most = c->most < PUBLICATION_ENTRIES ? c->most : PUBLICATION_ENTRIES;
    bool more = true;
    uint64_t pass = c->pass;
    if (c->start)
        h->cursor = 0;
    while (n < most && (more = node_objects_next(h->peers->server->node, &h->cursor, h->key[n], &o))) {
        h->entries[n] = entry_of(&o);
        n++;
    }
    int e = publish_listed(h->publish, pass, h->entries, n, !more, now);
    if (e < 0)
        log_event(LOG_ERROR, "what this node has can't be listed for its homes: error %d", e);
}

/* ---- verdicts ---- */

/* One line for many: a removed prefix may be thousands of copies. */
static void tell_dropped(struct home_part *h, int64_t now)
{
    uint64_t n = h->sums.dropped + h->sums.removed, holds = node_holds_lost(h->peers->server->node);
    if (n == h->told || now - h->told_at < HOME_LOG_NS)
        return;
    log_event(h->sums.lost || holds ? LOG_WARNING : LOG_INFO,
              "homes said %llu time%s since the last line that a newer version or a removal stands above a copy of "
              "this node, which is given up; of all such copies, put here: %llu, held: %llu",
              (unsigned long long)(n - h->told), plural(n - h->told), (unsigned long long)h->sums.lost,
              (unsigned long long)holds);
    h->told = n;
    h->told_at = now;
}

static void drop_copy(struct home_part *h, const struct publication_entry *e)
{
    uint8_t key[KEY_MAX]; /* the entry is the publication's until its next command, and dispatch may tell it things */
    struct node_event ev = {.kind = EV_DROP_COPY,
                            .key = {.data = key, .size = e->key.size, .ns = (uint32_t)e->key.space},
                            .counter = e->version.counter,
                            .region = e->version.region};
    memcpy(key, e->key.data, e->key.size);
    if (e->kind == PUBLICATION_OBJECT) {
        pull_part_outdated(h->peers, &ev.key, ev.counter, ev.region);
        home_waits_judged(h, e, false);
        dispatch(h->peers->server, &ev);
    }
}

/* The core gives the object, or the removal, a counter above all that it has seen, and tells of it when that is
 * committed. */
static void take(struct home_part *h, const struct publish_command *c)
{
    uint8_t key[KEY_MAX];
    const struct publication_entry *e = &c->entry;
    struct node_event seen = {.kind = EV_SEEN, .counter = c->counter};
    struct node_event ev = {.kind = EV_TAKE,
                            .key = {.data = key, .size = e->key.size, .ns = (uint32_t)e->key.space},
                            .counter = e->version.counter,
                            .removal = e->kind == PUBLICATION_TOMBSTONE};
    memcpy(key, e->key.data, e->key.size);
    h->sums.taken++;
    if (!ev.removal)
        home_waits_judged(h, e, true);
    dispatch(h->peers->server, &seen);
    dispatch(h->peers->server, &ev);
}

static void known(struct home_part *h, const struct publish_command *c)
{
    uint8_t key[KEY_MAX];
    const struct publication_entry *e = &c->entry;
    uint16_t homes[HOMES_MAX];
    uint32_t n = rendezvous_homes(h->peers->homes, rendezvous_place(&e->key), homes), i = 0;
    while (i < n && homes[i] != c->member)
        i++;
    struct node_event ev = {.kind = EV_KNOWN,
                            .key = {.data = key, .size = e->key.size, .ns = (uint32_t)e->key.space},
                            .counter = e->version.counter,
                            .home = (uint8_t)i,
                            .homes = (uint8_t)n};
    memcpy(key, e->key.data, e->key.size);
    if (i < n)
        dispatch(h->peers->server, &ev);
}

bool home_publish_turn(struct home_part *h, int64_t now)
{
    const struct publish_command *c = NULL;
    uint32_t n = 0;
    for (; n < HOME_COMMANDS && (c = publish_command(h->publish)); n++) {
        switch (c->kind) {
        case PUBLISH_SEND:
            send_batch(h, c, now);
            break;
        case PUBLISH_LIST:
            list_step(h, c, now);
            break;
        case PUBLISH_TAKE:
            take(h, c);
            break;
        case PUBLISH_DROP:
            h->sums.dropped++;
            h->sums.lost += c->entry.version.region == h->self.region;
            drop_copy(h, &c->entry);
            break;
        case PUBLISH_KNOWN:
            known(h, c);
            break;
        case PUBLISH_PAST:
            node_past_note(h->peers->server->node, key_of(&c->entry), c->past);
            break;
        }
    }
    tell_dropped(h, now);
    return n == HOME_COMMANDS;
}

/* ---- renewal ---- */

static void begin_renewal(struct home_part *h, int64_t now)
{
    const struct settings *s = &h->peers->server->settings;
    h->renew_all = now >= h->renew_all_at;
    h->renewing = h->renew_all || node_replaceable(h->peers->server->node);
    h->renew_cursor = 0;
    h->renew_at = now + s->fresh_ns / 2;
    if (h->renew_all)
        h->renew_all_at = now + s->tombstone_ns / 2;
    if (h->renew_at > h->renew_all_at)
        h->renew_at = h->renew_all_at;
}

bool home_renew_turn(struct home_part *h, int64_t now)
{
    const struct node *node = h->peers->server->node;
    struct publish_stat st;
    if (!h->renewing && now >= h->renew_at && !h->confirm)
        begin_renewal(h, now);
    for (uint32_t i = 0; h->renewing && i < HOME_RENEW_LOOKS; i++) {
        struct node_publication o;
        publish_stat(h->publish, &st);
        if (st.queued > HOME_RENEW_QUEUE)
            return false; /* goes on when answers have come */
        if (!node_objects_next(node, &h->renew_cursor, h->key[0], &o) || o.kind != PUBLISH_SEALED) {
            h->renewing = false;
        } else if (o.replaceable || h->renew_all) {
            struct publication_entry e = entry_of(&o);
            publish_renew(h->publish, &e, now);
            h->sums.renewed++;
        }
    }
    return h->renewing;
}

/* ---- batches from owners ---- */

static bool read_batch(struct home_part *h, struct wire_reader *items, struct publication *b)
{
    struct wire_item item;
    uint64_t bytes = 0;
    while (b->n < PUBLICATION_ENTRIES && wire_next(items, &item) == 1) {
        const struct wire_entry *e = &item.entry;
        bytes += e->key.size;
        h->entries[b->n++] =
            (struct publication_entry){.key = home_key_of(&e->key, e->route),
                                       .version = {.counter = e->version.counter, .region = e->version.region},
                                       .size = e->size,
                                       .lineage = e->lineage,
                                       .past = e->past,
                                       .kind = e->kind,
                                       .replaceable = e->replaceable};
    }
    b->entries = h->entries;
    return bytes <= PUBLICATION_KEYS;
}

static void answer_batch(struct peers *p, struct link *from, uint64_t id, const struct publication_answer *a)
{
    struct wire_message m;
    struct wire_writer w;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_PUBLISHED;
    m.head.id = id;
    m.head.flags = a->complete ? WIRE_COMPLETE : 0;
    m.published.stream = a->stream;
    m.published.batch = a->batch;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = 0; e == 0 && i < a->n; i++) {
        struct wire_item item = {
            .published = {.kind = a->results[i].verdict, .counter = a->results[i].counter, .past = a->results[i].past}};
        if (a->results[i].verdict != VERDICT_SUPERSEDED)
            item.published.counter = 0;
        e = wire_add(&w, &item);
    }
    long n = e < 0 ? e : wire_end(&w);
    if (n < 0 || link_answer(from, id, p->buffer, (size_t)n) < 0)
        link_refuse(from, WIRE_PUBLISH, id, -EMSGSIZE);
}

/* Who evicted a key tells its homes what its policy knew of it, and these tell who puts it again. */
static void exchange_pasts(struct home_part *h, const struct publication *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const struct publication_entry *e = &b->entries[i];
        if (e->kind == PUBLICATION_GONE && e->past)
            node_past_told(h->peers->server->node, key_of(e), e->past);
        else if (e->kind == PUBLICATION_OBJECT && h->results[i].verdict == VERDICT_OK)
            h->results[i].past = node_past_take(h->peers->server->node, key_of(e));
    }
}

/* A removal that has come to this home counts for what lies here at once, and not only when that is told of again:
 * until it goes, puts of the key are kept on it. */
static void drop_removed(struct home_part *h, const struct publication *b)
{
    struct server *s = h->peers->server;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct publication_entry *e = &b->entries[i];
        struct key_ref key = key_of(e);
        uint8_t buf[KEY_MAX];
        struct node_publication o;
        if (e->kind == PUBLICATION_TOMBSTONE)
            pull_part_outdated(h->peers, &key, e->version.counter, e->version.region);
        uint32_t slot = e->kind == PUBLICATION_TOMBSTONE ? node_find(s->node, key) : SLOT_NONE;
        if (slot == SLOT_NONE ||
            !node_object(s->node,
                         &(struct msg_token){.slot = slot, .gen = word_gen(slot_load(&s->region.headers[slot]))}, buf,
                         &o))
            continue;
        struct publication_entry here = entry_of(&o);
        if (version_less(e->version, here.version))
            continue;
        h->sums.removed++;
        h->sums.lost += here.version.region == h->self.region;
        drop_copy(h, &here);
    }
}

void home_part_publish(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                       int64_t deadline)
{
    struct home_part *h = p->home;
    (void)deadline;
    if (from->number >= p->n_members) {
        link_refuse(from, m->head.op, m->head.id, -EPERM); /* a client owns nothing */
        return;
    }
    struct publication b = {
        .from = {.region = m->publish.owner_region, .incarnation = m->publish.owner_incarnation},
        .to = {.region = m->publish.home_region, .incarnation = m->publish.home_incarnation},
        .revision = m->publish.revision,
        .stream = m->publish.stream,
        .batch = m->publish.batch,
        .member = from->number,
        .complete = m->head.flags & WIRE_COMPLETE,
    };
    struct publication_answer a;
    int e = read_batch(h, items, &b) ? home_publish(h->home, &b, peers_mono(p), &a, h->results) : -EINVAL;
    if (e == -EINVAL)
        link_blame(from, -EPROTO, "a publication breaks the contract");
    h->sums.batches += e == 0;
    h->sums.stale += e < 0;
    if (e < 0)
        link_refuse(from, m->head.op, m->head.id, e);
    else {
        drop_removed(h, &b);
        exchange_pasts(h, &b);
        answer_batch(p, from, m->head.id, &a);
    }
}
