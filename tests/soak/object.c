#include "tests/soak/object.h"

#include "tests/soak/record.h"
#include "tools/replay/content.h"

#include <stdio.h>
#include <string.h>

#define KIB 1024u
#define MIB (1024u * 1024u)
#define SEGMENT (64u * KIB)

static uint64_t chance, stamp; /* of the generator; of the next put of a replaceable key */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void object_seed(uint64_t seed, uint64_t first_stamp)
{
    chance = mix(seed);
    stamp = first_stamp;
}

uint64_t draw(uint64_t below)
{
    chance += 0x9e3779b97f4a7c15u;
    return mix(chance) % below;
}

uint64_t size_of(uint64_t id)
{
    uint64_t r = mix(id + 1), percent = r % 100;

    r = mix(r);
    if (percent < 6)
        return 0;
    if (percent < 45)
        return 1 + r % (4 * KIB);
    if (percent < 75)
        return 4 * KIB + r % (60 * KIB);
    if (percent < 93)
        return 64 * KIB + r % (448 * KIB);
    return percent < 99 ? 512 * KIB + r % (1536 * KIB) : 2 * MIB + r % (6 * MIB + 1);
}

struct item object_any(void)
{
    uint64_t n = draw(OBJECTS), m = draw(OBJECTS);
    struct item o = {.id = n < m ? n : m};

    o.size = size_of(o.id);
    o.segment = o.id % 3 == 0 && o.size > SEGMENT ? SEGMENT : 0;
    /* Some keys are longer than a slot's header has room for. */
    o.key_size = (uint32_t)snprintf(o.key, sizeof(o.key), o.id % 7 ? "o%06u" : "o%0100u", (unsigned)o.id);
    return o;
}

struct item member_of(unsigned chain, unsigned position)
{
    struct item o = {.id = UINT64_C(1) << 32 | chain << 8 | position};

    o.size = mix(o.id) % (chain % 8 ? 64 * KIB : 512 * KIB);
    o.key_size = (uint32_t)snprintf(o.key, sizeof(o.key), "c%03u/%u", chain, position);
    return o;
}

struct item session_any(uint32_t ns)
{
    struct item o = {.id = draw(SESSIONS), .ns = ns, .replaceable = true};

    o.key_size = (uint32_t)snprintf(o.key, sizeof(o.key), "s%03u", (unsigned)o.id);
    return o;
}

struct item any_of(uint32_t sessions_ns)
{
    uint64_t r = draw(10);
    unsigned chain = (unsigned)draw(CHAINS);

    if (r < 6)
        return object_any();
    return r < 8 ? session_any(sessions_ns) : member_of(chain, (unsigned)draw(MEMBERS));
}

struct berth_key key_of(const struct item *o)
{
    return (struct berth_key){.data = o->key, .size = o->key_size, .ns = o->ns};
}

struct berth_put_opts options_of(const struct item *o)
{
    return (struct berth_put_opts){.size = sizeof(struct berth_put_opts),
                                   .lineage = !o->replaceable && o->id % 50 == 0 ? TAG : 0,
                                   .ttl_s = draw(20) ? 0 : 2,
                                   .priority = draw(8) ? 0 : (uint8_t)draw(4),
                                   .segment = o->segment,
                                   .deadline = berth_deadline(500000000)};
}

void fill(const struct item *o, void *data)
{
    uint64_t head[2] = {o->id, stamp += 256};

    if (!o->replaceable) {
        content_fill(data, o->size, o->id);
        return;
    }
    memcpy(data, head, STAMP);
    content_fill((uint8_t *)data + STAMP, o->size - STAMP, mix(head[0] ^ mix(head[1])));
}

void compare(const char *op, const struct item *o, const void *data, uint64_t size)
{
    uint64_t head[2], bad;

    record_compared(size);
    if (!o->replaceable) {
        bad = size == o->size ? content_bad(data, size, o->id) : size;
        if (bad || size != o->size)
            record_wrong(op, o->key, size == o->size ? "its bytes" : "its size");
        return;
    }
    if (size < STAMP) {
        record_wrong(op, o->key, "its size");
        return;
    }
    memcpy(head, data, STAMP);
    bad = content_bad((const uint8_t *)data + STAMP, size - STAMP, mix(head[0] ^ mix(head[1])));
    if (head[0] != o->id || bad)
        record_wrong(op, o->key, head[0] == o->id ? "its bytes" : "another's bytes");
}
