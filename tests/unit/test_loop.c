/* The loop transport: what transport.h promises, and each of the faults that it can draw. */
#include "replication/loop.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 4096u
#define US INT64_C(1000)
#define MS INT64_C(1000000)

struct end {
    void *ctx;
    struct connection *c;
    uint8_t memory[BYTES];
    char heard[16];
    uint32_t n_heard, connected, accepted, closed, room, served, admitted;
    int status, served_status, refuse;
};

struct job {
    struct transfer t;
    struct iovec to[2];
    uint8_t bytes[BYTES];
    uint32_t completed;
    uint64_t hashed;
};

static struct loop_net *net;
static struct end a, b;
static int64_t now;

static void on_connected(void *env, struct connection *c, int status, const char *why)
{
    struct end *e = env;
    (void)why;
    e->c = status < 0 ? NULL : c;
    e->status = status;
    e->connected++;
}

static void on_accepted(void *env, struct connection *c)
{
    struct end *e = env;
    e->c = c;
    e->accepted++;
}

static void on_closed(void *env, struct connection *c, int status, const char *why)
{
    struct end *e = env;
    (void)c, (void)why;
    e->c = NULL;
    e->status = status;
    e->closed++;
}

static void on_message(void *env, struct connection *c, const void *bytes, size_t n)
{
    struct end *e = env;
    (void)c;
    assert_int_equal(n, 1);
    assert_true(e->n_heard < sizeof e->heard);
    e->heard[e->n_heard++] = *(const char *)bytes;
}

static void on_room(void *env, struct connection *c)
{
    struct end *e = env;
    (void)c;
    e->room++;
}

static int on_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    struct end *e = env;
    (void)c, (void)want;
    *token = 77;
    e->admitted += e->refuse == 0;
    return e->refuse;
}

static void on_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    struct end *e = env;
    (void)c;
    assert_int_equal(lease, 5);
    assert_int_equal(token, 77);
    e->served++;
    e->served_status = status;
}

static const struct transport_events events = {.connected = on_connected,
                                               .accepted = on_accepted,
                                               .closed = on_closed,
                                               .message = on_message,
                                               .room = on_room,
                                               .admit = on_admit,
                                               .served = on_served};

static void turn(struct end *e)
{
    while (e->ctx && loop_ready(e->ctx))
        loop_transport.turn(e->ctx);
}

static void pass(int64_t ns)
{
    int64_t end = now + ns;
    while (loop_net_timer(net) <= end) {
        now = loop_net_timer(net) > now ? loop_net_timer(net) : now;
        loop_net_step(net, now);
        turn(&a);
        turn(&b);
    }
    now = end;
    loop_net_step(net, now);
}

static void open_end(struct end *e, const char *listen)
{
    struct transport_config config = {.listen = listen};
    char why[TRANSPORT_WHY_MAX];
    memset(e, 0, sizeof *e);
    assert_int_equal(loop_transport.open(&e->ctx, &config, &events, e, why, sizeof why), 0);
    for (uint32_t i = 0; i < BYTES; i++)
        e->memory[i] = (uint8_t)(i * 7 + 1);
    assert_int_equal(loop_transport.expose(e->ctx, -1, e->memory, BYTES), 0);
    assert_int_equal(loop_transport.expose(e->ctx, -1, e->memory, BYTES), -EBUSY);
}

static void begin(struct loop_config config)
{
    char why[TRANSPORT_WHY_MAX];
    struct connection *c;
    config.seed = 1;
    config.delay_min = 10 * US;
    config.delay_max = 20 * US;
    assert_int_equal(loop_net_create(&net, &config), 0);
    loop_net_use(net);
    now = 1000;
    loop_net_step(net, now);
    open_end(&a, "127.0.0.1:1");
    open_end(&b, "127.0.0.1:2");
    assert_int_equal(loop_transport.connect(a.ctx, "127.0.0.1:2", NULL, &c, why, sizeof why), 0);
    pass(MS);
}

static void finish(void)
{
    if (a.ctx)
        loop_transport.close(a.ctx);
    if (b.ctx)
        loop_transport.close(b.ctx);
    loop_net_destroy(net);
}

static void done(struct transfer *t)
{
    struct job *j = t->owner;
    assert_int_equal(t->state, TRANSFER_COMPLETED);
    j->completed++;
}

static void progress(struct transfer *t, uint64_t offset, const void *at, size_t n)
{
    struct job *j = t->owner;
    assert_int_equal(offset, 0);
    assert_ptr_equal(at, j->bytes);
    j->hashed += n;
}

static int post(struct job *j, struct end *e)
{
    *j = (struct job){.t = {.lease = 5, .offset = 100, .bytes = 1000, .parts = 2, .deadline = INT64_MAX}};
    j->to[0] = (struct iovec){.iov_base = j->bytes, .iov_len = 300};
    j->to[1] = (struct iovec){.iov_base = j->bytes + 300, .iov_len = 700};
    j->t.to = j->to;
    j->t.complete = done;
    j->t.progress = progress;
    j->t.owner = j;
    return loop_transport.read(e->ctx, e->c, &j->t);
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    begin((struct loop_config){0});
    assert_int_equal(a.connected, 1);
    assert_int_equal(b.accepted, 1);
    assert_string_equal(b.c->peer, "127.0.0.1:1");
    for (const char *m = "abcdef"; *m; m++)
        assert_int_equal(loop_transport.send(a.ctx, a.c, m, 1), 0);
    assert_int_equal(b.n_heard, 0);
    pass(MS);
    assert_string_equal(b.heard, "abcdef");
    assert_int_equal(loop_transport.send(a.ctx, a.c, "", 0), -EMSGSIZE);
    loop_transport.disconnect(a.ctx, a.c);
    pass(MS);
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.status, -ECONNRESET);
    finish();
}

static void nobody_is_there(void **state)
{
    char why[TRANSPORT_WHY_MAX];
    struct connection *c;
    (void)state;
    begin((struct loop_config){0});
    assert_int_equal(loop_transport.connect(a.ctx, "127.0.0.1:9", NULL, &c, why, sizeof why), 0);
    pass(MS);
    assert_int_equal(a.connected, 2);
    assert_int_equal(a.status, -ECONNREFUSED);
    struct transport_config config = {.listen = "127.0.0.1:1"};
    void *ctx;
    assert_int_equal(loop_transport.open(&ctx, &config, &events, &a, why, sizeof why), -EADDRINUSE);
    a.c = NULL;
    finish();
}

static void one_sided_reads(void **state)
{
    static struct job j;
    (void)state;
    begin((struct loop_config){0});
    assert_false(loop_transport.proves(a.ctx));
    assert_int_equal(post(&j, &a), 0);
    assert_int_equal(loop_transport.read(a.ctx, a.c, &j.t), -EBUSY);
    assert_true(loop_net_writes(net, j.bytes + 999, 1));
    assert_false(loop_net_writes(net, j.bytes + 1000, 1));
    pass(MS);
    assert_int_equal(j.completed, 1);
    assert_int_equal(j.t.status, 0);
    assert_memory_equal(j.bytes, b.memory + 100, 1000);
    assert_false(loop_net_writes(net, j.bytes, BYTES));
    assert_int_equal(b.admitted, 0);
    j.to[1].iov_len = 699;
    j.t.state = TRANSFER_IDLE;
    assert_int_equal(loop_transport.read(a.ctx, a.c, &j.t), -EINVAL);
    assert_int_equal(post(&j, &a), 0);
    j.t.deadline = now;
    assert_int_equal(loop_transport.cancel(a.ctx, &j.t), 0);
    assert_int_equal(j.t.status, -ECANCELED);
    assert_int_equal(loop_transport.cancel(a.ctx, &j.t), -ENOENT);
    pass(MS);
    assert_int_equal(j.completed, 1);
    finish();
}

/* Bytes are what lies there when they are taken: another object's, if the owner does not wait. */
static void late_reads_take_what_is_there(void **state)
{
    static struct job j;
    (void)state;
    begin((struct loop_config){.late_ns = 100 * MS, .one_in = {[LOOP_LATE] = 1}});
    assert_int_equal(post(&j, &a), 0);
    memset(b.memory, 0xee, BYTES);
    pass(200 * MS);
    assert_int_equal(j.t.status, 0);
    assert_int_equal(j.bytes[0], 0xee);
    assert_int_equal(loop_net_faults(net)[LOOP_LATE], 1);
    finish();
}

static void torn_reads_mix(void **state)
{
    static struct job j;
    bool mixed = false;
    (void)state;
    begin((struct loop_config){.late_ns = 100 * MS, .one_in = {[LOOP_TORN] = 1}});
    for (int i = 0; i < 32 && !mixed; i++) {
        memset(b.memory, 1, BYTES);
        assert_int_equal(post(&j, &a), 0);
        pass(50 * MS);
        memset(b.memory, 2, BYTES);
        pass(100 * MS);
        assert_int_equal(j.completed, 1);
        mixed = memchr(j.bytes, 1, 1000) && memchr(j.bytes, 2, 1000);
    }
    assert_true(mixed);
    finish();
}

static void held_reads_are_asked_for(void **state)
{
    static struct job j;
    (void)state;
    begin((struct loop_config){.held = true});
    assert_true(loop_transport.proves(a.ctx));
    assert_int_equal(post(&j, &a), 0);
    pass(MS);
    assert_int_equal(j.t.status, 0);
    assert_int_equal(b.admitted, 1);
    assert_int_equal(b.served, 1);
    assert_int_equal(b.served_status, 0);
    b.refuse = -ESTALE;
    assert_int_equal(post(&j, &a), 0);
    pass(MS);
    assert_int_equal(j.t.status, -ESTALE);
    b.refuse = 0;
    assert_int_equal(post(&j, &a), 0);
    pass(25 * US);
    assert_int_equal(b.admitted, 2);
    loop_transport.cancel(a.ctx, &j.t);
    pass(MS);
    assert_int_equal(b.served, 2);
    assert_int_equal(b.served_status, -ECANCELED);
    assert_int_equal(post(&j, &a), 0);
    pass(25 * US);
    loop_transport.disconnect(b.ctx, b.c);
    assert_int_equal(b.served, 3);
    assert_int_equal(b.served_status, -ECONNRESET);
    pass(MS);
    assert_int_equal(j.t.status, -ECONNRESET);
    assert_int_equal(a.closed, 1);
    struct transport_stats st;
    loop_transport.stats(a.ctx, &st);
    assert_int_equal(st.posted, st.completed);
    loop_transport.stats(b.ctx, &st);
    assert_int_equal(st.serving, 0);
    finish();
}

/* The reader's process dies: what it had posted into memory that outlives it may be written for a while. */
static void a_dead_reader_is_written_to(void **state)
{
    static struct job j;
    (void)state;
    begin((struct loop_config){.late_ns = 5 * MS,
                               .ghost_ns = 500 * MS,
                               .linger_ns = 1000 * MS,
                               .one_in = {[LOOP_LATE] = 1, [LOOP_WROTE_ON] = 1}});
    assert_int_equal(post(&j, &a), 0);
    assert_int_equal(loop_transport.cancel(a.ctx, &j.t), 0);
    j.to[0].iov_base = a.memory;
    j.to[1].iov_base = a.memory + 300;
    memset(a.memory, 0, BYTES);
    assert_int_equal(loop_transport.read(a.ctx, a.c, &j.t), 0);
    loop_crash(a.ctx);
    a.ctx = NULL;
    assert_true(loop_net_writes(net, a.memory, BYTES));
    pass(3000 * MS);
    assert_int_equal(j.completed, 1); /* the cancelled one */
    assert_memory_equal(a.memory, b.memory + 100, 1000);
    assert_false(loop_net_writes(net, a.memory, BYTES));
    assert_int_equal(b.closed, 1);
    finish();
}

/* A dead owner's memory is read on until the reader hears of it; one that hung up is not. */
static void a_dead_owner_is_read_from(void **state)
{
    static struct job j;
    (void)state;
    begin((struct loop_config){.linger_ns = 0, .late_ns = 0});
    assert_int_equal(post(&j, &a), 0);
    loop_transport.disconnect(b.ctx, b.c);
    pass(MS);
    assert_int_equal(j.t.status, -ECONNRESET);
    assert_int_equal(j.bytes[0], 0);
    assert_int_equal(a.closed, 1);
    finish();
    begin((struct loop_config){.linger_ns = 1000 * MS});
    assert_int_equal(post(&j, &a), 0);
    loop_crash(b.ctx);
    b.ctx = NULL;
    pass(2000 * MS);
    assert_int_equal(a.closed, 1);
    assert_int_equal(j.completed, 1);
    assert_int_equal(j.t.status, 0);
    finish();
}

static void message_faults(void **state)
{
    (void)state;
    begin((struct loop_config){0});
    finish();
    begin((struct loop_config){.one_in = {[LOOP_DOUBLED] = 1}});
    loop_transport.send(a.ctx, a.c, "x", 1);
    pass(MS);
    assert_string_equal(b.heard, "xx");
    finish();
    begin((struct loop_config){.one_in = {[LOOP_DROPPED] = 1}});
    assert_int_equal(loop_transport.send(a.ctx, a.c, "x", 1), 0);
    pass(MS);
    assert_int_equal(b.n_heard, 0);
    finish();
    begin((struct loop_config){.one_in = {[LOOP_CUT] = 1}});
    loop_transport.send(a.ctx, a.c, "x", 1);
    pass(MS);
    assert_int_equal(a.closed + b.closed, 2);
    finish();
    begin((struct loop_config){.one_in = {[LOOP_FULL] = 1}});
    assert_int_equal(loop_transport.send(a.ctx, a.c, "x", 1), -EAGAIN);
    pass(MS);
    assert_int_equal(a.room, 1);
    finish();
}

static void a_lost_completion_ends_the_connection(void **state)
{
    static struct job j;
    (void)state;
    begin((struct loop_config){.one_in = {[LOOP_NOT_COMPLETED] = 1}});
    assert_int_equal(post(&j, &a), 0);
    pass(4000 * MS);
    assert_int_equal(j.completed, 0);
    pass(2000 * MS);
    assert_int_equal(j.completed, 1);
    assert_int_equal(j.t.status, -ECONNRESET);
    assert_int_equal(a.closed + b.closed, 2);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(nobody_is_there),
        cmocka_unit_test(one_sided_reads),
        cmocka_unit_test(late_reads_take_what_is_there),
        cmocka_unit_test(torn_reads_mix),
        cmocka_unit_test(held_reads_are_asked_for),
        cmocka_unit_test(a_dead_reader_is_written_to),
        cmocka_unit_test(a_dead_owner_is_read_from),
        cmocka_unit_test(message_faults),
        cmocka_unit_test(a_lost_completion_ends_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
