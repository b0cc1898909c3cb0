/* run.c: seeds, one world each, and one line of JSON. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct totals {
    uint64_t seeds, steps, operations, reads, faults[FAULTS], violations, digest;
    double seconds;
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
    printf("},\"violations\":%llu,\"digest\":\"%016llx\"}\n", (unsigned long long)t->violations, (unsigned long long)t->digest);
}

static int usage(void)
{
    fprintf(stderr, "usage: tests/sim/run [--seeds N] [--from SEED] [--steps K] [--break WHAT] [--json]\n"
                    "  --break  the shell around the core lies: scan, commit, quarantine, adopt, again\n");
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

int main(int argc, char **argv)
{
    uint64_t seeds = 100, from = 1, steps = 4000;
    enum mutation broken = MUTATE_NOTHING;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool ok = strcmp(argv[i], "--seeds") == 0   ? number(value, &seeds)
                  : strcmp(argv[i], "--from") == 0  ? number(value, &from)
                  : strcmp(argv[i], "--steps") == 0 ? number(value, &steps)
                  : strcmp(argv[i], "--break") == 0 ? mutation(value, &broken)
                                                    : strcmp(argv[i], "--json") == 0 && (json = true, i--, true);
        if (!ok) {
            return usage();
        }
        i++;
    }
    static struct sim sim;
    struct totals totals = {0};
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        if (sim_open(&sim, seed, broken) == 0) {
            sim_run(&sim, steps);
        } else {
            sim.violations++;
        }
        add(&totals, &sim);
        sim_close(&sim);
    }
    if (json) {
        print_json(&totals, from);
    } else {
        printf("%llu seeds, %llu steps, %llu operations, %.1f simulated seconds: %llu seeds with a violation\n",
               (unsigned long long)totals.seeds, (unsigned long long)totals.steps, (unsigned long long)totals.operations,
               totals.seconds, (unsigned long long)totals.violations);
    }
    return totals.violations ? 1 : 0;
}
