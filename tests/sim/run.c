/* run.c: seeds, one world each, and one line of JSON. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct totals {
    uint64_t seeds, steps, operations, reads, faults[FAULTS], violations, digest, counters[NODE_COUNTERS];
    double seconds;
};

struct options {
    uint64_t seeds, from, steps;
    enum mutation broken;
    bool json;
};

static void add(struct totals *t, const struct sim *s)
{
    t->seeds++;
    t->steps += s->step;
    t->operations += s->operations;
    t->reads += s->reads;
    t->violations += s->violations != 0;
    t->seconds += (double)(s->now.mono - s->began) / 1e9;
    t->digest = (t->digest ^ s->digest) * UINT64_C(0x100000001b3);
    for (unsigned i = 0; i < FAULTS; i++) {
        t->faults[i] += s->faults[i];
    }
    for (unsigned i = 0; i < NODE_COUNTERS; i++) {
        t->counters[i] += s->counters[i];
    }
}

static void print_json(const struct totals *t, uint64_t from)
{
    printf("{\"schema\":1,\"seeds\":%llu,\"from\":%llu,\"steps\":%llu,\"simulated_seconds\":%.3f,\"operations\":%llu,"
           "\"reads\":%llu,\"faults\":{",
           (unsigned long long)t->seeds, (unsigned long long)from, (unsigned long long)t->steps, t->seconds,
           (unsigned long long)t->operations, (unsigned long long)t->reads);
    for (unsigned i = 0; i < FAULTS; i++) {
        printf("%s\"%s\":%llu", i ? "," : "", fault_names[i], (unsigned long long)t->faults[i]);
    }
    printf("},\"node\":{");
    for (unsigned i = 0; i < NODE_COUNTERS; i++) {
        printf("%s\"%s\":%llu", i ? "," : "", node_counter_names[i], (unsigned long long)t->counters[i]);
    }
    printf("},\"violations\":%llu,\"digest\":\"%016llx\"}\n", (unsigned long long)t->violations,
           (unsigned long long)t->digest);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: tests/sim/run [--seeds N] [--from SEED] [--steps K] [--break WHAT] [--json]\n"
            "  --break  the shell around the core lies: scan, commit, quarantine, adopt, again, horizon, serve, raw\n");
    return 2;
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    if (!text || *text < '0' || *text > '9') {
        return false;
    }
    *out = strtoull(text, &end, 10);
    return *end == '\0';
}

static bool mutation(const char *text, enum mutation *out)
{
    for (unsigned i = 0; text && i < MUTATIONS; i++) {
        if (strcmp(text, mutation_names[i]) == 0) {
            *out = (enum mutation)i;
            return true;
        }
    }
    return false;
}

/* One option; how many arguments it took, 0 if it is none. */
static int option(char **argv, int left, struct options *o)
{
    const char *value = left > 1 ? argv[1] : NULL;
    if (strcmp(argv[0], "--json") == 0) {
        o->json = true;
        return 1;
    }
    bool ok = strcmp(argv[0], "--seeds") == 0   ? number(value, &o->seeds)
              : strcmp(argv[0], "--from") == 0  ? number(value, &o->from)
              : strcmp(argv[0], "--steps") == 0 ? number(value, &o->steps)
              : strcmp(argv[0], "--break") == 0 ? mutation(value, &o->broken)
                                                : false;
    return ok ? 2 : 0;
}

static void run_seed(struct totals *t, uint64_t seed, const struct options *o)
{
    static struct sim sim;
    int e = sim_open(&sim, seed, o->broken);
    if (e) {
        sim_violation(&sim, "the world can't be made: %s", strerror(-e));
    } else {
        sim_run(&sim, o->steps);
    }
    sim_close(&sim);
    add(t, &sim);
}

int main(int argc, char **argv)
{
    struct options o = {.seeds = 100, .from = 1, .steps = 4000, .broken = MUTATE_NOTHING};
    for (int i = 1; i < argc;) {
        int taken = option(&argv[i], argc - i, &o);
        if (taken == 0) {
            return usage();
        }
        i += taken;
    }
    struct totals totals = {0};
    for (uint64_t seed = o.from; seed < o.from + o.seeds; seed++) {
        run_seed(&totals, seed, &o);
    }
    if (o.json) {
        print_json(&totals, o.from);
    } else {
        printf("%llu seeds, %llu steps, %llu operations, %.1f simulated seconds: %llu seeds with a violation\n",
               (unsigned long long)totals.seeds, (unsigned long long)totals.steps,
               (unsigned long long)totals.operations, totals.seconds, (unsigned long long)totals.violations);
    }
    return totals.violations ? 1 : 0;
}
