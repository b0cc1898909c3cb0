/* peers_pull_job.c: PULL and CANCEL of this node's clients.
 *
 * A job is kept from the message's coming until the puller is done with it, also where its session has gone: its memory
 * is written until then. Memory named by address belongs to a client of this very process: an embedded node's. The
 * kernel says whose a session's socket is (SO_PEERCRED), so no other process can name an address here. Others name a
 * buffer that their connection has registered; where it has none of this number, as after a new attachment, the answer
 * waits until what was begun over the earlier one writes no more: the client goes on to use the memory then.
 */
#include "store/shell/peers_client.h"
#include "store/shell/peers_pull.h"

#include "store/berth.h"
#include "store/shell/buffers.h"
#include "store/shell/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOB_CHAINS 1024u
#define ASKED_MAX_NS INT64_C(10000000000) /* a client's word for when it asked, at most so long ago */

_Static_assert((int)MSG_PULL_VERIFY == (int)PULL_VERIFY && (int)MSG_PULL_WAIT == (int)PULL_WAIT &&
                   (int)MSG_PULL_FRESH == (int)PULL_FRESH && (int)MSG_PULL_PREFIX == (int)PULL_PREFIX,
               "flags are passed on");
_Static_assert((int)MSG_PULL_PHASES == (int)PULL_PHASES && (int)BERTH_PHASES == (int)PULL_PHASES &&
                   (int)BERTH_PHASE_TRANSFER == (int)PULL_TRANSFER && (int)BERTH_PHASE_TOTAL == (int)PULL_TOTAL,
               "phases are passed on in their order");
_Static_assert((int)MSG_PULL_REPLICA == (int)PULL_REPLICA && (int)MSG_PULL_BUFFER == (int)PULL_BUFFER, "kinds, too");
_Static_assert(MSG_PULL_RANGES == PULL_RANGES_MAX, "and bounds");
_Static_assert(MSG_PULL_KEYS <= PULL_KEYS_MAX, "a message is one request");
_Static_assert(sizeof(struct msg_pull_range) == sizeof(struct pull_range), "ranges are passed on");

struct job {
    TAILQ_ENTRY(job) entry;
    struct pull_link by_id;
    uint64_t id; /* the puller's */
    uint64_t session;
    struct msg_head head;
    struct msg_head cancel;   /* to be answered behind it */
    struct msg_pull *message; /* until it is begun */
    struct buffer *buffer;    /* that it writes into, or NULL; this is one of its users */
    int32_t refused;          /* its answer, once the session's orphans are quiet; 0: it is none yet */
    uint32_t count;
    void *key; /* STAT: the key, of .. */
    uint32_t key_size, ns;
    bool orphan;    /* nobody is to be answered */
    bool to_cancel; /* in the next turn */
    bool has_cancel;
};

int jobs_open(struct taking *q)
{
    TAILQ_INIT(&q->jobs);
    return pull_table_create(&q->jobs_by_id, JOB_CHAINS);
}

static void job_free(struct taking *q, struct job *j)
{
    TAILQ_REMOVE(&q->jobs, j, entry);
    pull_table_remove(&q->jobs_by_id, &j->by_id);
    if (j->buffer) {
        buffer_leave(j->buffer);
        q->jobs_due = true; /* one that was refused may wait for this */
        q->peers->again = true;
    }
    free(j->message);
    free(j->key);
    free(j);
}

void jobs_close(struct taking *q)
{
    struct job *j;
    while ((j = TAILQ_FIRST(&q->jobs)))
        job_free(q, j);
    pull_table_destroy(&q->jobs_by_id);
}

/* ---- answers ---- */

/* flags: of the request. */
static struct msg_reply *reply_new(struct server *s, const struct msg_head *request, uint32_t flags, uint32_t count)
{
    size_t bytes = sizeof(struct msg_reply) + count * msg_pulled_bytes(flags);
    struct msg_reply *r = pull_memory(bytes + sizeof(struct msg_unasked));
    r->head = (struct msg_head){.bytes = (uint32_t)bytes, .op = request->op, .id = request->id};
    r->head.stamp = (uint64_t)server_clock(s);
    r->count = count;
    return r;
}

static void show(const struct pull_result *from, int status, struct msg_pulled *to)
{
    *to = (struct msg_pulled){.status = status,
                              .member = from->member,
                              .size = from->size,
                              .moved = from->moved,
                              .copied = from->copied,
                              .counter = from->version.counter,
                              .region = from->version.region};
    to->flags = (uint16_t)((from->verified ? MSG_PULLED_VERIFIED : 0) | (from->shared ? MSG_PULLED_SHARED : 0) |
                           (from->status == BERTH_KEPT ? MSG_PULLED_LOCAL : 0));
}

static void show_record(const struct taking *q, const struct pull_result *from, struct msg_pull_record *to)
{
    bool came = from->member < q->peers->n_members;
    *to = (struct msg_pull_record){.lease = from->lease, .requests = from->requests, .stale = from->stale};
    if (came)
        snprintf(to->source, sizeof to->source, "%s", q->peers->members[from->member].name);
    if (came && from->transport)
        snprintf(to->transport, sizeof to->transport, "%s", from->transport);
    for (unsigned i = 0; i < MSG_PULL_PHASES; i++)
        to->phase_ns[i] = from->phase_ns[i];
}

/* Behind what r has: of whom it is not known what it has, as the first of the n results has it that says so. r has room
 * for it. */
static void add_unasked(const struct taking *q, const struct pull_result *results, uint32_t n, struct msg_reply *r)
{
    struct msg_unasked m = {{0}};
    for (uint32_t i = 0; i < n && !*m.name; i++) {
        bool unsure = results[i].status == BERTH_EUNSURE || results[i].status == -ETIMEDOUT;
        uint32_t number = unsure ? results[i].unasked - 1 : UINT32_MAX;
        if (number < q->peers->n_members)
            snprintf(m.name, sizeof m.name, "%s", q->peers->members[number].name);
    }
    if (*m.name) {
        memcpy((uint8_t *)r + r->head.bytes, &m, sizeof m);
        r->head.bytes += (uint32_t)sizeof m;
    }
}

static void refuse_stat(const struct taking *q, struct session *to, const struct job *j, const struct pull_result *from)
{
    struct {
        struct msg_reply reply;
        struct msg_unasked unasked;
    } m = {.reply = {.head = {.bytes = sizeof m.reply, .op = j->head.op, .id = j->head.id}, .status = from->status}};
    m.reply.head.stamp = (uint64_t)server_clock(to->server);
    add_unasked(q, from, 1, &m.reply);
    session_reply(to, &m.reply);
}

/* The figures of the first key for which this node's pool has no room, as a put's reply has them. */
static void show_room(const struct taking *q, const struct pull_command *c, struct msg_reply *r)
{
    uint64_t figure[4];
    for (uint32_t i = 0; i < c->n && !q->peers->client; i++) {
        if (c->results[i].no_room) {
            node_room(q->peers->server->node, c->results[i].size, figure);
            r->counter = figure[0];
            r->region = figure[1];
            r->figure[0] = figure[2];
            r->figure[1] = figure[3];
            return;
        }
    }
}

/* A client's STAT is a pull of nothing. What only the owner's index has stays 0. */
static void answer_stat(const struct taking *q, struct session *to, const struct job *j, const struct pull_result *from)
{
    size_t padded = (j->key_size + 7u) & ~7u, bytes = sizeof(struct msg_reply) + sizeof(struct msg_stat) + padded;
    struct msg_stat stat = {.counter = from->version.counter,
                            .region = from->version.region,
                            .checksum = from->checksum,
                            .lineage = from->lineage,
                            .size = (uint32_t)from->size,
                            .ns = j->ns,
                            .key_size = (uint16_t)j->key_size,
                            .segment = from->segment_log2};
    if (from->status) {
        refuse_stat(q, to, j, from);
        return;
    }
    struct msg_reply *r = pull_memory(bytes);
    r->head = (struct msg_head){.bytes = (uint32_t)bytes, .op = j->head.op, .id = j->head.id};
    r->head.stamp = (uint64_t)server_clock(to->server);
    memcpy(r + 1, &stat, sizeof stat);
    memcpy((uint8_t *)(r + 1) + sizeof stat, j->key, j->key_size);
    session_reply(to, r);
    free(r);
}

/* A client that reaches nobody says so, and one whose list is out of date has to be opened anew. */
static int status_of(const struct peers *p, int status)
{
    if (!p->client || status != BERTH_EUNSURE)
        return status;
    return p->client->changed ? BERTH_ERESTART : client_has_link(p) ? status : BERTH_ENODE;
}

/* Whether this node's end leaves it to the next one: the client of another process attaches again, and asks again for
 * what was not answered, until its own deadline. The node of its own process ends with it. */
static bool left_over(const struct taking *q, const struct session *to)
{
    return q->peers->stopping && to->pid != getpid();
}

static bool failed(const struct pull_command *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->results[i].status < 0)
            return true;
    }
    return false;
}

void job_done(struct taking *q, const struct pull_command *c)
{
    struct server *s = q->peers->server;
    struct job *j = NULL;
    for (struct pull_link *l = pull_table_first(&q->jobs_by_id, pull_table_mix(c->id)); l && !j;
         l = pull_table_next(l)) {
        struct job *at = CONTAINER(l, struct job, by_id);
        j = at->id == c->id ? at : NULL;
    }
    if (!j)
        return;
    struct session *to = j->orphan ? NULL : sessions_find(s, j->session);
    if (to && left_over(q, to) && failed(c))
        to = NULL;
    if (to && j->head.op == MSG_STAT) {
        struct pull_result result = c->results[0];
        result.status = status_of(q->peers, result.status);
        answer_stat(q, to, j, &result);
    } else if (to) {
        struct msg_reply *r = reply_new(s, &j->head, j->head.flags, c->n);
        struct msg_pulled *pulled = (struct msg_pulled *)(r + 1);
        struct msg_pull_record *record = (struct msg_pull_record *)(pulled + c->n);
        bool prefix = j->head.flags & PULL_PREFIX; /* begin() keeps the request's flags there */
        for (uint32_t i = 0; i < c->n; i++) {
            show(&c->results[i], status_of(q->peers, c->results[i].status), &pulled[i]);
            if (j->head.flags & MSG_PULL_RECORD)
                show_record(q, &c->results[i], &record[i]);
            r->status += !prefix && c->results[i].status >= 0;
        }
        r->status += prefix ? (int32_t)c->run : 0;
        add_unasked(q, c->results, c->n, r);
        show_room(q, c, r);
        session_reply(to, r);
        free(r);
        if (j->has_cancel)
            session_answer(to, &j->cancel, 0, 0);
    }
    job_free(q, j);
}

/* Nothing is known of any key. */
static void answer_absent(struct session *to, const struct msg_pull *m)
{
    struct msg_reply *r = reply_new(to->server, &m->head, m->flags, m->count);
    struct msg_pulled *pulled = (struct msg_pulled *)(r + 1);
    for (uint32_t i = 0; i < m->count; i++)
        pulled[i] = (struct msg_pulled){.status = -ENOENT, .member = UINT16_MAX};
    session_reply(to, r);
    free(r);
}

/* ---- requests: from dispatch ---- */

static void keep_key(struct job *j)
{
    const struct msg_pull_key *k = (const struct msg_pull_key *)(j->message + 1);
    j->key_size = k->key_size;
    j->ns = k->ns;
    j->key = pull_memory(k->key_size);
    memcpy(j->key, msg_pull_name(k), k->key_size);
}

/* Whether everything that is to be written lies in the buffer. */
static bool within(const struct buffer *b, const struct msg_pull *m)
{
    const struct msg_pull_key *k = (const struct msg_pull_key *)(m + 1);
    for (uint32_t i = 0; i < m->count; i++, k = msg_pull_next(k)) {
        const struct msg_pull_range *r = msg_pull_ranges(k);
        if (k->to > b->bytes || k->room > b->bytes - k->to)
            return false;
        for (uint32_t a = 0; a < k->n_ranges; a++) {
            if (r[a].to > b->bytes || r[a].length > b->bytes - r[a].to)
                return false;
        }
    }
    return true;
}

static void job_new(struct peers *p, const struct session *from, const struct msg_pull *m, struct buffer *buffer,
                    int32_t refused)
{
    struct taking *q = p->pull;
    struct job *j = pull_memory(sizeof *j);
    j->id = ++q->last_job;
    j->session = from->id;
    j->head = m->head;
    j->buffer = buffer;
    j->refused = refused;
    j->message = pull_memory(m->head.bytes);
    memcpy(j->message, m, m->head.bytes);
    if (m->head.op == MSG_STAT)
        keep_key(j);
    TAILQ_INSERT_TAIL(&q->jobs, j, entry);
    pull_table_add(&q->jobs_by_id, &j->by_id, pull_table_mix(j->id));
    q->jobs_due = true;
    p->again = true;
    p->server->pulled = true;
}

void peers_pull(struct peers *p, struct session *from, const struct msg_pull *m)
{
    if (p && p->pull && left_over(p->pull, from)) {
        return;
    }
    if (!p || !p->pull || p->stopping) {
        answer_absent(from, m);
    } else if (from->foreign) { /* room for it is another user's */
        session_answer(from, &m->head, BERTH_EREADONLY, 0);
    } else if (m->kind == MSG_PULL_BUFFER && from->pid != getpid()) {
        session_answer(from, &m->head, -EOPNOTSUPP, 0);
    } else {
        struct buffer *buffer = m->kind == MSG_PULL_REGISTERED ? buffer_take(from, m->buffer) : NULL;
        bool lies = buffer && !within(buffer, m);
        if (lies) {
            buffer_leave(buffer);
            session_answer(from, &m->head, -EFAULT, 0);
        } else {
            job_new(p, from, m, buffer, m->kind == MSG_PULL_REGISTERED && !buffer ? -EBADF : 0);
        }
    }
}

/* A pull of no bytes: its lease says what the object is. */
void peers_stat(struct peers *p, struct session *from, const struct msg_key *m)
{
    static uint8_t nowhere;
    size_t room = (m->key_size + 7u) & ~7u;
    size_t bytes = sizeof(struct msg_pull) + sizeof(struct msg_pull_key) + room + sizeof(struct msg_pull_range);
    if (p && p->pull && left_over(p->pull, from))
        return;
    if (!p || !p->pull || p->stopping || from->foreign) {
        session_answer(from, &m->head, p && from->foreign ? BERTH_EREADONLY : -ENOENT, 0);
        return;
    }
    struct msg_pull *pull = pull_memory(bytes);
    struct msg_pull_key *k = (struct msg_pull_key *)(pull + 1);
    memset(pull, 0, bytes);
    pull->head = m->head;
    pull->head.bytes = (uint32_t)bytes;
    pull->count = 1;
    pull->kind = MSG_PULL_BUFFER;
    pull->buffer = (uint64_t)(uintptr_t)&nowhere;
    *k = (struct msg_pull_key){.ns = m->ns, .key_size = m->key_size, .n_ranges = 1};
    memcpy(k + 1, m + 1, m->key_size);
    job_new(p, from, pull, NULL, 0);
    free(pull);
}

void peers_cancel_pull(struct peers *p, struct session *from, const struct msg_cancel *m)
{
    struct taking *q = p ? p->pull : NULL;
    struct job *j = q ? TAILQ_FIRST(&q->jobs) : NULL;
    while (j && (j->orphan || j->session != from->id || j->head.id != m->target))
        j = TAILQ_NEXT(j, entry);
    if (!j || j->has_cancel) {
        session_answer(from, &m->head, j ? -EALREADY : -ENOENT, 0);
        return;
    }
    j->has_cancel = j->to_cancel = true;
    j->cancel = m->head;
    q->jobs_due = true;
    p->again = true;
}

void peers_session_gone(struct peers *p, uint64_t session)
{
    home_waits_gone(p, session);
    struct taking *q = p ? p->pull : NULL;
    struct job *j;
    if (!q)
        return;
    TAILQ_FOREACH(j, &q->jobs, entry)
    {
        if (j->session == session && !j->orphan) {
            j->orphan = j->to_cancel = true;
            q->jobs_due = true;
            p->again = true;
        }
    }
}

/* ---- in the turn ---- */

/* A copy that is here is the answer, but for FRESH, where the home has to say that it knows of none that is newer. */
static void look(const struct server *s, const struct msg_pull *m, struct pull_key *k)
{
    if (!s->node) { /* a client's: which namespaces are replaceable is not known, but the default one is not */
        k->flags = k->key.ns ? PULL_REPLACEABLE : 0;
        return;
    }
    bool replaceable = node_namespace_replaceable(s->node, k->key.ns);
    uint32_t slot = node_find(s->node, k->key);
    k->flags = replaceable ? PULL_REPLACEABLE : 0;
    if (slot == SLOT_NONE)
        return;
    const struct slot_header *h = &s->region.headers[slot];
    const struct slots_super *super = s->region.super;
    if (!replaceable || !(m->flags & MSG_PULL_FRESH))
        k->flags |= PULL_PRESENT;
    else
        k->here = (struct object_version){
            .counter = h->version, .region = h->region ? atomic_load(&super->region_ids[h->region]) : super->region_id};
}

/* more: another event follows. */
static void begin(struct taking *q, struct job *j, bool more)
{
    struct server *s = q->peers->server;
    const struct msg_pull *m = j->message;
    const struct msg_pull_key *k = (const struct msg_pull_key *)(m + 1);
    struct pull_key keys[MSG_PULL_KEYS];
    for (uint32_t i = 0; i < m->count; i++, k = msg_pull_next(k)) {
        struct key_ref key = {.data = msg_pull_name(k), .size = k->key_size, .ns = k->ns};
        keys[i] = (struct pull_key){.key = key,
                                    .route = k->route,
                                    .n_ranges = k->n_ranges,
                                    .ranges = (const struct pull_range *)(const void *)msg_pull_ranges(k),
                                    .buffer = j->buffer ? (uint64_t)(uintptr_t)j->buffer->base : m->buffer,
                                    .to = k->to,
                                    .room = k->room};
        look(s, m, &keys[i]);
    }
    int64_t now = peers_mono(q->peers), asked = (int64_t)m->head.stamp;
    struct pull_request request = {.id = j->id,
                                   .keys = keys,
                                   .n_keys = m->count,
                                   .destination = m->kind == MSG_PULL_REPLICA ? PULL_REPLICA : PULL_BUFFER,
                                   .flags = m->flags & ~(uint32_t)MSG_PULL_RECORD,
                                   .sample = s->settings.verify,
                                   .lineage = m->lineage,
                                   .deadline = m->head.deadline,
                                   .asked = asked <= now && asked > now - ASKED_MAX_NS ? asked : now};
    struct msg_pull *message = j->message;
    j->message = NULL;
    j->head.flags = m->flags;
    /* The job may be gone after it. */
    pull_give(q, &(struct pull_event){.kind = EV_PULL_REQUEST, .request = &request, .more = more});
    free(message);
}

/* Pulls of an earlier connection that may write into memory of this one's client. */
static bool has_orphans(const struct taking *q, uint64_t session)
{
    const struct job *j;
    TAILQ_FOREACH(j, &q->jobs, entry)
    {
        if (j->orphan && j->buffer && j->session == session)
            return true;
    }
    return false;
}

static void refuse(struct taking *q, struct job *j)
{
    struct session *to = j->orphan ? NULL : sessions_find(q->peers->server, j->session);
    if (to)
        session_answer(to, &j->head, j->refused, 0);
    if (to && j->has_cancel)
        session_answer(to, &j->cancel, 0, 0);
    job_free(q, j);
}

/* The first that is due; what one leads to may take others off the list. */
static struct job *job_due(struct taking *q)
{
    struct job *j;
    TAILQ_FOREACH(j, &q->jobs, entry)
    {
        if (j->refused ? j->orphan || !has_orphans(q, j->session) : j->message || j->to_cancel)
            return j;
    }
    return NULL;
}

void jobs_turn(struct taking *q)
{
    struct job *j;
    bool more = false;
    if (!q->jobs_due)
        return;
    q->jobs_due = false;
    while ((j = job_due(q))) {
        if (j->refused) {
            refuse(q, j);
        } else if (j->message) {
            begin(q, j, true); /* those that came together are asked for together */
            more = true;
        } else {
            j->to_cancel = false;
            pull_give(q, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = j->id});
            more = false;
        }
    }
    if (more)
        pull_give(q, &(struct pull_event){.kind = EV_PULL_TICK});
}
