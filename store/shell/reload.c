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

/* Its text is the same: an `auto`, a percentage or a default that follows from another setting. */
static bool follows(const struct settings *a, const struct settings *b, unsigned i)
{
    return strcmp(a->source[i].text, b->source[i].text) == 0;
}

enum fixed { OF_REGION, OWN, FOLLOWS };

static enum fixed fixed_kind(const struct settings *old, const struct settings *fresh, unsigned i)
{
    if (follows(old, fresh, i))
        return FOLLOWS;
    return way_out(i) == restart ? OWN : OF_REGION;
}

static int check_settings(const struct settings *old, const struct settings *fresh, enum fixed kind, char *why,
                          size_t why_size)
{
    char now[VALUE_MAX], then[VALUE_MAX];
    for (unsigned i = 0; i < SETTINGS; i++) {
        bool elsewhere = i == SET_REPLACEABLE || i == SET_SHARE; /* with the other namespaces */
        if (can_change[i] || elsewhere || fixed_kind(old, fresh, i) != kind || !differs(old, fresh, i, now, then))
            continue;
        snprintf(why, why_size, "%s can't change from %s to %s %s", settings_table[i].name, then, now, way_out(i));
        return -EINVAL;
    }
    return 0;
}

static int check_lists(const struct settings *old, const struct settings *fresh, char *why, size_t why_size)
{
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

/* All that can't change is as it was: a reload is done whole or not at all. What is said is what somebody changed, and
 * not what follows from it. */
static int check_fixed(const struct settings *old, const struct settings *fresh, char *why, size_t why_size)
{
    int e = check_settings(old, fresh, OF_REGION, why, why_size);
    e = e ? e : check_settings(old, fresh, OWN, why, why_size);
    e = e ? e : check_lists(old, fresh, why, why_size);
    return e ? e : check_settings(old, fresh, FOLLOWS, why, why_size);
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
