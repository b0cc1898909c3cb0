/* report_numa.c: where the pool's pages are, as move_pages said at the start. */
#include "store/shell/report.h"

#include <jansson.h>
#include <stdio.h>

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, json_integer((json_int_t)v));
}

static json_t *found_json(const struct numa_plan *plan, const uint64_t *pages)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < plan->n_seen; i++) {
        char node[16];
        snprintf(node, sizeof node, "%u", plan->seen[i]);
        if (pages[i] > 0)
            put(o, node, pages[i] * plan->page_bytes);
    }
    return o;
}

static json_t *part_json(const struct numa_plan *plan, const struct numa_part *p)
{
    json_t *o = json_object();
    put(o, "node", p->node);
    put(o, "from", p->from);
    put(o, "asked_bytes", p->to - p->from);
    json_object_set_new(o, "found_bytes", found_json(plan, p->on));
    put(o, "absent_bytes", p->absent * plan->page_bytes);
    put(o, "errno", (uint64_t)-p->error);
    put(o, "threads_there", p->threads);
    put(o, "threads_elsewhere", p->elsewhere);
    return o;
}

json_t *report_numa(const struct server *s, const struct node_status *st)
{
    const struct region *r = &s->region;
    json_t *o = json_object(), *parts = json_array();
    uint8_t place = region_place_of(r, s->cpu);
    json_object_set_new(o, "verified", json_boolean(r->numa.plan.verified));
    json_object_set_new(o, "as_asked", json_boolean(numa_settled(&r->numa.plan)));
    json_object_set_new(o, "moved", json_boolean(r->numa.plan.moved));
    json_object_set_new(o, "note", json_string(r->numa.note));
    json_object_set_new(o, "found_bytes", found_json(&r->numa.plan, r->numa.plan.pages));
    put(o, "page_step_bytes", r->numa.plan.page_bytes);
    put(o, "spilled", st->slabs.spilled);
    json_object_set_new(o, "loop_on", place > 0 ? json_integer(r->numa.place_node[place - 1]) : json_null());
    for (uint32_t i = 0; i < r->numa.plan.n; i++)
        json_array_append_new(parts, part_json(&r->numa.plan, &r->numa.plan.part[i]));
    json_object_set_new(o, "parts", parts);
    return o;
}
