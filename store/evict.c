/* evict.c: policies by name. */
#include "store/evict.h"

#include <string.h>

static const struct evict_policy *const policies[] = {&evict_lru, &evict_pwl};

const struct evict_policy *evict_find(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}
