/* reload.c: see reload.h. */
#include "store/shell/reload.h"

#include "store/shell/dispatch.h"
#include "store/shell/log.h"
#include "store/shell/loop.h"
#include "store/shell/settings_value.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VALUE_MAX 1024u /* a list of classes at its longest */

static const bool can_change[SETTINGS] = {
    [SET_HIGH] = true,       [SET_LOW] = true,  [SET_DRAFT_QUOTA] = true, [SET_PIN_QUOTA] = true,
    [SET_QUARANTINE] = true, [SET_SPIN] = true, [SET_LOG_LEVEL] = true,   [SET_LOG_FORMAT] = true,
};

static bool differs(const struct settings *a, const struct settings *b, unsigned i, char *now, char *then)
{
    settings_value(a, i, then, VALUE_MAX);
    settings_value(b, i, now, VALUE_MAX);
    return strcmp(now, then) != 0;
}

static bool same_namespaces(const struct settings *a, const struct settings *b)
{
    return a->n_namespaces == b->n_namespaces &&
           memcmp(a->namespaces, b->namespaces, a->n_namespaces * sizeof a->namespaces[0]) == 0;
}

static const char restart[] = "while the node runs: restart it, or set it back";

static const char *way_out(unsigned i)
{
    if (i == SET_MR_SIZE || i == SET_MAX_OBJECTS)
        return "in a region that is there, not by a restart either: set it back, or start the node over another region";
    return restart;
}

/* All that can't change is as it was: a reload is done whole or not at all. */
static int check_fixed(const struct settings *old, const struct settings *fresh, char *why, size_t why_size)
{
    char now[VALUE_MAX], then[VALUE_MAX];
    for (unsigned n = 0; n < 2 * SETTINGS; n++) {
        unsigned i = n % SETTINGS;
        bool below = i == SET_REPLACEABLE || i == SET_SHARE || /* with the other namespaces */
                     (n < SETTINGS && way_out(i) == restart);  /* may follow from one that is told first */
        if (can_change[i] || below || !differs(old, fresh, i, now, then))
            continue;
        snprintf(why, why_size, "%s can't change from %s to %s %s", settings_table[i].name, then, now, way_out(i));
        return -EINVAL;
    }
    if (old->n_peers != fresh->n_peers || memcmp(old->peers, fresh->peers, old->n_peers * sizeof old->peers[0]) != 0) {
        snprintf(why, why_size, "peers can't change while the node runs: restart it, or set them back");
        return -EINVAL;
    }
    if (!same_namespaces(old, fresh)) {
        snprintf(why, why_size, "namespaces can't change while the node runs: restart it, or set them back");
        return -EINVAL;
    }
    return 0;
}

static int say_changes(const struct settings *old, const struct settings *fresh)
{
    char now[VALUE_MAX], then[VALUE_MAX];
    int changed = 0;
    for (unsigned i = 0; i < SETTINGS; i++) {
        if (!differs(old, fresh, i, now, then))
            continue;
        log_event(LOG_INFO, "%s is %s from now on, it was %s", settings_table[i].name, now, then);
        changed++;
    }
    return changed;
}

int server_reload(struct server *s, const struct settings *fresh, char *why, size_t why_size)
{
    int e = check_fixed(&s->settings, fresh, why, why_size);
    if (e != 0)
        return e;
    int changed = say_changes(&s->settings, fresh);
    const struct mem_progress *progress = s->settings.progress;
    bool embedded = s->settings.embedded;
    s->settings = *fresh;
    s->settings.progress = progress;
    s->settings.embedded = embedded;
    log_set_level((enum log_level)fresh->log_level);
    log_set_format((enum log_format)fresh->log_format);
    loop_spin(s);
    const struct node_limits limits = {
        .high_bytes = fresh->high,
        .low_bytes = fresh->low,
        .draft_quota = fresh->draft_quota,
        .pin_quota = fresh->pin_quota,
        .quarantine_ns = fresh->quarantine_ns,
    };
    dispatch(s, &(struct node_event){.kind = EV_LIMITS, .limits = &limits});
    return changed;
}
