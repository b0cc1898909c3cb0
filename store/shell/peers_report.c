/* peers_report.c: what is said of the peers: status, metrics. */
#include "store/shell/peers_internal.h"

#include "store/shell/log.h"

#include <inttypes.h>
#include <string.h>

static const char *const state_names[] = {[MEMBER_SELF] = "self",
                                          [MEMBER_WAITING] = "down",
                                          [MEMBER_RESOLVING] = "resolving",
                                          [MEMBER_CONNECTING] = "connecting",
                                          [MEMBER_CONNECTED] = "up"};

/* Over all connections that there were, this one included. */
static struct peer_stats sums(const struct member *m)
{
    struct peer_stats all = m->gone, now = {0};
    if (m->link)
        peer_stats(m->link->peer, &now);
    all.messages_in += now.messages_in;
    all.messages_out += now.messages_out;
    all.bytes_in += now.bytes_in;
    all.bytes_out += now.bytes_out;
    all.timeouts += now.timeouts;
    all.again += now.again;
    all.busy += now.busy;
    all.rtt_ns = now.rtt_ns;
    all.pending = now.pending;
    all.serving = now.serving;
    return all;
}

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

/* What another node said of itself may hold any printable byte; JSON takes those as they are. */
static void put_text(json_t *o, const char *name, const char *text)
{
    char escaped[4 * TRANSPORT_WHY_MAX];
    escape_bytes(escaped, sizeof escaped, text, strlen(text));
    json_object_set_new(o, name, json_string(escaped));
}

static json_t *member_json(const struct peers *p, const struct member *m)
{
    struct peer_stats st = sums(m);
    char region[20];
    json_t *o = json_object();
    put_text(o, "name", m->name);
    put_text(o, "address", m->address);
    json_object_set_new(o, "state", json_string(state_names[m->state]));
    put_text(o, "why", m->why);
    put(o, "since_ns", (uint64_t)(peers_mono((struct peers *)p) - m->since));
    snprintf(region, sizeof region, "%016" PRIx64, m->region_id);
    put_text(o, "region", region);
    put(o, "incarnation", m->incarnation);
    put(o, "pool_bytes", m->pool_bytes);
    put(o, "weight", m->weight);
    put(o, "rtt_ns", (uint64_t)st.rtt_ns);
    put(o, "ups", m->ups);
    put(o, "downs", m->downs);
    put(o, "messages_in", st.messages_in);
    put(o, "messages_out", st.messages_out);
    put(o, "bytes_in", st.bytes_in);
    put(o, "bytes_out", st.bytes_out);
    put(o, "timeouts", st.timeouts);
    put(o, "refused_busy", st.busy + st.again);
    put(o, "asking", st.pending);
    put(o, "serving", st.serving);
    return o;
}

json_t *peers_report(const struct peers *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; p && i < p->n_members; i++)
        json_array_append_new(list, member_json(p, &p->members[i]));
    return list;
}

/* ---- metrics ---- */

struct metric {
    const char *name, *type, *help;
    uint64_t (*value)(const struct member *m, const struct peer_stats *st);
};

static uint64_t m_up(const struct member *m, const struct peer_stats *st)
{
    (void)st;
    return m->link != NULL;
}

static uint64_t m_incarnation(const struct member *m, const struct peer_stats *st)
{
    (void)st;
    return m->incarnation;
}

static uint64_t m_downs(const struct member *m, const struct peer_stats *st)
{
    (void)st;
    return m->downs;
}

static uint64_t m_rtt(const struct member *m, const struct peer_stats *st)
{
    (void)m;
    return (uint64_t)st->rtt_ns;
}

static uint64_t m_messages_in(const struct member *m, const struct peer_stats *st)
{
    (void)m;
    return st->messages_in;
}

static uint64_t m_messages_out(const struct member *m, const struct peer_stats *st)
{
    (void)m;
    return st->messages_out;
}

static uint64_t m_bytes_in(const struct member *m, const struct peer_stats *st)
{
    (void)m;
    return st->bytes_in;
}

static uint64_t m_bytes_out(const struct member *m, const struct peer_stats *st)
{
    (void)m;
    return st->bytes_out;
}

static uint64_t m_timeouts(const struct member *m, const struct peer_stats *st)
{
    (void)m;
    return st->timeouts;
}

static const struct metric metrics[] = {
    {"peer_up", "gauge", "1 if there is a connection to the peer.", m_up},
    {"peer_incarnation", "gauge", "Starts of the peer on its region, as it last said.", m_incarnation},
    {"peer_rtt_nanoseconds", "gauge", "Round trip of the last keep-alive; 0: none yet.", m_rtt},
    {"peer_downs_total", "counter", "Connections to the peer that were lost.", m_downs},
    {"peer_messages_in_total", "counter", "Messages from the peer.", m_messages_in},
    {"peer_messages_out_total", "counter", "Messages to the peer.", m_messages_out},
    {"peer_message_bytes_in_total", "counter", "Bytes of messages from the peer.", m_bytes_in},
    {"peer_message_bytes_out_total", "counter", "Bytes of messages to the peer.", m_bytes_out},
    {"peer_timeouts_total", "counter", "Requests that the peer did not answer in time.", m_timeouts},
};

/* What a transport's bytes cost a CPU of this node: received ones are copied by the kernel into their destination, or
 * away; sent ones into the socket, but those of sendfile, of which the kernel passes references on. */
static void transport_metrics(const struct peers *p, const struct transport_stats *ts, FILE *f)
{
    const struct {
        const char *kind;
        uint64_t bytes;
    } all[] = {{"received", ts->bytes_received},
               {"drained", ts->bytes_drained},
               {"sent", ts->bytes_send},
               {"sendfile", ts->bytes_sendfile}};
    fputs("# HELP berth_transport_bytes_total Bytes moved: received into destinations, received and thrown away, sent "
          "by copying (messages included), sent by sendfile.\n# TYPE berth_transport_bytes_total counter\n",
          f);
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        fprintf(f, "berth_transport_bytes_total{transport=\"%s\",kind=\"%s\"} %" PRIu64 "\n", p->transport->name,
                all[i].kind, all[i].bytes);
}

void peers_metrics(const struct peers *p, FILE *f)
{
    for (unsigned i = 0; p && i < sizeof metrics / sizeof *metrics; i++) {
        const struct metric *x = &metrics[i];
        fprintf(f, "# HELP berth_%s %s\n# TYPE berth_%s %s\n", x->name, x->help, x->name, x->type);
        for (uint32_t j = 0; j < p->n_members; j++) {
            const struct member *m = &p->members[j];
            struct peer_stats st = sums(m);
            if (j != p->self) /* a name has no byte that a label would have to escape */
                fprintf(f, "berth_%s{peer=\"%s\"} %" PRIu64 "\n", x->name, m->name, x->value(m, &st));
        }
    }
    if (!p)
        return;
    struct transport_stats ts;
    p->transport->stats(p->context, &ts);
    fprintf(f,
            "# HELP berth_peer_strangers_total Connections to the peers' port that were closed: no peer of this node.\n"
            "# TYPE berth_peer_strangers_total counter\nberth_peer_strangers_total %" PRIu64 "\n",
            ts.strangers + ts.protocol + ts.crowded_out);
    transport_metrics(p, &ts, f);
    serve_part_metrics(p, f);
    pull_part_metrics(p, f);
    home_part_metrics(p, f);
}
