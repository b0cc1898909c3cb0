/* check.c: after every step: slots against pins and writers, the core against itself; at rest: index, lookup, slots. */
#include "tests/sim/sim.h"

#include "index/check.h"

static const char *state_name(uint64_t word)
{
    static const char *const name[] = {"FREE", "WRITING", "READY", "RETIRED"};
    return word_state(word) <= SLOT_RETIRED ? name[word_state(word)] : "of no state";
}

static void check_pins(struct sim *s, uint32_t client)
{
    const struct client *c = &s->client[client];
    for (uint32_t i = 0; i < SIM_ENTRIES; i++) {
        if (c->valid[i] == 0) {
            continue;
        }
        const struct put *p = &s->puts[c->valid[i] - 1];
        uint64_t word = slot_load(&s->headers[p->slot]);
        if (word_gen(word) != p->gen || (word_state(word) != SLOT_READY && word_state(word) != SLOT_RETIRED)) {
            sim_violation(s, "slot %u is %s while client %u reads put %u in it", p->slot, state_name(word), client,
                          c->valid[i] - 1);
        }
    }
}

/* A slot stays its writer's while that lives, and for the quarantine after its death was known. false: it is over. */
static bool check_writer(struct sim *s, uint32_t put)
{
    const struct put *p = &s->puts[put];
    const struct client *c = &s->client[p->client];
    bool lives = c->session == p->session && c->alive;
    bool ghost = c->session == p->session && !c->alive && (!c->death_told || s->now.mono < c->dead_until);
    uint64_t word = slot_load(&s->headers[p->slot]);
    if (!lives && !ghost) {
        return false;
    }
    bool writable = word_gen(word) == p->gen && word_state(word) == SLOT_WRITING;
    /* A token whose answer its client has not taken yet is given back when the connection is made again. */
    if (p->state == PUT_OPEN && p->told && !writable) {
        sim_violation(s, "slot %u is %s while put %u of client %u is being written in it", p->slot, state_name(word),
                      put, p->client);
    }
    return true;
}

static void check_ready(struct sim *s)
{
    for (uint32_t i = 0; i <= s->top_slot; i++) {
        uint64_t word = slot_load(&s->headers[i]);
        if (word_state(word) != SLOT_READY) {
            continue;
        }
        uint32_t put = shadow_find(s, i, word_gen(word));
        if (put == SIM_NONE || (s->puts[put].state != PUT_SEALED && s->puts[put].state != PUT_GONE)) {
            sim_violation(s, "slot %u is READY, and no commit has it", i);
        }
    }
}

void check_writers(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_open;) {
        if (check_writer(s, s->open[i])) {
            i++;
        } else {
            shadow_leave(s, s->open[i]);
        }
    }
}

void check_step(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (s->client[i].alive) {
            check_pins(s, i);
        }
    }
    check_peers(s);
    check_writers(s);
    if (s->changed && s->violations == 0) {
        s->changed = false;
        check_ready(s);
        const char *why = s->node ? node_check(s->node) : NULL;
        if (why) {
            sim_violation(s, "node_check: %s", why);
        }
    }
}

static void difference(void *arg, const char *sentence)
{
    sim_violation(arg, "check_region: %s", sentence);
}

void check_rest(struct sim *s)
{
    struct check_result result;
    struct node_status st;
    uint32_t present = 0;
    if (s->violations || !s->node) {
        return;
    }
    if (check_region(&lmdb_ops, s->index, &s->lookup, s->top_slot + 1, difference, s, &result)) {
        sim_violation(s, "check_region fails");
    }
    for (uint32_t i = 0; i < s->keys; i++) {
        struct key *k = &s->key[i];
        present += k->present;
        k->purging = false;
        k->removing = k->dropping[0] = k->dropping[1] = false;
        uint32_t slot = node_find(s->node, (struct key_ref){.data = k->data, .size = k->size, .ns = k->ns});
        if (slot != (k->present ? k->record.slot : SLOT_NONE)) {
            sim_violation(s, "key %u: the node finds it in slot %d at rest", i, (int)slot);
        }
    }
    node_status(s->node, &st);
    if (st.objects != present) {
        sim_violation(s, "the node counts %llu objects and there are %u", (unsigned long long)st.objects, present);
    }
}
