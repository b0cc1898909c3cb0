/* numa.c: mbind and move_pages, by number: libnuma would be one more library for three calls. */
#include "store/numa.h"

#include "store/amount.h"
#include "store/layout.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MASK_WORDS ((NUMA_NODE_MAX + 1) / (8 * sizeof(unsigned long)))
#define BATCH 512u     /* pages of one move_pages */
#define SLAB_UNITS 32u /* of the largest slab */

/* A slab is a power of two, aligned, and at most a sixteenth of the pool (slab.h). */
static uint64_t border_units(uint64_t units)
{
    uint64_t border = 1;
    while (border < SLAB_UNITS && border * 2 <= units / 16)
        border *= 2;
    return border;
}

void numa_cut(struct numa_plan *plan, const uint32_t *nodes, uint32_t n, uint64_t bytes)
{
    uint64_t units = bytes / UNIT_BYTES, border = border_units(units), at = 0;
    *plan = (struct numa_plan){.page_bytes = PAGE_BYTES};
    for (uint32_t i = 0; i < n && i < NUMA_PARTS; i++) {
        uint64_t to = i + 1 == n ? units : units * (i + 1) / n / border * border;
        if (to == at)
            continue;
        struct numa_part *p = &plan->part[plan->n++];
        p->node = nodes[i];
        p->from = at * UNIT_BYTES;
        p->to = to * UNIT_BYTES;
        at = to;
    }
}

/* Preferred and not bound: where the node runs out of memory a page elsewhere is slower; of a bound one the kernel ends
 * processes. Who wants no pages elsewhere has numa-strict, which looks at them. */
static int bind_part(const struct numa_part *p, void *base, unsigned flags)
{
    unsigned long mask[MASK_WORDS] = {0};
    if (p->node > NUMA_NODE_MAX)
        return -EINVAL;
    mask[p->node / (8 * sizeof *mask)] = 1ul << p->node % (8 * sizeof *mask);
    long e = syscall(SYS_mbind, (uint8_t *)base + p->from, p->to - p->from, MPOL_PREFERRED, mask, NUMA_NODE_MAX + 2ul,
                     flags);
    return e == 0 ? 0 : -errno;
}

void numa_bind(struct numa_plan *plan, void *base)
{
    for (uint32_t i = 0; i < plan->n; i++)
        plan->part[i].error = bind_part(&plan->part[i], base, 0);
}

/* ---- where they are ---- */

static uint32_t seen_index(struct numa_plan *plan, uint32_t node)
{
    uint32_t i = 0;
    while (i < plan->n_seen && plan->seen[i] != node)
        i++;
    if (i < plan->n_seen)
        return i;
    if (plan->n_seen == NUMA_SEEN)
        return NUMA_SEEN - 1;
    plan->seen[plan->n_seen++] = node;
    return i;
}

static void count_pages(struct numa_plan *plan, struct numa_part *p, const int *status, unsigned long n)
{
    p->looked += n;
    for (unsigned long i = 0; i < n; i++) {
        if (status[i] < 0) {
            p->absent++;
            continue;
        }
        uint32_t at = seen_index(plan, (uint32_t)status[i]);
        p->on[at]++;
        plan->pages[at]++;
    }
}

static int look_part(struct numa_plan *plan, struct numa_part *p, uint8_t *base)
{
    void *page[BATCH];
    int status[BATCH];
    for (uint64_t at = p->from; at < p->to;) {
        unsigned long n = 0;
        for (; n < BATCH && at < p->to; at += plan->page_bytes)
            page[n++] = base + at;
        if (syscall(SYS_move_pages, 0, n, page, NULL, status, 0) != 0)
            return -errno;
        count_pages(plan, p, status, n);
    }
    return 0;
}

/* "7f12a000 prefer:1 file=/dev/shm/.. N0=12 N1=500 kernelpagesize_kB=4": counts of the mappings of the pool. */
static void count_line(struct numa_plan *plan, const char *line)
{
    uint64_t kib = 4, pages;
    unsigned node;
    const char *size = strstr(line, "kernelpagesize_kB=");
    if (size != NULL)
        sscanf(size, "kernelpagesize_kB=%lu", &kib);
    for (const char *at = strstr(line, " N"); at != NULL; at = strstr(at + 1, " N"))
        if (sscanf(at, " N%u=%lu", &node, &pages) == 2)
            plan->pages[seen_index(plan, node)] += pages * kib * 1024 / plan->page_bytes;
}

static void look_in_proc(struct numa_plan *plan, const uint8_t *base)
{
    char line[4096];
    uint64_t from = (uintptr_t)base, to = from + plan->part[plan->n - 1].to, at;
    FILE *f = fopen("/proc/self/numa_maps", "re");
    if (f == NULL)
        return;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%lx ", &at) == 1 && at >= from && at < to)
            count_line(plan, line);
    fclose(f);
}

static void look_once(struct numa_plan *plan, uint8_t *base)
{
    plan->n_seen = 0;
    memset(plan->pages, 0, sizeof plan->pages);
    plan->look_error = 0;
    uint64_t pages = plan->part[plan->n - 1].to / PAGE_BYTES;
    /* Odd, so that not only the first page of every huge one is asked for. */
    plan->page_bytes = (pages <= NUMA_LOOKS ? 1 : (pages / NUMA_LOOKS) | 1) * PAGE_BYTES;
    for (uint32_t i = 0; i < plan->n && plan->look_error == 0; i++) {
        struct numa_part *p = &plan->part[i];
        p->looked = p->absent = 0;
        memset(p->on, 0, sizeof p->on);
        plan->look_error = look_part(plan, p, base);
    }
    plan->verified = plan->look_error == 0;
}

static uint64_t pages_right(const struct numa_plan *plan, const struct numa_part *p)
{
    for (uint32_t i = 0; i < plan->n_seen; i++)
        if (plan->seen[i] == p->node)
            return p->on[i];
    return 0;
}

/* Pages elsewhere. What is not there yet, or swapped out, is not wrong: it will come from where it was asked for. */
static uint64_t pages_wrong(const struct numa_plan *plan, const struct numa_part *p)
{
    return p->looked - p->absent - pages_right(plan, p);
}

void numa_look(struct numa_plan *plan, void *base, bool warm)
{
    if (plan->n == 0)
        return;
    look_once(plan, base);
    for (uint32_t i = 0; i < plan->n && warm && plan->verified; i++) {
        struct numa_part *p = &plan->part[i];
        if (p->error == 0 && pages_wrong(plan, p) > 0)
            plan->moved |= bind_part(p, base, MPOL_MF_MOVE) == 0;
    }
    if (plan->moved)
        look_once(plan, base);
    if (plan->verified)
        return;
    plan->n_seen = 0;
    memset(plan->pages, 0, sizeof plan->pages);
    look_in_proc(plan, base);
}

bool numa_mostly(const struct numa_plan *plan, uint32_t part, uint32_t *node)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->n_seen && plan->verified; i++) {
        if (plan->part[part].on[i] <= most)
            continue;
        most = plan->part[part].on[i];
        *node = plan->seen[i];
    }
    return most > 0;
}

bool numa_settled(const struct numa_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct numa_part *p = &plan->part[i];
        if (p->error != 0 || pages_wrong(plan, p) > 0)
            return false;
    }
    return plan->n == 0 || plan->verified;
}

/* ---- said ---- */

static size_t add(char *out, size_t size, size_t at, const char *text)
{
    int n = at < size ? snprintf(out + at, size - at, "%s", text) : 0;
    return at + (n > 0 ? (size_t)n : 0);
}

void numa_placed(const struct numa_plan *plan, char *out, size_t size)
{
    char text[AMOUNT_SIZE + 32], bytes[AMOUNT_SIZE];
    size_t at = 0;
    snprintf(out, size, "%s", plan->n_seen == 0 ? "not known" : "");
    for (uint32_t i = 0; i < plan->n_seen; i++) {
        snprintf(text, sizeof text, "%snode %u: %s", i > 0 ? ", " : "", plan->seen[i],
                 amount(plan->pages[i] * plan->page_bytes, bytes));
        at = add(out, size, at, text);
    }
}

static void list_failed(const struct numa_plan *plan, int error, char *out, size_t size)
{
    char text[16];
    size_t at = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        if (error != 0 && plan->part[i].error != error)
            continue;
        snprintf(text, sizeof text, "%s%u", at > 0 ? "," : "", plan->part[i].node);
        at = add(out, size, at, text);
    }
}

static const char *permission(int error)
{
    switch (error) {
    case -EPERM:
    case -EACCES:
        return "it is not permitted here: let the container's seccomp profile allow mbind and move_pages (many do with "
               "CAP_SYS_NICE)";
    case -EINVAL:
        return "this process may use no memory of such a node (its machine, or its cpuset, has none)";
    case -ENOSYS:
        return "this kernel has no NUMA";
    default:
        return "no permission is missing";
    }
}

static void note_error(const struct numa_plan *plan, const char *call, int error, char *out, size_t size)
{
    char nodes[100], placed[300];
    list_failed(plan, strcmp(call, "mbind") == 0 ? error : 0, nodes, sizeof nodes);
    numa_placed(plan, placed, sizeof placed);
    snprintf(out, size,
             "NUMA node %s: %s failed: %s (errno %d): %s; the pool's pages lie as the kernel has put them: %s", nodes,
             call, strerror(-error), -error, permission(error), placed);
}

static void note_pages(const struct numa_plan *plan, const struct numa_part *p, char *out, size_t size)
{
    char wrong[AMOUNT_SIZE], all[AMOUNT_SIZE], placed[300];
    numa_placed(plan, placed, sizeof placed);
    snprintf(
        out, size,
        "NUMA node %u: %s of %s are elsewhere: it had no more free memory, or they are an earlier start's that can't "
        "be moved; the pool's pages lie so: %s",
        p->node, amount(pages_wrong(plan, p) * plan->page_bytes, wrong), amount(p->to - p->from, all), placed);
}

void numa_note(const struct numa_plan *plan, char *out, size_t size)
{
    out[0] = '\0';
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->part[i].error != 0) {
            note_error(plan, "mbind", plan->part[i].error, out, size);
            return;
        }
    if (plan->look_error != 0) {
        note_error(plan, "move_pages", plan->look_error, out, size);
        return;
    }
    for (uint32_t i = 0; i < plan->n; i++)
        if (pages_wrong(plan, &plan->part[i]) > 0) {
            note_pages(plan, &plan->part[i], out, size);
            return;
        }
}
