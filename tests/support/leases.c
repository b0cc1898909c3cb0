#include "tests/support/leases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct lease_answer leased, renewed, served, recalled;
struct lease_grant grants[LEASE_KEYS_MAX], again[LEASE_KEYS_MAX], sending;
uint64_t recalled_ids[1024];
uint32_t n_leased, n_renewed, n_recalled, n_served;

/* A refusal has none. */
static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes) {
        memcpy(to, from, bytes);
    }
}

static void keep(struct core *c, const struct node_command *k)
{
    (void)c;
    const struct lease_answer *a = k->lease;
    switch (k->kind) {
    case CMD_LEASED:
        leased = *a;
        copy(grants, a->grant, a->n * sizeof *grants);
        n_leased++;
        break;
    case CMD_RENEWED:
        renewed = *a;
        copy(again, a->grant, a->n * sizeof *again);
        n_renewed++;
        break;
    case CMD_SERVE:
        served = *a;
        sending = *a->grant;
        n_served++;
        break;
    case CMD_RECALL:
        recalled = *a;
        memcpy(&recalled_ids[n_recalled], a->id, a->n * sizeof *a->id);
        n_recalled += a->n;
        break;
    default:
        break;
    }
}

void lease_options(struct core *c)
{
    static struct node_namespace replaceable[] = {{.name = "r", .replaceable = true}};
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
    c->other = keep;
    n_leased = n_renewed = n_recalled = n_served = 0;
}

void lease_give(struct core *c, enum node_event_kind kind, struct lease_event ev)
{
    ev.connection = ev.connection ? ev.connection : ev.peer;
    ev.incarnation = ev.incarnation ? ev.incarnation : 100;
    core_event(c, (struct node_event){.kind = kind, .lease = &ev});
    core_turn(c);
    core_check(c);
}

struct key_ref lease_key(const char *key, uint32_t ns)
{
    return (struct key_ref){.data = key, .size = (uint32_t)strlen(key), .ns = ns};
}

/* Leases one key; the lease is in grants[0]. */
int32_t lease_ns(struct core *c, uint16_t peer, const char *key, uint32_t ns)
{
    struct key_ref k = lease_key(key, ns);
    uint32_t before = n_leased;
    lease_give(c, EV_LEASE, (struct lease_event){.peer = peer, .keys = &k, .n = 1, .request = 77});
    assert_int_equal(n_leased, before + 1);
    assert_int_equal(leased.peer, peer);
    assert_int_equal(leased.request, 77);
    return leased.status ? leased.status : grants[0].status;
}

int32_t lease_one(struct core *c, uint16_t peer, const char *key)
{
    return lease_ns(c, peer, key, 0);
}

int32_t lease_renew(struct core *c, uint16_t peer, uint64_t id, bool in_flight)
{
    struct lease_ref r = {.id = id, .in_flight = in_flight};
    lease_give(c, EV_RENEW, (struct lease_event){.peer = peer, .ref = &r, .n = 1});
    return renewed.status ? renewed.status : again[0].status;
}

void lease_release(struct core *c, uint16_t peer, uint64_t id, uint32_t uses)
{
    struct lease_ref r = {.id = id, .uses = uses};
    lease_give(c, EV_RELEASE, (struct lease_event){.peer = peer, .ref = &r, .n = 1});
}

int32_t lease_serve(struct core *c, uint16_t peer, uint64_t id, uint64_t token)
{
    struct lease_ref r = {.id = id};
    uint32_t before = n_served;
    lease_give(c, EV_SERVE_BEGIN, (struct lease_event){.peer = peer, .ref = &r, .n = 1, .token = token});
    assert_int_equal(n_served, before + 1);
    assert_int_equal(served.token, token);
    return served.status;
}

void lease_done(struct core *c, uint16_t peer, uint64_t token, bool reset)
{
    lease_give(c, EV_SERVE_END, (struct lease_event){.peer = peer, .token = token, .reset = reset});
}

enum slot_state core_state(const struct core *c, uint32_t slot)
{
    return word_state(slot_load(&c->headers[slot]));
}

struct node_status core_status(struct core *c)
{
    struct node_status s;
    node_status(c->node, &s);
    return s;
}
