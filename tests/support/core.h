/* core.h: one node core in a test: real index, memory of the test's own, and a shell that carries commands out at once.
 */
#ifndef BERTH_TESTS_CORE_H
#define BERTH_TESTS_CORE_H

#include "index/check.h"
#include "index/lmdb.h"
#include "store/berth.h"
#include "store/node.h"
#include "store/slot.h"

#define CORE_REPLIES 4096u

#define NS_R node_namespace_id("r", 1) /* of a namespace that tests make replaceable */

struct core {
    char dir[64];
    struct node *node;
    struct node_config config;
    struct node_now now;
    struct slots_super super;
    struct slot_header *headers;
    struct slab_entry *slabs;
    void *lookup_map;
    uint64_t lookup_bytes;
    struct lookup lookup;
    uint8_t *tails;
    struct lmdb_index *index;
    uint8_t *pinned;   /* by slot: what a scan answers */
    int fail_commits;  /* so many commits answer -ENOSPC */
    bool hold_commits; /* commits wait until core_commit */
    struct batch *flying;
    void (*other)(struct core *c, const struct node_command *k); /* commands that nothing here carries out */
    uint64_t next_id;
    uint8_t place;                         /* of requests: node_event.place */
    struct msg_reply *reply[CORE_REPLIES]; /* copies, in order */
    uint32_t n_replies;
    uint32_t closed;
};

/* A core over a new pool; options may change config before it starts. */
void core_open(struct core *c, uint64_t pool, void (*options)(struct core *c));
void core_close(struct core *c);
/* Destroys the core as a SIGKILL would, keeps memory and index, starts another that adopts these sessions. */
void core_crash(struct core *c, const uint64_t *sessions, uint32_t n);

void core_attach(struct core *c, uint64_t session);
void core_event(struct core *c, struct node_event ev);
void core_turn(struct core *c);
void core_tick(struct core *c, int64_t ns);
void core_commit(struct core *c);

/* One request; returns the reply to it, or NULL if there is none yet. Replies live until core_close. */
const struct msg_reply *core_request(struct core *c, uint64_t session, struct msg_head *m);
const struct msg_reply *core_reply(const struct core *c, uint64_t id);
struct msg_head *core_message(struct core *c, uint16_t op, uint32_t bytes); /* zeroed, on static storage, id given */

/* Whole operations; status of the reply, or 1000 if none came. */
int core_put(struct core *c, uint64_t session, const char *key, uint32_t size, uint32_t ns);
int core_grant(struct core *c, uint64_t session, uint32_t size, struct msg_token *out);
int core_put_token(struct core *c, uint64_t session, const struct msg_token *t, const char *key, uint32_t size,
                   uint32_t ns);
int core_create(struct core *c, uint64_t session, const char *key, uint32_t size, uint32_t ns, struct msg_token *out);
int core_seal(struct core *c, uint64_t session, const struct msg_token *t, uint32_t n);
int core_key(struct core *c, uint64_t session, uint16_t op, const char *key, uint32_t ns);
int core_label(struct core *c, uint64_t session, uint16_t op, const char *key, const char *label, int64_t ttl);
uint32_t core_find(const struct core *c, const char *key, uint32_t ns);

/* A home's word on something that the node has: any of it, in any order, late and twice. Drawn (draw.h). */
void core_judge(struct core *c);

/* node_check and, when nothing is in flight, check_region; fails the test with the sentence. */
void core_check(struct core *c);

#endif
