/* report_pins.c: who pins, holds and leases what. */
#include "store/shell/log.h"
#include "store/shell/peers.h"
#include "store/shell/report.h"
#include "store/slot.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PINS_SHOWN 100000u /* in all: a report stays a report */

struct pins_report {
    struct server *server;
    uint32_t only; /* SLOT_NONE: all */
    json_t *list;
    uint64_t pins, bytes;
    uint64_t shown;
};

struct name_of {
    uint32_t id;
    char *text;
    size_t size;
};

static int name_matches(void *arg, const char *name, uint32_t id, uint32_t flags)
{
    struct name_of *n = arg;
    (void)flags;
    if (id != n->id)
        return 0;
    escape_bytes(n->text, n->size, name, strlen(name));
    return 1;
}

static json_t *namespace_json(const struct server *s, uint32_t id)
{
    char text[4 * NAME_MAX_BYTES + 1] = "";
    struct name_of n = {.id = id, .text = text, .size = sizeof(text)};
    if (id)
        lmdb_ops.namespaces(s->region.index, name_matches, &n);
    return json_string(text);
}

static void describe(const struct server *s, json_t *o, const struct node_slot_info *info)
{
    char key[4 * KEY_MAX + 1];
    escape_bytes(key, sizeof(key), info->key, info->key_size);
    json_object_set_new(o, "key", json_string(key));
    json_object_set_new(o, "namespace", namespace_json(s, info->ns));
    json_object_set_new(o, "bytes", json_integer((json_int_t)info->size));
    json_object_set_new(o, "version", json_integer((json_int_t)info->version));
    json_object_set_new(o, "state", json_string(info->state == SLOT_RETIRED ? "retired" : "ready"));
}

static void pin_add(void *arg, uint32_t slot)
{
    struct pins_report *r = arg;
    struct node_slot_info info;
    if ((r->only != SLOT_NONE && slot != r->only) || !node_slot(r->server->node, slot, &info))
        return;
    r->pins++;
    r->bytes += info.size;
    if (r->shown >= PINS_SHOWN)
        return;
    r->shown++;
    json_t *o = json_object();
    json_object_set_new(o, "slot", json_integer(slot));
    describe(r->server, o, &info);
    json_array_append_new(r->list, o);
}

static json_t *session_pins(struct pins_report *r, const struct session *c)
{
    char name[4 * NAME_MAX_BYTES + 1];
    r->list = json_array();
    r->pins = r->bytes = 0;
    scan_each(&r->server->scanner, &c->pins, pin_add, r);
    json_t *o = json_object();
    escape_bytes(name, sizeof(name), c->name, strlen(c->name));
    json_object_set_new(o, "session", json_integer((json_int_t)c->id));
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "pid", json_integer(c->pid));
    json_object_set_new(o, "uid", json_integer(c->uid));
    json_object_set_new(o, "attached", json_boolean(c->attached));
    json_object_set_new(o, "pinned", json_integer((json_int_t)r->pins));
    json_object_set_new(o, "pinned_bytes", json_integer((json_int_t)r->bytes));
    json_object_set_new(o, "pins", r->list);
    return o;
}

static void holds_of(const struct server *s, json_t *list, const struct node_slot_info *info)
{
    struct key_ref key = {.data = info->key, .size = info->key_size, .ns = info->ns};
    struct record record;
    if (lmdb_ops.get(s->region.index, key, &record) != 0)
        return;
    for (unsigned i = 0; i < record.n_holds && i < HOLDS_MAX; i++) {
        const struct hold *h = &record.holds[i];
        char label[4 * LABEL_MAX + 1];
        int64_t left = h->expiry ? h->expiry - s->now.boot : 0;
        json_t *o = json_object();
        describe(s, o, info);
        escape_bytes(label, sizeof(label), h->label, h->label_size);
        json_object_set_new(o, "label", json_string(label));
        json_object_set_new(o, "ttl_ns", json_integer(h->expiry && left < 1 ? 1 : left));
        json_array_append_new(list, o);
    }
}

static json_t *holds_json(const struct server *s, uint32_t only)
{
    struct node_status st;
    struct node_slot_info info;
    json_t *list = json_array();
    node_status(s->node, &st);
    uint32_t first = only == SLOT_NONE ? 0 : only;
    uint32_t end = only == SLOT_NONE ? st.slabs.headers_used : only + 1;
    for (uint32_t slot = first; slot < end && json_array_size(list) < PINS_SHOWN; slot++) {
        uint8_t flags = atomic_load_explicit(&s->region.headers[slot].flags, memory_order_relaxed);
        if ((flags & SLOT_HELD) && node_slot(s->node, slot, &info) && info.held)
            holds_of(s, list, &info);
    }
    return list;
}

static json_t *lease_json(const struct server *s, const struct node_lease_info *l, const struct node_slot_info *info)
{
    char holder[4 * NAME_MAX_BYTES + 1], id[20];
    json_t *o = json_object();
    peers_holder(s->peers, l, holder, sizeof(holder));
    snprintf(id, sizeof(id), "%016llx", (unsigned long long)l->lease);
    json_object_set_new(o, "holder", json_string(holder));
    json_object_set_new(o, "lease", json_string(id));
    json_object_set_new(o, "slot", json_integer(l->slot));
    describe(s, o, info);
    json_object_set_new(o, "left_ns", json_integer(l->left_ns));
    json_object_set_new(o, "in_flight", json_boolean(l->in_flight));
    json_object_set_new(o, "serves", json_integer(l->serves));
    json_object_set_new(o, "recalled", json_boolean(l->recalled));
    json_object_set_new(o, "gone", json_boolean(l->gone));
    json_object_set_new(o, "released", json_boolean(l->released));
    return o;
}

static json_t *leases_json(struct pins_report *r)
{
    const struct server *s = r->server;
    struct node_lease_info l;
    struct node_slot_info info;
    json_t *list = json_array();
    for (uint32_t cursor = 0; r->shown < PINS_SHOWN && node_leases_next(s->node, &cursor, &l);) {
        if ((r->only == SLOT_NONE || l.slot == r->only) && node_slot(s->node, l.slot, &info)) {
            json_array_append_new(list, lease_json(s, &l, &info));
            r->shown++;
        }
    }
    return list;
}

char *report_pins(struct server *s, const struct key_ref *key)
{
    struct pins_report r = {.server = s, .only = SLOT_NONE};
    json_t *o = json_object();
    json_t *sessions = json_array();
    json_object_set_new(o, "schema", json_integer(1));
    if (key) {
        r.only = node_find(s->node, *key);
        json_object_set_new(o, "found", json_boolean(r.only != SLOT_NONE));
    }
    bool any = !key || r.only != SLOT_NONE;
    for (unsigned i = 0; any && i < s->n_sessions; i++) {
        if (s->sessions[i]->dead)
            continue;
        json_t *c = session_pins(&r, s->sessions[i]);
        if (key && !r.pins)
            json_decref(c);
        else
            json_array_append_new(sessions, c);
    }
    json_object_set_new(o, "sessions", sessions);
    json_object_set_new(o, "holds", any ? holds_json(s, r.only) : json_array());
    json_object_set_new(o, "leases", any ? leases_json(&r) : json_array());
    json_object_set_new(o, "truncated", json_boolean(r.shown >= PINS_SHOWN));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}
