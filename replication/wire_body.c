/* wire_body.c: the fields behind the head, message by message. */
#include "replication/wire_field.h"

#include <string.h>

/* Which fields there are the greatest version says, so that an older node is told why it is refused. */
static void hello_memory(struct wire_cursor *c, struct wire_hello *h)
{
    if (h->version_max < WIRE_VERSION_MEMORY) {
        if (!c->out)
            h->tombstones = h->fresh = h->replaceable = 0;
        wire_require(c, h->tombstones == 0 && h->fresh == 0 && h->replaceable == 0, WIRE_FAULT_USE);
        return;
    }
    wire_u64(c, &h->tombstones);
    wire_u64(c, &h->fresh);
    wire_u64(c, &h->replaceable);
    wire_require(c, h->tombstones <= INT64_MAX && h->fresh <= INT64_MAX, WIRE_FAULT_TIME);
}

static void hello(struct wire_cursor *c, const struct wire_head *head, struct wire_hello *h)
{
    uint64_t magic = WIRE_MAGIC;
    wire_u64(c, &magic);
    wire_require(c, magic == WIRE_MAGIC, WIRE_FAULT_MAGIC);
    wire_u16(c, &h->version_min);
    wire_u16(c, &h->version_max);
    wire_zeros(c, 4);
    wire_require(c, h->version_min >= 1 && h->version_min <= h->version_max, WIRE_FAULT_VERSION);
    wire_require(c, head->op != WIRE_WELCOME || h->version_min == h->version_max, WIRE_FAULT_VERSION);
    wire_u64(c, &h->features);
    wire_bytes(c, h->region, sizeof h->region);
    wire_u64(c, &h->region_id);
    wire_u64(c, &h->incarnation);
    wire_u64(c, &h->pool_bytes);
    wire_require(c, h->pool_bytes <= WIRE_OFFSET_MAX, WIRE_FAULT_RANGE);
    wire_u64(c, &h->revision);
    hello_memory(c, h);
    wire_u32(c, &h->largest);
    wire_require(c, h->largest >= WIRE_MESSAGE_MIN, WIRE_FAULT_SIZE);
    if (!c->out)
        h->cluster.size = h->node.size = h->address.size = 0;
    wire_short_size(c, &h->cluster.size);
    wire_short_size(c, &h->node.size);
    wire_u16(c, &h->address.size);
    wire_require(c, h->cluster.size <= WIRE_NAME_MAX && h->node.size >= 1 && h->node.size <= WIRE_NAME_MAX,
                 WIRE_FAULT_NAME);
    wire_require(c, h->address.size <= WIRE_ADDRESS_MAX, WIRE_FAULT_NAME);
    wire_text_bytes(c, &h->cluster, 0x21);
    wire_text_bytes(c, &h->node, 0x21);
    wire_text_bytes(c, &h->address, 0x21);
}

static void refuse(struct wire_cursor *c, struct wire_message *m)
{
    wire_i32(c, &m->refuse.code);
    wire_require(c, m->refuse.code < 0 && m->refuse.code >= -WIRE_STATUS_MAX, WIRE_FAULT_STATUS);
    wire_u16(c, &m->refuse.sentence.size);
    wire_zeros(c, 2);
    wire_require(c, m->refuse.sentence.size <= WIRE_SENTENCE_MAX, WIRE_FAULT_NAME);
    wire_text_bytes(c, &m->refuse.sentence, 0x20);
}

static void ask(struct wire_cursor *c, struct wire_message *m)
{
    wire_u64(c, &m->ask.revision);
    wire_u64(c, &m->ask.ttl);
    wire_require(c, m->ask.ttl <= WIRE_TTL_MAX, WIRE_FAULT_TIME);
    wire_require(c, m->ask.ttl == 0 || m->head.flags & WIRE_WANT, WIRE_FAULT_USE);
}

static void publish(struct wire_cursor *c, struct wire_message *m)
{
    wire_u64(c, &m->publish.owner_region);
    wire_u64(c, &m->publish.owner_incarnation);
    wire_u64(c, &m->publish.home_region);
    wire_u64(c, &m->publish.home_incarnation);
    wire_u64(c, &m->publish.revision);
    wire_u64(c, &m->publish.stream);
    wire_u32(c, &m->publish.batch);
    wire_zeros(c, 4);
}

static void listed(struct wire_cursor *c, struct wire_message *m)
{
    wire_u64(c, &m->listed.revision);
    wire_u16(c, &m->listed.total);
    wire_u8(c, &m->listed.homes);
    wire_zeros(c, 5);
    wire_require(c, m->listed.revision != 0, WIRE_FAULT_RANGE);
    wire_require(c, m->listed.total >= 1 && m->listed.total <= WIRE_MEMBERS_MAX, WIRE_FAULT_MEMBER);
    wire_require(c, m->listed.homes >= 1 && m->listed.homes <= WIRE_HOMES_MAX, WIRE_FAULT_MEMBER);
}

static void state(struct wire_cursor *c, struct wire_message *m)
{
    wire_u32(c, &m->state.slot);
    wire_zeros(c, 4);
    wire_u64(c, &m->state.generation);
    wire_require(c, m->state.slot != SLOT_NONE, WIRE_FAULT_SLOT);
    wire_require(c, m->state.generation <= WIRE_GENERATION_MAX, WIRE_FAULT_GENERATION);
}

static void corrupt(struct wire_cursor *c, struct wire_message *m)
{
    wire_id(c, &m->corrupt.lease);
    wire_version(c, &m->corrupt.version);
    wire_key(c, &m->corrupt.key);
}

void wire_body(struct wire_cursor *c, struct wire_message *m)
{
    switch (m->head.op) {
    case WIRE_HELLO:
    case WIRE_WELCOME:
        hello(c, &m->head, &m->hello);
        break;
    case WIRE_REFUSE:
        refuse(c, m);
        break;
    case WIRE_PING:
    case WIRE_PONG:
        wire_u64(c, &m->token);
        break;
    case WIRE_LEASE:
        wire_u64(c, &m->ttl);
        wire_require(c, m->ttl <= WIRE_TTL_MAX, WIRE_FAULT_TIME);
        break;
    case WIRE_ASK:
        ask(c, m);
        break;
    case WIRE_PUBLISH:
        publish(c, m);
        break;
    case WIRE_PUBLISHED:
        wire_u64(c, &m->published.stream);
        wire_u32(c, &m->published.batch);
        wire_zeros(c, 4);
        break;
    case WIRE_MEMBERS:
        wire_u32(c, &m->from);
        wire_zeros(c, 4);
        wire_require(c, m->from < WIRE_MEMBERS_MAX, WIRE_FAULT_MEMBER);
        break;
    case WIRE_LISTED:
        listed(c, m);
        break;
    case WIRE_STATE:
        state(c, m);
        break;
    case WIRE_STATED:
        wire_u64(c, &m->word);
        break;
    case WIRE_CORRUPT:
        corrupt(c, m);
        break;
    default: /* head and items only */
        break;
    }
}
