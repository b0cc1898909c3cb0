/* shell.c: carries the core's commands out: a commit, its answer and every table of a scan are steps of their own. */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct client *client_of(struct sim *s, uint64_t session, uint32_t *index)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (s->client[i].session == session) {
            *index = i;
            return &s->client[i];
        }
    }
    return NULL;
}

static void answer(struct sim *s, const struct node_command *k)
{
    uint32_t at;
    struct client *c = client_of(s, k->session, &at);
    if (!c || !c->alive || !c->attached) {
        return; /* nobody reads that ring any more */
    }
    struct request *r = client_request(c, k->reply->head.id);
    if (!r || r->reply || !r->delivered) {
        sim_violation(s, "client %u: an answer to request %llu, which waits for none", at,
                      (unsigned long long)k->reply->head.id);
        return;
    }
    if (k->kind == CMD_GROW) {
        c->acked = k->n_slots / PINS_SEGMENT * SIM_SEGMENT;
    }
    sim_note(s, "node: answers client %u id %llu op %u: %d", at, (unsigned long long)k->reply->head.id,
             k->reply->head.op, k->reply->status);
    shadow_reply(s, at, r, k->reply);
    r->reply = malloc(k->reply->head.bytes);
    memcpy(r->reply, k->reply, k->reply->head.bytes);
}

static void scan(struct sim *s, const struct node_command *k)
{
    if (s->scanning) {
        sim_violation(s, "a scan is asked for while one is under way");
    }
    s->scanning = true;
    s->scan_id = k->scan;
    s->n_scan = k->n_slots;
    s->scan_client = 0;
    s->scan_slots = realloc(s->scan_slots, (k->n_slots + 1) * sizeof *s->scan_slots);
    s->scan_bits = realloc(s->scan_bits, (k->n_slots / 64 + 1) * sizeof *s->scan_bits);
    memcpy(s->scan_slots, k->slots, k->n_slots * sizeof *s->scan_slots);
    memset(s->scan_bits, 0, (k->n_slots / 64 + 1) * sizeof *s->scan_bits);
}

static void carry_out(struct sim *s, const struct node_command *k)
{
    uint32_t at;
    struct client *c;
    switch (k->kind) {
    case CMD_REPLY:
    case CMD_GROW:
        answer(s, k);
        break;
    case CMD_COMMIT:
        if (s->flying) {
            sim_violation(s, "a commit is asked for while one is under way");
        }
        s->flying = k->batch;
        s->applied = false;
        break;
    case CMD_SCAN:
        scan(s, k);
        break;
    case CMD_CLOSED:
        c = client_of(s, k->session, &at);
        if (c && c->alive) {
            sim_violation(s, "client %u lives and its session is closed", at);
        }
        break;
    case CMD_REFUSE:
        c = client_of(s, k->session, &at);
        if (c) {
            c->refuse = k->flag;
        }
        break;
    case CMD_PULL:
    case CMD_CANCEL_PULL:
    case CMD_BUFFER:
    case CMD_AWAIT_HOMES:
    case CMD_REVOKE:
    case CMD_QUERY:
        sim_violation(s, "a command that nobody asked for");
        break;
    case CMD_LOG:
        sim_note(s, "node: %s", k->text);
        break;
    case CMD_STOPPED:
        s->stopped = true;
        break;
    case CMD_PUBLISHED:
        sim_violation(s, "a command that nobody asked for");
        break;
    case CMD_LEASED:
    case CMD_RENEWED:
    case CMD_RECALL:
    case CMD_SERVE:
        peer_answer(s, k);
        break;
    }
}

void shell_event(struct sim *s, struct node_event ev)
{
    check_writers(s); /* a quarantine that is over now may end in this event */
    node_event(s->node, &ev, s->now);
    s->changed = true;
    for (const struct node_command *k; (k = node_command(s->node));) {
        if (s->crash_in && --s->crash_in == 0) {
            sim_note(s, "node: killed before its command %d", k->kind);
            shell_crash(s);
            return;
        }
        carry_out(s, k);
    }
}

static int open_index(struct sim *s)
{
    struct lmdb_config c = {.dir = s->dir, .map_bytes = s->map_bytes, .mode = 0600};
    int e = lmdb_open(&s->index, &c);
    s->config.ix = s->index;
    return e;
}

static void adopt(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        struct client *c = &s->client[i];
        if (c->alive && c->known && s->mutation != MUTATE_ADOPT) {
            shell_event(s, (struct node_event){.kind = EV_ADOPT, .session = c->session});
        } else if (!c->alive && !c->death_told) {
            c->death_told = true; /* an orphan's drafts have their quarantine from now on */
            c->dead_until = s->now.mono + s->config.quarantine_ns;
            memset(c->pin, 0, sizeof c->pin);
        }
    }
}

int shell_start(struct sim *s)
{
    int e = open_index(s);
    if (e == 0 && s->mutation == MUTATE_HORIZON) {
        struct batch *b = batch_create();
        batch_meta(b, META_LEASE_HORIZON, 0);
        lmdb_ops.commit(s->index, b);
        batch_destroy(b);
    }
    e = e ? e : node_create(&s->node, &s->config);
    if (e) {
        sim_violation(s, "the node can't be made: %d", e);
        return e;
    }
    sim_note(s, "node: starts");
    s->stopped = false;
    s->start_step = s->step;
    adopt(s);
    shadow_projected(s);
    shell_event(s, (struct node_event){.kind = EV_START});
    const char *why;
    if (node_started(s->node, &why)) {
        sim_violation(s, "the node does not start: %s", why);
    }
    s->config.first = false;
    return 0;
}

void shell_close(struct sim *s)
{
    struct node_status st = {0};
    if (s->node) {
        node_status(s->node, &st);
    }
    for (unsigned i = 0; i < NODE_COUNTERS; i++) {
        s->counters[i] += st.counter[i];
    }
    node_destroy(s->node);
    lmdb_close(s->index);
    s->node = NULL;
    s->index = NULL;
}

void shell_crash(struct sim *s)
{
    shell_close(s);
    peers_lost(s);
    s->flying = NULL;
    s->scanning = false;
    s->crash_in = 0;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (s->client[i].attached) {
            client_lost_ring(s, i);
        }
    }
}

void shell_attach(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    struct session_row row = {.pid = (int32_t)client + 1, .name = "sim"};
    sim_note(s, "client %u: attaches as session %llu%s", client, (unsigned long long)c->session,
             c->known ? " again" : "");
    bool again = c->known;
    c->attached = c->known = true;
    if (again) {
        send_resume(s, client);
    }
    shell_event(
        s, (struct node_event){.kind = EV_ATTACH, .session = c->session, .writable = true, .row = again ? NULL : &row});
}

static bool step_request(struct sim *s)
{
    uint32_t at = sim_below(s, SIM_CLIENTS);
    struct client *c = &s->client[at];
    if (!c->attached || !c->alive || !node_session_ready(s->node, c->session)) {
        return false;
    }
    for (struct request *r = c->requests; r; r = r->next) {
        if (!r->delivered) {
            r->delivered = true;
            sim_note(s, "node: takes client %u id %llu op %u%s", at, (unsigned long long)r->message->id, r->message->op,
                     r->again ? " again" : "");
            shell_event(s, (struct node_event){.kind = EV_REQUEST, .session = c->session, .message = r->message});
            return true;
        }
    }
    return false;
}

static bool step_commit(struct sim *s)
{
    if (!s->flying) {
        return false;
    }
    if (s->applied) {
        s->flying = NULL;
        sim_note(s, "node: hears that its commit ended: %d", s->applied_status);
        shadow_projected(s);
        shell_event(s, (struct node_event){.kind = EV_COMMITTED, .status = s->applied_status});
        return true;
    }
    bool fails = !s->settling && sim_chance(s, 50);
    s->faults[FAULT_COMMIT] += fails;
    s->applied_status = fails ? -ENOSPC : s->mutation == MUTATE_COMMIT ? 0 : lmdb_ops.commit(s->index, s->flying);
    s->applied = true;
    sim_note(s, "index: commit of %u operations: %d", batch_count(s->flying), s->applied_status);
    shadow_committed(s);
    return true;
}

static void scan_table(struct sim *s, const struct client *c)
{
    if (s->mutation == MUTATE_SCAN) {
        return;
    }
    for (uint32_t i = 0; i < c->acked; i++) {
        for (uint32_t k = 0; c->pin[i] && k < s->n_scan; k++) {
            if (s->scan_slots[k] == c->pin[i] - 1) {
                s->scan_bits[k / 64] |= UINT64_C(1) << (k % 64);
            }
        }
    }
}

static bool step_scan(struct sim *s)
{
    if (!s->scanning) {
        return false;
    }
    if (s->scan_client < SIM_CLIENTS) {
        scan_table(s, &s->client[s->scan_client++]);
        return true;
    }
    s->scanning = false;
    sim_note(s, "node: hears of its scan of %u slots", s->n_scan);
    shell_event(s, (struct node_event){.kind = EV_SCANNED, .scan = s->scan_id, .pinned = s->scan_bits});
    return true;
}

static bool step_attach(struct sim *s)
{
    uint32_t at = sim_below(s, SIM_CLIENTS);
    if (!s->client[at].alive || s->client[at].attached) {
        return false;
    }
    shell_attach(s, at);
    return true;
}

static bool step_death(struct sim *s)
{
    uint32_t at = sim_below(s, SIM_CLIENTS);
    struct client *c = &s->client[at];
    if (c->alive || c->death_told || c->death_at > s->now.mono) {
        return false;
    }
    c->death_told = true;
    c->dead_until = s->now.mono + s->config.quarantine_ns;
    memset(c->pin, 0, sizeof c->pin);
    sim_note(s, "node: hears that client %u is dead", at);
    shell_event(
        s, (struct node_event){.kind = EV_DEAD, .session = c->session, .status = s->mutation == MUTATE_QUARANTINE});
    return true;
}

/* What a client scribbles into its touch ring, and what a periodic scan counts, may be anything. */
static bool step_words(struct sim *s)
{
    struct client *c = &s->client[sim_below(s, SIM_CLIENTS)];
    uint32_t slot[4];
    for (unsigned i = 0; i < 4; i++) {
        slot[i] = sim_chance(s, 8) ? (uint32_t)sim_random(s) : sim_below(s, s->top_slot + 1);
    }
    struct node_event ev = {.kind = EV_TOUCH, .session = c->session, .slots = slot, .n_slots = 1 + sim_below(s, 4)};
    if (sim_chance(s, 4)) {
        ev = (struct node_event){.kind = EV_PINNED, .session = c->session, .bytes = sim_random(s)};
    }
    shell_event(s, ev);
    return true;
}

bool shell_step(struct sim *s)
{
    if (!s->node) {
        if (sim_chance(s, 8)) {
            shell_start(s);
        }
        return true;
    }
    switch (sim_below(s, 16)) {
    case 0:
    case 1:
        return step_commit(s);
    case 2:
    case 3:
    case 4:
    case 5:
        return step_scan(s);
    case 6:
    case 7:
        shell_event(s, (struct node_event){.kind = EV_TURN});
        return true;
    case 8:
        if (node_timer(s->node) <= s->now.mono) {
            shell_event(s, (struct node_event){.kind = EV_TICK});
        }
        return true;
    case 9:
        return step_attach(s);
    case 10:
        return step_death(s);
    case 11:
        return sim_chance(s, 4) && step_words(s);
    default:
        return step_request(s);
    }
}

/* Nothing fails and no client does anything new: all that is on its way arrives. A pinned slot may stay RETIRED, a
 * request that waits for room may stay open. */
void shell_settle(struct sim *s)
{
    s->settling = true;
    s->crash_in = 0;
    if (!s->node) {
        shell_start(s);
    }
    for (uint32_t quiet = 0, i = 0; quiet < 64 && i < 20000 && s->violations == 0; i++) {
        check_step(s);
        bool did = step_commit(s) || step_scan(s);
        did |= step_request(s) || step_attach(s);
        if (!did) {
            shell_event(s, (struct node_event){.kind = EV_TURN});
            did = s->flying || s->scanning;
        }
        quiet = did ? 0 : quiet + 1;
    }
    s->settling = false;
    if (s->flying || s->scanning) {
        sim_violation(s, "the node never comes to rest");
    }
}
