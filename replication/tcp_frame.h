/* tcp_frame.h: the bytes of the TCP transport: greetings and frames. Little-endian; unused fields are 0, and are
 * checked.
 *
 * Greeting, 32 bytes, the first that each side of each TCP connection sends, the connecting side first:
 *   0 magic 8 ("BERTHtc1" from who connects, "BERTHts1" from who accepts) | 8 lane 1 (0 control, 1 bulk) | 9 zero 7 |
 *   16 token 16 (0 from who connects the control lane)
 * Frame, 56 bytes, after the greetings:
 *   0 type 1 | 1 flags 1 | 2 zero 2 | 4 length 4 | 8 request 8 | 16 lease 8 | 24 generation 8 | 32 offset 8 | 40 bytes
 *   8 | 48 allowed 8
 *
 * type     lane     fields
 * MESSAGE  control  length: bytes that follow, 1 to TRANSPORT_MESSAGE_MAX
 * READ     control  flags BULK: answer on the bulk lane. request, lease, generation, offset, bytes: all of the
 *                   transfer; allowed: bytes that may be sent before a GRANT
 * GRANT    control  request, allowed: grows up to bytes
 * CANCEL   control  request: send no more than is begun, then DATA with ERROR. After the last DATA it has no effect
 * DONE     control  request: the last DATA has come; the id is free again
 * DATA     both     request, offset within the transfer, length: bytes that follow, at least 1. flags LAST: the
 *                   transfer's end. flags LAST and ERROR: length is an error number (Linux's, or berth.h's) and
 *                   nothing follows
 *
 * A request's life: READ, then GRANTs and at most one CANCEL, DATA in order up to LAST, then DONE. The low bits of a
 * request's id are its index among REQUESTS_MAX: an id whose index is taken, or that is unknown, breaks the protocol.
 */
#ifndef BERTH_REPLICATION_TCP_FRAME_H
#define BERTH_REPLICATION_TCP_FRAME_H

#include <stdint.h>

#define GREETING_BYTES 32u
#define TOKEN_BYTES 16u
#define MAGIC_BYTES 8u
#define FRAME_BYTES 56u
#define REQUESTS_MAX 512u                /* a power of two */
#define FRAME_DATA_MAX (4u << 20)        /* bytes of payload in one frame */
#define FRAME_ERROR_MAX ((1u << 16) - 1) /* error numbers */

enum frame_type { FRAME_MESSAGE = 1, FRAME_READ, FRAME_GRANT, FRAME_CANCEL, FRAME_DONE, FRAME_DATA };

enum { FRAME_BULK = 1 };                  /* of READ */
enum { FRAME_LAST = 1, FRAME_ERROR = 2 }; /* of DATA */

enum lane_kind { LANE_CONTROL, LANE_BULK };

struct greeting {
    uint8_t accepting; /* who sends it has accepted the connection */
    uint8_t lane;
    uint8_t token[TOKEN_BYTES];
};

struct frame {
    uint8_t type, flags;
    uint32_t length; /* bytes that follow, or an error number */
    uint64_t request, lease, generation;
    uint64_t offset, bytes, allowed;
};

void greeting_encode(uint8_t out[GREETING_BYTES], const struct greeting *g);
/* Whether the first n bytes (up to GREETING_BYTES) may begin a greeting of that side. */
int greeting_begins(const uint8_t *in, uint32_t n, int accepting);
/* 0, or -EPROTO. */
int greeting_decode(const uint8_t in[GREETING_BYTES], struct greeting *g);

void frame_encode(uint8_t out[FRAME_BYTES], const struct frame *f);
/* 0 and *f is what it says, within the bounds above; or -EPROTO, and *why (never NULL then, static) says what is
 * wrong. */
int frame_decode(const uint8_t in[FRAME_BYTES], struct frame *f, const char **why);

#endif
