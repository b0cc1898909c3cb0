/* peers_dial.c: which links there are: connecting, who is let in, ups and downs of members, the transport's events.
 *
 * Of two members the one that sorts lower connects, so that there is one link and no race between two. It tries
 * again for ever, each time later, up to PEERS_BACKOFF_EARLY_NS at first and PEERS_BACKOFF_MAX_NS then. A name is
 * resolved on a thread of its own: the resolver may take minutes, and does so for nobody but that member.
 */
#include "store/shell/peers_internal.h"

#include "replication/tcp_address.h"
#include "store/shell/log.h"
#include "store/shell/peers_client.h"
#include "store/shell/trim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GREETING_MAX 64u                /* links that others have opened and that are not up yet */
#define REFUSED_NS INT64_C(60000000000) /* the same refusal is said again after so long */

/* ---- links ---- */

static int32_t fit(void *env, const struct peer_identity *other, char *why, size_t size);

static struct link *link_make(struct peers *p, uint16_t wanted, bool incoming, int64_t now)
{
    struct peer_config config;
    struct link *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    peer_config_init(&config);
    config.self = p->identity;
    config.dials = !incoming;
    config.fit = fit;
    config.env = l;
    l->peers = p;
    l->number = MEMBER_NONE;
    l->wanted = wanted;
    l->incoming = incoming;
    l->linger = INT64_MAX;
    l->peers_now = now;
    l->free_asked = PEER_PENDING_MAX;
    l->serial = ++p->serial;
    if (peer_create(&l->peer, &config, now) < 0) {
        free(l);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&p->links, l, entry);
    return l;
}

static void link_free(struct link *l)
{
    TAILQ_REMOVE(&l->peers->links, l, entry);
    trim_freed(l->peers->server);
    peer_destroy(l->peer);
    free(l->backlog);
    free(l->asked);
    free(l);
}

/* ---- members ---- */

static uint16_t member_find(const struct peers *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (strcmp(p->members[i].name, name) == 0)
            return (uint16_t)i;
    }
    return MEMBER_NONE;
}

/* While it is not connected the reason names the address: it may be the wrong one. */
static void member_says(struct member *m, int32_t status, const char *why)
{
    const char *scheme = strstr(m->address, "://");
    bool names = m->state == MEMBER_CONNECTED || !*why || strstr(why, scheme ? scheme + 3 : m->address);
    m->status = status;
    snprintf(m->why, sizeof m->why, "%s%s%s", names ? "" : m->address, names ? "" : ": ", why);
}

/* Who connects to this node is not looked for: whether it runs, and why it does not come, only its own log knows. */
void member_awaited(struct member *m, const char *why)
{
    snprintf(
        m->why, sizeof m->why,
        "%.300s%sit has not connected to this node%s: if it runs, its log says why (the address that it has for this "
        "node may be wrong)",
        why, *why ? ": " : "", m->ups ? " since" : " yet");
}

/* Members of one node try at different times, and always at the same ones. */
static int64_t spread(const struct peers *p, const struct member *m)
{
    uint64_t id = rendezvous_id(m->name, (uint32_t)strlen(m->name)) ^ p->identity.region_id;
    return (int64_t)(id % (uint64_t)(m->backoff / PEERS_SPREAD_PART));
}

static void dial_failed(struct peers *p, struct member *m, int32_t status, const char *why, int64_t now)
{
    member_says(m, status, why);
    m->state = MEMBER_WAITING;
    m->next_dial = now + m->backoff + spread(p, m);
    int64_t most = now - m->since < PEERS_EARLY_NS ? PEERS_BACKOFF_EARLY_NS : PEERS_BACKOFF_MAX_NS;
    m->backoff = 2 * m->backoff < most ? 2 * m->backoff : most;
    if (p->client) { /* in somebody's process: its calls say so */
        client_unreached(p, m, status, why);
        return;
    }
    if (p->stopping || strcmp(m->told, why) == 0)
        return;
    snprintf(m->told, sizeof m->told, "%s", why);
    log_event(LOG_WARNING, "no connection to peer '%s' at %s: %s", m->name, m->address, why);
}

static void add_stats(struct peer_stats *sum, const struct peer *peer)
{
    struct peer_stats st;
    peer_stats(peer, &st);
    sum->messages_in += st.messages_in;
    sum->messages_out += st.messages_out;
    sum->bytes_in += st.bytes_in;
    sum->bytes_out += st.bytes_out;
    sum->strays += st.strays;
    sum->timeouts += st.timeouts;
    sum->again += st.again;
    sum->busy += st.busy;
    sum->pings += st.pings;
}

/* Who connects and is refused may be a member, or say that it is one: the status of this side is to say why too. What
 * is up stays as it is. */
static void refused_member(struct peers *p, const struct link *l, int32_t status)
{
    uint16_t i = l->other.client ? MEMBER_NONE : member_find(p, l->other.node);
    if (i != MEMBER_NONE && i != p->self && !p->members[i].link && !p->members[i].dials)
        member_says(&p->members[i], status, l->why);
}

static void refused(struct peers *p, const struct link *l, int32_t status, int64_t now)
{
    refused_member(p, l, status);
    if (p->stopping || (strcmp(p->refused, l->why) == 0 && now - p->refused_at < REFUSED_NS))
        return;
    snprintf(p->refused, sizeof p->refused, "%s", l->why);
    p->refused_at = now;
    log_often(LOG_WARNING, "a connection to the peers' port was not let in: %s", l->why);
}

static void member_down(struct peers *p, struct member *m, struct link *l, int32_t status, int64_t now)
{
    if (m->link != l)
        return;
    m->link = NULL;
    m->downs++;
    m->since = now;
    m->told[0] = '\0';
    member_says(m, status, l->why);
    m->state = MEMBER_WAITING;
    if (m->dials)
        m->next_dial = now + m->backoff + spread(p, m);
    else if (!p->client)
        member_awaited(m, l->why);
    log_event(p->stopping || p->client ? LOG_INFO : LOG_WARNING, "peer '%s' is down: %s", m->name, l->why);
}

void member_lost(struct link *l, bool was_up, int32_t status)
{
    struct peers *p = l->peers;
    int64_t now = peers_mono(p);
    struct member *m = l->number < p->n_members   ? &p->members[l->number]
                       : l->wanted < p->n_members ? &p->members[l->wanted]
                                                  : NULL;
    if (m)
        add_stats(&m->gone, l->peer);
    if (m && m->dialled == l)
        m->dialled = NULL;
    if (m && was_up)
        member_down(p, m, l, status, now);
    else if (m)
        dial_failed(p, m, status, l->why, now);
    else if (!was_up)
        refused(p, l, status, now);
    else
        client_went(p, l);
}

/* ---- who is let in ---- */

static bool client_room(const struct peers *p, uint32_t *place)
{
    for (uint32_t i = 0; i < PEERS_CLIENTS_MAX; i++) {
        if (!(p->clients[i / 64] >> (i % 64) & 1)) {
            *place = i;
            return true;
        }
    }
    return false;
}

static int32_t fit_member(const struct link *l, const struct peer_identity *other, char *why, size_t size)
{
    const struct peers *p = l->peers;
    uint16_t i = member_find(p, other->node);
    if (i == MEMBER_NONE) {
        snprintf(why, size, "'%s' is not in the member list of '%s'", other->node, p->identity.node);
        return -EACCES;
    }
    const struct member *m = &p->members[i];
    if (i == p->self) {
        snprintf(why, size, "two nodes have the name '%s'", other->node);
        return -EADDRINUSE;
    }
    if (l->wanted != MEMBER_NONE && i != l->wanted) {
        snprintf(why, size, "'%.63s' was looked for at %.80s, but '%.63s' is there", p->members[l->wanted].name,
                 p->members[l->wanted].address, other->node);
        return -EADDRNOTAVAIL;
    }
    if (l->wanted == MEMBER_NONE && m->dials) {
        snprintf(why, size, "'%s' connects to '%s', not the other way round", p->identity.node, other->node);
        return -EPROTO;
    }
    bool same = memcmp(m->region, other->region, sizeof m->region) == 0;
    if (m->link && !m->link->closing && !same) {
        snprintf(why, size, "another node with the name '%s' is connected", other->node);
        return -EADDRINUSE;
    }
    if (same && m->region_id == other->region_id && other->incarnation < m->incarnation) {
        snprintf(why, size, "'%s' has been started again since", other->node);
        return -ESTALE;
    }
    return 0;
}

static int32_t fit(void *env, const struct peer_identity *other, char *why, size_t size)
{
    const struct link *l = env;
    uint32_t place;
    if (l->peers->stopping) {
        snprintf(why, size, "'%s' stops", l->peers->identity.node);
        return BERTH_ENODE;
    }
    if (l->peers->client)
        return client_fit(l, other, why, size);
    if (!other->client)
        return fit_member(l, other, why, size);
    if (client_room(l->peers, &place))
        return 0;
    snprintf(why, size, "'%s' has as many clients as it takes, %u", l->peers->identity.node, PEERS_CLIENTS_MAX);
    return -EUSERS;
}

static void member_up(struct peers *p, struct link *l, const struct peer_identity *other)
{
    struct member *m = &p->members[l->number];
    if (m->link) { /* the other side has given that one up before we noticed */
        snprintf(m->link->why, sizeof m->link->why, "it has connected anew");
        link_disconnect(m->link);
    }
    if (m->dialled == l)
        m->dialled = NULL;
    m->link = l;
    m->state = MEMBER_CONNECTED;
    m->backoff = PEERS_BACKOFF_NS;
    m->next_dial = INT64_MAX;
    m->since = l->peers_now;
    m->ups++;
    m->told[0] = '\0';
    member_says(m, 0, "");
    memcpy(m->region, other->region, sizeof m->region);
    m->region_id = other->region_id;
    m->incarnation = other->incarnation;
    m->pool_bytes = other->pool_bytes;
    log_event(LOG_INFO, "peer '%s' is up: %s, start %llu of region %016llx", m->name, l->connection->peer,
              (unsigned long long)m->incarnation, (unsigned long long)m->region_id);
}

void link_greeted(struct link *l, const struct peer_identity *other)
{
    struct peers *p = l->peers;
    uint32_t place = 0;
    l->other = *other;
    if (other->client) {
        client_room(p, &place); /* there was room at `fit`, a moment ago */
        p->clients[place / 64] |= UINT64_C(1) << (place % 64);
        l->number = (uint16_t)(PEERS_CLIENTS + place);
        client_came(p, l);
    } else {
        l->number = p->client ? l->wanted : member_find(p, other->node);
        member_up(p, l, other);
    }
    l->up = true;
    peers_up(p, l->number, &l->other);
}

/* ---- connecting ---- */

static void connect_to(struct peers *p, uint16_t i, const char *digits, int64_t now)
{
    struct member *m = &p->members[i];
    char why[TRANSPORT_WHY_MAX] = "no memory";
    struct link *l = link_make(p, i, false, now);
    int e = l ? 0 : -ENOMEM;
    if (p->client && !client_may_dial(p, digits)) {
        e = -EACCES;
        snprintf(why, sizeof why,
                 "%s is no loopback address: there is no authentication yet, so whoever is between could read and "
                 "change what comes: if that network is trusted, add peer-trust=network",
                 digits);
    }
    e = e ? e : p->transport->connect(p->context, digits, l, &l->connection, why, sizeof why);
    if (e < 0) {
        if (l)
            link_free(l);
        dial_failed(p, m, e, why, now);
        return;
    }
    m->dialled = l;
    m->state = MEMBER_CONNECTING;
}

/* The resolver's answer, if it is there. */
static void resolved(struct peers *p, uint16_t i, int64_t now)
{
    struct member *m = &p->members[i];
    struct resolved answer;
    if (!m->asked || !question_answered(m->asked, &answer))
        return;
    m->asked = NULL;
    if (answer.status < 0)
        dial_failed(p, m, answer.status, answer.why, now);
    else if (!p->stopping)
        connect_to(p, i, answer.digits, now);
}

static void dial(struct peers *p, uint16_t i, int64_t now)
{
    struct member *m = &p->members[i];
    union tcp_address address;
    char why[TRANSPORT_WHY_MAX], digits[TRANSPORT_ADDRESS_MAX];
    m->next_dial = INT64_MAX;
    if (tcp_address_parse(m->address, TCP_USE_DIGITS, &address, why, sizeof why) == 0 &&
        tcp_address_print(&address, digits, sizeof digits) == 0) {
        connect_to(p, i, digits, now);
        return;
    }
    int e = resolver_ask(p->resolver, p->transport, m->address, &m->asked);
    if (e < 0)
        dial_failed(p, m, e, "the resolver can't be asked", now);
    else
        m->state = MEMBER_RESOLVING;
}

static bool dials_at_all(const struct peers *p, const struct member *m)
{
    return m->dials && !m->link && !m->dialled && !m->asked && !p->stopping;
}

/* ---- turns ---- */

static void tend(struct link *l, int64_t now)
{
    if (l->dead)
        return;
    if (l->doomed || (l->closing && now >= l->linger)) {
        link_disconnect(l);
    } else if (peer_timer(l->peer) <= now) {
        if (l->connection && l->connection->heard_ns) { /* what flows is life, though no message comes through */
            struct peer_event heard = {.kind = PEER_EV_ALIVE, .at = l->connection->heard_ns};
            link_event(l, &heard);
        }
        struct peer_event ev = {.kind = PEER_EV_TICK};
        link_event(l, &ev);
    }
}

void links_turn(struct peers *p, int64_t now)
{
    struct link *l, *next;
    TAILQ_FOREACH(l, &p->links, entry)
    tend(l, now);
    for (l = TAILQ_FIRST(&p->links); l; l = next) {
        next = TAILQ_NEXT(l, entry);
        if (l->dead)
            link_free(l);
    }
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        resolved(p, (uint16_t)i, now);
        if (dials_at_all(p, m) && m->next_dial <= now)
            dial(p, (uint16_t)i, now);
    }
}

int64_t links_timer(const struct peers *p)
{
    int64_t at = INT64_MAX;
    const struct link *l;
    TAILQ_FOREACH(l, &p->links, entry)
    {
        int64_t due = l->dead || l->doomed ? 0 : l->closing ? l->linger : peer_timer(l->peer);
        at = due < at ? due : at;
    }
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (dials_at_all(p, &p->members[i]) && p->members[i].next_dial < at)
            at = p->members[i].next_dial;
    }
    return at;
}

void links_stop(struct peers *p, int64_t now)
{
    struct link *l;
    TAILQ_FOREACH(l, &p->links, entry)
    {
        if (!l->dead && !l->closing)
            link_goodbye(l, now);
    }
}

bool links_empty(const struct peers *p)
{
    return TAILQ_EMPTY(&p->links);
}

void links_end(struct peers *p)
{
    struct link *l;
    TAILQ_FOREACH(l, &p->links, entry)
    {
        if (!l->dead)
            link_disconnect(l);
    }
    while ((l = TAILQ_FIRST(&p->links)))
        /* It leaves the list there. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        link_free(l);
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (p->members[i].asked)
            question_drop(p->members[i].asked);
        p->members[i].asked = NULL;
    }
}

/* ---- the transport's events ---- */

static void on_connected(void *env, struct connection *c, int status, const char *why)
{
    struct peers *p = env;
    struct link *l = c->user;
    struct peer_event ev = {.kind = PEER_EV_OPENED};
    p->again = true;
    if (status < 0) {
        snprintf(l->why, sizeof l->why, "%s", why);
        link_closed(l, status);
        return;
    }
    l->connected = true;
    link_event(l, &ev);
}

static void on_accepted(void *env, struct connection *c)
{
    struct peers *p = env;
    uint32_t greeting = 0;
    struct link *l;
    TAILQ_FOREACH(l, &p->links, entry)
    greeting += l->incoming && !l->up && !l->dead;
    l = p->stopping || greeting >= GREETING_MAX ? NULL : link_make(p, MEMBER_NONE, true, peers_mono(p));
    if (!l) {
        p->transport->disconnect(p->context, c);
        return;
    }
    l->connection = c;
    l->connected = true;
    c->user = l;
}

static void on_closed(void *env, struct connection *c, int status, const char *why)
{
    struct peers *p = env;
    struct link *l = c->user;
    if (!l)
        return;
    p->again = true;
    if (!*l->why && status < 0)
        snprintf(l->why, sizeof l->why, "%s", why);
    link_closed(l, status);
}

static void on_message(void *env, struct connection *c, const void *bytes, size_t n)
{
    struct peer_event ev = {.kind = PEER_EV_MESSAGE, .bytes = bytes, .n = n};
    struct link *l = c->user;
    (void)env;
    if (l && !l->dead)
        link_event(l, &ev);
}

static void on_room(void *env, struct connection *c)
{
    (void)env;
    if (c->user)
        link_drain(c->user);
}

static int on_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    struct link *l = c->user;
    return l && l->up && !l->closing && l->peers->serve ? serve_part_admit(env, l, want, token) : -ENOTCONN;
}

static void on_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    struct peers *p = env;
    if (c->user && p->serve)
        serve_part_served(env, c->user, lease, token, status);
}

const struct transport_events peers_events = {.connected = on_connected,
                                              .accepted = on_accepted,
                                              .closed = on_closed,
                                              .message = on_message,
                                              .room = on_room,
                                              .admit = on_admit,
                                              .served = on_served};
