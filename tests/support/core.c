#include "tests/support/core.h"

#include "tests/support/draw.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static int grow_any(void *env, uint32_t n)
{
    (void)env;
    (void)n;
    return 0;
}

static void open_index(struct core *c)
{
    struct lmdb_config lc = {.dir = c->dir, .map_bytes = 64u << 20, .mode = 0600};
    assert_int_equal(lmdb_open(&c->index, &lc), 0);
    c->config.index = &lmdb_ops;
    c->config.ix = c->index;
}

static void carry_out(struct core *c, const struct node_command *k, uint32_t *scan, uint32_t **slots, uint32_t *n_slots)
{
    switch (k->kind) {
    case CMD_REPLY:
    case CMD_GROW: {
        struct msg_reply *copy = malloc(k->reply->head.bytes);
        memcpy(copy, k->reply, k->reply->head.bytes);
        assert_true(c->n_replies < CORE_REPLIES);
        c->reply[c->n_replies++] = copy;
        break;
    }
    case CMD_COMMIT:
        assert_null(c->flying);
        c->flying = k->batch;
        break;
    case CMD_SCAN:
        *scan = k->scan;
        *n_slots = k->n_slots;
        *slots = malloc(k->n_slots * sizeof **slots);
        memcpy(*slots, k->slots, k->n_slots * sizeof **slots);
        break;
    case CMD_CLOSED:
        c->closed++;
        break;
    default:
        if (c->other) {
            c->other(c, k);
        }
        break;
    }
}

static void scanned(struct core *c, uint32_t scan, uint32_t *slots, uint32_t n)
{
    uint64_t *bits = calloc(n / 64 + 1, 8);
    for (uint32_t i = 0; i < n; i++) {
        bits[i / 64] |= (uint64_t)(c->pinned[slots[i]] != 0) << (i % 64);
    }
    core_event(c, (struct node_event){.kind = EV_SCANNED, .scan = scan, .pinned = bits});
    free(bits);
    free(slots);
}

void core_commit(struct core *c)
{
    struct batch *b = c->flying;
    if (!b) {
        return;
    }
    c->flying = NULL;
    int e = c->fail_commits > 0 ? -ENOSPC : lmdb_ops.commit(c->index, b);
    c->fail_commits -= c->fail_commits > 0;
    core_event(c, (struct node_event){.kind = EV_COMMITTED, .status = e});
}

void core_event(struct core *c, struct node_event ev)
{
    uint32_t scan = 0, n_slots = 0, *slots = NULL;
    c->now.mono += 100;
    c->now.boot += 100;
    c->now.raw += 100;
    c->now.wall_us++;
    node_event(c->node, &ev, c->now);
    for (const struct node_command *k; (k = node_command(c->node));) {
        carry_out(c, k, &scan, &slots, &n_slots);
    }
    if (slots) {
        scanned(c, scan, slots, n_slots);
    }
    if (!c->hold_commits) {
        core_commit(c);
    }
}

void core_turn(struct core *c)
{
    for (int i = 0; i < 8; i++) {
        core_event(c, (struct node_event){.kind = EV_TURN});
    }
}

void core_tick(struct core *c, int64_t ns)
{
    c->now.mono += ns;
    c->now.boot += ns;
    c->now.raw += ns;
    c->now.wall_us += (uint64_t)ns / 1000;
    core_event(c, (struct node_event){.kind = EV_TICK});
    core_turn(c);
}

static void start(struct core *c)
{
    const char *why;
    core_event(c, (struct node_event){.kind = EV_START});
    assert_int_equal(node_started(c->node, &why), 0);
    core_turn(c);
}

void core_open(struct core *c, uint64_t pool, void (*options)(struct core *c))
{
    *c = (struct core){.now = {.mono = 1000000000, .boot = 2000000000, .raw = 500000000, .wall_us = 1700000000000000}};
    snprintf(c->dir, sizeof c->dir, "/dev/shm/berth-core-XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    uint32_t headers = (uint32_t)(pool / PAGE_BYTES);
    c->super = (struct slots_super){.pool_bytes = pool,
                                    .mr_bytes = 1u << 30,
                                    .n_units = (uint32_t)(pool / UNIT_BYTES),
                                    .max_headers = headers,
                                    .hash_seed = 42,
                                    .region_id = 7};
    c->headers = reserve((size_t)headers * sizeof *c->headers);
    c->slabs = reserve((size_t)c->super.n_units * sizeof *c->slabs);
    c->lookup_bytes = lookup_bytes(headers);
    c->lookup_map = aligned_alloc(4096, (c->lookup_bytes + 4095) & ~4095ull);
    memset(c->lookup_map, 0, c->lookup_bytes);
    lookup_format(c->lookup_map, c->lookup_bytes, c->super.uuid, 42);
    assert_int_equal(lookup_attach(&c->lookup, c->lookup_map, c->lookup_bytes), 0);
    c->tails = reserve(65536 * TAIL_CELL);
    c->lookup.headers = c->headers;
    c->lookup.n_headers = headers;
    c->lookup.tails = c->tails;
    c->lookup.n_tails = 65536;
    c->pinned = calloc(headers, 1);
    c->config = (struct node_config){.super = &c->super,
                                     .headers = c->headers,
                                     .dir = c->slabs,
                                     .lookup = &c->lookup,
                                     .tails = c->tails,
                                     .n_tails = 65536,
                                     .grow_headers = grow_any,
                                     .grow_tails = grow_any,
                                     .high_bytes = pool,
                                     .low_bytes = pool,
                                     .policy = "pwl",
                                     .quarantine_ns = 1000000000,
                                     .draft_quota = pool,
                                     .first = true};
    open_index(c);
    if (options) {
        options(c);
    }
    assert_int_equal(node_create(&c->node, &c->config), 0);
    start(c);
}

void core_crash(struct core *c, const uint64_t *sessions, uint32_t n)
{
    node_destroy(c->node);
    c->flying = NULL;
    lmdb_close(c->index);
    open_index(c);
    c->config.first = false;
    assert_int_equal(node_create(&c->node, &c->config), 0);
    for (uint32_t i = 0; i < n; i++) {
        core_event(c, (struct node_event){.kind = EV_ADOPT, .session = sessions[i]});
    }
    start(c);
}

void core_close(struct core *c)
{
    char command[160];
    node_destroy(c->node);
    lmdb_close(c->index);
    snprintf(command, sizeof command, "rm -rf %s", c->dir);
    assert_int_equal(system(command), 0);
    munmap(c->headers, (size_t)c->super.max_headers * sizeof *c->headers);
    munmap(c->slabs, (size_t)c->super.n_units * sizeof *c->slabs);
    munmap(c->tails, 65536 * TAIL_CELL);
    free(c->lookup_map);
    free(c->pinned);
    while (c->n_replies) {
        free(c->reply[--c->n_replies]);
    }
}

void core_attach(struct core *c, uint64_t session)
{
    struct session_row row = {.pid = 1, .name = "test"};
    core_event(c, (struct node_event){.kind = EV_ATTACH, .session = session, .writable = true, .row = &row});
    core_turn(c);
}

const struct msg_reply *core_reply(const struct core *c, uint64_t id)
{
    for (uint32_t i = c->n_replies; i-- > 0;) {
        if (c->reply[i]->head.id == id) {
            return c->reply[i];
        }
    }
    return NULL;
}

struct msg_head *core_message(struct core *c, uint16_t op, uint32_t bytes)
{
    static _Alignas(64) uint8_t message[RING_MESSAGE_MAX];
    memset(message, 0, bytes);
    struct msg_head *m = (struct msg_head *)message;
    *m = (struct msg_head){.bytes = bytes, .op = op, .id = ++c->next_id, .stamp = (uint64_t)c->now.mono};
    return m;
}

const struct msg_reply *core_request(struct core *c, uint64_t session, struct msg_head *m)
{
    assert_int_equal(msg_check(m, m->bytes), 0);
    if (c->n_replies > CORE_REPLIES / 2) {
        for (uint32_t i = 0; i < c->n_replies; i++) {
            free(c->reply[i]);
        }
        c->n_replies = 0;
    }
    core_event(c, (struct node_event){.kind = EV_REQUEST, .session = session, .place = c->place, .message = m});
    core_turn(c);
    return core_reply(c, m->id);
}

static int status_of(const struct msg_reply *r)
{
    return r ? r->status : 1000;
}

int core_grant(struct core *c, uint64_t session, uint32_t size, struct msg_token *out)
{
    struct msg_grant *m = (struct msg_grant *)core_message(c, MSG_GRANT, sizeof *m);
    m->size = size;
    m->count = 1;
    const struct msg_reply *r = core_request(c, session, &m->head);
    if (r && r->status == 0) {
        *out = *(const struct msg_token *)(r + 1);
    }
    return status_of(r);
}

int core_put_token(struct core *c, uint64_t session, const struct msg_token *t, const char *key, uint32_t size,
                   uint32_t ns)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_put *m = (struct msg_put *)core_message(c, MSG_PUT, (uint32_t)sizeof *m + n);
    m->token = *t;
    m->object = (struct msg_object){.checksum = 99, .size = size, .ns = ns, .key_size = (uint16_t)n};
    memcpy(m + 1, key, n);
    return status_of(core_request(c, session, &m->head));
}

int core_put(struct core *c, uint64_t session, const char *key, uint32_t size, uint32_t ns)
{
    struct msg_token t;
    int e = core_grant(c, session, size, &t);
    return e ? e : core_put_token(c, session, &t, key, size, ns);
}

int core_create(struct core *c, uint64_t session, const char *key, uint32_t size, uint32_t ns, struct msg_token *out)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + n);
    m->object = (struct msg_object){.size = size, .ns = ns, .key_size = (uint16_t)n};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, session, &m->head);
    if (r && r->status == 0) {
        *out = *(const struct msg_token *)(r + 1);
    }
    return status_of(r);
}

int core_seal(struct core *c, uint64_t session, const struct msg_token *t, uint32_t n)
{
    struct msg_seal *m =
        (struct msg_seal *)core_message(c, MSG_SEAL, (uint32_t)(sizeof *m + n * sizeof(struct msg_member)));
    m->count = n;
    for (uint32_t i = 0; i < n; i++) {
        ((struct msg_member *)(m + 1))[i] = (struct msg_member){.token = t[i], .checksum = 99};
    }
    return status_of(core_request(c, session, &m->head));
}

int core_key(struct core *c, uint64_t session, uint16_t op, const char *key, uint32_t ns)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_key *m = (struct msg_key *)core_message(c, op, (uint32_t)sizeof *m + n);
    m->ns = ns;
    m->key_size = (uint16_t)n;
    memcpy(m + 1, key, n);
    return status_of(core_request(c, session, &m->head));
}

int core_label(struct core *c, uint64_t session, uint16_t op, const char *key, const char *label, int64_t ttl)
{
    uint32_t n = (uint32_t)strlen(key), k = (uint32_t)strlen(label);
    struct msg_hold *m = (struct msg_hold *)core_message(c, op, (uint32_t)sizeof *m + n + k);
    m->ttl_ns = ttl;
    m->key_size = (uint16_t)n;
    m->label_size = (uint16_t)k;
    memcpy(m + 1, key, n);
    memcpy((char *)(m + 1) + n, label, k);
    return status_of(core_request(c, session, &m->head));
}

uint32_t core_find(const struct core *c, const char *key, uint32_t ns)
{
    return node_find(c->node, (struct key_ref){.data = key, .size = (uint32_t)strlen(key), .ns = ns});
}

static void report(void *arg, const char *sentence)
{
    (void)arg;
    print_error("check: %s\n", sentence);
}

void core_check(struct core *c)
{
    const char *why = node_check(c->node);
    if (why) {
        fail_msg("%s", why);
    }
    if (!c->flying) {
        struct node_status st;
        struct check_result result;
        node_status(c->node, &st);
        assert_int_equal(check_region(&lmdb_ops, c->index, &c->lookup, st.slabs.headers_used, report, NULL, &result),
                         0);
        assert_int_equal(result.differences, 0);
    }
}

void core_judge(struct core *c)
{
    struct node_publication p = {0};
    uint8_t buf[KEY_MAX];
    uint64_t cursor = 0;
    uint32_t skip = draw_below(64);
    while (node_objects_next(c->node, &cursor, buf, &p) && skip-- > 0) {}
    if (cursor == 0 || !p.key.size) {
        return;
    }
    struct node_event ev = {.kind = draw_below(2) ? EV_TAKE : EV_KNOWN,
                            .key = p.key,
                            .counter = p.counter + (draw_below(16) == 0),
                            .region = p.region,
                            .removal = p.kind == PUBLISH_REMOVED,
                            .home = (uint8_t)draw_below(3),
                            .homes = 2};
    if (p.kind == PUBLISH_SEALED && draw_below(4) == 0) {
        ev.kind = EV_DROP_COPY;
    }
    core_event(c, ev);
    core_event(c, (struct node_event){.kind = EV_NOTE, .meta = META_IN_TOUCH, .counter = draw()});
}
