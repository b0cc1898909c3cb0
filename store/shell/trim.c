#include "store/shell/trim.h"

#include "store/shell/state.h"

#include <malloc.h>

#define TRIM_KEEP (1u << 20) /* bytes that stay at the heap's end for the next ones */

void trim_freed(struct server *s)
{
    s->freed++;
}

void trim_tend(struct server *s)
{
    if (s->settings.embedded || s->freed < TRIM_AFTER)
        return;
    s->freed = 0;
    malloc_trim(TRIM_KEEP);
}
