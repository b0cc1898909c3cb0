/* nodes.h: several whole nodes over the loop transport, under virtual time, drawn from a seed.
 *
 * Each node is what berthd runs between its clients and its sockets: the core (store/node.h), and store/shell/peers*.c
 * with homes, publication, puller, leases and the wire's codec, all as they are. What is put in their place: the clocks
 * (clock.c), the loop and commits (shell.c), the index (memory.c), and one client a node (client.c). Payload is small
 * and says what it is, so that a wrong byte is known (shadow.c). lies.c breaks one rule at a time.
 *
 * The peers' code asks for its surroundings by name: dispatch, server_clock, sessions_find, session_reply,
 * session_answer, watch_open, resolver_open and log_event are defined here and win over the library's; clock_gettime,
 * getrandom, pull_create and what lies.c breaks are wrapped by the linker (CMakeLists.txt).
 */
#ifndef BERTH_TESTS_SIM_NODES_H
#define BERTH_TESTS_SIM_NODES_H

#include "index/index.h"
#include "replication/loop.h"
#include "replication/pull.h"
#include "store/berth.h"
#include "store/shell/peers_home_internal.h"
#include "store/shell/peers_internal.h"
#include "store/shell/log.h"
#include "store/shell/peers_pull.h"
#include "store/shell/peers_serve_internal.h"
#include "store/shell/session.h"
#include "store/slot.h"

#define NODES 5u
#define KEYS 96u
#define OBJECT_MOST 1024u /* bytes */
#define UNITS 2u
#define PAGES (UNITS * UNIT_PAGES)
#define PAGE_USES 4u  /* remembered of a page */
#define CALLS 128u    /* of one client, not answered yet */
#define PULL_MOST 32u /* keys of one pull */
#define VIEWS 4u
#define TOKENS 8u
#define NOTES 48u
#define VERSIONS (1u << 16)
#define NONE UINT32_MAX
#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)

enum fault {
    FAULT_CRASH,
    FAULT_CRASH_COMMIT, /* after its commit was applied, before it hears of it */
    FAULT_STOP,
    FAULT_PAUSE,     /* its process is stopped; its clocks go on */
    FAULT_SUSPEND,   /* the host sleeps: RAW and MONOTONIC stop */
    FAULT_FREEZE,    /* a virtual machine is stopped: all clocks stop. Leases do not cover it */
    FAULT_DRIFT,     /* transfers by a reader whose clock runs slower than the owner's, within the margin */
    FAULT_BEYOND,    /* the same, beyond the margin. Leases do not cover it */
    FAULT_PREEMPTED, /* between two readings of clocks */
    FAULT_COMMIT,
    FAULT_CANCEL,   /* a caller gives a pull up */
    FAULT_STRANGER, /* somebody sends what is no protocol, or what others said */
    FAULTS
};
extern const char *const fault_names[FAULTS];

enum lie {
    LIE_NOTHING,
    LIE_MARGIN,     /* the owner keeps no margin and no grace, and 3 % less than it says */
    LIE_REUSE,      /* the owner forgets a lease as soon as it is given */
    LIE_HORIZON,    /* a start does not wait for the leases of the one before */
    LIE_CHECK,      /* no clock check after the last completion */
    LIE_VERIFY,     /* no checksum */
    LIE_GENERATION, /* the owner serves whatever is asked for */
    LIE_SERVE,      /* the owner thinks that the reader has it all at once */
    LIE_CLOCK,      /* the owner counts leases by a clock that is slewed */
    LIE_ASLEEP,     /* the reader does not count the time that its host slept */
    LIE_HOME,       /* a home acknowledges what it does not keep */
    LIE_OLD,        /* a home keeps the older version */
    LIE_ABSENT,     /* a home that is learning says that nobody has it */
    LIE_QUARANTINE, /* slots that a dead process was filling are used again at once: no quarantine and no horizon */
    LIE_QUIET,      /* a cancelled read goes on writing */
    LIES
};
extern const char *const lie_names[LIES];

enum world_kind {
    WORLD_HELD,  /* as tcp, every transfer verified */
    WORLD_TRUST, /* as tcp, none verified: the owner's hold and the lease's time are the proof */
    WORLD_SIDED, /* one-sided, verified; damage, and clocks beyond the margin in half of them */
    WORLD_LEASE, /* one-sided, none verified: only the lease's time is the proof. Clocks within the margin */
    WORLD_HOLD,  /* as tcp, none verified, clocks beyond the margin: only the owner's hold is the proof */
    WORLD_KINDS
};
extern const char *const world_names[WORLD_KINDS];

struct options {
    enum lie lie;
    bool trusting;       /* no verification and no clock check: what would callers have got? */
    uint64_t operations; /* of one world */
    int only;            /* a world_kind, or -1 */
    bool notes;          /* keep the last events, for a violation's report */
    bool loud;           /* and write each to stderr */
};

struct put { /* bytes that were, or will be, sealed once */
    uint32_t key, size;
    uint64_t content;         /* names the bytes */
    uint64_t counter, region; /* once it is sealed */
};

struct named { /* a version: of these bytes; a put may have several, one after the other (store/node_take.c) */
    uint64_t counter, region;
    uint32_t put; /* + 1; 0: free */
};

struct key {
    uint8_t data[KEY_MAX];
    uint32_t size, ns;
    bool replaceable;
    uint64_t place;     /* rendezvous_place */
    uint64_t removed;   /* greatest counter of a removal that was told of */
    uint64_t newest[2]; /* and the newest version of an object: counter, region */
    uint32_t kept_size; /* not replaceable: every put has the same bytes */
};

struct copy { /* what a node has of a key, as it told its homes */
    uint64_t counter, region;
    int64_t number;  /* of the publication; 0: it was listed */
    uint32_t serial; /* grows at each change; 0: not here */
};

struct page_use {
    uint64_t gen[PAGE_USES];
    uint32_t put[PAGE_USES], at;
};

enum call_kind { CALL_NONE, CALL_GRANT, CALL_PUT, CALL_REMOVE, CALL_PULL };

struct call { /* of a client */
    enum call_kind kind;
    uint64_t id;
    uint32_t put;
    uint32_t n, key[PULL_MOST];
    uint32_t flags, destination;
    uint8_t *buffer;
    int64_t deadline; /* mono of its node; INT64_MAX */
    int64_t began;    /* world's */
    bool cancelled;
    uint32_t acked[PULL_MOST][NODES]; /* serial of a copy that was published when it began */
    uint64_t seen[PULL_MOST][2];      /* version that its node had returned before it began */
};

struct view {
    uint32_t slot, put; /* slot + 1, 0: none */
    int64_t until;      /* world's ns */
};

struct queued {
    TAILQ_ENTRY(queued) entry;
    struct msg_head head; /* of the message, which lies behind */
};
TAILQ_HEAD(queued_list, queued);

struct index_memory;

struct member_node {
    struct server server;
    struct session session;
    char why[256];
    uint32_t number;
    bool up, stopping, doomed; /* doomed: it dies with its next commit */
    /* what outlives a start */
    struct slots_super super;
    struct slot_header *headers;
    struct slab_entry *slabs;
    void *lookup_map;
    uint64_t lookup_bytes;
    struct lookup lookup;
    uint8_t *tails, *pool;
    struct index_memory *index;
    struct page_use *page;
    bool first;
    uint64_t incarnation;
    /* clocks */
    int64_t raw_base, mono_base, boot_base, slept, uncounted; /* slept, uncounted: ns in which RAW stood still */
    int32_t raw_ppm, mono_ppm;
    int64_t asleep_at; /* world's; 0: it is awake */
    bool frozen;       /* asleep: as a virtual machine */
    uint32_t preempt;  /* readings until it is */
    /* the shell */
    int64_t due, away_until, down_until, up_since; /* world's ns; away: paused or asleep */
    struct batch *flying;
    int64_t commit_at;
    struct later later[64];
    unsigned n_later;
    bool giving;
    /* its client */
    uint64_t session_id, next_id;
    struct queued_list queue;
    struct call call[CALLS];
    struct msg_token token[TOKENS];
    uint32_t n_tokens;
    bool asked_tokens;
    struct view view[VIEWS];
    struct copy copy[KEYS];
    uint64_t seen[KEYS][2]; /* versions that its pulls returned, since its start */
    int64_t seen_at[KEYS];
};

struct world {
    uint64_t seed, random, digest, steps;
    struct options o;
    enum world_kind kind;
    bool beyond, damage, calm, proves;
    bool narrow; /* one key a call: time passes more slowly */
    bool storm;  /* nearly every read comes late, and few keys are put again and again */
    int64_t now, began;
    struct loop_net *net;
    uint32_t n, n_keys;
    struct member_node *node[NODES];
    struct member_node *in; /* whose code runs */
    struct key key[KEYS];
    struct put *put;
    uint32_t n_puts, puts_room;
    struct named version[VERSIONS]; /* hash of {counter, region} */
    uint32_t serials;
    int64_t gap, fault_gap, next_client, next_fault; /* ns */
    int64_t ttl;
    int64_t check_at;
    void *stranger;
    uint8_t heard[2048]; /* a message that somebody sent */
    size_t n_heard;
    char note[NOTES][200];
    uint32_t n_notes;
    /* counts */
    uint64_t operations, gets, misses, puts, removes, pulled, buffers, replicas, absent, unsure, refused;
    uint64_t faults[FAULTS], violations;
    uint64_t transfers, wrong, mismatches, late, stale, reached; /* reached: wrong bytes that a caller was given */
    uint64_t messages, net_faults[LOOP_FAULTS];
};

extern struct world *world;

/* world.c */
void world_run(struct world *w, uint64_t seed, const struct options *o);
uint64_t draw(void);
uint32_t below(uint32_t n);
bool chance(uint32_t one_in);
void mix(uint64_t what); /* into the digest */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* clock.c */
int64_t clock_mono(const struct member_node *n);
int64_t clock_world(const struct member_node *n, int64_t mono); /* when its clock will say so */
struct node_now clock_now(const struct member_node *n);

/* memory.c: an index without a file */
struct index_memory *index_make(void);
void index_free(struct index_memory *x);
extern const struct index_ops memory_ops;
void index_set(struct index_memory *x, enum meta_number which, uint64_t value);

/* shell.c */
void node_give(struct member_node *n, const struct node_event *ev); /* one event, without what comes of it later */
void node_turn(struct member_node *n);
void node_due(struct member_node *n);
void node_request(struct member_node *n, const struct msg_head *m);

/* life.c */
void node_make(struct member_node *n, uint32_t number);
void node_start(struct member_node *n);
void node_crash(struct member_node *n, bool applied);
void node_stop(struct member_node *n);
const struct transport *transport_of(void);

/* client.c */
void client_begin(struct member_node *n);
void client_step(struct member_node *n);
void client_reply(struct member_node *n, const struct msg_reply *r);
void client_gone(struct member_node *n);
bool client_cancel(struct member_node *n);
void client_overdue(struct member_node *n);
bool client_idle(const struct member_node *n);

/* shadow.c */
uint32_t put_new(uint32_t key, uint32_t size);
void put_fill(uint32_t put, void *to);
bool put_same(uint32_t put, const void *at, uint64_t from, uint64_t n);
void put_version(uint32_t put, uint64_t counter, uint64_t region);
uint32_t put_find(uint64_t counter, uint64_t region); /* NONE */
void page_used(struct member_node *n, uint32_t page, uint64_t gen, uint32_t put);
uint32_t page_put(const struct member_node *n, uint32_t page, uint64_t gen);
void shadow_published(struct member_node *n, const struct node_publication *e, uint32_t count, int64_t first);
void shadow_started(struct member_node *n);                 /* what it recovered */
uint32_t shadow_local(struct member_node *n, uint32_t key); /* checks what lies there: slot or SLOT_NONE */
void shadow_arrived(void *env, const struct connection *c, const struct transfer *t);
bool copy_acked(const struct member_node *n, uint32_t key);
bool copy_outdated(const struct copy *c, uint32_t key); /* somebody has had a newer version */
uint32_t key_find(const struct key_ref *k);
void check_node(struct member_node *n);
void check_quiet(void); /* at rest: nothing is left over, and everybody finds everything */

/* faults.c */
void fault_step(void);
void fault_doomed(struct member_node *n);
void stranger_turn(void);
void stranger_end(void);

/* lies.c */
bool lies(enum lie l);
void lie_leased(struct member_node *n, const struct node_command *c);
void lie_turn(struct member_node *n);
int lie_cancel(void *ctx, struct transfer *t);

#endif
