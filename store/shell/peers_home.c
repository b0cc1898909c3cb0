/* peers_home.c: the home's table, questions to it, and this node's publications. */
#include "store/shell/peers_internal.h"
#include "replication/pull.h"

#include <string.h>

#include <errno.h>

/* Nothing is known here yet: any member may have it. */
void home_part_ask(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                   int64_t deadline)
{
    struct wire_message answer = {.head = {.op = WIRE_ANSWER, .id = m->head.id}};
    struct wire_writer w;
    struct wire_item item, one;
    (void)deadline;
    memset(&one, 0, sizeof one);
    one.answer.kind = WIRE_LEARNING;
    one.answer.flags = WIRE_EVERYONE;
    wire_begin(&w, p->buffer, sizeof p->buffer, &answer);
    while (wire_next(items, &item) == 1)
        wire_add(&w, &one);
    link_answer(from, m->head.id, p->buffer, (size_t)wire_end(&w));
}

void home_part_publish(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                       int64_t deadline)
{
    (void)p, (void)items, (void)deadline;
    link_refuse(from, m->head.op, m->head.id, -EOPNOTSUPP);
}

int home_part_open(struct peers *p, char *why, size_t why_size)
{
    (void)p, (void)why, (void)why_size;
    return 0;
}

void home_part_close(struct peers *p)
{
    (void)p;
}

int64_t home_part_timer(const struct peers *p)
{
    (void)p;
    return INT64_MAX;
}

void home_part_turn(struct peers *p, int64_t now)
{
    (void)p, (void)now;
}

void home_part_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    (void)p, (void)number, (void)other;
}

void home_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    (void)p, (void)number, (void)serial, (void)status;
}

void home_part_command(struct peers *p, const struct node_command *c)
{
    (void)p, (void)c;
}

uint32_t home_part_homes(struct peers *p, const struct key_ref *key, uint64_t route, uint16_t *out, uint32_t max)
{
    struct home_key k = {.data = key->data, .size = key->size, .space = key->ns, .route = route};
    uint16_t all[HOMES_MAX];
    uint32_t n = rendezvous_homes(p->homes, rendezvous_place(&k), all);
    n = n < max ? n : max;
    for (uint32_t i = 0; i < n; i++)
        out[i] = all[i];
    return n;
}

int home_part_ask_self(struct peers *p, const struct pull_key *keys, uint32_t n, uint32_t flags,
                       struct pull_answer *out)
{
    static uint16_t others[PULL_MISSING_MAX];
    uint32_t count = 0;
    (void)keys, (void)flags;
    for (uint16_t i = 0; i < p->n_members && count < PULL_MISSING_MAX; i++) {
        if (i != p->self)
            others[count++] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct pull_answer){.says = HOME_LEARNING, .n_missing = count, .missing = others};
    return 0;
}
