/* faults.c: what goes wrong: clients are killed, stopped, slow, leave or lose their connection; the node dies. */
#include "tests/sim/sim.h"

#include <string.h>

const char *const fault_names[FAULTS] = {[FAULT_KILL] = "client_killed",
                                         [FAULT_PAUSE] = "client_paused",
                                         [FAULT_SLOW] = "client_slow",
                                         [FAULT_CLOSE] = "client_closed",
                                         [FAULT_HANGUP] = "connection_lost",
                                         [FAULT_COMMIT] = "commit_failed",
                                         [FAULT_CRASH] = "node_killed",
                                         [FAULT_CRASH_COMMIT] = "node_killed_after_commit",
                                         [FAULT_STOP] = "node_stopped",
                                         [FAULT_FORGED] = "token_forged",
                                         [FAULT_LATE_WRITE] = "write_after_death"};

const char *const mutation_names[MUTATIONS] = {
    [MUTATE_NOTHING] = "nothing",       [MUTATE_SCAN] = "scan",   [MUTATE_COMMIT] = "commit",
    [MUTATE_QUARANTINE] = "quarantine", [MUTATE_ADOPT] = "adopt", [MUTATE_AGAIN] = "again",
    [MUTATE_HORIZON] = "horizon",       [MUTATE_SERVE] = "serve", [MUTATE_RAW] = "raw"};

static void gone(struct sim *s, uint32_t client, int64_t heard)
{
    struct client *c = &s->client[client];
    c->alive = c->attached = false;
    c->death_told = !c->known; /* the node never heard of it */
    c->death_at = s->now.mono + heard;
    c->dead_until = c->death_at;
    client_forget(s, client);
}

static void kill_client(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    bool hangup = c->attached && s->node && sim_chance(s, 2);
    uint64_t session = c->session;
    sim_note(s, "fault: client %u is killed", client);
    gone(s, client, sim_below(s, 5) * MS);
    if (hangup) {
        shell_event(s, (struct node_event){.kind = EV_DETACHED, .session = session});
    }
}

static bool close_client(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    if (!c->attached || !s->node) {
        return false;
    }
    sim_note(s, "fault: client %u closes", client);
    for (uint32_t i = s->n_open; i-- > 0;) {
        if (s->puts[s->open[i]].session == c->session) {
            shadow_leave(s, s->open[i]);
        }
    }
    gone(s, client, 0);
    memset(c->pin, 0, sizeof c->pin);
    c->death_told = true;
    shell_event(s, (struct node_event){.kind = EV_DEAD, .session = c->session, .status = 1});
    return true;
}

static bool hang_up(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    if (!c->attached || !s->node) {
        return false;
    }
    sim_note(s, "fault: client %u loses its connection", client);
    client_lost_ring(s, client);
    shell_event(s, (struct node_event){.kind = EV_DETACHED, .session = c->session});
    return true;
}

static bool crash(struct sim *s, bool after_commit)
{
    if (!s->node || (after_commit && !s->flying)) {
        return false;
    }
    if (after_commit && !s->applied) {
        s->applied = true;
        s->applied_status = s->mutation == MUTATE_COMMIT ? 0 : lmdb_ops.commit(s->index, s->flying);
        shadow_committed(s);
    }
    if (!after_commit && sim_chance(s, 2)) {
        s->crash_in = 1 + sim_below(s, 6); /* at one of its next commands */
        return true;
    }
    sim_note(s, "fault: the node is killed");
    shell_crash(s);
    return true;
}

static bool stop(struct sim *s)
{
    if (!s->node) {
        return false;
    }
    sim_note(s, "fault: the node is stopped");
    shell_event(s, (struct node_event){.kind = EV_STOP});
    if (!s->node) {
        return false; /* it was to die before its next command */
    }
    shell_settle(s);
    if (!s->stopped) {
        sim_violation(s, "the node does not stop");
    }
    check_rest(s);
    shell_crash(s);
    return true;
}

/* A device, or io_uring, of a process that is gone writes on: its slots must still be its own. */
static bool late_write(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct put *p = &s->puts[s->open[i]];
        const struct client *c = &s->client[p->client];
        if (p->state == PUT_OPEN && p->session == c->session && !c->alive &&
            (!c->death_told || s->now.mono < c->dead_until)) {
            memset(s->pool + (uint64_t)p->page * PAGE_BYTES, 0xbd, p->room);
            return true;
        }
    }
    return false;
}

void fault_step(struct sim *s)
{
    uint32_t client = sim_below(s, SIM_CLIENTS);
    struct client *c = &s->client[client];
    enum fault kind = (enum fault)sim_below(s, FAULTS);
    bool did = c->alive;
    switch (kind) {
    case FAULT_KILL:
        if (did) {
            kill_client(s, client);
        }
        break;
    case FAULT_PAUSE:
        c->paused_until = s->now.mono + (1 + sim_below(s, 100)) * 20 * MS;
        break;
    case FAULT_SLOW:
        c->slow = sim_below(s, 20);
        break;
    case FAULT_CLOSE:
        did = did && close_client(s, client);
        break;
    case FAULT_HANGUP:
        did = did && hang_up(s, client);
        break;
    case FAULT_CRASH:
        did = crash(s, false);
        break;
    case FAULT_CRASH_COMMIT:
        did = crash(s, true);
        break;
    case FAULT_STOP:
        did = sim_chance(s, 2) && stop(s);
        break;
    case FAULT_LATE_WRITE:
        did = late_write(s);
        break;
    default:
        did = false;
        break; /* these are counted where they happen */
    }
    s->faults[kind] += did;
}

void fault_finish(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        s->client[i].paused_until = 0;
        s->client[i].slow = 0;
    }
    for (unsigned i = 0; i < 400 && s->violations == 0; i++) {
        s->step++;
        client_step(s, sim_below(s, SIM_CLIENTS));
        if (s->node) {
            shell_step(s);
        }
        check_step(s);
    }
    shell_settle(s);
    check_step(s);
    check_rest(s);
}
