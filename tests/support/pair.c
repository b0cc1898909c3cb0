#include "tests/support/pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void pair_init(struct pair *p)
{
    memset(p, 0, sizeof *p);
    p->now = 1000 * MS;
    for (unsigned i = 0; i < 2; i++) {
        struct peer_config *c = &p->config[i];
        peer_config_init(c);
        c->dials = i == 0;
        snprintf(c->self.cluster, sizeof c->self.cluster, "fleet");
        snprintf(c->self.node, sizeof c->self.node, "node-%c", 'a' + (int)i);
        snprintf(c->self.address, sizeof c->self.address, "tcp://10.0.0.%u:7400", i + 1);
        memset(c->self.region, 0x10 + (int)i, sizeof c->self.region);
        c->self.region_id = 100 + i;
        c->self.incarnation = 7 + i;
        c->self.pool_bytes = 1u << 30;
    }
}

void pair_open(struct pair *p)
{
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(peer_create(&p->side[i].peer, &p->config[i], p->now), 0);
}

void pair_forget(struct pair *p, unsigned side)
{
    struct pair_side *s = &p->side[side];
    while (s->head != s->tail)
        free(s->queue[s->head++ % PAIR_QUEUE].bytes);
}

void pair_close(struct pair *p)
{
    for (unsigned i = 0; i < 2; i++) {
        pair_forget(p, i);
        peer_destroy(p->side[i].peer);
        p->side[i].peer = NULL;
    }
}

static void on_send(struct pair_side *s, const struct peer_command *c)
{
    assert_true(s->tail - s->head < PAIR_QUEUE);
    struct pair_message *m = &s->queue[s->tail++ % PAIR_QUEUE];
    m->bytes = malloc(c->n);
    assert_non_null(m->bytes);
    assert_true(c->n >= WIRE_HEAD);
    memcpy(m->bytes, c->bytes, c->n);
    m->n = c->n;
}

static void on_request(struct pair_side *s, const struct peer_command *c)
{
    s->requests++;
    s->request = *c->message;
    s->deadline = c->deadline;
    assert_int_equal(c->id, c->message->head.id);
    struct wire_item item;
    uint32_t items = 0;
    while (wire_next(c->reader, &item) == 1)
        items++;
    assert_int_equal(items, c->message->head.count);
    if (c->id) {
        assert_true(s->n_open < PEER_PENDING_MAX);
        s->open[s->n_open].id = c->id;
        s->open[s->n_open].op = c->message->head.op;
        s->open[s->n_open++].count = c->message->head.count;
    }
}

static void on_answered(struct pair_side *s, const struct peer_command *c)
{
    assert_true(c->user < PAIR_USERS);
    s->answered++;
    assert_int_equal(++s->ended[c->user], 1); /* exactly once */
    s->status[c->user] = c->status;
    assert_true(c->message || c->status < 0);
    if (c->message) {
        s->answer = *c->message;
        assert_int_equal(c->message->head.id, c->id);
    }
}

static void on_end(struct pair_side *s, const struct peer_command *c)
{
    snprintf(s->text, sizeof s->text, "%s", c->text);
    if (c->kind == PEER_CLOSE) {
        s->closes++;
        s->close_status = c->status;
    } else {
        s->downs++;
        s->down_status = c->status;
    }
}

void pair_drain(struct pair *p, unsigned side)
{
    struct pair_side *s = &p->side[side];
    const struct peer_command *c;
    while ((c = peer_command(s->peer))) {
        assert_int_equal(s->downs, 0); /* nothing comes after DOWN */
        switch (c->kind) {
        case PEER_SEND:
            assert_int_equal(s->closes, 0); /* nor is anything sent after CLOSE */
            on_send(s, c);
            break;
        case PEER_UP:
            s->ups++;
            s->other = *c->other;
            s->version = c->version;
            s->features = c->features;
            break;
        case PEER_REQUEST:
            on_request(s, c);
            break;
        case PEER_ANSWERED:
            on_answered(s, c);
            break;
        case PEER_CLOSE:
        case PEER_DOWN:
            on_end(s, c);
            break;
        }
    }
}

int pair_event(struct pair *p, unsigned side, enum peer_event_kind kind, int32_t status)
{
    int err = peer_event(p->side[side].peer, &(struct peer_event){.kind = kind, .status = status}, p->now);
    pair_drain(p, side);
    return err;
}

void pair_inject(struct pair *p, unsigned side, const void *bytes, size_t n)
{
    void *block = malloc(n);
    assert_non_null(block);
    memcpy(block, bytes, n);
    assert_int_equal(
        peer_event(p->side[side].peer, &(struct peer_event){.kind = PEER_EV_MESSAGE, .bytes = block, .n = n}, p->now),
        0);
    pair_drain(p, side);
    free(block);
}

void pair_inject_message(struct pair *p, unsigned side, const struct wire_message *m)
{
    uint8_t bytes[WIRE_HELLO_MAX];
    struct wire_writer w;
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, m), 0);
    long n = wire_end(&w);
    assert_true(n > 0);
    pair_inject(p, side, bytes, (size_t)n);
}

bool pair_deliver(struct pair *p, unsigned side)
{
    struct pair_side *s = &p->side[side];
    if (s->head == s->tail)
        return false;
    struct pair_message m = s->queue[s->head++ % PAIR_QUEUE];
    pair_inject(p, 1 - side, m.bytes, m.n);
    free(m.bytes);
    return true;
}

void pair_all(struct pair *p)
{
    while (pair_deliver(p, 0) || pair_deliver(p, 1)) {}
}

void pair_up(struct pair *p)
{
    pair_open(p);
    assert_int_equal(pair_event(p, 0, PEER_EV_OPENED, 0), 0);
    assert_int_equal(pair_event(p, 1, PEER_EV_OPENED, 0), 0);
    pair_all(p);
    assert_int_equal(p->side[0].ups, 1);
    assert_int_equal(p->side[1].ups, 1);
}

int pair_lease(struct pair *p, unsigned side, unsigned n, unsigned flags, int64_t deadline, uint64_t user)
{
    return pair_lease_until(p, side, n, flags, deadline, deadline, user);
}

int pair_lease_until(struct pair *p, unsigned side, unsigned n, unsigned flags, int64_t deadline, int64_t until,
                     uint64_t user)
{
    static uint8_t bytes[WIRE_MESSAGE_MAX];
    struct wire_writer w;
    struct wire_message m = {.head = {.op = WIRE_LEASE, .flags = (uint16_t)flags}};
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, &m), 0);
    for (unsigned i = 0; i < n; i++) {
        struct wire_item item = {.key = {.data = "twelve bytes", .size = 12, .ns = i}};
        assert_int_equal(wire_add(&w, &item), 0);
    }
    long size = wire_end(&w);
    assert_true(size > 0);
    int err = peer_ask(p->side[side].peer, bytes, (size_t)size, deadline, until, user, p->now, NULL);
    pair_drain(p, side);
    return err;
}

int pair_release(struct pair *p, unsigned side)
{
    uint8_t bytes[256];
    struct wire_writer w;
    struct wire_message m = {.head = {.op = WIRE_RELEASE}};
    struct wire_item item = {.release = {.lease = 5, .uses = 2}};
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, &m), 0);
    assert_int_equal(wire_add(&w, &item), 0);
    long size = wire_end(&w);
    int err = peer_tell(p->side[side].peer, bytes, (size_t)size);
    pair_drain(p, side);
    return err;
}

int pair_answer(struct pair *p, unsigned side, uint32_t place, int32_t status, bool whole)
{
    static uint8_t bytes[WIRE_MESSAGE_MAX];
    struct pair_side *s = &p->side[side];
    assert_true(place < s->n_open && s->open[place].op == WIRE_LEASE);
    struct wire_writer w;
    struct wire_message m = {.head = {.op = WIRE_LEASED}, .status = whole ? status : 0};
    struct wire_item item = {.leased = {.status = status, .lease = {.id = 1, .duration = 1}}};
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, &m), 0);
    for (uint32_t i = 0; !whole && i < s->open[place].count; i++)
        assert_int_equal(wire_add(&w, &item), 0);
    long size = wire_end(&w);
    assert_true(size > 0);
    int err = peer_answer(s->peer, bytes, (size_t)size, s->open[place].id);
    s->open[place] = s->open[--s->n_open];
    pair_drain(p, side);
    return err;
}
