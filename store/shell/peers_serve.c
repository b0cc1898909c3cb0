/* peers_serve.c: leases and transfers that this node gives. */
#include "store/shell/peers_internal.h"

#include <errno.h>

void serve_part_lease(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    (void)p, (void)items, (void)deadline;
    link_refuse(from, m->head.op, m->head.id, -EOPNOTSUPP);
}

void serve_part_renew(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    (void)p, (void)items, (void)deadline;
    link_refuse(from, m->head.op, m->head.id, -EOPNOTSUPP);
}

void serve_part_release(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                        int64_t deadline)
{
    (void)p, (void)from, (void)m, (void)items, (void)deadline;
}

void serve_part_state(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    (void)p, (void)items, (void)deadline;
    link_refuse(from, m->head.op, m->head.id, -EOPNOTSUPP);
}

void serve_part_corrupt(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                        int64_t deadline)
{
    (void)p, (void)from, (void)m, (void)items, (void)deadline;
}

int serve_part_open(struct peers *p, char *why, size_t why_size)
{
    (void)p, (void)why, (void)why_size;
    return 0;
}

void serve_part_close(struct peers *p)
{
    (void)p;
}

int64_t serve_part_timer(const struct peers *p)
{
    (void)p;
    return INT64_MAX;
}

void serve_part_turn(struct peers *p, int64_t now)
{
    (void)p, (void)now;
}

void serve_part_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    (void)p, (void)number, (void)other;
}

void serve_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    (void)p, (void)number, (void)serial, (void)status;
}

void serve_part_command(struct peers *p, const struct node_command *c)
{
    (void)p, (void)c;
}

int serve_part_admit(struct peers *p, struct link *from, const struct transport_want *want, uint64_t *token)
{
    (void)p, (void)from, (void)want, (void)token;
    return -EOPNOTSUPP;
}

void serve_part_served(struct peers *p, struct link *from, uint64_t lease, uint64_t token, int status)
{
    (void)p, (void)from, (void)lease, (void)token, (void)status;
}
