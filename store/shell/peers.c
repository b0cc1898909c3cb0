/* peers.c: see peers.h. */
#include "store/shell/peers_internal.h"

#include "replication/address.h"
#include "replication/tcp.h"
#include "replication/tcp_address.h"
#include "store/shell/log.h"
#include "store/shell/peers_client.h"
#include "store/shell/peers_park.h"
#include "store/shell/session.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN_BYTES (128u << 10) /* of payload in one turn of the transport: some tens of microseconds */
#define DONE_NS 500000          /* an owner keeps a slot so much longer */
#define TURNS_MAX 4u            /* one after the other, while nobody waits */

/* ---- clocks ---- */

static int64_t clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t peers_mono(struct peers *p)
{
    (void)p;
    return clock_of(CLOCK_MONOTONIC);
}

struct reader_now peers_now(struct peers *p)
{
    (void)p;
    struct timespec raw, before, boot, after; /* rule 20: read in this order, nothing in between */
    clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
    clock_gettime(CLOCK_MONOTONIC, &before);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    clock_gettime(CLOCK_MONOTONIC, &after);
    return (struct reader_now){.raw = (int64_t)raw.tv_sec * 1000000000 + raw.tv_nsec,
                               .mono_before = (int64_t)before.tv_sec * 1000000000 + before.tv_nsec,
                               .boot = (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec,
                               .mono_after = (int64_t)after.tv_sec * 1000000000 + after.tv_nsec};
}

/* ---- members ---- */

bool peers_wanted(const struct server *s)
{
    return settings_wants_peers(&s->settings);
}

/* settings_finish has sorted them and found this node among them. */
static int make_members(struct peers *p, const struct settings *s)
{
    p->n_members = s->n_peers ? s->n_peers : 1;
    p->members = calloc(p->n_members, sizeof *p->members);
    if (!p->members)
        return -ENOMEM;
    int64_t now = peers_mono(p);
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        const struct settings_peer *said = s->n_peers ? &s->peers[i] : NULL;
        snprintf(m->name, sizeof m->name, "%s", said ? said->name : s->name);
        snprintf(m->address, sizeof m->address, "%s", said ? said->address : "");
        m->weight = said ? said->weight : 1;
        m->state = MEMBER_WAITING;
        m->backoff = PEERS_BACKOFF_NS;
        m->next_dial = INT64_MAX;
        m->since = now;
        if (strcmp(m->name, s->name) == 0)
            p->self = (uint16_t)i;
    }
    p->members[p->self].state = MEMBER_SELF;
    for (uint32_t i = 0; i < p->self; i++)
        member_awaited(&p->members[i], "");
    for (uint32_t i = p->self + 1u; i < p->n_members; i++) {
        p->members[i].dials = true;
        p->members[i].next_dial = now;
    }
    return 0;
}

int peers_make_homes(struct peers *p, uint32_t k)
{
    struct rendezvous_member *list = calloc(p->n_members, sizeof *list);
    if (!list)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        list[i] = (struct rendezvous_member){
            .id = rendezvous_id(m->name, (uint32_t)strlen(m->name)), .weight = m->weight, .state = MEMBER_IN};
    }
    int e = rendezvous_create(&p->homes, list, p->n_members, k);
    free(list);
    if (e == 0)
        p->revision = rendezvous_revision(p->homes);
    return e;
}

static void make_identity(struct peers *p)
{
    const struct server *s = p->server;
    struct peer_config config;
    peer_config_init(&config);
    p->identity = config.self;
    struct peer_identity *me = &p->identity;
    snprintf(me->cluster, sizeof me->cluster, "%s", s->settings.cluster);
    snprintf(me->node, sizeof me->node, "%s", p->members[p->self].name);
    snprintf(me->address, sizeof me->address, "%s", p->members[p->self].address);
    memcpy(me->region, s->region.super->uuid, sizeof me->region);
    me->region_id = s->region.super->region_id;
    me->incarnation = s->region.incarnation;
    me->pool_bytes = s->region.pool.bytes;
    me->revision = p->revision;
    me->tombstone_ns = s->settings.tombstone_ns;
    me->fresh_ns = s->settings.fresh_ns;
    me->replaceable = node_replaceable(s->node); /* no client can make a namespace replaceable: it stays so */
    struct member *own = &p->members[p->self];
    memcpy(own->region, me->region, sizeof own->region);
    own->region_id = me->region_id;
    own->incarnation = me->incarnation;
    own->pool_bytes = me->pool_bytes;
}

/* ---- open ---- */

static void readable(void *arg, int events)
{
    struct peers *p = arg;
    (void)events;
    p->readable = true;
}

static void resolved(void *arg)
{
    struct peers *p = arg;
    p->again = true;
}

/* Its entry in the list and where it listens may differ for a reason, a forwarded port or a name; where they can't be
 * told to be the same, somebody is to hear of it. A name is not looked up: of that only the port is compared. */
static bool same_place(const char *entry, const char *digits)
{
    union tcp_address address;
    struct address_text said, is;
    char why[TRANSPORT_WHY_MAX], text[TRANSPORT_ADDRESS_MAX];
    if (tcp_address_parse(entry, TCP_USE_DIGITS, &address, why, sizeof why) == 0 &&
        tcp_address_print(&address, text, sizeof text) == 0)
        return strcmp(text, digits) == 0;
    return address_split(entry, &said) == 0 && address_split(digits, &is) == 0 && said.port == is.port;
}

static void check_listen(struct member *own, const char *digits)
{
    if (!*own->address || same_place(own->address, digits))
        return;
    snprintf(own->why, sizeof own->why,
             "it listens on tcp://%.60s, but its entry in the list, where the others connect to, is %.100s", digits,
             own->address);
    log_event(LOG_WARNING, "peer '%s' is this node: %s: unless that leads here, correct 'listen' or the list",
              own->name, own->why);
}

/* What is listened on is an address that peers may be told, unless the list has one for this node. */
static int learn_address(struct peers *p)
{
    char digits[TRANSPORT_ADDRESS_MAX] = "";
    struct member *own = &p->members[p->self];
    int e = p->transport->address(p->context, digits, sizeof digits);
    if (e < 0)
        return e;
    if (e > 0)
        check_listen(own, digits);
    if (e > 0 && !*own->address)
        snprintf(own->address, sizeof own->address, "tcp://%.240s", digits);
    if (e > 0)
        log_event(LOG_INFO, "peers are listened for on tcp://%s: '%s' of cluster '%s', one of %u", digits, own->name,
                  p->server->settings.cluster, p->n_members);
    return 0;
}

int peers_open_transport(struct peers *p, const char *listen, char *why, size_t why_size)
{
    struct server *s = p->server;
    struct transport_config config = {.listen = listen, .turn_bytes = TURN_BYTES, .done_ns = DONE_NS, .flushed = true};
    p->transport = s && s->transport ? s->transport : &tcp_transport;
    int e = p->transport->open(&p->context, &config, &peers_events, p, why, why_size);
    if (e < 0) {
        p->context = NULL;
        return e;
    }
    e = p->client ? 0 : learn_address(p);
    if (e == 0 && !p->client)
        e = p->transport->expose(p->context, s->region.pool.fd, s->region.pool.base, s->region.pool.bytes);
    if (e == 0) {
        p->watch = watch_open(&s->loop, p->transport->descriptor(p->context), UV_READABLE, readable, p);
        p->resolver = resolver_open(&s->loop, resolved, p);
        e = p->watch && p->resolver ? 0 : -ENOMEM;
    }
    if (e < 0)
        snprintf(why, why_size, "the transport to peers can't be set up: %s", strerror(-e));
    return e;
}

static int check_names(const struct server *s, char *why, size_t why_size)
{
    const char *name = node_namespace_numbered(s->node);
    if (!name)
        return 0;
    snprintf(
        why, why_size,
        "region '%s' is of a version that numbered namespaces in the order of their making, '%s' too: to peers its "
        "objects mean nothing: remove the region, or run without peers",
        s->region.path, name);
    return -EINVAL;
}

static int open_parts(struct peers *p, char *why, size_t why_size)
{
    int e = home_part_open(p, why, why_size);
    if (e == 0)
        e = serve_part_open(p, why, why_size);
    return e == 0 ? pull_part_open(p, why, why_size) : e;
}

int peers_open(struct peers **out, struct server *s, char *why, size_t why_size)
{
    *out = NULL;
    if (!peers_wanted(s))
        return 0;
    int e = check_names(s, why, why_size);
    if (e < 0)
        return e;
    struct peers *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(why, why_size, "no memory for the peers");
        return -ENOMEM;
    }
    p->server = s;
    p->strangers_told = p->visits.told = INT64_MIN / 2;
    p->strangers_due = p->visits.due = INT64_MAX;
    TAILQ_INIT(&p->links);
    TAILQ_INIT(&p->parked);
    snprintf(why, why_size, "no memory for the peers");
    e = make_members(p, &s->settings);
    if (e == 0)
        e = peers_make_homes(p, s->settings.homes);
    if (e == 0)
        e = peers_open_transport(p, strcmp(s->settings.listen, "off") != 0 ? s->settings.listen : NULL, why, why_size);
    if (e == 0) {
        make_identity(p);
        e = open_parts(p, why, why_size);
    }
    p->again = true;
    if (e < 0) {
        peers_close(p);
        return e;
    }
    await_begin(p, peers_mono(p));
    *out = p;
    return 0;
}

/* ---- turns ---- */

void peers_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    if (p->client) {
        client_up(p, number, other);
        return;
    }
    home_part_up(p, number, other);
    serve_part_up(p, number, other);
    pull_part_up(p, number, other);
    await_met(p, number);
}

/* Who takes hears of it first: what it had under way is over before anybody else acts on the loss. */
void peers_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    if (p->client) {
        client_down(p, number, serial, status);
        return;
    }
    pull_part_down(p, number, serial, status);
    serve_part_down(p, number, serial, status);
    home_part_down(p, number, serial, status);
}

uint64_t peers_counter(const struct peers *p)
{
    return p->client ? p->seen : node_seen(p->server->node);
}

/* Counters that others have seen: this node's next version goes beyond them (rule 28). */
static void tell_seen(struct peers *p)
{
    if (p->client || p->seen <= p->seen_told)
        return;
    struct node_event ev = {.kind = EV_SEEN, .counter = p->seen};
    p->seen_told = p->seen;
    dispatch(p->server, &ev);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Looks at every link: once a turn, not in each pass of the loop. Whoever changes a timer elsewhere sets `again`. */
static int64_t next_due(const struct peers *p)
{
    int64_t parts = sooner(home_part_timer(p), sooner(serve_part_timer(p), pull_part_timer(p)));
    parts = sooner(parts, p->client ? client_timer(p) : await_timer(p));
    return sooner(parts, sooner(sooner(p->strangers_due, p->visits.due), links_timer(p)));
}

static bool client_waits(const struct server *s)
{
    for (unsigned i = 0; i < s->n_sessions; i++) {
        if (session_has_work(s->sessions[i]))
            return true;
    }
    return false;
}

/* Several turns at once save wake-ups of clients, whose pulls are then done together; but not where a client has asked
 * something meanwhile, or a small transfer is done, which somebody may wait for alone. */
static void turn_transport(struct peers *p)
{
    p->hurry = false;
    for (unsigned i = 0; i < TURNS_MAX && p->readable && !p->hurry && (i == 0 || !client_waits(p->server)); i++) {
        int rc = p->transport->turn(p->context);
        p->readable = rc > 0;
        if (rc < 0 && !p->broken) {
            log_event(LOG_ERROR, "the transport to peers does not work any more: %s", strerror(-rc));
            p->broken = true;
        }
    }
}

bool peers_turn(struct peers *p)
{
    if (!p)
        return false;
    int64_t now = p->client ? peers_mono(p) : p->server->now.mono; /* of this pass */
    bool any = p->readable || p->again;
    if (!any && p->due > now) {
        p->heard = false;
        return false;
    }
    p->again = false;
    p->heard = p->readable;
    if (p->pull)
        pull_part_begin(p);
    turn_transport(p);
    peers_tell(p, now);
    tell_seen(p);
    now = peers_mono(p);
    links_turn(p, now);
    if (p->client) {
        client_turn(p, now);
    } else {
        await_turn(p, now);
        home_part_turn(p, now);
        serve_part_turn(p, now);
    }
    if (p->pull)
        pull_part_turn(p, now);
    p->transport->flush(p->context);
    p->due = next_due(p);
    return any;
}

int64_t peers_timer(const struct peers *p)
{
    return p ? p->due : INT64_MAX;
}

bool peers_heard(const struct peers *p)
{
    return p && p->heard;
}

void peers_look(struct peers *p)
{
    struct pollfd fd = {.events = POLLIN};
    if (!p || p->readable)
        return;
    fd.fd = p->transport->descriptor(p->context);
    p->readable = poll(&fd, 1, 0) > 0;
}

bool peers_busy(const struct peers *p)
{
    return p && (p->readable || p->again);
}

void peers_command(struct peers *p, const struct node_command *c)
{
    if (!p)
        return;
    if (c->kind == CMD_PUBLISHED)
        home_part_command(p, c);
    else
        serve_part_command(p, c);
    p->again = true;
}

/* ---- close ---- */

void peers_stop(struct peers *p)
{
    if (!p || p->stopping)
        return;
    p->stopping = true;
    links_stop(p, peers_mono(p));
    p->transport->flush(p->context);
    p->again = true;
}

static void linger(struct peers *p)
{
    int64_t end = peers_mono(p) + PEERS_LINGER_NS;
    while (!links_empty(p) && peers_mono(p) < end) {
        struct pollfd fd = {.fd = p->transport->descriptor(p->context), .events = POLLIN};
        poll(&fd, 1, 10);
        p->readable = true;
        peers_turn(p);
    }
}

void peers_close(struct peers *p)
{
    if (!p)
        return;
    if (p->context) {
        peers_stop(p);
        linger(p);
        links_end(p);
        park_close(p);
        pull_part_close(p);
        serve_part_close(p);
        home_part_close(p);
    }
    watch_close(p->watch);
    resolver_close(p->resolver);
    if (p->context)
        p->transport->close(p->context);
    client_free(p);
    rendezvous_destroy(p->homes);
    free(p->members);
    free(p);
}
