/* sim.h: one node core and its clients under virtual time, drawn from a seed.
 *
 * The world is the memory of a region, a real LMDB index, and clients whose every step on shared memory (a probe of
 * lookup, the store of a pin, the load of a state word, a read of payload) is a step of the scheduler. What the node
 * answered is kept in a shadow model, and after every step world and model are compared (check.c).
 *
 * It can't see races inside one event of the core: those belong to the models, the stress and the crash tests.
 */
#ifndef BERTH_TESTS_SIM_H
#define BERTH_TESTS_SIM_H

#include "index/lmdb.h"
#include "index/lookup.h"
#include "store/berth.h"
#include "store/node.h"
#include "store/slot.h"

#define SIM_CLIENTS 6u
#define SIM_PEERS 4u
#define SIM_LEASES 4u /* of a peer */
#define SIM_TASKS 3u  /* threads of a client */
#define SIM_KEYS 96u  /* of them a world uses `keys` */
#define SIM_LABELS 2u
#define SIM_SEGMENT 12u /* pin entries that stand for a segment of PINS_SEGMENT */
#define SIM_ENTRIES (2 * SIM_SEGMENT)
#define SIM_GROUP 4u   /* most drafts of one seal */
#define SIM_OPEN 4096u /* most tokens that are open at once */
#define SIM_TAILS 4096u
#ifndef SIM_EVENTS
#define SIM_EVENTS 40u /* shown when something is wrong */
#endif
#define SIM_NONE UINT32_MAX
#define BLOCK_BYTES 256u /* of payload: each begins with who wrote it */
#define MS INT64_C(1000000)

enum fault {
    FAULT_KILL,
    FAULT_PAUSE,
    FAULT_SLOW,
    FAULT_CLOSE,
    FAULT_HANGUP,
    FAULT_COMMIT,
    FAULT_CRASH,
    FAULT_CRASH_COMMIT,
    FAULT_STOP,
    FAULT_FORGED,
    FAULT_LATE_WRITE,
    FAULTS
};
extern const char *const fault_names[FAULTS];

enum mutation {
    MUTATE_NOTHING,
    MUTATE_SCAN,
    MUTATE_COMMIT,
    MUTATE_QUARANTINE,
    MUTATE_ADOPT,
    MUTATE_AGAIN,
    MUTATE_HORIZON,
    MUTATE_SERVE,
    MUTATE_RAW,
    MUTATIONS
};
extern const char *const mutation_names[MUTATIONS];

enum put_state {
    PUT_OPEN,   /* its client may write it */
    PUT_ASKED,  /* seal, put or abort is on its way */
    PUT_SEALED, /* in the index */
    PUT_GONE,   /* was in the index */
    PUT_CLOSED  /* never was, and is its client's no more */
};

struct put { /* one token that the node gave out */
    enum put_state state;
    bool told;    /* its client knows it */
    bool written; /* every block is */
    bool draft;   /* from CREATE */
    bool doomed;  /* a draft that is older than a purge which was answered: it can't be sealed */
    bool asked;   /* a seal or put of it was sent, once at least */
    uint32_t slot, page, client, key, size;
    uint64_t gen, session, room;
    uint64_t version;
    uint64_t seal; /* request that seals it */
    uint64_t sealed_step, gone_step, gone_told_step;
    uint32_t older, gone_next; /* same slot before; list of its key */
};

struct key {
    uint8_t data[KEY_MAX];
    uint32_t size, ns;
    struct key_hash hash;
    bool replaceable;
    bool present;   /* in the index, as of the last commit */
    bool vanishing; /* out of the index, and the node has not heard of it yet */
    uint32_t put;
    struct record record;
    uint64_t appeared, vanished; /* steps; 0 never */
    uint64_t held, unheld;       /* steps at which the first hold came, the last one went */
    uint64_t label_came[SIM_LABELS], label_went[SIM_LABELS];
    bool removing, dropping[SIM_LABELS]; /* by a client that is gone: until the node is at rest */
    bool purging;                        /* a purge covers it: until the node is at rest */
    bool purged;                         /* one did */
    uint32_t gone;                       /* list of puts that no answer has confirmed as gone */
};

struct request {
    struct request *next;
    struct msg_head *message;
    uint64_t step; /* sent */
    uint32_t task;
    uint32_t key, label;
    uint32_t put[SIM_GROUP], n_puts;
    uint32_t n_before; /* PURGE: puts that there were when it was sent */
    bool delivered, again, forged;
    struct msg_reply *reply; /* answered, not yet taken by the client */
};

enum task_kind { TASK_NONE, TASK_READ, TASK_PUT, TASK_GROUP, TASK_KEY, TASK_LIST, TASK_FORGE, TASK_GROW, TASK_GIVE };

struct reading {
    uint32_t n, at, key[3], entry[3], put[3];
    bool same_group;
    uint32_t probe, way, tries, slot, looks;
    uint64_t start;
    uint32_t put_at_start[3];
};

struct task {
    enum task_kind kind;
    uint32_t state;
    struct reading read;
    uint32_t key, size, label, tries;
    uint32_t put[SIM_GROUP], n, want, at, block;
    uint64_t waits; /* id of a request, 0 none */
};

struct client {
    bool alive, attached, known, death_told, refuse; /* known: the node has its session */
    uint64_t session, next_id;
    int64_t paused_until, death_at, dead_until; /* death_at: when the node hears; dead_until: end of the quarantine */
    uint32_t slow;
    uint32_t acked;
    uint32_t pin[SIM_ENTRIES];   /* slot + 1 */
    uint32_t valid[SIM_ENTRIES]; /* put that the pin was validated for + 1 */
    struct request *requests, **end;
    uint32_t n_requests;
    struct task task[SIM_TASKS];
};

struct peer_lease { /* as its reader has it */
    bool used, serving;
    uint64_t id, gen, token;
    uint64_t life; /* of the connection to the node that gave it */
    uint32_t slot;
    int64_t deadline; /* the peer's clock */
};

enum peer_asked { PEER_IDLE, PEER_ASKED, PEER_DELIVERED, PEER_ANSWERED };

struct peer {
    bool connected;
    uint32_t connection;
    uint64_t incarnation;
    int64_t base; /* of its clock, and how fast it runs */
    int32_t rate_ppm;
    enum peer_asked asked;
    uint64_t request, tokens;
    int64_t t0, ttl;
    uint32_t key, renewing; /* SIM_LEASES: a new lease */
    uint64_t renewing_id;
    int32_t serve_status;
    struct peer_lease lease[SIM_LEASES + 1]; /* the last one: answered, not taken yet */
};

struct sim {
    uint64_t seed, random, step, digest;
    enum mutation mutation;
    struct node_now now;
    int64_t began;
    char dir[64];
    struct slots_super super;
    struct slot_header *headers;
    struct slab_entry *slabs;
    void *lookup_map;
    uint64_t lookup_size;
    struct lookup lookup;
    uint8_t *tails, *pool;
    struct lmdb_index *index;
    struct node_config config;
    struct node_namespace names[2];
    struct node *node; /* NULL while it is down */
    uint64_t map_bytes;
    bool roomy;   /* nothing has to be evicted */
    bool big;     /* objects above a slab */
    bool crowded; /* more keys than lookup has room for */
    uint32_t keys;

    struct batch *flying;
    bool applied;
    int32_t applied_status;
    bool scanning;
    uint32_t scan_id, *scan_slots, n_scan, scan_client;
    uint64_t *scan_bits;
    bool stopped, settling; /* settling: no commit is made to fail */
    uint32_t crash_in;      /* commands until the node dies; 0: it does not */
    bool changed;           /* an event of the core since the last whole check */
    uint64_t start_step;    /* of the node that runs */

    struct key key[SIM_KEYS];
    struct put *puts;
    uint32_t n_puts, puts_room;
    uint32_t *newest; /* by slot: put, or SIM_NONE */
    uint32_t open[SIM_OPEN], n_open;
    uint32_t top_slot;
    struct client client[SIM_CLIENTS];
    struct peer peer[SIM_PEERS];
    uint32_t connections;
    uint64_t lives; /* of nodes, from 1 */
    int32_t raw_ppm;
    uint64_t leases, renewals, serves;
    uint64_t next_session;

    uint32_t fault_rate; /* one in so many steps */
    uint64_t operations, reads, faults[FAULTS], violations, counters[NODE_COUNTERS];
    char event[SIM_EVENTS][160];
    uint32_t n_events;
};

/* sim.c: the world and its scheduler */
int sim_open(struct sim *s, uint64_t seed, enum mutation mutation);
void sim_close(struct sim *s);
void sim_run(struct sim *s, uint64_t steps);
uint64_t sim_random(struct sim *s);
uint32_t sim_below(struct sim *s, uint32_t n); /* 0 .. n - 1 */
bool sim_chance(struct sim *s, uint32_t one_in);
void sim_note(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_violation(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* shell.c: carries the core's commands out, each part of it a step */
void shell_event(struct sim *s, struct node_event ev);
bool shell_step(struct sim *s);   /* one thing that is due, drawn; false: nothing is */
void shell_settle(struct sim *s); /* until nothing is on its way */
int shell_start(struct sim *s);
void shell_crash(struct sim *s); /* as SIGKILL at this point */
void shell_close(struct sim *s);
void shell_attach(struct sim *s, uint32_t client);

/* client.c: what a client's threads do through the ring */
void client_start(struct sim *s, uint32_t client);
void client_step(struct sim *s, uint32_t client);
void client_forget(struct sim *s, uint32_t client); /* its process is gone */
void client_lost_ring(struct sim *s, uint32_t client);
struct request *client_request(struct client *c, uint64_t id);

/* message.c: requests */
struct request *send_grant(struct sim *s, uint32_t client, uint32_t task, uint32_t size, uint32_t count);
struct request *send_put(struct sim *s, uint32_t client, uint32_t task, uint32_t put);
struct request *send_create(struct sim *s, uint32_t client, uint32_t task, uint32_t key, uint32_t size);
struct request *send_tokens(struct sim *s, uint32_t client, uint32_t task, uint16_t op, const uint32_t *puts,
                            uint32_t n);
struct request *send_resume(struct sim *s, uint32_t client);
struct request *send_key(struct sim *s, uint32_t client, uint32_t task, uint16_t op, uint32_t key, uint32_t label);
struct request *send_purge(struct sim *s, uint32_t client, uint32_t task, uint32_t key);
struct request *send_list(struct sim *s, uint32_t client, uint32_t task, uint32_t ns);
struct request *send_grow(struct sim *s, uint32_t client, uint32_t task);

/* reader.c: the reads without a lock */
void reader_begin(struct sim *s, uint32_t client, uint32_t task);
void reader_step(struct sim *s, uint32_t client, uint32_t task);
void payload_write(struct sim *s, uint32_t put, uint32_t block);
uint32_t payload_blocks(uint32_t size);

/* peer.c */
void peers_begin(struct sim *s);
void peer_step(struct sim *s, uint32_t peer);
void peer_answer(struct sim *s, const struct node_command *k);
void peers_lost(struct sim *s); /* the node is gone */
void check_peers(struct sim *s);

/* faults.c */
void fault_step(struct sim *s);
void fault_finish(struct sim *s); /* everybody goes on */

/* shadow.c: what was promised, and whether it is kept */
uint32_t shadow_token(struct sim *s, uint32_t client, const struct msg_token *t, uint64_t room, bool draft);
void shadow_committed(struct sim *s);
void shadow_projected(struct sim *s);
void shadow_read(struct sim *s, uint32_t client, const struct reading *r, uint32_t i);
void shadow_miss(struct sim *s, uint32_t client, const struct reading *r);
uint32_t shadow_find(const struct sim *s, uint32_t slot, uint64_t gen); /* put or SIM_NONE */
void shadow_close(struct sim *s, uint32_t put);                         /* not in the index, and never will be */
void shadow_leave(struct sim *s, uint32_t put);

/* answers.c */
bool purge_has(const struct sim *s, const struct msg_purge *m, uint32_t key); /* covers it */
void shadow_reply(struct sim *s, uint32_t client, struct request *r, const struct msg_reply *reply);

/* check.c: after every step */
void check_step(struct sim *s);
void check_writers(struct sim *s);
void check_rest(struct sim *s);

#endif
