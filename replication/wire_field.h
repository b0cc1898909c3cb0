/* wire_field.h: one list of fields for both directions: a cursor over a message that writes or reads and checks.
 *
 * Part of wire.c's files. The first fault sticks; after it nothing is read or written, and what is read is 0.
 */
#ifndef BERTH_REPLICATION_WIRE_FIELD_H
#define BERTH_REPLICATION_WIRE_FIELD_H

#include "replication/wire.h"

struct wire_cursor {
    const uint8_t *in; /* reading */
    uint8_t *out;      /* writing; NULL while reading */
    size_t at, end;
    enum wire_fault fault;
};

void wire_u8(struct wire_cursor *c, uint8_t *v);
void wire_u16(struct wire_cursor *c, uint16_t *v);
void wire_u32(struct wire_cursor *c, uint32_t *v);
void wire_u64(struct wire_cursor *c, uint64_t *v);
void wire_i32(struct wire_cursor *c, int32_t *v);
void wire_bytes(struct wire_cursor *c, void *v, size_t n);
void wire_span(struct wire_cursor *c, const void **data, size_t n); /* read: a pointer into the message */
void wire_zeros(struct wire_cursor *c, size_t n);                   /* reserved */
void wire_require(struct wire_cursor *c, bool ok, enum wire_fault fault);

/* What stands behind a head, per op. `status` has been dealt with. */
void wire_body(struct wire_cursor *c, struct wire_message *m);
void wire_item(struct wire_cursor *c, unsigned op, struct wire_item *item);

/* Parts that bodies and items share. */
void wire_counter(struct wire_cursor *c, uint64_t *counter);
void wire_version(struct wire_cursor *c, struct berth_version *v);
void wire_key(struct wire_cursor *c, struct key_ref *key);   /* namespace, length, 2 reserved bytes, bytes */
void wire_short_size(struct wire_cursor *c, uint16_t *size); /* in one byte */
/* The bytes of a text whose size is known: first..0x7e. */
void wire_text_bytes(struct wire_cursor *c, struct wire_text *t, int first);
void wire_id(struct wire_cursor *c, uint64_t *lease);
void wire_status(struct wire_cursor *c, int32_t *status); /* and 4 reserved bytes */

#endif
