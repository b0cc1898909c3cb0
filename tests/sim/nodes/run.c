/* run.c: seeds, one world of several nodes each, and one line of JSON. */
#include "tests/sim/nodes/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct totals {
    uint64_t seeds, steps, operations, gets, misses, puts, removes, pulled, buffers, replicas, absent, unsure, refused;
    uint64_t faults[FAULTS], net[LOOP_FAULTS], kinds[WORLD_KINDS];
    uint64_t transfers, wrong, mismatches, late, stale, reached, messages, violations, digest;
    double seconds;
};

struct arguments {
    uint64_t seeds, from, stride;
    struct options o;
    bool json, first; /* first: no seed after one with a violation */
};

static void add(struct totals *t, const struct world *w)
{
    t->seeds++;
    t->steps += w->steps;
    t->operations += w->operations;
    t->gets += w->gets;
    t->misses += w->misses;
    t->puts += w->puts;
    t->removes += w->removes;
    t->pulled += w->pulled;
    t->buffers += w->buffers;
    t->replicas += w->replicas;
    t->absent += w->absent;
    t->unsure += w->unsure;
    t->refused += w->refused;
    t->transfers += w->transfers;
    t->wrong += w->wrong;
    t->mismatches += w->mismatches;
    t->late += w->late;
    t->stale += w->stale;
    t->reached += w->reached;
    t->messages += w->messages;
    t->violations += w->violations != 0;
    t->kinds[w->kind]++;
    t->seconds += (double)(w->now - w->began) / 1e9;
    t->digest = (t->digest ^ w->digest) * UINT64_C(0x100000001b3);
    for (unsigned i = 0; i < FAULTS; i++)
        t->faults[i] += w->faults[i];
    for (unsigned i = 0; i < LOOP_FAULTS; i++)
        t->net[i] += w->net_faults[i];
}

static void print_counts(const struct totals *t)
{
    const struct {
        const char *name;
        uint64_t n;
    } count[] = {{"steps", t->steps},
                 {"operations", t->operations},
                 {"gets", t->gets},
                 {"misses", t->misses},
                 {"puts", t->puts},
                 {"removes", t->removes},
                 {"pulled", t->pulled},
                 {"into_buffers", t->buffers},
                 {"replicas", t->replicas},
                 {"absent", t->absent},
                 {"unsure", t->unsure},
                 {"refused", t->refused},
                 {"messages", t->messages},
                 {"transfers", t->transfers},
                 {"wrong_transfers", t->wrong},
                 {"late", t->late},
                 {"mismatches", t->mismatches},
                 {"stale", t->stale},
                 {"wrong_reached", t->reached}};
    for (unsigned i = 0; i < sizeof count / sizeof count[0]; i++)
        printf("\"%s\":%llu,", count[i].name, (unsigned long long)count[i].n);
}

static void print_json(const struct totals *t, uint64_t from)
{
    printf("{\"schema\":1,\"seeds\":%llu,\"from\":%llu,\"simulated_seconds\":%.3f,", (unsigned long long)t->seeds,
           (unsigned long long)from, t->seconds);
    print_counts(t);
    printf("\"worlds\":{");
    for (unsigned i = 0; i < WORLD_KINDS; i++)
        printf("%s\"%s\":%llu", i ? "," : "", world_names[i], (unsigned long long)t->kinds[i]);
    printf("},\"faults\":{");
    for (unsigned i = 0; i < FAULTS; i++)
        printf("\"%s\":%llu,", fault_names[i], (unsigned long long)t->faults[i]);
    for (unsigned i = 0; i < LOOP_FAULTS; i++)
        printf("%s\"%s\":%llu", i ? "," : "", loop_fault_names[i], (unsigned long long)t->net[i]);
    printf("},\"violations\":%llu,\"digest\":\"%016llx\"}\n", (unsigned long long)t->violations,
           (unsigned long long)t->digest);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: tests/sim/nodes/run [--seeds N] [--from SEED] [--stride N] [--operations N] [--world KIND]\n"
            "                           [--trusting] [--break LIE] [--first] [--json] [--loud]\n"
            "  --stride      every Nth seed\n"
            "  --operations  of each world\n"
            "  --trusting    no transfer is verified and no clock checked: what would callers have got?\n"
            "  --first       end with the first seed that has a violation\n"
            "  --break       one rule is broken:");
    for (unsigned i = 1; i < LIES; i++)
        fprintf(stderr, " %s", lie_names[i]);
    fprintf(stderr, "\n  --world      ");
    for (unsigned i = 0; i < WORLD_KINDS; i++)
        fprintf(stderr, " %s", world_names[i]);
    fprintf(stderr, "\n$BERTH_SEED: that seed alone, with its last events\n");
    return 2;
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0';
}

static int named(const char *text, const char *const *names, int n)
{
    for (int i = 0; text && i < n; i++) {
        if (strcmp(text, names[i]) == 0)
            return i;
    }
    return -1;
}

static bool flag(const char *text, struct arguments *a)
{
    bool *to = strcmp(text, "--json") == 0       ? &a->json
               : strcmp(text, "--first") == 0    ? &a->first
               : strcmp(text, "--loud") == 0     ? &a->o.loud
               : strcmp(text, "--trusting") == 0 ? &a->o.trusting
                                                 : NULL;
    if (to)
        *to = true;
    return to != NULL;
}

/* How many arguments it took, 0 if it is none. */
static int option(char **argv, int left, struct arguments *a)
{
    const char *value = left > 1 ? argv[1] : NULL;
    if (flag(argv[0], a))
        return 1;
    if (strcmp(argv[0], "--break") == 0) {
        int lie = named(value, lie_names, LIES);
        a->o.lie = lie < 0 ? LIE_NOTHING : (enum lie)lie;
        return lie < 0 ? 0 : 2;
    }
    if (strcmp(argv[0], "--world") == 0) {
        a->o.only = named(value, world_names, WORLD_KINDS);
        return a->o.only < 0 ? 0 : 2;
    }
    bool ok = strcmp(argv[0], "--seeds") == 0        ? number(value, &a->seeds)
              : strcmp(argv[0], "--from") == 0       ? number(value, &a->from)
              : strcmp(argv[0], "--stride") == 0     ? number(value, &a->stride)
              : strcmp(argv[0], "--operations") == 0 ? number(value, &a->o.operations)
                                                     : false;
    return ok ? 2 : 0;
}

/* A violation is looked at again, with notes this time: that a seed repeats is what this program is for. */
static void run_seed(struct totals *t, uint64_t seed, const struct arguments *a)
{
    static struct world w;
    world_run(&w, seed, &a->o);
    add(t, &w);
    if (w.violations && !a->o.notes) {
        struct options again = a->o;
        uint64_t digest = w.digest;
        again.notes = true;
        world_run(&w, seed, &again);
        if (w.digest != digest)
            fprintf(stderr, "seed %llu was another run the second time\n", (unsigned long long)seed);
    }
}

int main(int argc, char **argv)
{
    struct arguments a = {.seeds = 20, .from = 1, .stride = 1, .o = {.operations = 20000, .only = -1}};
    const char *seed = getenv("BERTH_SEED");
    for (int i = 1; i < argc;) {
        int taken = option(&argv[i], argc - i, &a);
        if (taken == 0)
            return usage();
        i += taken;
    }
    if (seed && number(seed, &a.from))
        a.seeds = 1;
    a.o.notes = a.o.loud || (seed && *seed);
    struct totals totals = {0};
    for (uint64_t i = 0; i < a.seeds && !(a.first && totals.violations); i++)
        run_seed(&totals, a.from + i * a.stride, &a);
    if (a.json)
        print_json(&totals, a.from);
    else
        printf("%llu seeds from %llu, %llu operations, %.1f simulated seconds, %llu of %llu transfers brought wrong "
               "bytes, %llu of them reached a caller: %llu seeds with a violation\n",
               (unsigned long long)totals.seeds, (unsigned long long)a.from, (unsigned long long)totals.operations,
               totals.seconds, (unsigned long long)totals.wrong, (unsigned long long)totals.transfers,
               (unsigned long long)totals.reached, (unsigned long long)totals.violations);
    return totals.violations ? 1 : 0;
}
