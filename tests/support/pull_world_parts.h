/* pull_world_parts.h: what the world and its owners share. */
#ifndef BERTH_TESTS_PULL_WORLD_PARTS_H
#define BERTH_TESTS_PULL_WORLD_PARTS_H

#include "replication/timer.h"
#include "tests/support/pull_world.h"

#define MS INT64_C(1000000)
#define MEMBERS 4u /* 0 is the reader */
#define KEYS 16u
#define REPLACEABLE_FROM 12u
#define SLOTS 12u
#define LEASES 4096u
#define TTL (50 * MS)
#define FRESH (400 * MS)
#define PIECE 16384u
#define REQUEST_KEYS 8u
#define RHO_PPM 10000

enum happening_kind { AT_OWNER, AT_READER, FETCH, COMPLETE, LOCAL, OWNER_TURN, REQUEST, CANCEL, DOWN, UP, TICK };

struct wire { /* a command or event on its way */
    struct timer timer;
    enum happening_kind kind;
    uint16_t member;
    uint64_t epoch;
    struct pull_command c;
    struct pull_event ev;
    uint32_t n;
    uint8_t key[PULL_KEYS_MAX];
    struct pull_answer answer[REQUEST_KEYS * 4];
    struct pull_grant grant[REQUEST_KEYS * 4];
    uint16_t missing[MEMBERS];
    uint64_t sum;
    uint64_t released[64];
};

struct slot {
    bool used, retired;
    uint8_t key;
    uint32_t version;
    uint64_t generation, content;
};

struct owner_lease {
    uint64_t id, generation;
    uint32_t slot;
    int64_t end; /* owner's clock */
    bool over;
};

struct owner {
    bool up; /* as the reader may know it, from a delay on */
    uint64_t epoch, incarnation, next_lease;
    int64_t drift;
    struct slot slot[SLOTS];
    struct owner_lease lease[LEASES];
    uint8_t released[65536]; /* by lease id: how often the reader gave it back */
    uint32_t n_leases;
};

struct destination {
    uint8_t key;
    bool reserved; /* a slot: neither sealed nor given back */
    uint32_t flying;
    uint64_t sum[8];
    uint32_t pieces;
};

struct asked {
    bool done, cancelled, replica, verify, prefix;
    uint32_t n;
    int64_t deadline;
    uint8_t key[REQUEST_KEYS];
    uint64_t buffer[REQUEST_KEYS];
    uint64_t least[REQUEST_KEYS];   /* returned before .. */
    int64_t least_at[REQUEST_KEYS]; /* .. at this time */
};

struct world {
    const struct world_options *o;
    struct world_counts *count;
    struct puller *p;
    int64_t t; /* true time */
    int64_t drift;
    struct timers timers;
    uint32_t n_wires;
    struct owner owner[MEMBERS];
    uint32_t version[KEYS];
    struct destination *destination;
    uint64_t n_destinations;
    struct asked *asked;
    uint32_t n_asked;
    uint64_t returned[KEYS];
    int64_t returned_at[KEYS];
    bool stopped;
};

uint64_t world_content(uint32_t key, uint32_t version);
uint64_t world_size(uint32_t key);
struct reader_now world_now(const struct world *w);
int64_t world_owner_now(const struct world *w, const struct owner *o);
int64_t world_delay(void);
struct wire *world_wire(struct world *w, enum happening_kind kind, int64_t delay);
void owner_turn(struct world *w, struct owner *o); /* time passes there */
void owner_fill(struct world *w, struct slot *s, uint32_t key);
void owner_receives(struct world *w, const struct wire *in);

#endif
