/* peers_told.c: what the log is told of those who come to the peers' port and are no members: one line for many. */
#include "store/shell/peers_internal.h"

#include "store/shell/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TOLD_NS INT64_C(1000000000) /* a line of each kind at most so often */

/* ---- clients without a node ---- */

static __attribute__((format(printf, 3, 4))) void visit(struct peers *p, uint32_t *count, const char *format, ...)
{
    va_list args;
    ++*count;
    va_start(args, format);
    vsnprintf(p->visits.last, sizeof p->visits.last, format, args);
    va_end(args);
    p->again = true;
}

void client_came(struct peers *p, const struct link *l)
{
    visit(p, &p->visits.came, "client '%s' is connected: %s", l->other.node, l->connection->peer);
}

void client_went(struct peers *p, const struct link *l)
{
    visit(p, &p->visits.went, "client '%s' is gone: %s", l->other.node, l->why);
}

static void tell_visits(struct peers *p, int64_t now)
{
    struct visits *v = &p->visits;
    bool any = v->came + v->went > 0, early = now - v->told < TOLD_NS && !p->stopping;
    v->due = any && early ? v->told + TOLD_NS : INT64_MAX;
    if (!any || early)
        return;
    if (v->came + v->went == 1)
        log_event(LOG_INFO, "%s", v->last);
    else
        log_event(LOG_INFO, "clients that connected: %u, that went: %u, the last: %s", v->came, v->went, v->last);
    v->came = v->went = 0;
    v->told = now;
}

/* ---- strangers ---- */

/* Who connected and was no peer: scanners, browsers, nodes of another protocol. One line for many of them. */
static void tell_strangers(struct peers *p, int64_t now)
{
    struct transport_stats st;
    p->transport->stats(p->context, &st);
    uint64_t n = st.strangers + st.protocol + st.crowded_out;
    bool early = now - p->strangers_told < TOLD_NS;
    p->strangers_due = n != p->strangers && early ? p->strangers_told + TOLD_NS : INT64_MAX;
    if (n == p->strangers || early)
        return;
    log_event(
        LOG_WARNING,
        "%llu connection(s) to the peers' port were closed: %llu no peer, %llu against the protocol, %llu too many",
        (unsigned long long)(n - p->strangers), (unsigned long long)(st.strangers - p->last.strangers),
        (unsigned long long)(st.protocol - p->last.protocol),
        (unsigned long long)(st.crowded_out - p->last.crowded_out));
    p->strangers = n;
    p->strangers_told = now;
    p->last = st;
}

void peers_tell(struct peers *p, int64_t now)
{
    tell_strangers(p, now);
    tell_visits(p, now);
}
