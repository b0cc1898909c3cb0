/* wire_field.c: the cursor that both directions of the codec share, and the parts that recur. */
#include "replication/wire_field.h"

#include "store/little.h"

#include <string.h>

/* Room or bytes for n more? */
static bool has(struct wire_cursor *c, size_t n)
{
    if (c->fault)
        return false;
    if (c->end - c->at < n) {
        c->fault = c->out ? WIRE_FAULT_ROOM : WIRE_FAULT_SHORT;
        return false;
    }
    return true;
}

void wire_bytes(struct wire_cursor *c, void *v, size_t n)
{
    if (!has(c, n)) {
        if (!c->out)
            memset(v, 0, n);
        return;
    }
    if (c->out)
        memcpy(c->out + c->at, v, n);
    else
        memcpy(v, c->in + c->at, n);
    c->at += n;
}

void wire_u8(struct wire_cursor *c, uint8_t *v)
{
    wire_bytes(c, v, 1);
}

void wire_u16(struct wire_cursor *c, uint16_t *v)
{
    uint8_t bytes[sizeof *v];
    put16(bytes, *v);
    wire_bytes(c, bytes, sizeof bytes);
    *v = get16(bytes);
}

void wire_u32(struct wire_cursor *c, uint32_t *v)
{
    uint8_t bytes[sizeof *v];
    put32(bytes, *v);
    wire_bytes(c, bytes, sizeof bytes);
    *v = get32(bytes);
}

void wire_u64(struct wire_cursor *c, uint64_t *v)
{
    uint8_t bytes[sizeof *v];
    put64(bytes, *v);
    wire_bytes(c, bytes, sizeof bytes);
    *v = get64(bytes);
}

void wire_i32(struct wire_cursor *c, int32_t *v)
{
    uint32_t bits = (uint32_t)*v;
    wire_u32(c, &bits);
    *v = (int32_t)bits;
}

void wire_span(struct wire_cursor *c, const void **data, size_t n)
{
    if (!has(c, n)) {
        if (!c->out)
            *data = NULL;
        return;
    }
    if (!c->out)
        *data = c->in + c->at;
    else if (n)
        memcpy(c->out + c->at, *data, n);
    c->at += n;
}

void wire_zeros(struct wire_cursor *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t zero = 0;
        wire_u8(c, &zero);
        wire_require(c, zero == 0, WIRE_FAULT_RESERVED);
    }
}

void wire_require(struct wire_cursor *c, bool ok, enum wire_fault fault)
{
    if (!c->fault && !ok)
        c->fault = fault;
}

void wire_counter(struct wire_cursor *c, uint64_t *counter)
{
    wire_u64(c, counter);
    wire_require(c, *counter <= WIRE_COUNTER_MAX, WIRE_FAULT_COUNTER);
}

void wire_version(struct wire_cursor *c, struct berth_version *v)
{
    wire_counter(c, &v->counter);
    wire_u64(c, &v->region);
}

void wire_key(struct wire_cursor *c, struct key_ref *key)
{
    /* Checked before it is cut to 16 bits, or an encoder could send another key than it was given. */
    if (c->out)
        wire_require(c, key->size >= 1 && key->size <= KEY_MAX, WIRE_FAULT_KEY);
    uint16_t size = (uint16_t)key->size;
    wire_u32(c, &key->ns);
    wire_u16(c, &size);
    wire_zeros(c, 2);
    wire_require(c, size >= 1 && size <= KEY_MAX, WIRE_FAULT_KEY);
    key->size = size;
    wire_span(c, &key->data, size);
}

void wire_id(struct wire_cursor *c, uint64_t *lease)
{
    wire_u64(c, lease);
    wire_require(c, *lease != 0, WIRE_FAULT_LEASE);
}

void wire_status(struct wire_cursor *c, int32_t *status)
{
    wire_i32(c, status);
    wire_zeros(c, 4);
    wire_require(c, *status <= 0 && *status >= -WIRE_STATUS_MAX, WIRE_FAULT_STATUS);
}

/* first..0x7e: what may go to a log. */
static bool printable(const struct wire_text *t, int first)
{
    for (unsigned i = 0; i < t->size; i++) {
        if (t->data[i] < first || t->data[i] > 0x7e)
            return false;
    }
    return true;
}

void wire_text_bytes(struct wire_cursor *c, struct wire_text *t, int first)
{
    const void *data = t->data;
    wire_span(c, &data, t->size);
    t->data = data;
    if (!c->fault)
        wire_require(c, printable(t, first), WIRE_FAULT_NAME);
}

void wire_short_size(struct wire_cursor *c, uint16_t *size)
{
    wire_require(c, *size <= UINT8_MAX, WIRE_FAULT_NAME);
    uint8_t byte = (uint8_t)*size;
    wire_u8(c, &byte);
    *size = byte;
}
