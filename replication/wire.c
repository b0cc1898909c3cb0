/* wire.c: heads, what each op may be, and the walk over a message in both directions. */
#include "replication/wire_field.h"

#include <errno.h>
#include <string.h>

#define STATUS_BYTES 8u /* a reply's status and 4 reserved bytes */

struct op {
    const char *name;
    enum wire_class class;
    uint16_t flags;       /* those that it may have */
    uint16_t reply;       /* of a request */
    uint32_t least, most; /* items */
};

static const struct op ops[WIRE_OPS] = {
    [WIRE_HELLO] = {"HELLO", WIRE_ONE_WAY, WIRE_CLIENT, 0, 0, 0},
    [WIRE_WELCOME] = {"WELCOME", WIRE_ONE_WAY, 0, 0, 0, 0},
    [WIRE_REFUSE] = {"REFUSE", WIRE_ONE_WAY, 0, 0, 0, 0},
    [WIRE_PING] = {"PING", WIRE_ONE_WAY, 0, 0, 0, 0},
    [WIRE_PONG] = {"PONG", WIRE_ONE_WAY, 0, 0, 0, 0},
    [WIRE_GOODBYE] = {"GOODBYE", WIRE_ONE_WAY, 0, 0, 0, 0},
    [WIRE_LEASE] = {"LEASE", WIRE_REQUEST, WIRE_WAIT | WIRE_PREFIX, WIRE_LEASED, 1, WIRE_KEYS_MAX},
    [WIRE_LEASED] = {"LEASED", WIRE_REPLY, 0, 0, 0, WIRE_KEYS_MAX},
    [WIRE_RENEW] = {"RENEW", WIRE_REQUEST, 0, WIRE_RENEWED, 1, WIRE_LEASES_MAX},
    [WIRE_RENEWED] = {"RENEWED", WIRE_REPLY, 0, 0, 0, WIRE_LEASES_MAX},
    [WIRE_RELEASE] = {"RELEASE", WIRE_ONE_WAY, 0, 0, 1, WIRE_LEASES_MAX},
    [WIRE_RECALL] = {"RECALL", WIRE_ONE_WAY, 0, 0, 1, WIRE_LEASES_MAX},
    [WIRE_STATE] = {"STATE", WIRE_REQUEST, 0, WIRE_STATED, 0, 0},
    [WIRE_STATED] = {"STATED", WIRE_REPLY, 0, 0, 0, 0},
    [WIRE_CORRUPT] = {"CORRUPT", WIRE_ONE_WAY, 0, 0, 0, 0},
    [WIRE_SUMS] = {"SUMS", WIRE_REQUEST, 0, WIRE_SUMMED, 1, WIRE_KEYS_MAX},
    [WIRE_SUMMED] = {"SUMMED", WIRE_REPLY, 0, 0, 1, WIRE_KEYS_MAX},
    [WIRE_ASK] = {"ASK", WIRE_REQUEST, WIRE_WANT | WIRE_PREFIX, WIRE_ANSWER, 1, WIRE_KEYS_MAX},
    [WIRE_ANSWER] = {"ANSWER", WIRE_REPLY, 0, 0, 0, WIRE_KEYS_MAX},
    [WIRE_PUBLISH] = {"PUBLISH", WIRE_REQUEST, WIRE_COMPLETE, WIRE_PUBLISHED, 0, WIRE_KEYS_MAX},
    [WIRE_PUBLISHED] = {"PUBLISHED", WIRE_REPLY, WIRE_COMPLETE, 0, 0, WIRE_KEYS_MAX},
    [WIRE_MEMBERS] = {"MEMBERS", WIRE_REQUEST, 0, WIRE_LISTED, 0, 0},
    [WIRE_LISTED] = {"LISTED", WIRE_REPLY, 0, 0, 0, WIRE_KEYS_MAX},
};

bool wire_known(unsigned op)
{
    return op < WIRE_OPS && ops[op].name;
}

const char *wire_name(unsigned op)
{
    return wire_known(op) ? ops[op].name : "?";
}

enum wire_class wire_class(unsigned op)
{
    return wire_known(op) ? ops[op].class : WIRE_ONE_WAY;
}

unsigned wire_reply_of(unsigned op)
{
    return wire_known(op) ? ops[op].reply : 0;
}

const char *wire_fault_text(enum wire_fault fault)
{
    static const char *const text[WIRE_FAULT_KINDS] = {
#define WIRE_FAULT_TEXT(name, sentence) sentence,
        WIRE_FAULTS(WIRE_FAULT_TEXT)
#undef WIRE_FAULT_TEXT
    };
    return (unsigned)fault < WIRE_FAULT_KINDS ? text[fault] : "?";
}

/* Of the head what is known before the items are. */
static void check_kind(struct wire_cursor *c, const struct wire_head *h)
{
    wire_require(c, wire_known(h->op), WIRE_FAULT_OP);
    wire_require(c, c->fault || !(h->flags & ~ops[h->op].flags), WIRE_FAULT_FLAG);
}

/* The checks stand between the fields: what is no message at all is to be called so, whatever else is wrong with it. */
static void head_fields(struct wire_cursor *c, struct wire_head *h)
{
    bool reads = !c->out;
    wire_u32(c, &h->bytes);
    wire_require(c, !reads || (h->bytes >= WIRE_HEAD && h->bytes <= WIRE_MESSAGE_MAX), WIRE_FAULT_SIZE);
    wire_u16(c, &h->op);
    wire_u16(c, &h->flags);
    if (!c->fault)
        check_kind(c, h);
    wire_u32(c, &h->count);
    wire_zeros(c, 4);
    wire_u64(c, &h->id);
    wire_u64(c, &h->counter);
    wire_u64(c, &h->time_left);
}

/* The id and the time, which an encoder may leave to wire_stamp. */
static void check_stamp(struct wire_cursor *c, const struct wire_head *h)
{
    wire_require(c, (wire_class(h->op) != WIRE_ONE_WAY) == (h->id != 0), WIRE_FAULT_ID);
    wire_require(c, h->counter <= WIRE_COUNTER_MAX, WIRE_FAULT_COUNTER);
    uint64_t most = wire_class(h->op) == WIRE_REQUEST ? WIRE_NO_DEADLINE : 0;
    wire_require(c, h->time_left <= most, WIRE_FAULT_TIME);
}

static bool count_fits(const struct wire_head *h, int32_t status)
{
    if (status < 0)
        return h->count == 0;
    return h->count >= ops[h->op].least && h->count <= ops[h->op].most;
}

static void status_and_body(struct wire_cursor *c, struct wire_message *m)
{
    if (wire_class(m->head.op) == WIRE_REPLY)
        wire_status(c, &m->status);
    if (!c->fault && m->status == 0)
        wire_body(c, m);
}

/* ---- encoding ---- */

static int refused(struct wire_writer *w, enum wire_fault fault)
{
    w->fault = fault;
    return fault == WIRE_FAULT_ROOM ? -ENOSPC : -EINVAL;
}

int wire_begin(struct wire_writer *w, void *buffer, size_t room, const struct wire_message *m)
{
    struct wire_message copy = *m; /* the fields' list takes them by address */
    if (wire_class(m->head.op) != WIRE_REPLY)
        copy.status = 0;
    *w = (struct wire_writer){.base = buffer, .room = room < WIRE_MESSAGE_MAX ? room : WIRE_MESSAGE_MAX};
    struct wire_cursor c = {.out = buffer, .end = w->room};
    head_fields(&c, &copy.head);
    if (!c.fault)
        status_and_body(&c, &copy);
    if (c.fault)
        return refused(w, c.fault);
    w->head = copy.head;
    w->status = copy.status;
    w->used = (uint32_t)c.at;
    return 0;
}

int wire_add(struct wire_writer *w, const struct wire_item *item)
{
    struct wire_item copy = *item;
    struct wire_cursor c = {.out = w->base, .at = w->used, .end = w->room};
    if (!wire_known(w->head.op) || w->status < 0 || ops[w->head.op].most == 0)
        return refused(w, WIRE_FAULT_COUNT);
    if (w->count == ops[w->head.op].most) {
        w->fault = WIRE_FAULT_COUNT;
        return -E2BIG;
    }
    wire_item(&c, w->head.op, &copy);
    if (c.fault)
        return refused(w, c.fault);
    w->used = (uint32_t)c.at;
    w->count++;
    return 0;
}

long wire_end(struct wire_writer *w)
{
    w->head.bytes = w->used;
    w->head.count = w->count;
    if (!wire_known(w->head.op) || !w->used || !count_fits(&w->head, w->status))
        return refused(w, WIRE_FAULT_COUNT);
    struct wire_cursor c = {.out = w->base, .end = w->room};
    head_fields(&c, &w->head);
    return (long)w->used;
}

void wire_stamp(void *message, uint64_t id, uint64_t counter, uint64_t time_left)
{
    struct wire_cursor c = {.out = message, .at = 16, .end = WIRE_HEAD};
    wire_u64(&c, &id);
    wire_u64(&c, &counter);
    wire_u64(&c, &time_left);
}

struct wire_head wire_peek(const void *message)
{
    struct wire_head head = {0};
    struct wire_cursor c = {.in = message, .end = WIRE_HEAD};
    head_fields(&c, &head);
    return head;
}

/* ---- decoding ---- */

static void check_head(struct wire_cursor *c, const struct wire_head *h, size_t n)
{
    wire_require(c, h->bytes <= n, WIRE_FAULT_SHORT);
    wire_require(c, h->bytes == n, WIRE_FAULT_LONG);
    if (!c->fault)
        check_stamp(c, h);
}

/* Every item once, so that nobody acts on half of a message. */
static void walk(struct wire_cursor *c, const struct wire_message *m)
{
    wire_require(c, count_fits(&m->head, m->status), WIRE_FAULT_COUNT);
    struct wire_item item;
    memset(&item, 0, sizeof item);
    for (uint32_t i = 0; !c->fault && i < m->head.count; i++) {
        wire_item(c, m->head.op, &item);
    }
    wire_require(c, c->at == c->end, WIRE_FAULT_LONG);
}

int wire_open(struct wire_reader *r, struct wire_message *m, const void *data, size_t n)
{
    struct wire_message got;
    memset(&got, 0, sizeof got);
    struct wire_cursor c = {.in = data, .end = n};
    *r = (struct wire_reader){.data = data};
    head_fields(&c, &got.head);
    if (!c.fault)
        check_head(&c, &got.head, n);
    if (!c.fault)
        status_and_body(&c, &got);
    uint32_t items = (uint32_t)c.at;
    if (!c.fault)
        walk(&c, &got);
    r->fault = c.fault;
    if (c.fault)
        return -EBADMSG;
    r->bytes = (uint32_t)n;
    r->at = items;
    r->left = got.head.count;
    r->head = got.head;
    *m = got;
    return 0;
}

int wire_next(struct wire_reader *r, struct wire_item *item)
{
    if (!r->left)
        return 0;
    struct wire_item got;
    memset(&got, 0, sizeof got);
    struct wire_cursor c = {.in = r->data, .at = r->at, .end = r->bytes};
    wire_item(&c, r->head.op, &got);
    if (c.fault) {
        r->left = 0;
        r->fault = c.fault;
        return -EBADMSG;
    }
    r->at = (uint32_t)c.at;
    r->left--;
    *item = got;
    return 1;
}
