/* settings_numa.c: the NUMA nodes that a pool is spread over. */
#include "store/shell/settings_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_node(struct settings *s, char *piece)
{
    size_t digits = strspn(piece, "0123456789");
    if (digits == 0 || piece[digits] != '\0')
        return -EINVAL;
    unsigned long node = digits > 4 ? NUMA_NODE_MAX + 1 : strtoul(piece, NULL, 10);
    if (node > NUMA_NODE_MAX || s->n_numa == NUMA_PARTS)
        return -ERANGE;
    for (uint32_t i = 0; i < s->n_numa; i++)
        if (s->numa_nodes[i] == node)
            return -EINVAL;
    s->numa_nodes[s->n_numa++] = (uint32_t)node;
    return 0;
}

int parse_numa(struct settings *s, const char *text)
{
    s->n_numa = 0;
    s->numa = strcmp(text, "auto") == 0 ? NUMA_AUTO : strcmp(text, "off") == 0 ? NUMA_OFF : NUMA_LIST;
    if (s->numa != NUMA_LIST)
        return 0;
    return strcmp(text, "none") == 0 ? -EINVAL : parse_list(s, text, add_node);
}

void show_numa(const struct settings *s, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "%s", s->numa == NUMA_AUTO ? "auto" : "off");
    for (uint32_t i = 0; i < s->n_numa && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%u", i > 0 ? "," : "", s->numa_nodes[i]);
}

int finish_numa(const struct settings *s, char *why, size_t why_size)
{
    if (!s->numa_strict || (s->numa != NUMA_OFF && s->populate == POPULATE_ON))
        return 0;
    snprintf(why, why_size,
             "'numa-strict' is yes and '%s' off: where pages lie is seen when they are %s: set one of them "
             "otherwise",
             s->numa == NUMA_OFF ? "numa" : "populate", s->numa == NUMA_OFF ? "placed" : "populated");
    return -EINVAL;
}
