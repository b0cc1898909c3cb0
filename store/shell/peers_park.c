/* peers_park.c: see peers_park.h. */
#include "store/shell/peers_park.h"

#include "store/berth.h"
#include "store/shell/peers_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct parked {
    TAILQ_ENTRY(parked) entry;
    peers_answer_fn *done;
    void *arg;
    int64_t deadline, until; /* as link_ask has them */
    uint16_t member;
    size_t bytes;
    uint8_t message[];
};

int park_ask(struct peers *p, uint16_t number, const void *message, size_t n, int64_t deadline, int64_t until,
             peers_answer_fn *done, void *arg)
{
    if (p->stopping || number >= p->n_members || !(p->client ? client_awaits(p, number) : p->members[number].awaited))
        return -ENOTCONN;
    struct parked *k = malloc(sizeof *k + n);
    if (!k)
        return -ENOMEM;
    *k = (struct parked){.done = done, .arg = arg, .deadline = deadline, .until = until, .member = number, .bytes = n};
    memcpy(k->message, message, n);
    TAILQ_INSERT_TAIL(&p->parked, k, entry);
    if (p->client)
        client_dial(p, number);
    p->again = true;
    return 0;
}

static struct parked *parked_of(struct peers *p, uint16_t number)
{
    struct parked *k;
    TAILQ_FOREACH(k, &p->parked, entry)
    {
        /* The analyzer does not see that park_end takes it off. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        if (k->member == number)
            return k;
    }
    return NULL;
}

void park_end(struct peers *p, uint16_t number, int32_t status)
{
    struct parked *k;
    while ((k = parked_of(p, number))) {
        TAILQ_REMOVE(&p->parked, k, entry);
        int e = status ? status : link_ask(p, number, k->message, k->bytes, k->deadline, k->until, k->done, k->arg);
        if (e < 0)
            k->done(k->arg, e, NULL, NULL);
        free(k);
    }
}

void park_close(struct peers *p)
{
    struct parked *k;
    while ((k = TAILQ_FIRST(&p->parked))) {
        TAILQ_REMOVE(&p->parked, k, entry);
        k->done(k->arg, -ECONNRESET, NULL, NULL);
        free(k);
    }
}

/* ---- a node that begins ---- */

void await_begin(struct peers *p, int64_t now)
{
    static const struct peer_identity nobody;
    p->begun = now;
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (i != p->self) {
            p->members[i].awaited = true;
            pull_part_up(p, (uint16_t)i, &nobody);
        }
    }
}

void await_met(struct peers *p, uint16_t number)
{
    if (number >= p->n_members)
        return;
    p->members[number].awaited = false;
    park_end(p, number, 0);
}

static int64_t await_until(const struct peers *p, const struct member *m)
{
    return p->begun + (m->dials ? PEERS_AWAIT_NS : PEERS_AWAITED_NS);
}

void await_turn(struct peers *p, int64_t now)
{
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        if (!m->awaited || (await_until(p, m) > now && !p->stopping))
            continue;
        m->awaited = false;
        pull_part_down(p, (uint16_t)i, 0, BERTH_ENODE);
        park_end(p, (uint16_t)i, -ENOTCONN);
    }
}

int64_t await_timer(const struct peers *p)
{
    int64_t at = INT64_MAX;
    for (uint32_t i = 0; i < p->n_members; i++) {
        const struct member *m = &p->members[i];
        if (m->awaited && await_until(p, m) < at)
            at = await_until(p, m);
    }
    return at;
}
