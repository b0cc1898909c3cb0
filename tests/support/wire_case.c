#include "tests/support/wire_case.h"

#include "store/evict.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

const unsigned wire_case_ops[] = {WIRE_HELLO,   WIRE_WELCOME, WIRE_REFUSE,  WIRE_PING,    WIRE_PONG,    WIRE_GOODBYE,
                                  WIRE_LEASE,   WIRE_LEASED,  WIRE_RENEW,   WIRE_RENEWED, WIRE_RELEASE, WIRE_RECALL,
                                  WIRE_STATE,   WIRE_STATED,  WIRE_ASK,     WIRE_ANSWER,  WIRE_PUBLISH, WIRE_PUBLISHED,
                                  WIRE_MEMBERS, WIRE_LISTED,  WIRE_CORRUPT, WIRE_SUMS,    WIRE_SUMMED,  0};

/* ---- random contents ---- */

static uint64_t up_to(uint64_t most) /* 0..most, both ends often */
{
    uint32_t dice = draw_below(8);
    return dice == 0 ? 0 : dice == 1 ? most : draw() % (most + 1);
}

static uint64_t one_to(uint64_t most)
{
    return 1 + up_to(most - 1);
}

static void any_key(struct key_ref *key, uint8_t bytes[KEY_MAX], bool most)
{
    *key = (struct key_ref){.data = bytes, .size = most ? KEY_MAX : (uint32_t)one_to(KEY_MAX), .ns = (uint32_t)draw()};
    for (uint32_t i = 0; i < key->size; i++)
        bytes[i] = (uint8_t)draw();
}

static struct berth_version any_version(void)
{
    return (struct berth_version){up_to(WIRE_COUNTER_MAX), draw()};
}

static struct wire_text any_text(char *bytes, unsigned least, unsigned max, bool most)
{
    unsigned n = most ? max : least + (unsigned)up_to(max - least);
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (char)(0x21 + draw_below(0x7e - 0x21 + 1));
    return (struct wire_text){bytes, (uint16_t)n};
}

static int32_t any_error(void)
{
    return -(int32_t)one_to(WIRE_STATUS_MAX);
}

static void any_lease(struct wire_lease *l)
{
    *l = (struct wire_lease){.id = one_to(UINT64_MAX),
                             .slot = (uint32_t)up_to(SLOT_NONE - 1),
                             .segment = (uint8_t)up_to(WIRE_SEGMENT_MAX),
                             .generation = up_to(WIRE_GENERATION_MAX),
                             .offset = up_to(WIRE_OFFSET_MAX - OBJECT_MAX),
                             .size = up_to(OBJECT_MAX),
                             .version = any_version(),
                             .checksum = draw(),
                             .lineage = draw(),
                             .duration = one_to(WIRE_TTL_MAX)};
}

static void any_hello(struct wire_case *w, bool most)
{
    struct wire_hello *h = &w->m.hello;
    h->version_min = (uint16_t)one_to(UINT16_MAX);
    h->version_max =
        w->m.head.op == WIRE_WELCOME ? h->version_min : (uint16_t)(h->version_min + up_to(UINT16_MAX - h->version_min));
    h->features = draw();
    for (unsigned i = 0; i < sizeof h->region; i++)
        h->region[i] = (uint8_t)draw();
    h->region_id = draw();
    h->incarnation = draw();
    h->pool_bytes = up_to(WIRE_OFFSET_MAX);
    h->revision = draw();
    if (h->version_max >= WIRE_VERSION_MEMORY) {
        h->tombstones = up_to(INT64_MAX);
        h->fresh = up_to(INT64_MAX);
        h->replaceable = draw();
    }
    h->largest = (uint32_t)(WIRE_MESSAGE_MIN + up_to(UINT32_MAX - WIRE_MESSAGE_MIN));
    h->cluster = any_text(w->text[0], 0, WIRE_NAME_MAX, most);
    h->node = any_text(w->text[1], 1, WIRE_NAME_MAX, most);
    h->address = any_text(w->text[2], 0, WIRE_ADDRESS_MAX, most);
}

static void any_list(struct wire_message *m)
{
    if (m->head.op == WIRE_MEMBERS) {
        m->from = (uint32_t)up_to(WIRE_MEMBERS_MAX - 1);
        return;
    }
    m->listed.revision = one_to(UINT64_MAX);
    m->listed.total = (uint16_t)one_to(WIRE_MEMBERS_MAX);
    m->listed.homes = (uint8_t)one_to(WIRE_HOMES_MAX);
}

static void any_body(struct wire_case *w, bool most)
{
    struct wire_message *m = &w->m;
    switch (m->head.op) {
    case WIRE_HELLO:
    case WIRE_WELCOME:
        any_hello(w, most);
        break;
    case WIRE_REFUSE:
        m->refuse.code = any_error();
        m->refuse.sentence = any_text(w->text[0], 0, WIRE_SENTENCE_MAX, most);
        break;
    case WIRE_PING:
    case WIRE_PONG:
        m->token = draw();
        break;
    case WIRE_LEASE:
        m->ttl = up_to(WIRE_TTL_MAX);
        break;
    case WIRE_ASK:
        m->ask.revision = draw();
        m->ask.ttl = m->head.flags & WIRE_WANT ? up_to(WIRE_TTL_MAX) : 0;
        break;
    case WIRE_PUBLISH:
        m->publish.owner_region = draw();
        m->publish.owner_incarnation = draw();
        m->publish.home_region = draw();
        m->publish.home_incarnation = draw();
        m->publish.revision = draw();
        m->publish.stream = draw();
        m->publish.batch = (uint32_t)draw();
        break;
    case WIRE_PUBLISHED:
        m->published.stream = draw();
        m->published.batch = (uint32_t)draw();
        break;
    case WIRE_MEMBERS:
    case WIRE_LISTED:
        any_list(m);
        break;
    case WIRE_STATE:
        m->state.slot = (uint32_t)up_to(SLOT_NONE - 1);
        m->state.generation = up_to(WIRE_GENERATION_MAX);
        break;
    case WIRE_STATED:
        m->word = draw();
        break;
    case WIRE_CORRUPT:
        m->corrupt.lease = one_to(UINT64_MAX);
        m->corrupt.version = any_version();
        any_key(&m->corrupt.key, w->bytes[WIRE_LEASES_MAX - 1], most);
        break;
    default:
        break;
    }
}

static void any_location(struct wire_location *l)
{
    *l = (struct wire_location){.member = (uint16_t)up_to(WIRE_MEMBER_NONE - 1),
                                .down = draw_below(2),
                                .version = any_version(),
                                .size = up_to(OBJECT_MAX),
                                .lineage = draw()};
}

static void any_answer(struct wire_answer *a, bool most)
{
    a->kind = most ? WIRE_FOUND : (uint8_t)(WIRE_FOUND + draw_below(3));
    a->flags = (uint8_t)(draw() & (a->kind == WIRE_LEARNING ? WIRE_MORE : WIRE_SURE));
    a->flags |= (uint8_t)(most ? WIRE_TOMBSTONE : draw() & WIRE_TOMBSTONE);
    if (a->kind == WIRE_FOUND) {
        a->n = most ? WIRE_OWNERS_MAX : (uint8_t)one_to(WIRE_OWNERS_MAX);
        a->flags |= (uint8_t)(most ? WIRE_LEASED_TOO : draw_below(2));
    } else if (a->kind == WIRE_ABSENT) {
        a->flags |= WIRE_SURE;
    } else if (draw_below(4) == 0) {
        a->flags = (uint8_t)((a->flags & WIRE_TOMBSTONE) | WIRE_EVERYONE);
    } else {
        a->n = (uint8_t)(a->flags & WIRE_MORE ? up_to(WIRE_MISSING_MAX) : one_to(WIRE_MISSING_MAX));
    }
    if (a->flags & WIRE_TOMBSTONE)
        a->removed = any_version();
    for (unsigned i = 0; i < a->n; i++) {
        if (a->kind == WIRE_FOUND)
            any_location(&a->at[i]);
        else
            a->missing[i] = (uint16_t)up_to(WIRE_MEMBER_NONE - 1);
    }
    if (a->flags & WIRE_LEASED_TOO)
        any_lease(&a->lease);
}

static void any_entry(struct wire_entry *e)
{
    e->kind = (uint8_t)(WIRE_OBJECT + draw_below(3));
    e->replaceable = draw_below(2);
    e->route = draw_below(2) ? draw() : 0;
    e->version = any_version();
    e->version.counter += e->version.counter == 0;
    if (e->kind == WIRE_OBJECT) {
        e->size = up_to(OBJECT_MAX);
        e->lineage = draw();
    }
    e->past = e->kind == WIRE_GONE ? draw() & ((UINT64_C(1) << PAST_BITS) - 1) : 0;
}

static void any_item(struct wire_case *w, uint32_t at, bool most)
{
    struct wire_item *i = &w->item[at];
    bool fine = most || draw_below(2);
    switch (w->m.head.op) {
    case WIRE_LEASE:
    case WIRE_ASK:
        any_key(&i->key, w->bytes[at], most);
        break;
    case WIRE_LEASED:
        i->leased.status = fine ? 0 : any_error();
        if (fine)
            any_lease(&i->leased.lease);
        break;
    case WIRE_RENEW:
        i->renew.lease = one_to(UINT64_MAX);
        i->renew.in_flight = fine;
        break;
    case WIRE_RENEWED:
        i->renewed.status = fine ? 0 : any_error();
        i->renewed.duration = fine ? one_to(WIRE_TTL_MAX) : 0;
        break;
    case WIRE_RELEASE:
        i->release.lease = one_to(UINT64_MAX);
        i->release.uses = (uint32_t)draw();
        break;
    case WIRE_RECALL:
        i->recall = one_to(UINT64_MAX);
        break;
    case WIRE_SUMS:
        i->sums.slot = (uint32_t)up_to(SLOT_NONE - 1);
        i->sums.generation = up_to(WIRE_GENERATION_MAX);
        break;
    case WIRE_SUMMED:
        i->summed.status = fine ? 0 : any_error();
        i->summed.n = (uint16_t)(fine ? one_to(KEY_MAX / 8) : 0); /* of all that fits 256 times */
        i->summed.list = w->bytes[at];
        for (uint32_t k = 0; k < i->summed.n * 8u; k++)
            w->bytes[at][k] = (uint8_t)draw();
        break;
    case WIRE_ANSWER:
        any_answer(&i->answer, most);
        break;
    case WIRE_PUBLISH:
        any_entry(&i->entry);
        any_key(&i->entry.key, w->bytes[at], most);
        break;
    case WIRE_LISTED:
        i->member.weight = (uint32_t)one_to(WIRE_WEIGHT_MAX);
        i->member.name = any_text((char *)w->bytes[at], 1, WIRE_NAME_MAX, most);
        i->member.address = any_text((char *)w->bytes[at] + WIRE_NAME_MAX, 0, WIRE_ADDRESS_MAX, most);
        break;
    default: /* PUBLISHED */
        i->published.kind = (uint8_t)(fine ? WIRE_SUPERSEDED : 2 * draw_below(2));
        i->published.counter = fine ? up_to(WIRE_COUNTER_MAX) : 0;
        i->published.past = i->published.kind == WIRE_TAKEN ? draw() & ((UINT64_C(1) << PAST_BITS) - 1) : 0;
        break;
    }
}

/* Flags that the op may have, any of them; how many items at most; what id and time say. */
static uint32_t any_head(struct wire_message *m, unsigned op)
{
    static const uint8_t flags[WIRE_OPS] = {
        [WIRE_HELLO] = 1, [WIRE_LEASE] = 5, [WIRE_ASK] = 5, [WIRE_PUBLISH] = 1, [WIRE_PUBLISHED] = 1};
    static const uint16_t items[WIRE_OPS] = {
        [WIRE_LEASE] = 256,   [WIRE_LEASED] = 256, [WIRE_RENEW] = 1024, [WIRE_RENEWED] = 1024, [WIRE_RELEASE] = 1024,
        [WIRE_RECALL] = 1024, [WIRE_ASK] = 256,    [WIRE_ANSWER] = 256, [WIRE_PUBLISH] = 256,  [WIRE_PUBLISHED] = 256,
        [WIRE_SUMS] = 256,    [WIRE_SUMMED] = 256, [WIRE_LISTED] = 256};
    m->head.op = (uint16_t)op;
    m->head.flags = (uint16_t)(draw() & flags[op]);
    m->head.counter = up_to(WIRE_COUNTER_MAX);
    if (wire_reply_of(op))
        m->head.time_left = up_to(WIRE_NO_DEADLINE);
    if (wire_class(op) != WIRE_ONE_WAY)
        m->head.id = one_to(UINT64_MAX);
    return items[op];
}

void wire_case_make(struct wire_case *w, unsigned op, bool most)
{
    memset(&w->m, 0, sizeof w->m);
    uint32_t items = any_head(&w->m, op);
    w->n = items == 0 ? 0 : most ? items : (uint32_t)one_to(draw_below(4) ? 8 : items);
    if (!most && wire_class(op) == WIRE_REPLY && draw_below(4) == 0) {
        w->m.status = any_error();
        w->m.head.flags = 0;
        w->n = 0;
        return;
    }
    memset(w->item, 0, (w->n ? w->n : 1) * sizeof w->item[0]);
    any_body(w, most);
    for (uint32_t i = 0; i < w->n; i++)
        any_item(w, i, most);
}

/* ---- through the codec ---- */

size_t wire_case_encode(const struct wire_case *w, void *buffer, size_t room)
{
    struct wire_writer out;
    int err = wire_begin(&out, buffer, room, &w->m);
    for (uint32_t i = 0; !err && i < w->n; i++)
        err = wire_add(&out, &w->item[i]);
    long bytes = err ? err : wire_end(&out);
    if (bytes < 0)
        fail_msg("%s is not encoded: %s", wire_name(w->m.head.op), wire_fault_text(out.fault));
    return (size_t)bytes;
}

int wire_case_decode(struct wire_case *w, const void *data, size_t n)
{
    struct wire_reader r;
    w->n = 0;
    int err = wire_open(&r, &w->m, data, n);
    if (err)
        return err;
    while ((err = wire_next(&r, &w->item[w->n])) == 1) {
        if (++w->n == WIRE_LEASES_MAX)
            return wire_next(&r, &w->item[0]);
    }
    return err;
}
