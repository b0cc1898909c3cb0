/* The core against clients that ask for too much, ask again, or name what is not theirs; and what must come back in
 * time. */
#include "tests/support/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static void options(struct core *c)
{
    c->config.draft_quota = c->config.super->pool_bytes / 2;
}

static int32_t create_waiting(struct core *c, const char *key)
{
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + 1);
    m->head.deadline = INT64_MAX;
    m->object = (struct msg_object){.size = 1 * MIB, .key_size = 1};
    memcpy(m + 1, key, 1);
    const struct msg_reply *r = core_request(c, 2, &m->head);
    return r ? r->status : 1000;
}

/* Waiting for room is no way round the quota: it holds when the request is served. */
static void test_waiting_requests_keep_to_the_quota(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t[8];
    struct node_status st;
    char key[2] = "a";
    core_open(&c, 8 * MIB, options); /* a session may have 4 MiB */
    core_attach(&c, 1);
    core_attach(&c, 2);
    core_attach(&c, 3);
    for (uint32_t i = 0; i < 8; i++, key[0]++) {
        assert_int_equal(core_create(&c, i < 4 ? 1 : 3, key, 1 * MIB, 0, &t[i]), 0);
    }
    uint64_t first = c.next_id + 1;
    for (char k = 'A'; k < 'A' + 8; k++) {
        assert_int_equal(create_waiting(&c, (char[]){k, 0}), 1000);
    }
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 1, .status = 1});
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 3, .status = 1});
    core_tick(&c, 1000000000);
    for (uint32_t i = 0; i < 8; i++) {
        assert_non_null(core_reply(&c, first + i));
        assert_int_equal(core_reply(&c, first + i)->status, i < 4 ? 0 : BERTH_EQUOTA);
    }
    node_status(c.node, &st);
    assert_int_equal(st.draft_bytes, 4 * MIB);
    core_check(&c);
    core_close(&c);
}

/* A member that is kept waits for the commit like the others: when it fails, all of them can be sealed again. */
static void test_a_failed_commit_keeps_every_draft(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t[2];
    core_open(&c, 8 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_create(&c, 1, "there", 10, 0, &t[0]), 0);
    assert_int_equal(core_create(&c, 1, "new", 10, 0, &t[1]), 0);
    assert_int_equal(core_put(&c, 1, "there", 10, 0), 0);
    c.fail_commits = 1;
    assert_int_equal(core_seal(&c, 1, t, 2), BERTH_EINDEXFULL);
    core_check(&c);
    assert_int_equal(core_seal(&c, 1, t, 2), 1);
    assert_true(core_find(&c, "new", 0) != SLOT_NONE);
    core_check(&c);
    core_close(&c);
}

static int32_t seal_again(struct core *c, const struct msg_token *t, uint32_t n)
{
    struct msg_seal *m =
        (struct msg_seal *)core_message(c, MSG_SEAL, (uint32_t)(sizeof *m + n * sizeof(struct msg_member)));
    m->head.flags = MSG_AGAIN;
    m->count = n;
    for (uint32_t i = 0; i < n; i++) {
        ((struct msg_member *)(m + 1))[i].token = t[i];
    }
    const struct msg_reply *r = core_request(c, 1, &m->head);
    return r ? r->status : 1000;
}

/* The node goes before, or after, a commit that seals one member and keeps another; the client sends the seal again. */
static void test_a_seal_is_sent_again(void **state)
{
    (void)state;
    for (int committed = 0; committed < 2; committed++) {
        struct core c;
        struct node_status st;
        struct msg_token t[2];
        core_open(&c, 8 * MIB, options);
        core_attach(&c, 1);
        assert_int_equal(core_create(&c, 1, "there", 10, 0, &t[0]), 0);
        assert_int_equal(core_create(&c, 1, "new", 10, 0, &t[1]), 0);
        assert_int_equal(core_put(&c, 1, "there", 10, 0), 0);
        c.hold_commits = true;
        assert_int_equal(core_seal(&c, 1, t, 2), 1000);
        if (committed) {
            assert_int_equal(lmdb_ops.commit(c.index, c.flying), 0);
        }
        c.hold_commits = false;
        core_crash(&c, (uint64_t[]){1}, 1);
        core_attach(&c, 1);
        assert_int_equal(core_find(&c, "new", 0) != SLOT_NONE, committed);
        assert_int_equal(seal_again(&c, t, 2), 1);
        assert_int_equal(seal_again(&c, t, 2), 1);
        assert_true(core_find(&c, "new", 0) != SLOT_NONE);
        node_status(c.node, &st);
        assert_int_equal(st.drafts, 0);
        core_check(&c);
        core_close(&c);
    }
}

/* What a token names besides a draft of the session itself is not sealed, however often it is said to be sent again. */
static void test_only_drafts_are_sealed(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t[2], grant, other;
    core_open(&c, 8 * MIB, options);
    core_attach(&c, 1);
    core_attach(&c, 2);
    assert_int_equal(core_grant(&c, 1, 10, &grant), 0);
    assert_int_equal(core_create(&c, 2, "other", 10, 0, &other), 0);
    assert_int_equal(core_create(&c, 1, "mine", 10, 0, &t[0]), 0);
    assert_int_equal(seal_again(&c, &grant, 1), BERTH_ESTALE);
    assert_int_equal(seal_again(&c, (struct msg_token[]){t[0], grant}, 2), BERTH_ESTALE);
    core_check(&c);
    assert_true(seal_again(&c, (struct msg_token[]){t[0], other}, 2) < 0);
    assert_int_equal(core_seal(&c, 1, (struct msg_token[]){t[0], t[0]}, 2), -EINVAL);
    core_check(&c);
    assert_int_equal(core_put(&c, 2, "mine", 10, 0), 0);
    assert_int_equal(core_seal(&c, 1, (struct msg_token[]){t[0], t[0]}, 2), -EINVAL); /* kept, twice */
    core_check(&c);
    assert_int_equal(core_seal(&c, 1, t, 1), 1);
    assert_int_equal(core_seal(&c, 2, &other, 1), 0);
    core_check(&c);
    core_close(&c);
}

static void put_remove_release(struct core *c, const char *key)
{
    assert_int_equal(core_put(c, 1, key, 4096, 0), 0);
    uint32_t slot = core_find(c, key, 0);
    c->pinned[slot] = 1;
    assert_int_equal(core_key(c, 1, MSG_REMOVE, key, 0), 0);
    c->pinned[slot] = 0;
}

/* Objects that are removed under a reader, who lets go right afterwards, faster than anything else is looked at again.
 */
static void test_retired_slots_come_back(void **state)
{
    (void)state;
    struct core c;
    struct node_status st;
    core_open(&c, 2 * MIB, options); /* 512 of them */
    core_attach(&c, 1);
    for (uint32_t i = 0; i < 100; i++) {
        put_remove_release(&c, "gone");
        core_tick(&c, 1000000); /* within 10 ms each is looked at again, though fresh ones keep coming */
    }
    node_status(c.node, &st);
    assert_in_range(st.retired, 0, 20);
    for (uint32_t i = 0; i < 1500; i++) {
        put_remove_release(&c, "gone"); /* and before a put that does not wait is refused: no time passes here */
    }
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting_requests_keep_to_the_quota),
        cmocka_unit_test(test_a_failed_commit_keeps_every_draft),
        cmocka_unit_test(test_a_seal_is_sent_again),
        cmocka_unit_test(test_only_drafts_are_sealed),
        cmocka_unit_test(test_retired_slots_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
