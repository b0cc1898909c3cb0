/* peers_home_report.c: what is said of the home's table and of this node's publications. */
#include "store/shell/peers_home_internal.h"

#include <inttypes.h>

struct figure {
    const char *name, *type, *help; /* help NULL: not among the metrics */
    uint64_t value;
};

#define FIGURES 29u

static unsigned figures(const struct peers *p, struct figure out[FIGURES])
{
    const struct home_part *h = p->home;
    struct home_stat t;
    struct publish_stat o;
    home_stat(h->home, &t);
    publish_stat(h->publish, &o);
    const struct figure all[] = {
        {"entries", "gauge", "Keys that this home knows.", t.entries},
        {"bytes", "gauge", "Bytes of the home's entries.", t.bytes},
        {"room_entries", "gauge", "Keys that this home has room for.", t.room_entries},
        {"room_bytes", "gauge", "Bytes of entries that this home has room for.", t.room_bytes},
        {"locations", "gauge", "Places of objects that this home knows, those included that ended.", t.locations},
        {"missing", "gauge", "Members that have not yet told this home all that they have.", t.missing},
        {"full", "counter", "Publications of others that this home had no room for.", t.refused},
        {"superseded", "counter", "Publications of others below a newer version or a removal.", t.superseded},
        {"repeated", NULL, NULL, t.repeated},
        {"batches_in", "counter", "Batches of publications that were taken.", h->sums.batches},
        {"batches_stale", NULL, NULL, h->sums.stale},
        {"asked", "counter", "Keys that other nodes asked this home for.", h->sums.asked},
        {"found", "counter", "Of these, those that somebody has.", h->sums.found},
        {"absent", "counter", "Of these, those that nobody has.", h->sums.absent},
        {"learning", "counter", "Of these, those that this home could not say.", h->sums.learning},
        {"leased", "counter", "Answers that brought a lease of this node.", h->sums.leased},
        {"told", "counter", "Changes that this node had to publish.", o.told},
        {"published", "counter", "Of these, those that all homes of the key acknowledged at once.", o.published},
        {"queued", "gauge", "Publications that wait for a home.", o.queued},
        {"current", "gauge", "Members that have been told all that this node has.", o.current},
        {"own_superseded", "counter", "Publications of this node that a home answered SUPERSEDED.", o.superseded},
        {"own_full", "counter", "Publications of this node that a home had no room for.", o.refused},
        {"drops", "counter", "Answers of homes for which a copy was given up.", h->sums.dropped},
        {"removed", "counter", "Copies given up for a removal that came to this home.", h->sums.removed},
        {"puts_lost", "counter", "Of both, copies that had been put here.", h->sums.lost},
        {"taken", "counter", "Answers of homes for which a version was to take a greater counter.", h->sums.taken},
        {"renewed", "counter", "Objects that homes were told of again.", h->sums.renewed},
        {"held", "gauge", "1: this node was away for long, and homes have not confirmed what it has.",
         h->confirm != NULL},
        {"passes", NULL, NULL, o.passes},
    };
    _Static_assert(sizeof all / sizeof *all == FIGURES, "all of them have a place");
    for (unsigned i = 0; i < FIGURES; i++)
        out[i] = all[i];
    return FIGURES;
}

json_t *home_part_report(const struct peers *p)
{
    if (!p || !p->home)
        return json_null();
    struct figure f[FIGURES];
    json_t *o = json_object();
    unsigned n = figures(p, f);
    for (unsigned i = 0; i < n; i++)
        json_object_set_new(o, f[i].name, json_integer((json_int_t)(f[i].value & INT64_MAX)));
    return o;
}

void home_part_metrics(const struct peers *p, FILE *file)
{
    struct figure f[FIGURES];
    unsigned n = p->home ? figures(p, f) : 0;
    for (unsigned i = 0; i < n; i++) {
        bool sums = f[i].help && f[i].type[0] == 'c';
        if (f[i].help)
            fprintf(file, "# HELP berth_home_%s%s %s\n# TYPE berth_home_%s%s %s\nberth_home_%s%s %" PRIu64 "\n",
                    f[i].name, sums ? "_total" : "", f[i].help, f[i].name, sums ? "_total" : "", f[i].type, f[i].name,
                    sums ? "_total" : "", f[i].value);
    }
}
