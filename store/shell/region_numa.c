/* region_numa.c: see region_numa.h. */
#include "store/shell/region_numa.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void region_numa_plan(struct region *r, const struct settings *s, uint64_t bytes)
{
    uint32_t nodes[NUMA_PARTS], n = s->n_numa;
    r->numa.plan = (struct numa_plan){0};
    memcpy(nodes, s->numa_nodes, sizeof nodes);
    if (s->numa == NUMA_AUTO)
        n = numa_allowed(nodes, NUMA_PARTS);
    if (n > 0 && (s->numa == NUMA_LIST || n > 1 || s->numa_strict))
        numa_cut(&r->numa.plan, nodes, n, bytes);
}

/* Neighbours on one node are one place; of a node's places that others lie between, the first is preferred. */
static void add_place(struct region *r, uint32_t node, const struct numa_part *p)
{
    uint32_t unit = (uint32_t)(p->from / UNIT_BYTES), units = (uint32_t)((p->to - p->from) / UNIT_BYTES);
    if (r->numa.n_places > 0 && r->numa.place_node[r->numa.n_places - 1] == node) {
        r->numa.places[r->numa.n_places - 1].units += units;
        return;
    }
    r->numa.place_node[r->numa.n_places] = node;
    r->numa.places[r->numa.n_places++] = (struct slabs_place){unit, units};
}

static void find_places(struct region *r)
{
    uint32_t node;
    r->numa.n_places = 0;
    for (uint32_t i = 0; i < r->numa.plan.n; i++)
        if (numa_mostly(&r->numa.plan, i, &node))
            add_place(r, node, &r->numa.plan.part[i]);
    if (r->numa.n_places < 2)
        r->numa.n_places = 0;
    for (uint32_t i = r->numa.n_places; i-- > 0;)
        numa_cpus(r->numa.place_node[i], r->numa.place_of_cpu, (uint8_t)(i + 1));
}

int region_numa_found(struct region *r, const struct settings *s, char *why, size_t why_size)
{
    numa_note(&r->numa.plan, r->numa.note, sizeof r->numa.note);
    find_places(r);
    if (!s->numa_strict || (r->numa.plan.n > 0 && numa_settled(&r->numa.plan)))
        return 0;
    snprintf(why, why_size, "numa-strict: %s",
             r->numa.plan.n > 0 ? r->numa.note : "this machine's NUMA nodes are not known");
    return -EPERM;
}
