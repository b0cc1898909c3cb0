/* numa_cpu.c: which nodes and CPUs there are, from /proc and /sys. */
#include "store/numa.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Marks the numbers of "0-3,8" below `most`; further ones are ignored. false: that is no list. */
static bool list_read(const char *text, bool *is, unsigned most)
{
    unsigned from, to;
    int n;
    while (sscanf(text, "%u%n", &from, &n) == 1) {
        text += n;
        to = from;
        if (*text == '-' && sscanf(text, "-%u%n", &to, &n) == 1)
            text += n;
        for (unsigned i = from; i <= to && i < most; i++)
            is[i] = true;
        if (*text != ',')
            return true;
        text++;
    }
    return false;
}

/* The list in the line of the file that begins with `name` (an empty one: the first). */
static bool list_in(const char *path, const char *name, bool *is, unsigned most)
{
    char line[8192];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, name, strlen(name)) == 0 &&
                list_read(line + strlen(name) + strspn(line + strlen(name), " \t"), is, most);
    fclose(f);
    return found;
}

uint32_t numa_allowed(uint32_t *nodes, uint32_t most)
{
    bool allowed[NUMA_NODE_MAX + 1] = {false}, memory[NUMA_NODE_MAX + 1] = {false};
    uint32_t n = 0;
    if (!list_in("/proc/self/status", "Mems_allowed_list:", allowed, NUMA_NODE_MAX + 1) ||
        !list_in("/sys/devices/system/node/has_memory", "", memory, NUMA_NODE_MAX + 1))
        return 0;
    for (uint32_t i = 0; i <= NUMA_NODE_MAX && n < most; i++)
        if (allowed[i] && memory[i])
            nodes[n++] = i;
    return n;
}

static bool cpus_of(uint32_t node, bool *is)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
    return list_in(path, "", is, NUMA_CPUS);
}

int numa_cpus(uint32_t node, uint8_t *cpu, uint8_t value)
{
    bool is[NUMA_CPUS] = {false};
    if (!cpus_of(node, is))
        return -ENOENT;
    for (unsigned i = 0; i < NUMA_CPUS; i++)
        if (is[i])
            cpu[i] = value;
    return 0;
}

void numa_run_on(struct numa_plan *plan, uint32_t p, const cpu_set_t *allowed)
{
    bool is[NUMA_CPUS] = {false}, any = false;
    cpu_set_t set;
    CPU_ZERO(&set);
    cpus_of(plan->part[p].node, is);
    for (unsigned i = 0; i < NUMA_CPUS && i < CPU_SETSIZE; i++)
        if (is[i] && CPU_ISSET(i, allowed)) {
            CPU_SET(i, &set);
            any = true;
        }
    if (any && sched_setaffinity(0, sizeof set, &set) == 0) {
        plan->part[p].threads++;
        return;
    }
    sched_setaffinity(0, sizeof *allowed, allowed);
    plan->part[p].elsewhere++;
}
