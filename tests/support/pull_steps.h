/* pull_steps.h: one puller of a test program, and the steps of a pull in few words. */
#ifndef BERTH_TESTS_PULL_STEPS_H
#define BERTH_TESTS_PULL_STEPS_H

#include "store/berth.h"
#include "tests/support/puller.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static struct script *s;

static inline int fresh(void **state)
{
    (void)state;
    s = script_new();
    script_start(s);
    return 0;
}

/* With windows that a few READs fill. */
static inline int fresh_narrow(void **state)
{
    (void)state;
    s = script_new();
    s->config.read_bytes = MIB;
    s->config.window_bytes = 3 * MIB;
    s->config.source_window_bytes = 2 * MIB;
    script_start(s);
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    script_free(s);
    return 0;
}

static inline uint64_t take(enum pull_command_kind kind)
{
    return script_take(s, kind)->c.id;
}

static inline void expect_done(uint64_t id, int status)
{
    const struct kept *k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->c.id, id);
    assert_int_equal(k->result[0].status, status);
}

static inline void answers(uint64_t rpc, const char *says, uint64_t version)
{
    struct pull_answer a[PULL_KEYS_MAX] = {0};
    uint32_t n = (uint32_t)strlen(says);
    for (uint32_t i = 0; i < n; i++) {
        a[i].says = says[i] == 'F' ? HOME_FOUND : says[i] == 'A' ? HOME_ABSENT : HOME_SKIPPED;
        a[i].n_locations = says[i] == 'F';
        a[i].location[0] = (struct pull_location){3, {version, 1}};
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = rpc, .answers = a, .n = n});
}

static inline void grant_terms(uint64_t rpc, const struct lease_terms *t)
{
    struct pull_grant g = {.terms = *t};
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = rpc, .grants = &g, .n = 1});
}

static inline uint64_t to_read(uint64_t id, const char *key, uint64_t size)
{
    script_pull(s, id, key, PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, size);
    return take(CMD_PULL_READ);
}

static inline void finish(uint64_t read)
{
    script_status(s, EV_PULL_READ, read, 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
}

#endif
