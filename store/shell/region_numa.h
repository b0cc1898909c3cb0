/* region_numa.h: a region's pool on the NUMA nodes that the settings name. */
#ifndef BERTH_SHELL_REGION_NUMA_H
#define BERTH_SHELL_REGION_NUMA_H

#include "store/shell/region.h"

/* Makes r->numa.plan for the pool. `auto`: all nodes whose memory this process may use; where there is one only,
 * nothing is asked for, unless it has to be so (numa-strict). */
void region_numa_plan(struct region *r, const struct settings *s, uint64_t bytes);

/* After the pool was reserved: r->numa.note, and the places and CPUs that the node core is told, by where the pages
 * are. 0; -EPERM with a sentence: numa-strict, and they are not where they should be, or that can't be known. */
int region_numa_found(struct region *r, const struct settings *s, char *why, size_t why_size);

#endif
