/* test_node_names.c: a namespace's id follows from its name, so that a key means the same on all nodes. */
#include "tests/support/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1ull << 20)
#define TRIED 300000u /* names: about ten pairs of them share their 32 bits */

static char twin[2][16]; /* two names of one id */
static struct node_namespace configured[2];

struct tried {
    uint32_t id, number;
};

static int by_id(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int find_twins(void **unused)
{
    (void)unused;
    struct tried *t = malloc(TRIED * sizeof *t);
    assert_non_null(t);
    for (uint32_t i = 0; i < TRIED; i++) {
        char name[16];
        int n = snprintf(name, sizeof name, "n%u", i);
        t[i] = (struct tried){node_namespace_id(name, (size_t)n), i};
    }
    qsort(t, TRIED, sizeof *t, by_id);
    uint32_t i = 1;
    while (i < TRIED && t[i].id != t[i - 1].id) {
        i++;
    }
    assert_true(i < TRIED);
    for (uint32_t k = 0; k < 2; k++) {
        snprintf(twin[k], sizeof twin[k], "n%u", t[i - k].number);
    }
    free(t);
    return 0;
}

static const struct msg_reply *ask(struct core *c, const char *name)
{
    uint32_t n = (uint32_t)strlen(name);
    struct msg_namespace *m = (struct msg_namespace *)core_message(c, MSG_NAMESPACE, (uint32_t)sizeof *m + n);
    m->name_size = n;
    memcpy(m + 1, name, n);
    return core_request(c, 1, &m->head);
}

static void test_id_is_the_name_s(void **unused)
{
    (void)unused;
    struct core c;
    assert_int_equal(node_namespace_id("", 0), 0);
    assert_int_equal(node_namespace_id("kv", 2), 0x7716fb9e); /* on every machine and for ever: other nodes have it */
    core_open(&c, 4 * MIB, NULL);
    core_attach(&c, 1);
    const struct msg_reply *b = ask(&c, "b"), *a = ask(&c, "a");
    assert_int_equal(a->counter, node_namespace_id("a", 1));
    assert_int_equal(b->counter, node_namespace_id("b", 1));
    assert_int_equal(core_put(&c, 1, "k", 10, (uint32_t)a->counter), 0);
    core_crash(&c, (uint64_t[]){1}, 1);
    core_attach(&c, 1);
    assert_int_equal(ask(&c, "a")->counter, a->counter);
    assert_null(node_namespace_numbered(c.node));
    core_check(&c);
    core_close(&c);
}

static void declare(struct core *c, const char *const *names, uint32_t n, bool replaceable)
{
    static struct node_namespace list[2];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(list[i].name, sizeof list[i].name, "%s", names[i]);
        list[i].replaceable = replaceable;
    }
    c->config.namespaces = list;
    c->config.n_namespaces = n;
    core_crash(c, NULL, 0);
}

/* What members compare: which names are replaceable, in any order; what a region has from before counts. */
static void test_sum_of_replaceable(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 4 * MIB, NULL);
    assert_int_equal(node_replaceable(c.node), 0);
    declare(&c, (const char *[]){"kv", "chat"}, 2, true);
    uint64_t both = node_replaceable(c.node);
    declare(&c, (const char *[]){"chat", "kv"}, 2, true);
    assert_int_equal(node_replaceable(c.node), both);
    declare(&c, NULL, 0, true);
    assert_int_equal(node_replaceable(c.node), both);
    declare(&c, (const char *[]){"chat"}, 1, false);
    uint64_t one = node_replaceable(c.node);
    assert_true(one != 0 && one != both);
    assert_int_equal((uint32_t)one, node_namespace_id("kv", 2)); /* XXH3-64, as formats.md has it */
    core_attach(&c, 1);
    ask(&c, "made"); /* by a client: in such a one objects are kept */
    assert_int_equal(node_replaceable(c.node), one);
    core_close(&c);
}

static void test_one_id_is_one_name(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 4 * MIB, NULL);
    core_attach(&c, 1);
    c.hold_commits = true;
    assert_null(ask(&c, twin[0]));
    assert_null(ask(&c, twin[1])); /* neither while the first is not committed */
    core_commit(&c);
    c.hold_commits = false;
    core_turn(&c);
    assert_int_equal(ask(&c, twin[1])->status, -EEXIST);
    assert_int_equal(ask(&c, twin[0])->counter, node_namespace_id(twin[0], strlen(twin[0])));
    core_check(&c);
    core_close(&c);
}

static void with_twins(struct core *c)
{
    for (unsigned i = 0; i < 2; i++) {
        snprintf(configured[i].name, sizeof configured[i].name, "%s", twin[i]);
    }
    c->config.namespaces = configured;
    c->config.n_namespaces = 2;
}

static void test_configured_twins_are_refused(void **unused)
{
    (void)unused;
    struct core c;
    const char *why = "";
    core_open(&c, 4 * MIB, NULL);
    node_destroy(c.node);
    with_twins(&c);
    assert_int_equal(node_create(&c.node, &c.config), 0);
    node_event(c.node, &(struct node_event){.kind = EV_START}, c.now);
    assert_int_equal(node_started(c.node, &why), -EEXIST);
    assert_non_null(strstr(why, twin[0]));
    assert_non_null(strstr(why, "rename"));
    core_close(&c);
}

static void with_numbers(struct core *c)
{
    struct batch *b = batch_create();
    assert_non_null(b);
    assert_int_equal(batch_namespace(b, "old", 1, 0), 0);
    assert_int_equal(lmdb_ops.commit(c->index, b), 0);
    batch_destroy(b);
}

/* A region of a node that counted: its keys keep their meaning here, and mean nothing elsewhere. */
static void test_numbers_stay(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 4 * MIB, with_numbers);
    core_attach(&c, 1);
    assert_int_equal(ask(&c, "old")->counter, 1);
    assert_int_equal(ask(&c, "new")->counter, node_namespace_id("new", 3));
    assert_string_equal(node_namespace_numbered(c.node), "old");
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_id_is_the_name_s),   cmocka_unit_test(test_sum_of_replaceable),
        cmocka_unit_test(test_one_id_is_one_name), cmocka_unit_test(test_configured_twins_are_refused),
        cmocka_unit_test(test_numbers_stay),
    };
    return cmocka_run_group_tests(tests, find_twins, NULL);
}
