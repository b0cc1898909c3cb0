/* peers_pull.c: what this node takes from others. */
#include "store/shell/peers_internal.h"

void pull_part_recall(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    (void)p, (void)from, (void)m, (void)items, (void)deadline;
}

int pull_part_open(struct peers *p, char *why, size_t why_size)
{
    (void)p, (void)why, (void)why_size;
    return 0;
}

void pull_part_close(struct peers *p)
{
    (void)p;
}

int64_t pull_part_timer(const struct peers *p)
{
    (void)p;
    return INT64_MAX;
}

void pull_part_turn(struct peers *p, int64_t now)
{
    (void)p, (void)now;
}

void pull_part_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    (void)p, (void)number, (void)other;
}

void pull_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    (void)p, (void)number, (void)serial, (void)status;
}
