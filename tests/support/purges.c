#include "tests/support/purges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

int purge_put(struct core *c, uint64_t session, const char *key, uint64_t lineage, uint32_t ns)
{
    struct msg_token t;
    int e = core_grant(c, session, 100, &t);
    if (e) {
        return e;
    }
    uint32_t n = (uint32_t)strlen(key);
    struct msg_put *m = (struct msg_put *)core_message(c, MSG_PUT, (uint32_t)sizeof *m + n);
    m->token = t;
    m->object = (struct msg_object){.checksum = 99, .size = 100, .lineage = lineage, .ns = ns, .key_size = (uint16_t)n};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, session, &m->head);
    return r ? r->status : 1000;
}

int purge_create(struct core *c, uint64_t session, const char *key, uint64_t lineage, struct msg_token *out)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + n);
    m->object = (struct msg_object){.size = 100, .lineage = lineage, .key_size = (uint16_t)n};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, session, &m->head);
    if (r && r->status == 0) {
        *out = *(const struct msg_token *)(r + 1);
    }
    return r ? r->status : 1000;
}

struct msg_purge *purge_message(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix)
{
    uint32_t n = prefix ? (uint32_t)strlen(prefix) : 0;
    struct msg_purge *m = (struct msg_purge *)core_message(c, MSG_PURGE, (uint32_t)sizeof *m + n);
    m->kind = kind;
    m->lineage = lineage;
    m->ns = ns;
    m->prefix_size = (uint16_t)n;
    if (n) {
        memcpy(m + 1, prefix, n);
    }
    return m;
}

void purge_settle(struct core *c)
{
    for (unsigned i = 0; i < 64 && node_timer(c->node) <= c->now.mono; i++) {
        core_tick(c, 0);
    }
    core_turn(c);
}

/* Its answer; fails the test if none has come when the node is at rest. */
struct msg_purged purge_answer(struct core *c, uint64_t id)
{
    purge_settle(c);
    const struct msg_reply *r = core_reply(c, id);
    assert_non_null(r);
    assert_int_equal(r->status, 0);
    assert_int_equal(r->head.bytes, sizeof *r + sizeof(struct msg_purged));
    core_check(c);
    return *(const struct msg_purged *)(r + 1);
}

uint64_t purge_ask(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix)
{
    struct msg_purge *m = purge_message(c, kind, lineage, ns, prefix);
    uint64_t id = m->head.id;
    core_request(c, 1, &m->head);
    return id;
}

struct msg_purged purge_run(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix)
{
    return purge_answer(c, purge_ask(c, kind, lineage, ns, prefix));
}

bool purge_here(const struct core *c, const char *key)
{
    return core_find(c, key, 0) != SLOT_NONE;
}

static int count_row(void *arg, const struct purge_row *row)
{
    (void)row;
    ++*(unsigned *)arg;
    return 0;
}

unsigned purge_marks(const struct core *c)
{
    unsigned n = 0;
    assert_int_equal(lmdb_ops.purges(c->index, count_row, &n), 0);
    return n;
}

void purge_fill(struct core *c, uint32_t n)
{
    char key[32];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "many/%05u", i);
        assert_int_equal(purge_put(c, 1, key, L, 0), 0);
    }
}
