/* faults.c: what goes wrong beside what the net does of itself: processes, hosts, clocks, callers and strangers. */
#include "tests/sim/nodes/nodes.h"

#include <stdio.h>
#include <string.h>

const char *const fault_names[FAULTS] = {[FAULT_CRASH] = "node_killed",
                                         [FAULT_CRASH_COMMIT] = "node_killed_after_commit",
                                         [FAULT_STOP] = "node_stopped",
                                         [FAULT_PAUSE] = "node_paused",
                                         [FAULT_SUSPEND] = "host_slept",
                                         [FAULT_FREEZE] = "machine_frozen",
                                         [FAULT_DRIFT] = "transfer_with_drift_within_margin",
                                         [FAULT_BEYOND] = "transfer_with_drift_beyond_margin",
                                         [FAULT_PREEMPTED] = "preempted_between_clocks",
                                         [FAULT_COMMIT] = "commit_failed",
                                         [FAULT_CANCEL] = "pull_cancelled",
                                         [FAULT_STRANGER] = "strange_message"};

/* ---- a stranger ---- */

static void guest_connected(void *env, struct connection *c, int status, const char *why)
{
    uint8_t bytes[sizeof world->heard];
    size_t n = world->n_heard;
    (void)env, (void)why;
    if (status < 0)
        return;
    memcpy(bytes, world->heard, n);
    for (uint32_t i = 0; i < 3 && n; i++) {
        if (chance(2))
            bytes[below((uint32_t)n)] ^= (uint8_t)(1u << below(8));
        size_t cut = chance(4) ? 1 + below((uint32_t)n) : n;
        loop_transport.send(world->stranger, c, bytes, cut);
        world->faults[FAULT_STRANGER]++;
    }
}

static void guest_accepted(void *env, struct connection *c)
{
    (void)env, (void)c;
}

static void guest_closed(void *env, struct connection *c, int status, const char *why)
{
    (void)env, (void)c, (void)status, (void)why;
}

static void guest_message(void *env, struct connection *c, const void *bytes, size_t n)
{
    (void)env, (void)c, (void)bytes, (void)n;
}

static int guest_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    (void)env, (void)c, (void)want, (void)token;
    return -1;
}

static void guest_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    (void)env, (void)c, (void)lease, (void)token, (void)status;
}

static bool stranger(void)
{
    static const struct transport_events events = {.connected = guest_connected,
                                                   .accepted = guest_accepted,
                                                   .closed = guest_closed,
                                                   .message = guest_message,
                                                   .room = guest_accepted,
                                                   .admit = guest_admit,
                                                   .served = guest_served};
    struct transport_config config = {0};
    char why[128], address[64];
    struct connection *c;
    if (world->n_heard == 0 || world->kind == WORLD_HOLD)
        return false;
    loop_net_use(world->net);
    if (!world->stranger && loop_transport.open(&world->stranger, &config, &events, NULL, why, sizeof why))
        return false;
    snprintf(address, sizeof address, "127.0.0.1:%u", 7000 + below(world->n));
    return loop_transport.connect(world->stranger, address, NULL, &c, why, sizeof why) == 0;
}

void stranger_turn(void)
{
    if (world->stranger && loop_ready(world->stranger))
        loop_transport.turn(world->stranger);
}

void stranger_end(void)
{
    if (world->stranger)
        loop_crash(world->stranger);
    world->stranger = NULL;
}

/* ---- processes and hosts ---- */

static void away(struct member_node *n, int64_t ns)
{
    n->away_until = world->now + ns;
    n->due = n->away_until;
}

/* Who is silent for PEER_GONE_NS loses its connections, and what the owner held for it is held no more: then the
 * lease's time is the only proof, which clocks beyond the margin are not. */
static int64_t a_while(void)
{
    int64_t most = 2 * world->ttl + 10 * MS;
    if (world->kind == WORLD_HOLD && most > PEER_GONE_NS / 2)
        most = PEER_GONE_NS / 2;
    return (int64_t)(draw() % (uint64_t)most);
}

static void down(struct member_node *n)
{
    n->down_until = world->now + (int64_t)below(chance(2) ? 50 : 1500) * MS;
    n->away_until = 0;
    if (n->asleep_at)
        n->slept += world->now - n->asleep_at;
    n->asleep_at = 0;
    n->frozen = false;
}

static bool cut(struct member_node *n)
{
    struct link *l = TAILQ_FIRST(&n->server.peers->links);
    if (!l || !l->connection || world->kind == WORLD_HOLD)
        return false;
    loop_cut(n->server.peers->context, l->connection);
    return true;
}

void fault_doomed(struct member_node *n)
{
    note("fault: node %u dies with a commit that it does not hear of", n->number);
    n->doomed = false;
    world->faults[FAULT_CRASH_COMMIT]++;
    down(n);
    node_crash(n, true);
}

static bool crash(struct member_node *n, bool after_commit)
{
    if (world->kind == WORLD_HOLD)
        return false;
    if (after_commit) {
        n->doomed = true; /* at its next commit that takes time */
        return false;
    }
    down(n);
    node_crash(n, false);
    return true;
}

static bool stop(struct member_node *n)
{
    if (world->kind == WORLD_HOLD)
        return false;
    down(n);
    node_stop(n);
    return true;
}

static bool sleep_host(struct member_node *n, bool freeze)
{
    if (freeze && !world->beyond)
        return false;
    n->asleep_at = world->now;
    n->frozen = freeze;
    away(n, a_while());
    return true;
}

static bool happens(enum fault kind, struct member_node *n)
{
    switch (kind) {
    case FAULT_CRASH:
        return chance(2) && crash(n, false);
    case FAULT_CRASH_COMMIT:
        return crash(n, true);
    case FAULT_STOP:
        return chance(2) && stop(n);
    case FAULT_PAUSE:
        away(n, a_while());
        return true;
    case FAULT_SUSPEND:
        if (world->beyond && chance(2))
            return world->faults[FAULT_FREEZE] += sleep_host(n, true), false;
        return sleep_host(n, false);
    case FAULT_FREEZE:
        return sleep_host(n, true);
    case FAULT_PREEMPTED:
        n->preempt = 1 + below(4);
        return true;
    case FAULT_STRANGER:
        stranger();
        return false; /* counted when it speaks */
    default:
        cut(n);
        return false; /* counted by the net */
    }
}

void fault_step(void)
{
    struct member_node *n = world->node[below(world->n)];
    enum fault kind = (enum fault)below(FAULTS);
    if (!n->up || n->away_until > world->now)
        return;
    note("fault: %s at node %u", fault_names[kind], n->number);
    bool did = happens(kind, n);
    world->faults[kind] += did;
}
