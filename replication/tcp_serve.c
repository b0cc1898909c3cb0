/* tcp_serve.c: the owner's side: what peers read, chunk by chunk in turn.
 *
 * send or sendfile: sendfile passes references to the pool's pages on, and saves one copy; for a lone or a large
 * transfer it is slower or erratic, so it is for a queue of middling ones (docs: the transport's benchmark). Not to a
 * peer on this machine: there it only leaves the work to the reader's CPU, which makes the checksums too. Its pages
 * stay in the socket after the call: the slot is in use until DONE (rule 19), which is what `served` says.
 */
#include "replication/tcp_internal.h"

#include <errno.h>
#include <stdlib.h>

static struct serve *find(struct tcp_connection *c, uint64_t id)
{
    struct serve *s = c->serves ? &c->serves[id % REQUESTS_MAX] : NULL;
    return s && s->state != SERVE_FREE && s->id == id ? s : NULL;
}

static void link_serve(struct tcp_lane *lane, struct serve *s)
{
    if (!s->linked) {
        s->linked = true;
        TAILQ_INSERT_TAIL(&lane->sending, s, link);
    }
    tcp_dirty(lane);
}

static void unlink_serve(struct tcp_lane *lane, struct serve *s)
{
    if (s->linked) {
        s->linked = false;
        TAILQ_REMOVE(&lane->sending, s, link);
    }
}

static int sendable(int status)
{
    return status < 0 && status >= -(int)FRAME_ERROR_MAX ? status : -EIO;
}

static void refuse(struct tcp_lane *lane, struct serve *s, int status)
{
    s->state = SERVE_REFUSING;
    s->status = sendable(status);
    link_serve(lane, s);
}

/* As refuse, at once: not a byte more of the pool. */
static void stop_serve(struct tcp_lane *lane, struct serve *s, int status)
{
    s->status = sendable(status);
    if (tcp_retract(lane, s, s->status)) {
        s->state = SERVE_ENDED;
        unlink_serve(lane, s);
        tcp_dirty(lane);
    } else {
        refuse(lane, s, status);
    }
}

/* The slot is free for another request; `served` is told where it is owed. */
static void end_serve(struct tcp_connection *c, struct serve *s, int status)
{
    struct tcp *ctx = c->ctx;
    struct serve was = *s;
    *s = (struct serve){0};
    c->serve_count--;
    ctx->stats.served += status == 0;
    ctx->stats.serve_errors += status < 0;
    if (was.admitted) {
        ctx->events.served(ctx->env, &c->head, was.lease, was.token, status);
    }
}

void tcp_serves_end(struct tcp_connection *c)
{
    for (uint32_t i = 0; c->serves && i < REQUESTS_MAX; i++) {
        if (c->serves[i].state != SERVE_FREE) {
            end_serve(c, &c->serves[i], -ECONNRESET);
        }
    }
}

/* ---- requests of the peer ---- */

static const char *read_fault(const struct tcp_connection *c, const struct frame *f)
{
    if (f->request == 0 || c->serves[f->request % REQUESTS_MAX].state != SERVE_FREE) {
        return "READ with an id that is in use";
    }
    if (!(f->flags & FRAME_BULK) && (f->bytes > LONE_MAX || f->allowed != f->bytes)) {
        return "READ of too much on the control lane";
    }
    return NULL;
}

static int admit(struct tcp_connection *c, struct serve *s, const struct frame *f)
{
    struct tcp *ctx = c->ctx;
    struct transport_want want = {f->lease, f->generation, f->offset, f->bytes};
    if (!ctx->pool) {
        return -EOPNOTSUPP;
    }
    if (f->offset > ctx->pool_bytes || f->bytes > ctx->pool_bytes - f->offset) {
        return -EINVAL;
    }
    uint64_t token = 0;
    int e = ctx->events.admit(ctx->env, &c->head, &want, &token);
    if (e < 0) {
        return e;
    }
    s->token = token;
    s->admitted = true;
    return 0;
}

void tcp_on_read(struct tcp_lane *lane, const struct frame *f)
{
    struct tcp_connection *c = lane->c;
    if (!c->serves && !(c->serves = calloc(REQUESTS_MAX, sizeof *c->serves))) {
        tcp_end(c, -ENOMEM, "no memory to serve the peer", true);
        return;
    }
    const char *why = read_fault(c, f);
    if (why) {
        tcp_protocol(lane, why);
        return;
    }
    struct serve admitted = {0};
    int e = admit(c, &admitted, f);
    if (c->state != PAIR_OPEN) { /* the callback ended it: the table has been gone through already */
        if (admitted.admitted) {
            c->ctx->events.served(c->ctx->env, &c->head, f->lease, admitted.token, -ECONNRESET);
        }
        return;
    }
    struct serve *s = &c->serves[f->request % REQUESTS_MAX];
    *s = admitted;
    s->id = f->request;
    s->lease = f->lease;
    s->offset = f->offset;
    s->bytes = f->bytes;
    s->allowed = f->allowed;
    s->state = SERVE_SENDING;
    s->lane = f->flags & FRAME_BULK ? LANE_BULK : LANE_CONTROL;
    c->serve_count++;
    if (e < 0) {
        refuse(c->lane[s->lane], s, e);
    } else {
        link_serve(c->lane[s->lane], s);
    }
}

void tcp_on_grant(struct tcp_lane *lane, const struct frame *f)
{
    struct serve *s = find(lane->c, f->request);
    if (!s || f->allowed < s->allowed || f->allowed > s->bytes) {
        tcp_protocol(lane, "GRANT of an unknown request, or of too much");
        return;
    }
    s->allowed = f->allowed;
    if (s->state == SERVE_SENDING) {
        link_serve(lane->c->lane[s->lane], s);
    }
}

void tcp_on_cancel(struct tcp_lane *lane, const struct frame *f)
{
    struct serve *s = find(lane->c, f->request);
    if (!s) {
        tcp_protocol(lane, "CANCEL of an unknown request");
    } else if (s->state == SERVE_SENDING) {
        refuse(lane->c->lane[s->lane], s, -ECANCELED);
    }
}

void tcp_on_done(struct tcp_lane *lane, const struct frame *f)
{
    struct serve *s = find(lane->c, f->request);
    if (!s || !s->last_out) {
        tcp_protocol(lane, "DONE of a request that is not at its end");
        return;
    }
    end_serve(lane->c, s, s->status);
}

int tcp_stop(void *arg, struct connection *to, uint64_t token, int status)
{
    struct tcp_connection *c = (struct tcp_connection *)to;
    int found = -ENOENT;
    tcp_enter(arg);
    for (uint32_t i = 0; c->serves && i < REQUESTS_MAX; i++) {
        struct serve *s = &c->serves[i];
        struct tcp_lane *lane = c->lane[s->lane];
        bool at_work = s->state == SERVE_SENDING || (s->state == SERVE_ENDED && !s->last_out);
        if (at_work && s->admitted && s->token == token) {
            stop_serve(lane, s, status);
            found = 0;
        }
    }
    tcp_leave(arg);
    return found;
}

/* ---- sending ---- */

static bool by_file(const struct tcp_lane *lane, const struct serve *s, uint32_t n)
{
    const struct transport_config *f = &lane->ctx->config;
    return lane->kind == LANE_BULK && lane->ctx->pool_fd >= 0 && n >= f->sendfile_min &&
           (!lane->c->same_host || lane->ctx->file_local) &&
           (s->bytes <= f->sendfile_max || f->sendfile_max == UINT32_MAX) && lane->c->serve_count >= f->sendfile_queue;
}

static void add_item(struct tcp_lane *lane, struct serve *s, uint32_t n, bool last)
{
    struct item *it = &lane->items[lane->item_count++];
    uint64_t at = s->offset + s->taken;
    struct frame f = {
        .type = FRAME_DATA, .request = s->id, .offset = s->taken, .length = n, .flags = last ? FRAME_LAST : 0};
    if (s->state == SERVE_REFUSING) {
        f.flags = FRAME_LAST | FRAME_ERROR;
        f.length = (uint32_t)-s->status;
        n = 0;
    }
    it->head_at = it->at = 0;
    it->bytes = n;
    it->offset = at;
    it->payload = n > 0 ? lane->ctx->pool + at : NULL; /* a refused offset may lie anywhere */
    it->serve = s;
    it->file = n > 0 && by_file(lane, s, n);
    frame_encode(it->head, &f);
    s->taken += n;
}

/* One chunk of the first serve, which then goes to the end of the list if it may send more. */
static uint32_t take_chunk(struct tcp_lane *lane, struct serve *s)
{
    uint64_t may = s->state == SERVE_REFUSING ? 0 : s->allowed - s->taken;
    uint32_t n = may < lane->ctx->config.chunk ? (uint32_t)may : lane->ctx->config.chunk;
    bool last = s->state == SERVE_REFUSING || s->taken + n == s->bytes;
    unlink_serve(lane, s);
    if (n == 0 && !last) {
        return 0; /* a GRANT links it again */
    }
    add_item(lane, s, n, last);
    if (last) {
        s->state = SERVE_ENDED;
    } else if (n < may) {
        s->linked = true;
        TAILQ_INSERT_TAIL(&lane->sending, s, link);
    }
    return n;
}

void tcp_fill_items(struct tcp_lane *lane)
{
    struct serve *s;
    uint64_t total = 0;
    while (lane->item_count < ITEMS_MAX && total < BATCH_BYTES && (s = TAILQ_FIRST(&lane->sending))) {
        total += take_chunk(lane, s);
    }
}

void tcp_item_sent(struct tcp_lane *lane, struct item *i)
{
    struct serve *s = i->serve;
    (void)lane;
    s->sent += i->bytes;
    /* The state alone does not say it: another item of the same serve may follow this one. */
    if (s->state == SERVE_ENDED && s->sent == s->taken && (i->head[1] & FRAME_LAST)) {
        s->last_out = true;
    }
}
