#include "tests/support/puller.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t homes(void *env, const struct pull_key *key, uint16_t *out, uint32_t max)
{
    struct script *s = env;
    (void)key;
    uint32_t n = s->n_homes < max ? s->n_homes : max;
    memcpy(out, s->homes, n * sizeof *out);
    return n;
}

struct script *script_new(void)
{
    struct script *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->kept = calloc(KEPT_MAX, sizeof *s->kept);
    assert_non_null(s->kept);
    s->config = (struct pull_config){.self = 0,
                                     .n_members = 5,
                                     .homes = homes,
                                     .env = s,
                                     .max_requests = 64,
                                     .max_keys = 1024,
                                     .max_leases = 64,
                                     .max_lease_bytes = 1u << 30};
    s->homes[0] = 1;
    s->homes[1] = 2;
    s->n_homes = 2;
    s->now = (struct reader_now){1000 * MS, 500 * MS, 500 * MS, 500 * MS};
    return s;
}

void script_start(struct script *s)
{
    assert_int_equal(pull_create(&s->p, &s->config), 0);
    for (uint16_t i = 1; i < 4; i++) {
        script_member(s, EV_PULL_UP, i, 7);
    }
}

void script_free(struct script *s)
{
    pull_destroy(s->p);
    free(s->kept);
    free(s);
}

static void keep(struct script *s, const struct pull_command *c)
{
    assert_true(s->n_kept < KEPT_MAX);
    struct kept *k = &s->kept[s->n_kept++];
    memset(k, 0, sizeof *k);
    k->c = *c;
    for (uint32_t i = 0; c->keys && c->kind != CMD_PULL_HASH && i < c->n; i++) {
        memcpy(k->key[i], c->keys[i].key.data, c->keys[i].key.size);
    }
    if (c->kind == CMD_PULL_DONE) {
        memcpy(k->result, c->results, c->n * sizeof *c->results);
    } else if (c->kind == CMD_PULL_RELEASE) {
        memcpy(k->release, c->releases, c->n * sizeof *c->releases);
    } else if (c->kind == CMD_PULL_HASH) {
        assert_true(c->n <= 64);
        memcpy(k->part, c->parts, c->n * sizeof *c->parts);
    }
}

void script_event(struct script *s, const struct pull_event *ev)
{
    pull_event(s->p, ev, s->now);
    for (const struct pull_command *c; (c = pull_command(s->p));) {
        keep(s, c);
    }
    const char *bad = pull_check(s->p);
    if (bad) {
        fail_msg("%s", bad);
    }
}

void script_pass(struct script *s, int64_t ns)
{
    s->now.raw += ns;
    s->now.mono_before += ns;
    s->now.mono_after += ns;
    s->now.boot += ns;
    script_event(s, &(struct pull_event){.kind = EV_PULL_TICK});
}

const struct kept *script_take(struct script *s, enum pull_command_kind kind)
{
    static struct kept taken;
    for (uint32_t i = 0; i < s->n_kept; i++) {
        if (s->kept[i].c.kind == kind) {
            taken = s->kept[i];
            memmove(&s->kept[i], &s->kept[i + 1], (s->n_kept - i - 1) * sizeof taken);
            s->n_kept--;
            return &taken;
        }
    }
    fail_msg("no command of kind %d", (int)kind);
    return NULL;
}

uint32_t script_count(const struct script *s, enum pull_command_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_kept; i++) {
        n += s->kept[i].c.kind == kind;
    }
    return n;
}

void script_request(struct script *s, const struct pull_request *r)
{
    script_event(s, &(struct pull_event){.kind = EV_PULL_REQUEST, .request = r});
}

void script_pull(struct script *s, uint64_t id, const char *keys, enum pull_destination d, uint32_t flags,
                 int64_t deadline)
{
    struct pull_key k[PULL_KEYS_MAX];
    uint32_t n = (uint32_t)strlen(keys);
    for (uint32_t i = 0; i < n; i++) {
        k[i] = (struct pull_key){.key = {.data = &keys[i], .size = 1}, .buffer = id, .to = 100, .room = 1u << 30};
    }
    script_request(s, &(struct pull_request){.id = id,
                                             .keys = k,
                                             .n_keys = n,
                                             .destination = d,
                                             .flags = flags,
                                             .sample = 1,
                                             .deadline = deadline ? deadline : INT64_MAX});
}

struct lease_terms script_terms(struct script *s, uint64_t generation, uint64_t size)
{
    return (struct lease_terms){.lease = ++s->next_lease,
                                .generation = generation,
                                .slot = 9,
                                .offset = 4096,
                                .size = size,
                                .version = {generation, 1},
                                .checksum = SUM,
                                .lineage = 77,
                                .ttl_ns = 5000 * MS};
}

void script_found(struct script *s, uint64_t rpc, uint32_t n, uint16_t member, uint64_t counter)
{
    struct pull_answer a[PULL_KEYS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        a[i] = (struct pull_answer){.says = HOME_FOUND, .n_locations = 1, .location = {{member, {counter, 1}}}};
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = rpc, .answers = a, .n = n});
}

void script_says(struct script *s, uint64_t rpc, enum home_says says, const uint16_t *missing, uint32_t n_missing)
{
    bool many = n_missing > PULL_MISSING_MAX;
    struct pull_answer a = {.says = says, .missing = missing, .n_missing = many ? 0 : n_missing, .many = many};
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = rpc, .answers = &a, .n = 1});
}

void script_grant(struct script *s, uint64_t rpc, uint32_t n, uint64_t generation, uint64_t size)
{
    struct pull_grant g[PULL_KEYS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        g[i] = (struct pull_grant){.terms = script_terms(s, generation, size)};
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = rpc, .grants = g, .n = n});
}

void script_status(struct script *s, enum pull_event_kind kind, uint64_t id, int status)
{
    script_event(s, &(struct pull_event){.kind = kind, .id = id, .status = status});
}

void script_member(struct script *s, enum pull_event_kind kind, uint16_t member, uint64_t incarnation)
{
    script_event(s,
                 &(struct pull_event){
                     .kind = kind, .member = member, .incarnation = incarnation, .transport = "loop", .proven = true});
}

void script_hashed(struct script *s, uint64_t id, uint64_t sum)
{
    script_event(s, &(struct pull_event){.kind = EV_PULL_HASHED, .id = id, .sums = &sum, .n = 1});
}

void script_reserved(struct script *s, uint64_t id, uint64_t token)
{
    script_event(s, &(struct pull_event){.kind = EV_PULL_RESERVED, .id = id, .token = token});
}
