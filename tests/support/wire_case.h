/* wire_case.h: messages between nodes for tests: random ones, and what one says, field by field. */
#ifndef BERTH_TESTS_WIRE_CASE_H
#define BERTH_TESTS_WIRE_CASE_H

#include "replication/wire.h"

#include <stdio.h>

/* A message with its items and the bytes that its pointers point to. */
struct wire_case {
    struct wire_message m;
    struct wire_item item[WIRE_LEASES_MAX];
    uint32_t n;
    uint8_t bytes[WIRE_LEASES_MAX][KEY_MAX]; /* keys, by item; the last one is CORRUPT's */
    char text[3][WIRE_ADDRESS_MAX];
};

/* Every op that there is, ended by 0. */
extern const unsigned wire_case_ops[];

/* A right message of this op with random contents (tests/support/draw.h): `most` makes every length and count the
 * largest. */
void wire_case_make(struct wire_case *w, unsigned op, bool most);

/* Bytes of the message, encoded into room bytes; fails the test if it can't be. */
size_t wire_case_encode(const struct wire_case *w, void *buffer, size_t room);

/* Decodes whole; pointers into data. What wire_open or wire_next gave. */
int wire_case_decode(struct wire_case *w, const void *data, size_t n);

/* A line a field: "offset: bytes in hex | name value"; data has the encoded bytes. Written from the structures of
 * wire.h alone: the sizes it goes by are those that the documentation says, not the codec's. Returns the bytes
 * described. */
size_t wire_case_describe(const struct wire_case *w, const uint8_t *data, FILE *out);

#endif
