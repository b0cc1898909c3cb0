/* fleet.h: a few members with a home, a publisher and an index each, and a network that forgets, delays, repeats and
 * mixes up what it carries. For test_homes. */
#ifndef BERTH_TESTS_FLEET_H
#define BERTH_TESTS_FLEET_H

#include "replication/home.h"
#include "replication/publish.h"

#define MEMBERS 5u
#define KEYS 40u
#define LISTS 3u
#define MESSAGES 300u
#define RESEND INT64_C(1000000)
#define SMALL 24u /* entries of a home that is too small */

enum what { NOTHING, OBJECT, TOMBSTONE };

struct record {
    enum what what;
    struct object_version version;
    int64_t number; /* of publish_tell in this run of the owner; 0: listed only */
    bool published;
    bool taken;     /* its counter was taken already */
    uint32_t heard; /* TOMBSTONE: members that acknowledged it in this run, a bit each */
    bool known;     /* TOMBSTONE: all its homes did, once */
};

struct message {
    bool used, is_answer;
    uint16_t from, to;
    struct home_life from_life, to_life; /* of the processes that it goes between */
    struct publication batch;
    struct publication_answer answer;
    struct publication_entry *entries;
    struct publication_result *results;
};

struct node {
    struct home *home;
    struct publish *publish;
    struct home_life life;
    uint32_t list;
    uint64_t counter, settled;
    uint64_t skew; /* of its clock */
    bool linked[MEMBERS];
    bool listing; /* a step is to be answered */
    uint64_t pass;
    uint32_t cursor;
    struct record index[KEYS];   /* objects */
    struct record removed[KEYS]; /* tombstones: beside what was put since */
};

struct fleet {
    struct node node[MEMBERS];
    uint32_t n, k;
    bool small;    /* homes have no room for all */
    uint32_t calm; /* the greater, the less goes wrong */
    struct rendezvous *list[LISTS];
    uint32_t cluster; /* the newest list */
    int64_t now;
    uint64_t regions;
    struct message message[MESSAGES];
    struct object_version most[KEYS];    /* greatest ever given: object .. */
    struct object_version removed[KEYS]; /* .. and tombstone */
    uint64_t asked[4], unsure, published, taken, dropped, known, restarts, changes, lost, overflows, full;
};

extern struct fleet fleet;

bool fleet_replaceable(uint32_t key);
struct home_key fleet_key(uint32_t key);
uint64_t fleet_revision(const struct node *n);
/* The message is lost. */
void fleet_forget(struct message *m);
/* Once; with `keep` it stays to come again. */
void fleet_deliver(struct message *m, bool keep);
void fleet_tell(struct node *n, uint32_t key, uint8_t kind, struct object_version v, bool fresh, bool again);
struct record *fleet_record(struct node *n, uint32_t key, enum what what);
void fleet_write(struct node *n, uint32_t key, enum what what, struct object_version v);
void fleet_put(struct node *n, uint32_t key);
void fleet_evict(struct node *n, uint32_t key);
void fleet_erase(struct node *n, uint32_t key);
/* Answers an open PUBLISH_LIST with some keys. */
void fleet_list(struct node *n);
/* Carries up to most commands out, then sees what has become published. */
void fleet_commands(uint16_t member, uint32_t most);
/* a and b see each other's HELLO. */
void fleet_connect(uint16_t a, uint16_t b);
void fleet_cut(uint16_t a, uint16_t b);
/* The member takes over a list. */
void fleet_learn(uint16_t member, uint32_t list);
void fleet_start(uint16_t member);
void fleet_stop(uint16_t member);
/* The others see it when they connect again. A cold one has another region and nothing in it. */
void fleet_restart(uint16_t member, bool cold);

#endif
