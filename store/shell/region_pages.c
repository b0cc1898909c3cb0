/* region_pages.c: see region_pages.h. */
#include "store/shell/region_pages.h"

#include "store/amount.h"
#include "store/map.h"
#include "store/shell/log.h"
#include "store/shell/pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Only whole ones count, and only of what has memory: a file's last part lies on small pages in any case. */
static void look(struct region_part_pages *out, const void *base, uint64_t bytes)
{
    uint64_t huge;
    *out = (struct region_part_pages){.bytes = bytes / HUGE_BYTES * HUGE_BYTES};
    if (out->bytes == 0)
        return;
    out->unknown = pages_huge(base, bytes, &huge) != 0;
    out->huge_bytes = out->unknown ? 0 : huge < out->bytes ? huge : out->bytes;
}

static uint64_t headers_end(const struct region *r)
{
    uint64_t end = r->super->headers_offset + (uint64_t)r->headers_ready * sizeof(struct slot_header);
    return end < r->slots_bytes ? end : r->slots_bytes;
}

static void add(char *text, size_t size, const char *name, const struct region_part_pages *p)
{
    char has[AMOUNT_SIZE], all[AMOUNT_SIZE];
    size_t n = strlen(text);
    if (p->bytes == 0)
        return;
    if (p->huge_bytes == p->bytes)
        snprintf(text + n, size - n, "%s%s %s", n > 0 ? ", " : "", name, amount(p->bytes, all));
    else
        snprintf(text + n, size - n, "%s%s %s of %s", n > 0 ? ", " : "", name, amount(p->huge_bytes, has),
                 amount(p->bytes, all));
}

/* Figures of docs/operations.md, "Sizing". */
static void say(const struct region_pages *p, enum log_level level)
{
    char text[200] = "";
    add(text, sizeof text, "pool", &p->pool);
    add(text, sizeof text, "lookup", &p->lookup);
    add(text, sizeof text, "slots", &p->slots);
    bool all = p->pool.huge_bytes == p->pool.bytes && p->lookup.huge_bytes == p->lookup.bytes &&
               p->slots.huge_bytes == p->slots.bytes;
    if (text[0] == '\0')
        return;
    if (all)
        log_event(LOG_INFO, "on pages of 2 MiB: %s", text);
    else
        log_event(
            level,
            "on pages of 2 MiB: %s; the rest lies on pages of 4 KiB: what misses the caches takes about a third "
            "longer, copies a tenth, populating three times as long: give the kernel (6.1 on) whole pages to make "
            "them of, as by echo 1 > /proc/sys/vm/compact_memory, and start again",
            text);
}

void region_pages(struct region *r, const struct settings *s)
{
    struct region_pages *p = &r->pages;
    enum log_level level = s->embedded ? LOG_INFO : LOG_WARNING; /* an application may not be able to do anything */
    look(&p->pool, r->pool.base, s->populate == POPULATE_ON ? r->pool.bytes : 0);
    look(&p->lookup, r->lookup.super, r->lookup_bytes);
    look(&p->slots, r->super, headers_end(r));
    if (p->pool.unknown || p->lookup.unknown || p->slots.unknown)
        log_event(level, "on which pages the region lies is not known: '/proc/self/pagemap' and 'smaps' can't be read");
    else
        say(p, level);
}
