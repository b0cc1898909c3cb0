/* wire_item.c: the fields of an item, op by op. */
#include "replication/wire_field.h"

static void lease(struct wire_cursor *c, struct wire_lease *l)
{
    wire_id(c, &l->id);
    wire_u32(c, &l->slot);
    wire_require(c, l->slot != SLOT_NONE, WIRE_FAULT_SLOT);
    wire_u8(c, &l->segment);
    wire_require(c, l->segment <= WIRE_SEGMENT_MAX, WIRE_FAULT_SEGMENT);
    wire_zeros(c, 3);
    wire_u64(c, &l->generation);
    wire_require(c, l->generation <= WIRE_GENERATION_MAX, WIRE_FAULT_GENERATION);
    wire_u64(c, &l->offset);
    wire_u64(c, &l->size);
    wire_require(c, l->size <= OBJECT_MAX && l->offset <= WIRE_OFFSET_MAX - OBJECT_MAX, WIRE_FAULT_RANGE);
    wire_version(c, &l->version);
    wire_u64(c, &l->checksum);
    wire_u64(c, &l->lineage);
    wire_u64(c, &l->duration);
    wire_require(c, l->duration >= 1 && l->duration <= WIRE_TTL_MAX, WIRE_FAULT_TIME);
}

static void leased(struct wire_cursor *c, struct wire_item *i)
{
    wire_status(c, &i->leased.status);
    if (!c->fault && i->leased.status == 0)
        lease(c, &i->leased.lease);
}

static void renew(struct wire_cursor *c, struct wire_item *i)
{
    uint32_t flag = c->out ? i->renew.in_flight : 0;
    wire_id(c, &i->renew.lease);
    wire_u32(c, &flag);
    wire_zeros(c, 4);
    wire_require(c, flag <= 1, WIRE_FAULT_FLAG);
    i->renew.in_flight = flag == 1;
}

static void renewed(struct wire_cursor *c, struct wire_item *i)
{
    wire_status(c, &i->renewed.status);
    wire_u64(c, &i->renewed.duration);
    bool ok = i->renewed.status == 0;
    wire_require(c, ok || i->renewed.duration == 0, WIRE_FAULT_USE);
    wire_require(c, !ok || (i->renewed.duration >= 1 && i->renewed.duration <= WIRE_TTL_MAX), WIRE_FAULT_TIME);
}

static void release(struct wire_cursor *c, struct wire_item *i)
{
    wire_id(c, &i->release.lease);
    wire_u32(c, &i->release.uses);
    wire_zeros(c, 4);
}

static void sums(struct wire_cursor *c, struct wire_item *i)
{
    wire_u32(c, &i->sums.slot);
    wire_zeros(c, 4);
    wire_u64(c, &i->sums.generation);
    wire_require(c, i->sums.slot != SLOT_NONE, WIRE_FAULT_SLOT);
    wire_require(c, i->sums.generation <= WIRE_GENERATION_MAX, WIRE_FAULT_GENERATION);
}

static void summed(struct wire_cursor *c, struct wire_item *i)
{
    wire_i32(c, &i->summed.status);
    wire_u16(c, &i->summed.n);
    wire_zeros(c, 2);
    bool ok = i->summed.status == 0;
    wire_require(c, i->summed.status <= 0 && i->summed.status >= -WIRE_STATUS_MAX, WIRE_FAULT_STATUS);
    wire_require(c, ok ? i->summed.n >= 1 && i->summed.n <= WIRE_SUMS_MAX : i->summed.n == 0, WIRE_FAULT_COUNT);
    if (!c->fault && ok)
        wire_span(c, &i->summed.list, i->summed.n * sizeof(uint64_t));
}

/* Kind, its flags, and how many members it may name. */
static void answer_head(struct wire_cursor *c, struct wire_answer *a)
{
    wire_u8(c, &a->kind);
    wire_u8(c, &a->flags);
    wire_u8(c, &a->n);
    wire_zeros(c, 1);
    wire_require(c, a->kind >= WIRE_FOUND && a->kind <= WIRE_LEARNING, WIRE_FAULT_ENUM);
    static const uint8_t flags[] = {[WIRE_FOUND] = WIRE_LEASED_TOO | WIRE_SURE | WIRE_TOMBSTONE,
                                    [WIRE_ABSENT] = WIRE_SURE | WIRE_TOMBSTONE,
                                    [WIRE_LEARNING] = WIRE_TOMBSTONE | WIRE_MORE | WIRE_EVERYONE};
    if (c->fault)
        return;
    wire_require(c, !(a->flags & ~flags[a->kind]), WIRE_FAULT_FLAG);
    wire_require(c, a->kind != WIRE_ABSENT || a->flags & WIRE_SURE, WIRE_FAULT_FLAG);
    wire_require(c, !(a->flags & WIRE_EVERYONE) || (a->n == 0 && !(a->flags & WIRE_MORE)), WIRE_FAULT_USE);
    unsigned max = a->kind == WIRE_FOUND ? WIRE_OWNERS_MAX : a->kind == WIRE_LEARNING ? WIRE_MISSING_MAX : 0;
    bool may_be_none = a->kind == WIRE_ABSENT || a->flags & (WIRE_MORE | WIRE_EVERYONE);
    wire_require(c, a->n <= max && (a->n >= 1 || may_be_none), WIRE_FAULT_MEMBER);
}

static void member(struct wire_cursor *c, uint16_t *number)
{
    wire_u16(c, number);
    wire_require(c, *number != WIRE_MEMBER_NONE, WIRE_FAULT_MEMBER);
}

static void location(struct wire_cursor *c, struct wire_location *l)
{
    uint8_t down = c->out ? l->down : 0;
    member(c, &l->member);
    wire_u8(c, &down);
    wire_zeros(c, 1);
    wire_require(c, down <= 1, WIRE_FAULT_FLAG);
    l->down = down == 1;
    wire_version(c, &l->version);
    wire_u64(c, &l->size);
    wire_require(c, l->size <= OBJECT_MAX, WIRE_FAULT_RANGE);
    wire_u64(c, &l->lineage);
}

static void answer(struct wire_cursor *c, struct wire_answer *a)
{
    answer_head(c, a);
    if (!c->fault && a->flags & WIRE_TOMBSTONE)
        wire_version(c, &a->removed);
    for (unsigned k = 0; !c->fault && k < a->n; k++) {
        if (a->kind == WIRE_FOUND)
            location(c, &a->at[k]);
        else
            member(c, &a->missing[k]);
    }
    if (!c->fault && a->flags & WIRE_LEASED_TOO)
        lease(c, &a->lease);
}

/* Age of the last use, class and uses, a zero: as lines of a policy's memory they are nothing that could be wrong. */
static void past(struct wire_cursor *c, uint64_t *past)
{
    uint32_t age = (uint32_t)*past;
    uint8_t class_uses = (uint8_t)(*past >> 32);
    wire_u8(c, &class_uses);
    wire_zeros(c, 1);
    wire_u32(c, &age);
    *past = (uint64_t)class_uses << 32 | age;
}

static void entry(struct wire_cursor *c, struct wire_entry *e)
{
    uint8_t replaceable = c->out ? e->replaceable : 0;
    wire_u8(c, &e->kind);
    wire_u8(c, &replaceable);
    past(c, &e->past);
    wire_require(c, e->kind >= WIRE_OBJECT && e->kind <= WIRE_BURIED, WIRE_FAULT_ENUM);
    wire_require(c, replaceable <= 1, WIRE_FAULT_FLAG);
    e->replaceable = replaceable == 1;
    wire_version(c, &e->version);
    wire_require(c, e->version.counter >= 1, WIRE_FAULT_COUNTER);
    wire_u64(c, &e->size);
    wire_u64(c, &e->lineage);
    wire_require(c, e->size <= OBJECT_MAX, WIRE_FAULT_RANGE);
    wire_require(c, e->kind == WIRE_OBJECT || (e->size == 0 && e->lineage == 0), WIRE_FAULT_USE);
    wire_require(c, e->kind == WIRE_GONE || e->past == 0, WIRE_FAULT_USE);
    wire_u64(c, &e->route);
    wire_key(c, &e->key);
}

static void published(struct wire_cursor *c, struct wire_item *i)
{
    wire_u8(c, &i->published.kind);
    wire_zeros(c, 1);
    past(c, &i->published.past);
    wire_counter(c, &i->published.counter);
    wire_require(c, i->published.kind <= WIRE_FULL, WIRE_FAULT_ENUM);
    wire_require(c, i->published.kind == WIRE_SUPERSEDED || i->published.counter == 0, WIRE_FAULT_USE);
    wire_require(c, i->published.kind == WIRE_TAKEN || i->published.past == 0, WIRE_FAULT_USE);
}

static void listed(struct wire_cursor *c, struct wire_item *i)
{
    if (!c->out)
        i->member.name.size = i->member.address.size = 0;
    wire_u32(c, &i->member.weight);
    wire_require(c, i->member.weight >= 1 && i->member.weight <= WIRE_WEIGHT_MAX, WIRE_FAULT_RANGE);
    wire_short_size(c, &i->member.name.size);
    wire_zeros(c, 1);
    wire_u16(c, &i->member.address.size);
    wire_require(c, i->member.name.size >= 1 && i->member.name.size <= WIRE_NAME_MAX, WIRE_FAULT_NAME);
    wire_require(c, i->member.address.size <= WIRE_ADDRESS_MAX, WIRE_FAULT_NAME);
    wire_text_bytes(c, &i->member.name, 0x21);
    wire_text_bytes(c, &i->member.address, 0x21);
}

void wire_item(struct wire_cursor *c, unsigned op, struct wire_item *item)
{
    switch (op) {
    case WIRE_LEASE:
    case WIRE_ASK:
        wire_key(c, &item->key);
        break;
    case WIRE_LEASED:
        leased(c, item);
        break;
    case WIRE_RENEW:
        renew(c, item);
        break;
    case WIRE_RENEWED:
        renewed(c, item);
        break;
    case WIRE_RELEASE:
        release(c, item);
        break;
    case WIRE_RECALL:
        wire_id(c, &item->recall);
        break;
    case WIRE_SUMS:
        sums(c, item);
        break;
    case WIRE_SUMMED:
        summed(c, item);
        break;
    case WIRE_ANSWER:
        answer(c, &item->answer);
        break;
    case WIRE_PUBLISH:
        entry(c, &item->entry);
        break;
    case WIRE_PUBLISHED:
        published(c, item);
        break;
    case WIRE_LISTED:
        listed(c, item);
        break;
    default: /* no other op has a count above 0 */
        wire_require(c, false, WIRE_FAULT_COUNT);
        break;
    }
}
