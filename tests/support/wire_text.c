/* What a message says, field by field, from the structures of wire.h. The widths here are those of docs/formats.md:
 * they are written down a second time on purpose. */
#include "tests/support/wire_case.h"

#include <inttypes.h>
#include <string.h>

struct out {
    FILE *file;
    const uint8_t *data;
    size_t at;
};

/* Offset and hex of the next n bytes. */
static void left(struct out *o, size_t n)
{
    fprintf(o->file, "%zu:", o->at);
    for (size_t i = 0; i < n; i++)
        fprintf(o->file, " %02x", o->data[o->at + i]);
    o->at += n;
}

static void number(struct out *o, size_t n, const char *name, uint64_t v)
{
    left(o, n);
    fprintf(o->file, " | %s %" PRIu64 "\n", name, v);
}

static void error(struct out *o, const char *name, int64_t v)
{
    left(o, 4);
    fprintf(o->file, " | %s %" PRId64 "\n", name, v);
}

static void reserved(struct out *o, size_t n)
{
    number(o, n, "reserved", 0);
}

static void mask(struct out *o, size_t n, const char *name, uint64_t v)
{
    left(o, n);
    fprintf(o->file, " | %s 0x%" PRIx64 "\n", name, v);
}

static void raw(struct out *o, const char *name, const void *data, size_t n, bool text)
{
    const uint8_t *b = data;
    left(o, n);
    fprintf(o->file, " | %s ", name);
    for (size_t i = 0; i < n; i++) {
        bool plain = text && b[i] >= 0x20 && b[i] <= 0x7e;
        fprintf(o->file, plain ? "%c" : "%02x", b[i]);
    }
    fputc('\n', o->file);
}

static void version(struct out *o, const struct berth_version *v)
{
    number(o, 8, "counter", v->counter);
    number(o, 8, "region", v->region);
}

static void key(struct out *o, const struct key_ref *k)
{
    number(o, 4, "namespace", k->ns);
    number(o, 2, "key size", k->size);
    reserved(o, 2);
    raw(o, "key", k->data, k->size, true);
}

static void status(struct out *o, int32_t v)
{
    error(o, "status", v);
    reserved(o, 4);
}

static void lease(struct out *o, const struct wire_lease *l)
{
    number(o, 8, "lease", l->id);
    number(o, 4, "slot", l->slot);
    number(o, 1, "segment", l->segment);
    reserved(o, 3);
    number(o, 8, "generation", l->generation);
    number(o, 8, "offset", l->offset);
    number(o, 8, "size", l->size);
    version(o, &l->version);
    mask(o, 8, "checksum", l->checksum);
    mask(o, 8, "lineage", l->lineage);
    number(o, 8, "duration", l->duration);
}

static void hello(struct out *o, const struct wire_hello *h)
{
    mask(o, 8, "magic", 0x31574854524542);
    number(o, 2, "least version", h->version_min);
    number(o, 2, "greatest version", h->version_max);
    reserved(o, 4);
    mask(o, 8, "features", h->features);
    raw(o, "region uuid", h->region, 16, false);
    number(o, 8, "region id", h->region_id);
    number(o, 8, "incarnation", h->incarnation);
    number(o, 8, "pool bytes", h->pool_bytes);
    mask(o, 8, "revision", h->revision);
    if (h->version_max >= 2) {
        number(o, 8, "tombstones", h->tombstones);
        number(o, 8, "fresh", h->fresh);
        mask(o, 8, "replaceable", h->replaceable);
    }
    number(o, 4, "largest message", h->largest);
    number(o, 1, "cluster size", h->cluster.size);
    number(o, 1, "node size", h->node.size);
    number(o, 2, "address size", h->address.size);
    raw(o, "cluster", h->cluster.data, h->cluster.size, true);
    raw(o, "node", h->node.data, h->node.size, true);
    raw(o, "address", h->address.data, h->address.size, true);
}

static void requests(struct out *o, const struct wire_message *m)
{
    switch (m->head.op) {
    case WIRE_LEASE:
        number(o, 8, "ttl", m->ttl);
        break;
    case WIRE_ASK:
        number(o, 8, "revision", m->ask.revision);
        number(o, 8, "ttl", m->ask.ttl);
        break;
    case WIRE_PUBLISH:
        number(o, 8, "owner region", m->publish.owner_region);
        number(o, 8, "owner incarnation", m->publish.owner_incarnation);
        number(o, 8, "home region", m->publish.home_region);
        number(o, 8, "home incarnation", m->publish.home_incarnation);
        number(o, 8, "revision", m->publish.revision);
        number(o, 8, "stream", m->publish.stream);
        number(o, 4, "batch", m->publish.batch);
        reserved(o, 4);
        break;
    case WIRE_MEMBERS:
        number(o, 4, "from", m->from);
        reserved(o, 4);
        break;
    case WIRE_STATE:
        number(o, 4, "slot", m->state.slot);
        reserved(o, 4);
        number(o, 8, "generation", m->state.generation);
        break;
    default:
        break;
    }
}

static void others(struct out *o, const struct wire_message *m)
{
    switch (m->head.op) {
    case WIRE_HELLO:
    case WIRE_WELCOME:
        hello(o, &m->hello);
        break;
    case WIRE_REFUSE:
        error(o, "code", m->refuse.code);
        number(o, 2, "sentence size", m->refuse.sentence.size);
        reserved(o, 2);
        raw(o, "sentence", m->refuse.sentence.data, m->refuse.sentence.size, true);
        break;
    case WIRE_PING:
    case WIRE_PONG:
        number(o, 8, "token", m->token);
        break;
    case WIRE_PUBLISHED:
        number(o, 8, "stream", m->published.stream);
        number(o, 4, "batch", m->published.batch);
        reserved(o, 4);
        break;
    case WIRE_LISTED:
        mask(o, 8, "revision", m->listed.revision);
        number(o, 2, "total", m->listed.total);
        number(o, 1, "homes", m->listed.homes);
        reserved(o, 5);
        break;
    case WIRE_STATED:
        mask(o, 8, "state word", m->word);
        break;
    case WIRE_CORRUPT:
        number(o, 8, "lease", m->corrupt.lease);
        version(o, &m->corrupt.version);
        key(o, &m->corrupt.key);
        break;
    default:
        requests(o, m);
        break;
    }
}

static void location(struct out *o, const struct wire_location *l)
{
    number(o, 2, "member", l->member);
    number(o, 1, "down", l->down);
    reserved(o, 1);
    version(o, &l->version);
    number(o, 8, "size", l->size);
    mask(o, 8, "lineage", l->lineage);
}

static void answer(struct out *o, const struct wire_answer *a)
{
    number(o, 1, "kind", a->kind);
    number(o, 1, "flags", a->flags);
    number(o, 1, "members", a->n);
    reserved(o, 1);
    if (a->flags & WIRE_TOMBSTONE)
        version(o, &a->removed);
    for (unsigned i = 0; i < a->n; i++) {
        if (a->kind == WIRE_FOUND)
            location(o, &a->at[i]);
        else
            number(o, 2, "member", a->missing[i]);
    }
    if (a->flags & WIRE_LEASED_TOO)
        lease(o, &a->lease);
}

static void past(struct out *o, uint64_t p)
{
    mask(o, 1, "past", p >> 32);
    reserved(o, 1);
    number(o, 4, "past age", (uint32_t)p);
}

static void entry(struct out *o, const struct wire_entry *e)
{
    number(o, 1, "kind", e->kind);
    number(o, 1, "replaceable", e->replaceable);
    past(o, e->past);
    version(o, &e->version);
    number(o, 8, "size", e->size);
    mask(o, 8, "lineage", e->lineage);
    number(o, 8, "route", e->route);
    key(o, &e->key);
}

static void sum(struct out *o, const uint8_t *bytes)
{
    uint64_t v = 0;
    for (unsigned i = 8; i-- > 0;)
        v = v << 8 | bytes[i];
    mask(o, 8, "sum", v);
}

static void item(struct out *o, unsigned op, const struct wire_item *i)
{
    switch (op) {
    case WIRE_LEASE:
    case WIRE_ASK:
        key(o, &i->key);
        break;
    case WIRE_LEASED:
        status(o, i->leased.status);
        if (i->leased.status == 0)
            lease(o, &i->leased.lease);
        break;
    case WIRE_RENEW:
        number(o, 8, "lease", i->renew.lease);
        number(o, 4, "in flight", i->renew.in_flight);
        reserved(o, 4);
        break;
    case WIRE_RENEWED:
        status(o, i->renewed.status);
        number(o, 8, "duration", i->renewed.duration);
        break;
    case WIRE_RELEASE:
        number(o, 8, "lease", i->release.lease);
        number(o, 4, "uses", i->release.uses);
        reserved(o, 4);
        break;
    case WIRE_RECALL:
        number(o, 8, "lease", i->recall);
        break;
    case WIRE_SUMS:
        number(o, 4, "slot", i->sums.slot);
        reserved(o, 4);
        number(o, 8, "generation", i->sums.generation);
        break;
    case WIRE_SUMMED:
        error(o, "status", i->summed.status);
        number(o, 2, "sums", i->summed.n);
        reserved(o, 2);
        for (unsigned k = 0; k < i->summed.n; k++)
            sum(o, (const uint8_t *)i->summed.list + 8 * k);
        break;
    case WIRE_ANSWER:
        answer(o, &i->answer);
        break;
    case WIRE_PUBLISH:
        entry(o, &i->entry);
        break;
    case WIRE_LISTED:
        number(o, 4, "weight", i->member.weight);
        number(o, 1, "name size", i->member.name.size);
        reserved(o, 1);
        number(o, 2, "address size", i->member.address.size);
        raw(o, "name", i->member.name.data, i->member.name.size, true);
        raw(o, "address", i->member.address.data, i->member.address.size, true);
        break;
    default: /* PUBLISHED */
        number(o, 1, "kind", i->published.kind);
        reserved(o, 1);
        past(o, i->published.past);
        number(o, 8, "counter", i->published.counter);
        break;
    }
}

size_t wire_case_describe(const struct wire_case *w, const uint8_t *data, FILE *file)
{
    struct out o = {.file = file, .data = data};
    uint32_t bytes = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    number(&o, 4, "bytes", bytes);
    number(&o, 2, "op", w->m.head.op);
    mask(&o, 2, "flags", w->m.head.flags);
    number(&o, 4, "count", w->n);
    reserved(&o, 4);
    number(&o, 8, "id", w->m.head.id);
    number(&o, 8, "counter", w->m.head.counter);
    number(&o, 8, "time left", w->m.head.time_left);
    if (wire_class(w->m.head.op) == WIRE_REPLY)
        status(&o, w->m.status);
    if (w->m.status == 0)
        others(&o, &w->m);
    for (uint32_t i = 0; i < w->n; i++)
        item(&o, w->m.head.op, &w->item[i]);
    return o.at;
}
