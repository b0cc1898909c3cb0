/* The puller: runs of PREFIX, WAIT, ranges, versions, and peers that talk nonsense. */
#include "tests/support/pull_steps.h"

#include <errno.h>
#include <xxhash.h>

static void prefix_pulls_only_the_run(void **state)
{
    (void)state;
    s->n_homes = 1;
    script_pull(s, 1, "abcde", PULL_BUFFER, PULL_PREFIX, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.n, 5);
    assert_true(k->c.flags & ASK_PREFIX);
    answers(k->c.id, "FFASS", 5);
    k = script_take(s, CMD_PULL_LEASE);
    assert_int_equal(k->c.n, 2);
    assert_int_equal(script_count(s, CMD_PULL_ASK), 0);
    script_grant(s, k->c.id, 2, 5, 10);
    finish(take(CMD_PULL_READ));
    finish(take(CMD_PULL_READ));
    k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->c.run, 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(k->result[i].status, i < 2 ? 0 : -ENOENT);
    }
}

/* A home whose run ended early is asked again where another home knew better. */
static void prefix_over_a_home_that_learns(void **state)
{
    (void)state;
    script_pull(s, 1, "abc", PULL_BUFFER, PULL_PREFIX, 0);
    answers(take(CMD_PULL_ASK), "FAS", 5);
    const struct kept *k = script_take(s, CMD_PULL_ASK); /* b, at the second home; a's lease goes out meanwhile */
    assert_int_equal(k->c.member, 2);
    assert_int_equal(k->c.n, 1);
    answers(k->c.id, "F", 5);
    k = script_take(s, CMD_PULL_ASK); /* c, which the first home passed over */
    assert_int_equal(k->c.member, 1);
    assert_string_equal(k->key[0], "c");
    answers(k->c.id, "F", 5);
    for (int i = 0; i < 3; i++) {
        script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
        finish(take(CMD_PULL_READ));
    }
    assert_int_equal(script_take(s, CMD_PULL_DONE)->c.run, 3);
}

static void wait_asks_again(void **state)
{
    (void)state;
    s->n_homes = 1;
    script_pull(s, 1, "k", PULL_REPLICA, PULL_WAIT, s->now.mono_after + 1000 * MS);
    answers(take(CMD_PULL_ASK), "A", 0);
    assert_int_equal(s->n_kept, 0);
    script_pass(s, MS);
    answers(take(CMD_PULL_ASK), "F", 5);
    struct pull_grant g = {.status = -EBUSY}; /* it is being written */
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = take(CMD_PULL_LEASE), .grants = &g, .n = 1});
    script_pass(s, MS);
    assert_int_equal(s->n_kept, 0);
    /* One that does not wait is told at once, and wakes nobody's pause for nothing. */
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
    answers(take(CMD_PULL_ASK), "A", 0);
    expect_done(2, -ENOENT);
    script_pass(s, 4 * MS);
    answers(take(CMD_PULL_ASK), "F", 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    assert_int_equal(script_count(s, CMD_PULL_RESERVE), 1);
    script_pull(s, 3, "q", PULL_BUFFER, PULL_WAIT, s->now.mono_after + 10 * MS);
    answers(take(CMD_PULL_ASK), "A", 0);
    script_pass(s, 10 * MS);
    expect_done(3, -ETIMEDOUT);
}

static bool no_hope;

static bool is_hopeless(void *env)
{
    (void)env;
    return no_hope;
}

/* A home that is down, and then the only source: who waits goes on, others are told. */
static void wait_goes_on_without_a_member(void **state)
{
    (void)state;
    s->n_homes = 1;
    script_member(s, EV_PULL_DOWN, 1, 0);
    script_pull(s, 1, "k", PULL_REPLICA, PULL_WAIT, s->now.mono_after + 1000 * MS);
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
    expect_done(2, BERTH_EUNSURE);
    script_pull(s, 3, "q", PULL_BUFFER, PULL_WAIT, s->now.mono_after + 10 * MS);
    script_pass(s, 10 * MS);
    expect_done(3, -ETIMEDOUT);
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
    script_member(s, EV_PULL_UP, 1, 77);
    script_pass(s, 100 * MS);
    script_found(s, take(CMD_PULL_ASK), 1, 1, 5);
    take(CMD_PULL_LEASE);
    script_member(s, EV_PULL_DOWN, 1, 0); /* it gives no lease, and is the owner */
    script_pass(s, 100 * MS);
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
    script_member(s, EV_PULL_UP, 1, 78);
    script_pass(s, 100 * MS);
    script_found(s, take(CMD_PULL_ASK), 1, 1, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    assert_int_equal(script_count(s, CMD_PULL_RESERVE), 1);
}

static void wait_without_hope(void **state)
{
    (void)state;
    pull_destroy(s->p);
    s->config.hopeless = is_hopeless;
    script_start(s);
    s->n_homes = 1;
    script_member(s, EV_PULL_DOWN, 1, 0);
    script_pull(s, 1, "k", PULL_BUFFER, PULL_WAIT, s->now.mono_after + 1000 * MS);
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
    no_hope = true;
    script_pass(s, MS);
    expect_done(1, BERTH_EUNSURE);
    no_hope = false;
}

static void refuse(uint64_t lease, uint32_t n, uint32_t good)
{
    struct pull_grant g[8];
    for (uint32_t i = 0; i < n; i++) {
        g[i] = i < good ? (struct pull_grant){.terms = script_terms(s, 5, 10)}
                        : (struct pull_grant){.status = BERTH_EQUOTA};
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = lease, .grants = g, .n = n});
}

static void recall_all(uint16_t member)
{
    uint64_t ids[64];
    uint32_t n = 0;
    for (; n < 64 && n < s->next_lease; n++) {
        ids[n] = n + 1;
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_RECALL, .member = member, .leases = ids, .n = n});
}

/* The owner gives two leases at a time: the batch comes two by two, and what it has back is told with each question. */
static void batch_above_the_lease_quota(void **state)
{
    (void)state;
    s->n_homes = 1;
    script_pull(s, 1, "abcdef", PULL_BUFFER, 0, s->now.mono_after + 1000 * MS);
    answers(take(CMD_PULL_ASK), "FFFFFF", 5);
    for (uint32_t left = 6; left > 0; left -= 2) {
        const struct kept *k = script_take(s, CMD_PULL_LEASE);
        assert_int_equal(k->c.n, left);
        refuse(k->c.id, left, 2);
        assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
        finish(take(CMD_PULL_READ));
        finish(take(CMD_PULL_READ));
        recall_all(3);
        script_pass(s, 16 * MS);
        if (left > 2) {
            answers(take(CMD_PULL_ASK), left == 6 ? "FFFF" : "FF", 5);
            take(CMD_PULL_RELEASE);
        }
    }
    const struct kept *k = script_take(s, CMD_PULL_DONE);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(k->result[i].status, 0);
    }
    /* None until the deadline. */
    script_pull(s, 2, "z", PULL_REPLICA, 0, s->now.mono_after + 10 * MS);
    answers(take(CMD_PULL_ASK), "F", 5);
    refuse(take(CMD_PULL_LEASE), 1, 0);
    script_pass(s, 10 * MS);
    expect_done(2, -ETIMEDOUT);
}

static void pull_ranges(uint64_t id, const struct pull_range *r, uint32_t n, uint32_t flags, uint32_t sample)
{
    struct pull_key k = {.key = {.data = "k", .size = 1}, .ranges = r, .n_ranges = n, .buffer = id, .room = 100};
    script_request(s, &(struct pull_request){.id = id,
                                             .keys = &k,
                                             .n_keys = 1,
                                             .destination = PULL_BUFFER,
                                             .flags = flags,
                                             .sample = sample,
                                             .deadline = INT64_MAX});
}

/* Bytes 1 and 2 of the first segment: what lacks of it goes beside the buffer, and all of it is hashed. */
static void expect_padded(uint64_t id, uint64_t wrong)
{
    static const struct pull_range want[] = {{0, 1, 0}, {1, 2, 3}, {3, 4093, 1}};
    const uint8_t *scratch = NULL;
    for (unsigned i = 0; i < 3; i++) {
        const struct kept *k = script_take(s, CMD_PULL_READ);
        assert_int_equal(k->c.offset, 4096 + want[i].offset);
        assert_int_equal(k->c.length, want[i].length);
        assert_int_equal(k->c.target.at, want[i].to);
        assert_int_equal(k->c.target.kind, i == 1 ? PULL_BUFFER : PULL_SCRATCH);
        scratch = i == 1 ? scratch : (const uint8_t *)(uintptr_t)k->c.target.name;
        script_status(s, EV_PULL_READ, k->c.id, 0);
    }
    const struct kept *k = script_take(s, CMD_PULL_HASH);
    uint64_t hash = k->c.id, sum = 11 + wrong;
    assert_int_equal(k->c.n, 3);
    assert_ptr_equal(k->c.scratch, scratch);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(k->part[i].at, want[i].to);
        assert_int_equal(k->part[i].length, want[i].length);
        assert_int_equal(k->part[i].scratch, i != 1);
        assert_int_equal(k->part[i].last, i == 2);
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_HASHED, .id = hash, .sums = &sum, .n = 1});
    if (wrong) {
        assert_int_equal(script_count(s, CMD_PULL_STATE), 1);
    } else {
        expect_done(id, 0);
    }
}

static void ranges_and_segments(void **state)
{
    (void)state;
    static const struct pull_range half[] = {{4096, 4096, 0}, {8192, 2000, 9000}}, odd[] = {{1, 2, 3}},
                                   out[] = {{10000, 300, 0}}, turned[] = {{4096, 6096, 0}, {0, 4096, 7000}};
    uint64_t sums[3] = {11, 22, 33}, wrong[2] = {22, 32};
    pull_ranges(1, half, 2, PULL_VERIFY, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    struct lease_terms t = script_terms(s, 5, 10192);
    t.sums = sums;
    t.n_sums = 3;
    t.segment_log2 = 12;
    t.checksum = XXH3_64bits(sums, sizeof sums);
    grant_terms(take(CMD_PULL_LEASE), &t);
    const struct kept *k = script_take(s, CMD_PULL_READ);
    assert_int_equal(k->c.offset, 4096 + 4096);
    assert_int_equal(k->c.length, 4096);
    script_status(s, EV_PULL_READ, k->c.id, 0);
    k = script_take(s, CMD_PULL_READ);
    assert_int_equal(k->c.target.at, 9000);
    script_status(s, EV_PULL_READ, k->c.id, 0);
    k = script_take(s, CMD_PULL_HASH);
    assert_int_equal(k->c.n, 2);
    assert_int_equal(k->part[1].at, 9000);
    assert_true(k->part[0].last && k->part[1].last);
    uint64_t hash = k->c.id;
    script_event(s, &(struct pull_event){.kind = EV_PULL_HASHED, .id = hash, .sums = wrong, .n = 2});
    assert_int_equal(script_count(s, CMD_PULL_STATE), 1);
    s->n_kept = 0;
    pull_ranges(2, odd, 1, PULL_VERIFY, 0);
    expect_padded(2, 0);
    pull_ranges(3, odd, 1, 0, 1); /* "always" */
    expect_padded(3, 7);
    s->n_kept = 0;
    pull_ranges(7, odd, 1, 0, 0);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    expect_done(7, 0);
    pull_ranges(4, out, 1, 0, 0);
    expect_done(4, -ERANGE);
    pull_ranges(5, NULL, 0, 0, 0);
    k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->result[0].status, -ENOSPC);
    assert_int_equal(k->result[0].size, 10192);
    pull_ranges(6, turned, 2, PULL_VERIFY, 0);
    assert_int_equal(script_count(s, CMD_PULL_READ), 2);
    s->n_kept = 0;
}

static bool here_now;

static bool is_here(void *env, const struct pull_key *key)
{
    (void)env, (void)key;
    return here_now;
}

static uint64_t to_pause(uint64_t id)
{
    script_pull(s, id, "w", PULL_REPLICA, PULL_WAIT, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    if (script_count(s, CMD_PULL_ASK)) {
        script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    }
    return take(CMD_PULL_WATCH);
}

static void look_in_vain(void)
{
    script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    if (script_count(s, CMD_PULL_ASK)) {
        script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    }
}

static void watched(uint64_t id, int status, uint32_t left)
{
    script_event(s, &(struct pull_event){.kind = EV_PULL_WATCHED, .id = id, .status = status, .n = left});
}

/* Who waits for a key asks who writes it; one that lost its writer is looked for once more. */
static void who_waits_watches(void **state)
{
    (void)state;
    script_free(s);
    s = script_new();
    s->config.watch = true;
    s->config.here = is_here;
    script_start(s);
    here_now = false;
    uint64_t watch = to_pause(1);
    watched(watch, -ENOENT, 1); /* nobody there: the pause goes on */
    assert_int_equal(script_count(s, CMD_PULL_ASK), 0);
    script_pass(s, 2 * MS);
    look_in_vain();
    assert_int_equal(script_count(s, CMD_PULL_WATCH), 0); /* an answer is still to come */
    watched(watch, BERTH_EDIED, 0);
    look_in_vain();
    expect_done(1, BERTH_EDIED);
    watch = to_pause(3);
    script_pass(s, 2 * MS);
    watched(watch, BERTH_EABORTED, 1); /* while a look is under way: one more */
    look_in_vain();
    look_in_vain();
    expect_done(3, BERTH_EABORTED);
    watch = to_pause(2);
    watched(watch, 0, 0); /* sealed: looked for at once, and again soon */
    look_in_vain();
    assert_int_equal(script_count(s, CMD_PULL_WATCH), 1);
    here_now = true;
    script_pass(s, 2 * MS);
    look_in_vain();
    expect_done(2, BERTH_KEPT);
    watched(watch, BERTH_EDIED, 0); /* of one that has gone */
    s->n_kept = 0;
}

static void lease_only_needs_a_transport_that_proves(void **state)
{
    (void)state;
    script_event(s, &(struct pull_event){.kind = EV_PULL_UP, .member = 3, .incarnation = 7, .proven = false});
    static const struct pull_range all[] = {{0, 10, 0}}, part[] = {{0, 5, 0}};
    pull_ranges(1, all, 1, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    finish(take(CMD_PULL_READ));
    expect_done(1, 0);
    pull_ranges(2, part, 1, 0, 0);
    expect_done(2, -EOPNOTSUPP);
    script_event(s, &(struct pull_event){.kind = EV_PULL_UP, .member = 3, .incarnation = 7, .proven = true});
    pull_ranges(3, all, 1, 0, 0);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    expect_done(3, 0);
}

static void pull_replaceable(uint64_t id, uint32_t flags)
{
    struct pull_key k = {.key = {.data = "r", .size = 1}, .flags = PULL_REPLACEABLE, .buffer = id, .room = 100};
    script_request(
        s, &(struct pull_request){
               .id = id, .keys = &k, .n_keys = 1, .destination = PULL_BUFFER, .flags = flags, .deadline = INT64_MAX});
}

static void never_below_a_version_returned(void **state)
{
    (void)state;
    s->n_homes = 1;
    pull_replaceable(1, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    expect_done(1, 0);
    pull_replaceable(2, PULL_FRESH); /* not by the lease, which is good */
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    script_found(s, k->c.id, 1, 2, 9);
    script_grant(s, take(CMD_PULL_LEASE), 1, 8, 10); /* older than the home knows */
    expect_done(2, BERTH_ENOTNOW);
    pull_replaceable(3, PULL_FRESH);
    script_found(s, take(CMD_PULL_ASK), 1, 2, 9);
    script_grant(s, take(CMD_PULL_LEASE), 1, 9, 10);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    expect_done(3, 0);
    script_event(s, &(struct pull_event){.kind = EV_PULL_DOWN, .member = 2});
    pull_replaceable(4, 0); /* the old lease is no good any more, nor an old location */
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    expect_done(4, BERTH_ENOTNOW);
    script_pass(s, 60000 * MS);
    s->n_kept = 0;
    pull_replaceable(5, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    assert_int_equal(script_count(s, CMD_PULL_LEASE), 1);
    s->n_kept = 0;
}

/* A replica that is being sealed while a newer version is returned to another caller is pulled again. */
static void newer_one_during_the_seal(void **state)
{
    (void)state;
    struct pull_key k = {.key = {.data = "r", .size = 1}, .flags = PULL_REPLACEABLE};
    script_request(
        s, &(struct pull_request){
               .id = 1, .keys = &k, .n_keys = 1, .destination = PULL_REPLICA, .sample = 0, .deadline = INT64_MAX});
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    script_reserved(s, take(CMD_PULL_RESERVE), 70);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    uint64_t seal = take(CMD_PULL_SEAL);
    pull_replaceable(2, PULL_FRESH);
    script_found(s, take(CMD_PULL_ASK), 1, 2, 9);
    script_grant(s, take(CMD_PULL_LEASE), 1, 9, 10);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    expect_done(2, 0);
    script_status(s, EV_PULL_SEALED, seal, 0);
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
    script_reserved(s, take(CMD_PULL_RESERVE), 71); /* by the newer lease */
    assert_int_equal(script_take(s, CMD_PULL_READ)->c.generation, 9);
    s->n_kept = 0;
}

static void pull_copy(uint64_t id, uint32_t flags)
{
    struct pull_key k = {.key = {.data = "r", .size = 1}, .flags = PULL_REPLACEABLE};
    script_request(
        s, &(struct pull_request){
               .id = id, .keys = &k, .n_keys = 1, .destination = PULL_REPLICA, .flags = flags, .deadline = INT64_MAX});
}

static void come(int sealed)
{
    script_reserved(s, take(CMD_PULL_RESERVE), 70);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), sealed);
}

static void come_anew(uint16_t member, uint64_t version, int sealed)
{
    script_found(s, take(CMD_PULL_ASK), 1, member, version);
    script_grant(s, take(CMD_PULL_LEASE), 1, version, 10);
    come(sealed);
}

/* The core refuses a copy below its own removal: other leases from before are no better, the home is asked, once. */
static void refused_by_an_own_removal(void **state)
{
    (void)state;
    pull_copy(1, 0);
    come_anew(3, 5, 0);
    pull_copy(2, PULL_FRESH);
    come_anew(2, 5, 0);
    s->n_kept = 0;
    pull_copy(3, 0); /* there are two leases now */
    come(-ENOENT);
    come_anew(2, 6, -ENOENT);
    expect_done(3, -ENOENT);
    s->n_kept = 0;
}

static void lineage_must_match(void **state)
{
    (void)state;
    struct pull_key k = {.key = {.data = "k", .size = 1}};
    struct pull_request r = {
        .id = 1, .keys = &k, .n_keys = 1, .destination = PULL_REPLICA, .lineage = 78, .deadline = INT64_MAX};
    script_request(s, &r);
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    expect_done(1, BERTH_ELINEAGE);
    assert_int_equal(script_count(s, CMD_PULL_RESERVE), 1);
    r.id = 3;
    script_request(s, &r);
    expect_done(3, BERTH_ELINEAGE);
    s->n_kept = 0;
}

static void nonsense_of_peers(void **state)
{
    (void)state;
    static const uint16_t far[] = {9999};
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    uint64_t ask = take(CMD_PULL_ASK);
    struct pull_answer a[2] = {{.says = (enum home_says)77}, {.says = HOME_FOUND}};
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = ask, .n = 1}); /* another kind: passed over */
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = ask, .answers = a, .n = 1});
    ask = take(CMD_PULL_ASK); /* the second home */
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = ask, .answers = a, .n = 2});
    expect_done(1, BERTH_EUNSURE);
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, far, 1);
    script_found(s, take(CMD_PULL_ASK), 1, 8888, 5);
    expect_done(2, -ENOENT);
    script_pull(s, 3, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_SKIPPED, NULL, 0); /* nobody asked for a run */
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    struct lease_terms t = script_terms(s, 5, 10);
    t.ttl_ns = INT64_MAX;
    grant_terms(take(CMD_PULL_LEASE), &t);
    expect_done(3, BERTH_EUNSURE);
    script_event(s, &(struct pull_event){.kind = EV_PULL_UP, .member = 5000});
    script_event(s, &(struct pull_event){.kind = EV_PULL_RECALL, .member = 4, .n = 3});
    struct pull_status st;
    pull_status(s->p, &st);
    assert_true(st.counter[PULL_BAD_ANSWERS] >= 4);
}

static void bad_and_surplus_requests(void **state)
{
    (void)state;
    struct pull_request r = {.id = 1, .n_keys = 0, .deadline = INT64_MAX};
    script_request(s, &r);
    expect_done(1, -EINVAL);
    struct pull_key k = {.key = {.data = "k", .size = KEY_MAX + 1}};
    r = (struct pull_request){.id = 2, .keys = &k, .n_keys = 1, .deadline = INT64_MAX};
    script_request(s, &r);
    expect_done(2, -EINVAL);
    for (uint64_t id = 10; id < 74; id++) {
        script_pull(s, id, "k", PULL_REPLICA, 0, 0);
    }
    script_pull(s, 74, "k", PULL_REPLICA, 0, 0);
    expect_done(74, -EAGAIN);
    script_pull(s, 10, "k", PULL_REPLICA, 0, 0); /* an id in use */
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
    assert_int_equal(script_count(s, CMD_PULL_ASK), 1);
    script_event(s, &(struct pull_event){.kind = EV_PULL_STOP});
    assert_int_equal(script_count(s, CMD_PULL_DONE), 64);
    s->n_kept = 0;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh_narrow, end)
    const struct CMUnitTest tests[] = {
        CASE(prefix_pulls_only_the_run),
        CASE(prefix_over_a_home_that_learns),
        CASE(wait_asks_again),
        CASE(wait_goes_on_without_a_member),
        CASE(wait_without_hope),
        CASE(batch_above_the_lease_quota),

        CASE(ranges_and_segments),
        CASE(who_waits_watches),
        CASE(lease_only_needs_a_transport_that_proves),
        CASE(never_below_a_version_returned),
        CASE(newer_one_during_the_seal),
        CASE(refused_by_an_own_removal),
        CASE(lineage_must_match),
        CASE(nonsense_of_peers),
        CASE(bad_and_surplus_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
