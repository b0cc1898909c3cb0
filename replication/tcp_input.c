/* tcp_input.c: what a lane receives.
 *
 * Payload must go from the socket into the destination without passing through a buffer here: the destination may be
 * memory that only a system call may touch (rule 7). So a lane on which payload may come is read exactly to the next
 * head of a frame, and each receive of payload takes the head behind it along in the same call. Only a control lane
 * without a small read under way, where no payload can come yet, is read ahead.
 */
#include "replication/tcp_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PARTS_MAX 64     /* of a destination, in one receive */
#define TAIL_BYTES 4096u /* the end of a frame that is less than a segment follows the rest at once */

static uint32_t buffered(const struct tcp_lane *lane)
{
    return lane->in_end - lane->in_at;
}

/* What a receive returned: true when there is something. Ends the connection where it has ended. */
static bool is_some(struct tcp_lane *lane, ssize_t n)
{
    if (n > 0) {
        lane->c->head.heard_ns = tcp_now();
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    int e = n == 0 ? ECONNRESET : errno;
    tcp_end(lane->c, -e, n == 0 ? "the peer has closed the connection" : strerror(e), true);
    return false;
}

/* ---- heads ---- */

static void on_message_head(struct tcp_lane *lane, const struct frame *f)
{
    lane->message.size = 0;
    if (lane->message.capacity < f->length) {
        uint8_t *data = realloc(lane->message.data, f->length);
        if (!data) {
            tcp_end(lane->c, -ENOMEM, "no memory for a message", true);
            return;
        }
        lane->message.data = data;
        lane->message.capacity = f->length;
    }
    lane->input = INPUT_MESSAGE;
    lane->left = f->length;
}

static void on_head(struct tcp_lane *lane)
{
    struct frame f;
    const char *why = "";
    if (frame_decode(lane->in + lane->in_at, &f, &why) < 0) {
        tcp_protocol(lane, why);
        return;
    }
    lane->in_at += FRAME_BYTES;
    if (lane->kind == LANE_BULK && f.type != FRAME_DATA) {
        tcp_protocol(lane, "a frame other than DATA on the bulk lane");
        return;
    }
    switch ((enum frame_type)f.type) {
    case FRAME_MESSAGE:
        on_message_head(lane, &f);
        break;
    case FRAME_READ:
        tcp_on_read(lane, &f);
        break;
    case FRAME_GRANT:
        tcp_on_grant(lane, &f);
        break;
    case FRAME_CANCEL:
        tcp_on_cancel(lane, &f);
        break;
    case FRAME_DONE:
        tcp_on_done(lane, &f);
        break;
    case FRAME_DATA:
        tcp_on_data(lane, &f);
        break;
    }
}

/* True: there is a head to look at. */
static bool fill_head(struct tcp_lane *lane, bool *dry)
{
    uint32_t have = buffered(lane);
    if (have >= FRAME_BYTES) {
        return true;
    }
    if (*dry) {
        return false;
    }
    memmove(lane->in, lane->in + lane->in_at, have);
    lane->in_at = 0;
    lane->in_end = have;
    bool ahead = lane->kind == LANE_CONTROL && lane->c->small_count == 0;
    size_t want = (ahead ? lane->in_size : FRAME_BYTES) - have;
    ssize_t n = recv(lane->fd, lane->in + have, want, 0);
    if (!is_some(lane, n)) {
        *dry = true;
        return false;
    }
    *dry = (size_t)n < want;
    lane->in_end += (uint32_t)n;
    return buffered(lane) >= FRAME_BYTES;
}

/* ---- messages ---- */

static void message_whole(struct tcp_lane *lane)
{
    struct tcp *ctx = lane->ctx;
    lane->input = INPUT_HEAD;
    ctx->stats.messages_in++;
    ctx->events.message(ctx->env, &lane->c->head, lane->message.data, lane->message.size);
    if (lane->message.capacity > KEEP_BUFFER) {
        free(lane->message.data);
        lane->message = (struct bytes){0};
    }
}

static size_t take_message(struct tcp_lane *lane, bool *dry)
{
    struct bytes *m = &lane->message;
    size_t n = buffered(lane) < lane->left ? buffered(lane) : lane->left;
    if (n > 0) {
        memcpy(m->data + m->size, lane->in + lane->in_at, n);
        lane->in_at += (uint32_t)n;
    } else {
        ssize_t got = recv(lane->fd, m->data + m->size, lane->left, 0);
        if (!is_some(lane, got)) {
            *dry = true;
            return 0;
        }
        n = (size_t)got;
        *dry = n < lane->left;
    }
    m->size += n;
    lane->left -= (uint32_t)n;
    if (lane->left == 0) {
        message_whole(lane);
    }
    return n;
}

/* ---- payload ---- */

/* Payload of a transfer that was given up goes nowhere: the kernel drops it without a copy. */
static ssize_t throw_away(struct tcp_lane *lane, size_t *want)
{
    size_t n = buffered(lane) < lane->left ? buffered(lane) : lane->left;
    *want = lane->left;
    if (n > 0) {
        lane->in_at += (uint32_t)n;
        *want = n;
        return (ssize_t)n;
    }
    return recv(lane->fd, NULL, lane->left, MSG_TRUNC);
}

static size_t destination(const struct transfer *t, size_t left, struct iovec *v, int *count)
{
    uint64_t skip = t->own.in_part;
    size_t sum = 0;
    int n = 0;
    for (uint32_t part = t->own.part; part < t->parts && n < PARTS_MAX && sum < left; part++, skip = 0) {
        size_t here = t->to[part].iov_len - skip;
        if (here == 0) {
            continue;
        }
        v[n].iov_base = (uint8_t *)t->to[part].iov_base + skip;
        v[n].iov_len = here < left - sum ? here : left - sum;
        sum += v[n++].iov_len;
    }
    *count = n;
    return sum;
}

/* The rest of the frame, and the next frame's head with it. */
static ssize_t into_destination(struct tcp_lane *lane, size_t *want)
{
    struct iovec v[PARTS_MAX + 1];
    int n;
    size_t sum = destination(lane->request->t, lane->left, v, &n);
    if (sum == lane->left) {
        v[n++] = (struct iovec){.iov_base = lane->in, .iov_len = FRAME_BYTES};
        sum += FRAME_BYTES;
    }
    *want = sum;
    return readv(lane->fd, v, n);
}

/* What lies behind the payload is the next head, or a part of it. */
static size_t took(struct tcp_lane *lane, size_t n)
{
    size_t payload = n < lane->left ? n : lane->left;
    lane->in_at = 0;
    lane->in_end = (uint32_t)(n - payload);
    return payload;
}

static size_t take_data(struct tcp_lane *lane, bool *dry)
{
    size_t want;
    bool live = lane->request->t != NULL;
    if (live && buffered(lane) > 0) {
        /* Read ahead before its READ went out: nobody can have answered it. */
        tcp_protocol(lane, "DATA that came before it was asked for");
        return 0;
    }
    ssize_t got = live ? into_destination(lane, &want) : throw_away(lane, &want);
    if (live && got < 0 && errno == EFAULT) {
        tcp_give_up(lane->request->t, -EFAULT);
        return 0;
    }
    if (!is_some(lane, got)) {
        *dry = true;
        return 0;
    }
    size_t n = live ? took(lane, (size_t)got) : (size_t)got;
    tcp_took(lane, n);
    *dry = (size_t)got < want && (lane->input != INPUT_DATA || lane->left > TAIL_BYTES);
    return (size_t)got;
}

size_t tcp_receive(struct tcp_lane *lane, size_t quota)
{
    size_t moved = 0;
    bool dry = false;
    while (lane->fd >= 0) {
        /* What is buffered is looked at to its end in any case: no event would tell of it again. */
        dry = dry || moved >= quota;
        if (lane->input == INPUT_HEAD) {
            if (!fill_head(lane, &dry)) {
                break;
            }
            on_head(lane);
            /* Frames without payload cost work too: no more of them in a turn than their bytes were worth. */
            moved += FRAME_BYTES;
        } else if (dry && buffered(lane) == 0) {
            break;
        } else if (lane->input == INPUT_MESSAGE) {
            moved += take_message(lane, &dry);
        } else {
            moved += take_data(lane, &dry);
        }
    }
    if (moved > 0 && lane->fd >= 0) {
        lane->ctx->hot = lane;
    }
    return moved;
}
