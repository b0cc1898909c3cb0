/* sim.c: the world and its scheduler: what happens next, and how much time passes, is drawn from the seed. */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t sim_random(struct sim *s)
{
    s->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = s->random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t sim_below(struct sim *s, uint32_t n)
{
    return (uint32_t)((sim_random(s) >> 32) * n >> 32);
}

bool sim_chance(struct sim *s, uint32_t one_in)
{
    return sim_below(s, one_in) == 0;
}

void sim_note(struct sim *s, const char *format, ...)
{
    char *line = s->event[s->n_events++ % SIM_EVENTS];
    int n = snprintf(line, sizeof s->event[0], "%llu %.6f ", (unsigned long long)s->step,
                     (double)(s->now.mono - s->began) / 1e9);
    va_list ap;
    va_start(ap, format);
    vsnprintf(line + n, sizeof s->event[0] - (size_t)n, format, ap);
    va_end(ap);
    for (const char *c = line; *c; c++) {
        s->digest = (s->digest ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    }
}

void sim_violation(struct sim *s, const char *format, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (s->violations++) {
        return; /* what follows the first is its consequence */
    }
    fprintf(stderr, "seed %llu, step %llu: %s; the last events:\n", (unsigned long long)s->seed,
            (unsigned long long)s->step, line);
    for (uint32_t i = s->n_events > SIM_EVENTS ? s->n_events - SIM_EVENTS : 0; i < s->n_events; i++) {
        fprintf(stderr, "  %s\n", s->event[i % SIM_EVENTS]);
    }
}

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return p;
}

static int any_size(void *env, uint32_t n)
{
    (void)env;
    (void)n;
    return 0;
}

static void make_names(struct sim *s)
{
    static const char *const name[2] = {"replaceable", "kept"};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(s->names[i].name, sizeof s->names[i].name, "%s", name[i]);
        s->names[i].replaceable = i == 0;
    }
}

static void make_keys(struct sim *s)
{
    for (uint32_t i = 0; i < s->keys; i++) {
        struct key *k = &s->key[i];
        uint32_t kind = sim_below(s, 8);
        k->size = kind == 0 ? 71 + sim_below(s, KEY_MAX - 70) : kind == 1 ? KEY_INLINE : 3 + sim_below(s, 40);
        const char *name = i % 4 == 0 ? "" : s->names[i % 4 == 1].name; /* names[0] is replaceable */
        k->ns = node_namespace_id(name, strlen(name));
        k->replaceable = i % 4 > 1;
        for (uint32_t b = 0; b < k->size; b++) {
            k->data[b] = (uint8_t)sim_random(s);
        }
        k->data[0] = (uint8_t)i;
        k->hash = lookup_hash(s->super.hash_seed, (struct key_ref){.data = k->data, .size = k->size, .ns = k->ns});
        k->put = k->gone = SIM_NONE;
    }
}

static void make_region(struct sim *s)
{
    uint32_t units = s->big ? 12 : s->roomy ? 16 : 2 + sim_below(s, 4);
    uint64_t pool = (uint64_t)units * UNIT_BYTES;
    uint32_t headers = units * UNIT_PAGES;
    s->super = (struct slots_super){.pool_bytes = pool,
                                    .mr_bytes = 1u << 30,
                                    .n_units = units,
                                    .max_headers = headers,
                                    .hash_seed = sim_random(s),
                                    .region_id = 7};
    s->headers = memory(headers * sizeof *s->headers);
    s->slabs = memory(units * sizeof *s->slabs);
    /* Small, so that keys find no room in it now and then. */
    uint64_t bytes = s->lookup_size = lookup_bytes(s->crowded ? 1 : sim_chance(s, 2) ? 8 : headers);
    s->lookup_map = memory(bytes);
    lookup_format(s->lookup_map, bytes, s->super.uuid, s->super.hash_seed);
    if (lookup_attach(&s->lookup, s->lookup_map, bytes)) {
        sim_violation(s, "a lookup that was just made can't be attached");
    }
    s->tails = memory(SIM_TAILS * TAIL_CELL);
    s->lookup.headers = s->headers;
    s->lookup.n_headers = headers;
    s->lookup.tails = s->tails;
    s->lookup.n_tails = SIM_TAILS;
    s->pool = memory(pool);
    s->newest = memory(headers * sizeof *s->newest);
    memset(s->newest, 0xff, headers * sizeof *s->newest);
}

static void make_config(struct sim *s)
{
    uint64_t pool = s->super.pool_bytes, high = s->roomy ? pool : pool / (1 + sim_below(s, 8));
    s->config = (struct node_config){.super = &s->super,
                                     .headers = s->headers,
                                     .dir = s->slabs,
                                     .lookup = &s->lookup,
                                     .tails = s->tails,
                                     .n_tails = SIM_TAILS,
                                     .grow_headers = any_size,
                                     .grow_tails = any_size,
                                     .env = s,
                                     .index = &lmdb_ops,
                                     .high_bytes = high,
                                     .low_bytes = high - high / 8,
                                     .policy = "pwl",
                                     .quarantine_ns = (1 + sim_below(s, 100)) * 10 * MS,
                                     .draft_quota = pool / (1 + sim_below(s, 4)),
                                     .namespaces = s->names,
                                     .n_namespaces = 2,
                                     .first = true};
}

int sim_open(struct sim *s, uint64_t seed, enum mutation mutation)
{
    memset(s, 0, sizeof *s);
    s->seed = s->random = seed;
    s->mutation = mutation;
    s->now =
        (struct node_now){.mono = 1000 * MS, .boot = 5000 * MS, .raw = 300 * MS, .wall_us = UINT64_C(1700000000000000)};
    s->began = s->now.mono;
    s->next_session = s->lives = 1;
    s->fault_rate = 40u << sim_below(s, 6);
    s->crowded = sim_chance(s, 6);
    s->keys = s->crowded ? SIM_KEYS : 8 + sim_below(s, 32);
    s->roomy = s->crowded || sim_chance(s, 3);
    s->big = !s->roomy && sim_chance(s, 4);
    s->map_bytes = sim_chance(s, 8) ? LMDB_MAP_MIN : 4u << 20;
    snprintf(s->dir, sizeof s->dir, "/dev/shm/berth-sim-XXXXXX");
    if (!mkdtemp(s->dir)) {
        return -errno;
    }
    make_region(s);
    make_names(s);
    make_keys(s);
    make_config(s);
    peers_begin(s);
    int e = shell_start(s);
    for (uint32_t i = 0; i < SIM_CLIENTS && e == 0; i++) {
        client_start(s, i);
    }
    return e;
}

void sim_close(struct sim *s)
{
    shell_close(s);
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        client_forget(s, i);
    }
    char path[128];
    static const char *const file[] = {"data.mdb", "lock.mdb"};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", s->dir, file[i]);
        unlink(path);
    }
    rmdir(s->dir);
    munmap(s->headers, s->super.max_headers * sizeof *s->headers);
    munmap(s->slabs, s->super.n_units * sizeof *s->slabs);
    munmap(s->lookup_map, s->lookup_size);
    munmap(s->tails, SIM_TAILS * TAIL_CELL);
    munmap(s->pool, s->super.pool_bytes);
    munmap(s->newest, s->super.max_headers * sizeof *s->newest);
    free(s->puts);
    free(s->scan_slots);
    free(s->scan_bits);
}

static void pass_time(struct sim *s, int64_t ns)
{
    s->now.mono += ns;
    s->now.boot += ns;
    int64_t raw = ns + ns * s->raw_ppm / 1000000;
    s->now.raw += s->mutation == MUTATE_RAW ? 2 * raw : raw;
    s->now.wall_us += (uint64_t)ns / 1000;
}

/* Mostly microseconds; now and then long enough for timers, quarantines and holds. */
static void draw_time(struct sim *s)
{
    uint32_t kind = sim_below(s, 1000);
    pass_time(s, kind == 0 ? sim_below(s, 1000) * MS : kind < 20 ? sim_below(s, 20) * MS : sim_below(s, 20000));
}

void sim_run(struct sim *s, uint64_t steps)
{
    for (uint64_t i = 0; i < steps && s->violations == 0; i++) {
        s->step++;
        draw_time(s);
        uint32_t kind = sim_below(s, 100);
        if (kind < 60) {
            client_step(s, sim_below(s, SIM_CLIENTS));
        } else if (kind < 70) {
            peer_step(s, sim_below(s, SIM_PEERS));
        } else {
            shell_step(s);
        }
        if (sim_chance(s, s->fault_rate)) {
            fault_step(s);
        }
        check_step(s);
        if (s->step % 500 == 0) {
            shell_settle(s);
            check_rest(s);
        }
    }
    if (s->violations == 0) {
        fault_finish(s);
    }
}
