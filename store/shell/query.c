#include "store/shell/query.h"

#include "store/shell/report.h"
#include "store/shell/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_MAX (RING_MESSAGE_MAX - (uint32_t)sizeof(struct msg_reply))

static int text_make(struct session *c, const struct msg_query *q)
{
    struct key_ref key = {.data = q + 1, .size = q->key_size, .ns = q->ns};
    free(c->text);
    c->text_size = 0;
    c->text = report_make(c->server, q->what, q->key_size ? &key : NULL);
    if (!c->text)
        return -ENOMEM;
    c->text_size = strlen(c->text);
    return c->text_size <= UINT32_MAX ? 0 : -EFBIG;
}

static void text_send(struct session *c, const struct msg_query *q)
{
    uint32_t left = (uint32_t)c->text_size - q->offset;
    uint32_t n = left < PART_MAX ? left : PART_MAX;
    struct msg_reply *r = calloc(1, sizeof(*r) + n);
    if (!r) {
        session_answer(c, &q->head, -ENOMEM, 0);
        return;
    }
    r->head = (struct msg_head){.bytes = (uint32_t)sizeof(*r) + n, .op = MSG_QUERY, .id = q->head.id};
    r->head.flags = n < left ? MSG_HAS_MORE : 0;
    r->head.stamp = (uint64_t)server_clock(c->server);
    r->count = n;
    r->figure[0] = c->text_size;
    memcpy(r + 1, c->text + q->offset, n);
    if (n == left) {
        free(c->text);
        c->text = NULL;
    }
    session_reply(c, r);
    free(r);
}

/* The comparison of CHECK holds only where index and slots are at rest. */
static bool check_defer(struct session *c, const struct msg_query *q)
{
    struct server *s = c->server;
    if (q->what != QUERY_CHECK || q->offset || !commit_running(s->commit))
        return false;
    if (s->n_checks == CHECKS_MAX) {
        session_answer(c, &q->head, -EAGAIN, 0);
        return true;
    }
    s->checks[s->n_checks++] = (struct check_wait){.session = c->id, .query = *q};
    s->checks[s->n_checks - 1].query.key_size = 0;
    return true;
}

void query_run(struct session *c, const struct msg_query *q)
{
    if (check_defer(c, q))
        return;
    int error = q->offset ? 0 : text_make(c, q);
    if (!error && (!c->text || q->offset > c->text_size))
        error = -EINVAL;
    if (error)
        session_answer(c, &q->head, error, 0);
    else
        text_send(c, q);
}

void query_committed(struct server *s)
{
    unsigned n = s->n_checks;
    s->n_checks = 0;
    for (unsigned i = 0; i < n; i++) {
        struct session *c = sessions_find(s, s->checks[i].session);
        if (c && c->attached)
            query_run(c, &s->checks[i].query);
    }
}
