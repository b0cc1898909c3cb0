#include "tests/support/remote.h"

#include "replication/tcp.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PATIENCE_NS INT64_C(20000000000)

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void remote_address(struct berth *b, char *out, size_t size)
{
    char *text = NULL;
    size_t i;
    json_t *one;
    *out = '\0';
    assert_int_equal(berth_query(b, BERTH_STATUS, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL);
    json_array_foreach(json_object_get(root, "peers"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "state")), "self") == 0) {
            snprintf(out, size, "%s", json_string_value(json_object_get(one, "address")));
        }
    }
    json_decref(root);
    free(text);
    assert_true(*out);
}

/* ---- the peer's commands ---- */

static void take_items(struct remote *r, const struct peer_command *c)
{
    r->answered = true;
    r->answer_status = c->status;
    r->n = 0;
    if (c->message) {
        r->answer = *c->message;
        while (r->n < WIRE_LEASES_MAX && wire_next(c->reader, &r->item[r->n]) == 1) {
            r->n++;
        }
    }
}

static void take_request(struct remote *r, const struct peer_command *c)
{
    struct wire_item item;
    while (c->message->head.op == WIRE_RECALL && wire_next(c->reader, &item) == 1) {
        assert_true(r->n_recalled < sizeof r->recalled / sizeof *r->recalled);
        r->recalled[r->n_recalled++] = item.recall;
    }
}

static void end(struct remote *r)
{
    if (r->c) {
        tcp_transport.disconnect(r->ctx, r->c);
        r->c = NULL;
    }
}

static void carry(struct remote *r, const struct peer_command *c)
{
    switch (c->kind) {
    case PEER_SEND:
        if (r->c) {
            assert_int_equal(tcp_transport.send(r->ctx, r->c, c->bytes, c->n), 0);
        }
        break;
    case PEER_UP:
        r->up = true;
        r->node = *c->other;
        break;
    case PEER_REQUEST:
        take_request(r, c);
        break;
    case PEER_ANSWERED:
        take_items(r, c);
        break;
    case PEER_DOWN:
        r->down = true;
        r->up = false;
        r->status = r->status ? r->status : c->status;
        if (c->text && !*r->why) {
            snprintf(r->why, sizeof r->why, "%s", c->text);
        }
        break;
    case PEER_CLOSE:
        break;
    }
}

static void pump(struct remote *r)
{
    const struct peer_command *c;
    bool closes = false;
    while ((c = peer_command(r->peer))) {
        closes |= c->kind == PEER_CLOSE;
        carry(r, c);
    }
    if (closes) {
        struct peer_event ev = {.kind = PEER_EV_CLOSED};
        end(r);
        peer_event(r->peer, &ev, now());
        pump(r);
    }
}

static void event(struct remote *r, const struct peer_event *ev)
{
    if (!r->down) {
        assert_int_equal(peer_event(r->peer, ev, now()), 0);
        pump(r);
    }
}

/* ---- the transport's events ---- */

static void on_connected(void *env, struct connection *c, int status, const char *why)
{
    struct remote *r = env;
    if (status < 0) {
        fail_msg("no connection: %s", why);
    }
    (void)c;
    event(r, &(struct peer_event){.kind = PEER_EV_OPENED});
}

static void on_closed(void *env, struct connection *c, int status, const char *why)
{
    struct remote *r = env;
    (void)c;
    r->c = NULL;
    r->status = status;
    snprintf(r->why, sizeof r->why, "%s", why);
    event(r, &(struct peer_event){.kind = PEER_EV_CLOSED, .status = status});
}

static void on_message(void *env, struct connection *c, const void *bytes, size_t n)
{
    (void)c;
    event(env, &(struct peer_event){.kind = PEER_EV_MESSAGE, .bytes = bytes, .n = n});
}

static void on_accepted(void *env, struct connection *c)
{
    (void)env, (void)c;
}

static void on_room(void *env, struct connection *c)
{
    (void)env, (void)c;
}

static int on_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    (void)env, (void)c, (void)want, (void)token;
    return -EOPNOTSUPP;
}

static void on_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    (void)env, (void)c, (void)lease, (void)token, (void)status;
}

static const struct transport_events events = {on_connected, on_accepted, on_closed, on_message,
                                               on_room,      on_admit,    on_served};

/* ---- open, turn, close ---- */

void remote_turn(struct remote *r, int wait_ms)
{
    struct pollfd p = {.fd = tcp_transport.descriptor(r->ctx), .events = POLLIN};
    poll(&p, 1, wait_ms);
    while (tcp_transport.turn(r->ctx) > 0) {
        continue;
    }
    if (!r->down && peer_timer(r->peer) <= now()) {
        event(r, &(struct peer_event){.kind = PEER_EV_TICK});
    }
    tcp_transport.flush(r->ctx);
}

bool remote_until(struct remote *r, bool (*done)(void *arg), void *arg)
{
    int64_t over = now() + PATIENCE_NS;
    while (!done(arg) && !r->down && now() < over) {
        remote_turn(r, 20);
    }
    return done(arg);
}

static bool is_up(void *remote)
{
    return ((struct remote *)remote)->up;
}

bool remote_greet(struct remote *r, const char *address, const struct peer_identity *self)
{
    struct transport_config config = {0};
    struct peer_config peer;
    char digits[TRANSPORT_ADDRESS_MAX];
    *r = (struct remote){0};
    peer_config_init(&peer);
    peer.self = *self;
    peer.dials = true;
    assert_int_equal(peer_create(&r->peer, &peer, now()), 0);
    assert_int_equal(tcp_transport.open(&r->ctx, &config, &events, r, r->why, sizeof r->why), 0);
    assert_int_equal(tcp_transport.resolve(address, digits, sizeof digits, r->why, sizeof r->why), 0);
    assert_int_equal(tcp_transport.connect(r->ctx, digits, r, &r->c, r->why, sizeof r->why), 0);
    return remote_until(r, is_up, r);
}

void remote_open(struct remote *r, const char *address, const char *name)
{
    struct peer_config peer;
    peer_config_init(&peer);
    snprintf(peer.self.cluster, sizeof peer.self.cluster, "berth");
    snprintf(peer.self.node, sizeof peer.self.node, "%s", name);
    peer.self.client = true;
    peer.self.region[0] = 1;
    if (!remote_greet(r, address, &peer.self)) {
        fail_msg("'%s' is not up at %s: %s", name, address, r->why);
    }
}

void remote_close(struct remote *r)
{
    tcp_transport.close(r->ctx);
    peer_destroy(r->peer);
}

/* ---- messages ---- */

static size_t encode(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n)
{
    struct wire_writer w;
    if (wire_begin(&w, r->buffer, sizeof r->buffer, m) < 0) {
        fail_msg("%s: %s", wire_name(m->head.op), wire_fault_text(w.fault));
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(wire_add(&w, &items[i]), 0);
    }
    long bytes = wire_end(&w);
    assert_true(bytes > 0);
    return (size_t)bytes;
}

void remote_ask_only(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n)
{
    r->answered = false;
    m->head.id = 1; /* the peer gives another */
    size_t bytes = encode(r, m, items, n);
    assert_int_equal(peer_ask(r->peer, r->buffer, bytes, now() + PATIENCE_NS, INT64_MAX, 0, now(), NULL), 0);
    pump(r);
    tcp_transport.flush(r->ctx);
}

static bool has_answer(void *remote)
{
    return ((struct remote *)remote)->answered;
}

int32_t remote_ask(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n)
{
    remote_ask_only(r, m, items, n);
    return remote_until(r, has_answer, r) ? r->answer_status : -ECONNRESET;
}

void remote_tell(struct remote *r, struct wire_message *m, const struct wire_item *items, uint32_t n)
{
    size_t bytes = encode(r, m, items, n);
    assert_int_equal(peer_tell(r->peer, r->buffer, bytes), 0);
    pump(r);
    tcp_transport.flush(r->ctx);
}

void remote_send(struct remote *r, const void *bytes, size_t n)
{
    assert_int_equal(tcp_transport.send(r->ctx, r->c, bytes, n), 0);
    tcp_transport.flush(r->ctx);
}

int32_t remote_lease(struct remote *r, const char *key, uint64_t ttl, struct wire_lease *out)
{
    struct wire_message m = {.head = {.op = WIRE_LEASE}, .ttl = ttl};
    struct wire_item item = {.key = {.data = key, .size = (uint32_t)strlen(key)}};
    int32_t status = remote_ask(r, &m, &item, 1);
    if (status) {
        return status;
    }
    assert_int_equal(r->n, 1);
    *out = r->item[0].leased.lease;
    return r->item[0].leased.status;
}

int32_t remote_renew(struct remote *r, uint64_t lease, bool in_flight)
{
    struct wire_message m = {.head = {.op = WIRE_RENEW}};
    struct wire_item item = {.renew = {.lease = lease, .in_flight = in_flight}};
    int32_t status = remote_ask(r, &m, &item, 1);
    return status ? status : r->item[0].renewed.status;
}

void remote_release(struct remote *r, uint64_t lease, uint32_t uses)
{
    struct wire_message m = {.head = {.op = WIRE_RELEASE}};
    struct wire_item item = {.release = {.lease = lease, .uses = uses}};
    remote_tell(r, &m, &item, 1);
}

int32_t remote_state(struct remote *r, uint32_t slot, uint64_t generation, uint64_t *word)
{
    struct wire_message m = {.head = {.op = WIRE_STATE}, .state = {.slot = slot, .generation = generation}};
    int32_t status = remote_ask(r, &m, NULL, 0);
    *word = r->answer.word;
    return status;
}

void remote_corrupt(struct remote *r, const char *key, const struct wire_lease *l)
{
    struct wire_message m = {
        .head = {.op = WIRE_CORRUPT},
        .corrupt = {.lease = l->id, .version = l->version, .key = {.data = key, .size = (uint32_t)strlen(key)}}};
    remote_tell(r, &m, NULL, 0);
}

/* ---- reads ---- */

static void completed(struct transfer *t)
{
    (void)t;
}

bool remote_has_read(void *transfer)
{
    return ((struct transfer *)transfer)->state == TRANSFER_COMPLETED;
}

void remote_post(struct remote *r, struct transfer *t, struct iovec *to, const struct wire_lease *l, void *memory)
{
    *to = (struct iovec){memory, l->size};
    *t = (struct transfer){.lease = l->id,
                           .generation = l->generation,
                           .offset = l->offset,
                           .bytes = l->size,
                           .to = to,
                           .parts = 1,
                           .deadline = INT64_MAX,
                           .complete = completed};
    assert_int_equal(tcp_transport.read(r->ctx, r->c, t), 0);
    tcp_transport.flush(r->ctx);
}

int remote_read(struct remote *r, const struct wire_lease *l, uint64_t offset, uint64_t bytes, void *to)
{
    struct wire_lease part = *l;
    struct transfer t;
    struct iovec at;
    part.offset = l->offset + offset;
    part.size = bytes;
    remote_post(r, &t, &at, &part, to);
    remote_until(r, remote_has_read, &t);
    assert_true(remote_has_read(&t));
    return t.status;
}
