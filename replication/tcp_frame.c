/* tcp_frame.c: see tcp_frame.h. */
#include "replication/tcp_frame.h"

#include "replication/transport.h"
#include "store/little.h"

#include <errno.h>
#include <string.h>

static const char magics[2][MAGIC_BYTES + 1] = {"BERTHtc1", "BERTHts1"};

enum { AT_LANE = 8, AT_ZERO = 9, AT_TOKEN = 16 };

void greeting_encode(uint8_t out[GREETING_BYTES], const struct greeting *g)
{
    memset(out, 0, GREETING_BYTES);
    memcpy(out, magics[g->accepting != 0], MAGIC_BYTES);
    out[AT_LANE] = g->lane;
    memcpy(out + AT_TOKEN, g->token, TOKEN_BYTES);
}

int greeting_begins(const uint8_t *in, uint32_t n, int accepting)
{
    return memcmp(in, magics[accepting != 0], n < MAGIC_BYTES ? n : MAGIC_BYTES) == 0;
}

int greeting_decode(const uint8_t in[GREETING_BYTES], struct greeting *g)
{
    static const uint8_t zero[AT_TOKEN - AT_ZERO];
    int accepting = greeting_begins(in, MAGIC_BYTES, 1);
    if ((!accepting && !greeting_begins(in, MAGIC_BYTES, 0)) || in[AT_LANE] > LANE_BULK ||
        memcmp(in + AT_ZERO, zero, sizeof zero) != 0) {
        return -EPROTO;
    }
    g->accepting = (uint8_t)accepting;
    g->lane = in[AT_LANE];
    memcpy(g->token, in + AT_TOKEN, TOKEN_BYTES);
    return 0;
}

/* ---- frames ---- */

void frame_encode(uint8_t out[FRAME_BYTES], const struct frame *f)
{
    memset(out, 0, 4);
    out[0] = f->type;
    out[1] = f->flags;
    put32(out + 4, f->length);
    put64(out + 8, f->request);
    put64(out + 16, f->lease);
    put64(out + 24, f->generation);
    put64(out + 32, f->offset);
    put64(out + 40, f->bytes);
    put64(out + 48, f->allowed);
}

/* What a type uses; the rest must be 0. */
enum { LENGTH = 1, REQUEST = 2, LEASE = 4, OFFSET = 8, BYTES = 16, ALLOWED = 32 };

static const struct {
    uint8_t fields, flags;
} uses[] = {
    [FRAME_MESSAGE] = {LENGTH, 0},
    [FRAME_READ] = {REQUEST | LEASE | OFFSET | BYTES | ALLOWED, FRAME_BULK},
    [FRAME_GRANT] = {REQUEST | ALLOWED, 0},
    [FRAME_CANCEL] = {REQUEST, 0},
    [FRAME_DONE] = {REQUEST, 0},
    [FRAME_DATA] = {LENGTH | REQUEST | OFFSET, FRAME_LAST | FRAME_ERROR},
};

static int has_unused(const struct frame *f)
{
    unsigned set = (f->length ? LENGTH : 0) | (f->request ? REQUEST : 0) | (f->lease || f->generation ? LEASE : 0) |
                   (f->offset ? OFFSET : 0) | (f->bytes ? BYTES : 0) | (f->allowed ? ALLOWED : 0);
    return (set & ~(unsigned)uses[f->type].fields) != 0 || (f->flags & ~uses[f->type].flags) != 0;
}

static const char *data_fault(const struct frame *f)
{
    if (f->offset > TRANSPORT_TRANSFER_MAX) {
        return "DATA with an offset that is too large";
    }
    if (!(f->flags & FRAME_ERROR)) {
        return f->length < 1 || f->length > FRAME_DATA_MAX ? "DATA with a bad length" : NULL;
    }
    return !(f->flags & FRAME_LAST) || f->length < 1 || f->length > FRAME_ERROR_MAX ? "DATA with a bad error" : NULL;
}

static const char *fault(const struct frame *f)
{
    if (has_unused(f)) {
        return "a frame with a field or flag set that its type does not have";
    }
    switch (f->type) {
    case FRAME_MESSAGE:
        return f->length < 1 || f->length > TRANSPORT_MESSAGE_MAX ? "a message with a bad length" : NULL;
    case FRAME_READ:
        return f->bytes < 1 || f->bytes > TRANSPORT_TRANSFER_MAX || f->allowed < 1 || f->allowed > f->bytes
                   ? "READ with a bad length"
                   : NULL;
    case FRAME_GRANT:
        return f->allowed > TRANSPORT_TRANSFER_MAX ? "GRANT of too many bytes" : NULL;
    case FRAME_DATA:
        return data_fault(f);
    default:
        return NULL;
    }
}

int frame_decode(const uint8_t in[FRAME_BYTES], struct frame *f, const char **why)
{
    if (in[0] < FRAME_MESSAGE || in[0] > FRAME_DATA || in[2] || in[3]) {
        *why = "a frame of no known type";
        return -EPROTO;
    }
    struct frame got = {
        .type = in[0],
        .flags = in[1],
        .length = get32(in + 4),
        .request = get64(in + 8),
        .lease = get64(in + 16),
        .generation = get64(in + 24),
        .offset = get64(in + 32),
        .bytes = get64(in + 40),
        .allowed = get64(in + 48),
    };
    const char *wrong = fault(&got);
    if (wrong) {
        *why = wrong;
        return -EPROTO;
    }
    *f = got;
    return 0;
}
