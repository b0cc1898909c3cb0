/* report_why.c: what the node knows of one key: whether it is here, and what last became of it. */
#include "store/shell/report.h"

#include "store/shell/log.h"

static const char *const fates[NODE_FATES] = {
    [FATE_NONE] = NULL,          [FATE_REMOVED] = "removed",   [FATE_PURGED] = "purged",
    [FATE_EVICTED] = "evicted",  [FATE_OUTDATED] = "outdated", [FATE_PUT_FAILED] = "put_failed",
    [FATE_ABORTED] = "given_up", [FATE_DIED] = "writer_ended", [FATE_SHRUNK] = "shrunk",
    [FATE_LOST] = "lost",
};

static const char *const needs[NODE_NEEDS] = {
    [NEED_NONE] = NULL,
    [NEED_WATERMARK] = "high_watermark",
    [NEED_SIZE] = "same_size",
    [NEED_OTHER] = "other_size",
};

static json_t *version(uint64_t counter, uint64_t region)
{
    return json_sprintf("%llu:%llu", (unsigned long long)counter, (unsigned long long)region);
}

static json_t *here_json(const struct node_why *w)
{
    return json_pack("{s:I, s:o, s:I, s:I}", "bytes", (json_int_t)w->size, "version", version(w->counter, w->region),
                     "created_us", (json_int_t)w->created_us, "holds", (json_int_t)w->holds);
}

static json_t *error_json(int error)
{
    return json_pack("{s:i, s:s, s:s}", "code", error, "name", berth_error_name(error), "sentence",
                     berth_error_text(error));
}

static json_t *last_json(const struct node_why *w)
{
    json_t *o = json_pack("{s:s, s:I}", "what", fates[w->fate], "when_us", (json_int_t)w->gone_us);
    json_object_set_new(o, "counter", json_integer((json_int_t)w->gone_counter));
    if (w->need)
        json_object_set_new(o, "need", json_string(needs[w->need]));
    if (w->error)
        json_object_set_new(o, "error", error_json(w->error));
    return o;
}

char *report_why(const struct server *s, const struct key_ref *key)
{
    struct node_why w;
    struct node_status st;
    char text[4 * KEY_MAX + 1];
    node_why(s->node, *key, &w);
    node_status(s->node, &st);
    escape_bytes(text, sizeof(text), key->data, key->size);
    json_t *o =
        json_pack("{s:i, s:s, s:I, s:s}", "schema", 1, "key", text, "namespace_id", (json_int_t)key->ns, "state",
                  w.here      ? "here"
                  : w.written ? "being_written"
                  : w.fate    ? "gone"
                              : "unknown");
    json_object_set_new(o, "being_written", json_boolean(w.written));
    json_object_set_new(o, "here", w.here ? here_json(&w) : json_null());
    json_object_set_new(o, "last", w.fate ? last_json(&w) : json_null());
    json_object_set_new(o, "since_us", json_integer((json_int_t)w.since_us));
    json_object_set_new(o, "remembered", json_integer((json_int_t)st.remembered));
    json_object_set_new(o, "remembered_max", json_integer((json_int_t)st.remembered_max));
    char *out = json_dumps(o, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    json_decref(o);
    return out;
}
