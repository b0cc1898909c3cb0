/* node_serve.c: what is being sent from leased slots, and asking idle leases back (PROTOCOLS rules 22 to 24).
 *
 * Over TCP the slot is in use until the receiver has it all: sendfile's pages stay in the socket after the call. A
 * serve that ends by a reset leaves bytes on their way; they are of no use to a reader after its deadline, so the slot
 * then stays until the lease's end, though the lease be given back before.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t *chain_of(struct node *n, uint32_t connection, uint64_t token)
{
    uint64_t h = (token ^ (uint64_t)connection << 32) * UINT64_C(0x9e3779b97f4a7c15);
    return &n->lease.serve_chain[h >> 52 & (LEASE_SERVE_CHAINS - 1)];
}

static uint32_t *place_of(struct node *n, uint16_t peer, uint32_t connection, uint64_t token)
{
    uint32_t *at = chain_of(n, connection, token);
    while (*at != LEASE_NONE) {
        const struct serve *s = &n->lease.serve[*at];
        if (s->peer == peer && s->connection == connection && s->token == token) {
            break;
        }
        at = &n->lease.serve[*at].chain;
    }
    return at;
}

static uint32_t entry_take(struct lease_table *t)
{
    uint32_t i = t->serve_free;
    if (i != LEASE_NONE) {
        t->serve_free = t->serve[i].chain;
        return i;
    }
    if (t->serves_used == t->serves_room) {
        uint32_t room = t->serves_room ? t->serves_room * 2 : 64;
        struct serve *p = realloc(t->serve, room * sizeof *p);
        if (!p) {
            return LEASE_NONE;
        }
        t->serve = p;
        t->serves_room = room;
    }
    return t->serves_used++;
}

static int32_t begin(struct node *n, const struct lease_event *ev, struct lease_grant *out)
{
    struct lease_table *t = &n->lease;
    struct lease *l = ev->n == 1 ? lease_of(n, ev, ev->ref[0].id) : NULL;
    if (!l || l->heap == LEASE_NONE || (l->flags & LEASE_RELEASED)) {
        return BERTH_ESTALE;
    }
    uint32_t *at = place_of(n, ev->peer, ev->connection, ev->token);
    if (*at != LEASE_NONE) {
        return -EEXIST;
    }
    uint32_t i = t->serves < n->c.lease.max_serves ? entry_take(t) : LEASE_NONE;
    if (i == LEASE_NONE) {
        return -EAGAIN;
    }
    uint32_t *head = chain_of(n, ev->connection, ev->token);
    t->serve[i] = (struct serve){.token = ev->token,
                                 .connection = ev->connection,
                                 .lease = (uint32_t)(l - t->entry),
                                 .chain = *head,
                                 .peer = ev->peer,
                                 .used = true};
    *head = i;
    t->serves++;
    l->serves++;
    lease_changed(n, l);
    const struct slot_header *h = header_of(n, l->slot);
    *out = (struct lease_grant){.slot = l->slot,
                                .lease = ev->ref[0].id,
                                .generation = word_gen(slot_load(h)),
                                .offset = (uint64_t)h->page * PAGE_BYTES,
                                .size = h->size};
    n->counters[NODE_SERVES]++;
    return 0;
}

static void end(struct node *n, uint32_t *at, bool reset)
{
    struct lease_table *t = &n->lease;
    uint32_t i = *at;
    struct lease *l = &t->entry[t->serve[i].lease];
    *at = t->serve[i].chain;
    t->serve[i].used = false;
    t->serve[i].chain = t->serve_free;
    t->serve_free = i;
    t->serves--;
    if (--l->serves == 0) {
        l->flags &= (uint8_t)~LEASE_IN_FLIGHT; /* until its reader says otherwise */
    }
    if (reset) {
        l->flags |= LEASE_RESET;
    }
    lease_changed(n, l);
}

void serve_event(struct node *n, enum node_event_kind kind, const struct lease_event *ev)
{
    if (kind == EV_SERVE_END) {
        uint32_t *at = place_of(n, ev->peer, ev->connection, ev->token);
        if (*at != LEASE_NONE) {
            end(n, at, ev->reset);
        }
        return;
    }
    struct lease_answer *a = arena_take(n, sizeof *a);
    struct lease_grant *g = arena_take(n, sizeof *g);
    struct node_command *c = a && g ? command_add(n, CMD_SERVE, CONTROL_SESSION) : NULL;
    if (!c) {
        return; /* nothing was begun, and nothing is sent */
    }
    *g = (struct lease_grant){0};
    *a = (struct lease_answer){.peer = ev->peer,
                               .connection = ev->connection,
                               .incarnation = ev->incarnation,
                               .grant = g,
                               .n = 1,
                               .token = ev->token};
    a->status = g->status = n->stopping ? BERTH_ENODE : begin(n, ev, g);
    c->lease = a;
}

void serves_reset(struct node *n, uint16_t peer, uint32_t connection)
{
    for (uint32_t i = 0; i < n->lease.serves_used; i++) {
        const struct serve *s = &n->lease.serve[i];
        if (s->used && s->peer == peer && s->connection == connection) {
            end(n, place_of(n, peer, connection, s->token), true);
        }
    }
}

/* ---- recalls ---- */

/* Into the newest command if that is of the same peer and connection, and has room. */
static bool recall_say(struct node *n, struct lease *l)
{
    const struct lease_peer *p = &n->lease.peer[l->peer];
    struct node_command *last = n->n_commands ? &n->commands[n->n_commands - 1] : NULL;
    if (last && last->kind == CMD_RECALL && last->lease->peer == p->peer && last->lease->n < LEASE_KEYS_MAX &&
        last->lease->incarnation == p->incarnation && last->lease->connection == l->connection) {
        struct lease_answer *a = (struct lease_answer *)last->lease; /* from the arena: ours to write */
        ((uint64_t *)a->id)[a->n++] = lease_id(n, l);
        return true;
    }
    struct lease_answer *a = arena_take(n, sizeof *a);
    uint64_t *id = arena_take(n, LEASE_KEYS_MAX * sizeof *id);
    struct node_command *c = a && id ? command_add(n, CMD_RECALL, CONTROL_SESSION) : NULL;
    if (!c) {
        return false;
    }
    id[0] = lease_id(n, l);
    *a = (struct lease_answer){
        .peer = p->peer, .connection = l->connection, .incarnation = p->incarnation, .id = id, .n = 1};
    c->lease = a;
    return true;
}

static bool recall(struct node *n, struct lease *l)
{
    if (!recall_say(n, l)) {
        return false;
    }
    l->flags |= LEASE_RECALLED;
    n->counters[NODE_LEASE_RECALLS]++;
    lease_changed(n, l);
    return true;
}

bool leases_recall_oldest(struct node *n)
{
    return n->lease.oldest != LEASE_NONE && recall(n, &n->lease.entry[n->lease.oldest]);
}

void leases_recall_idle(struct node *n)
{
    struct lease_table *t = &n->lease;
    for (uint32_t i = 0; i < LEASE_RECALLS && t->idle_bytes > n->c.lease.idle_bytes; i++) {
        if (!leases_recall_oldest(n)) {
            return;
        }
    }
}

void leases_recall_peer(struct node *n, const struct lease_peer *p, uint64_t bytes)
{
    const struct lease_table *t = &n->lease;
    uint64_t asked = 0;
    uint32_t looked = 0;
    for (uint32_t i = p->first; i != LEASE_NONE && asked < bytes && looked < LEASE_RECALLS; i = t->entry[i].next) {
        struct lease *l = &n->lease.entry[i];
        looked++;
        if (l->flags & LEASE_RECALLED) {
            asked += slot_bytes(n, l->slot); /* is on its way back already */
        } else if (l->class == LEASE_IDLE && recall(n, l)) {
            asked += slot_bytes(n, l->slot);
        }
    }
}
