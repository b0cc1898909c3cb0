/* peers_members.c: MEMBERS: who the members are, for those who are none and read from them all. */
#include "store/shell/peers_internal.h"

#include <errno.h>
#include <string.h>

/* As many as fit. */
static int add_from(struct wire_writer *w, const struct peers *p, uint32_t from)
{
    int e = 0;
    for (uint32_t i = from; e == 0 && i < p->n_members; i++) {
        const struct member *m = &p->members[i];
        struct wire_item item = {.member = {.weight = m->weight,
                                            .name = {m->name, (uint16_t)strlen(m->name)},
                                            .address = {m->address, (uint16_t)strlen(m->address)}}};
        e = wire_add(w, &item);
    }
    return e == -E2BIG || e == -ENOSPC ? 0 : e;
}

void members_part_list(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                       int64_t deadline)
{
    struct wire_message answer = {.head = {.op = WIRE_LISTED, .id = m->head.id}};
    struct wire_writer w;
    (void)items, (void)deadline;
    answer.listed.revision = p->revision;
    answer.listed.total = (uint16_t)p->n_members;
    answer.listed.homes = (uint8_t)p->server->settings.homes;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &answer);
    e = e < 0 ? e : add_from(&w, p, m->from);
    long n = e < 0 ? e : wire_end(&w);
    e = n < 0 ? (int)n : link_answer(from, m->head.id, p->buffer, (size_t)n);
    if (e < 0)
        link_refuse(from, WIRE_MEMBERS, m->head.id, e);
}
