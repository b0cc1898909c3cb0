/* peers_pull.h: what the files of the taking side share.
 *
 *   peers_pull.c       the part: the puller's loop, members, recalls, time
 *   peers_pull_ask.c   ASK, LEASE, RENEW, STATE, RELEASE, CORRUPT -> messages, answers -> events
 *   peers_pull_sums.c  SUMS: what grants on objects with segments lack
 *   peers_pull_watch.c WATCH: who writes a key that is nowhere yet
 *   peers_pull_read.c  READ, CANCEL_READ, HASH
 *   peers_pull_job.c   MSG_PULL and MSG_CANCEL of clients
 *   peers_pull_report.c  what is said of it
 *   peers_replica.c    RESERVE, SEAL, ABORT: the core's session NODE_PULLER
 *
 * The puller's commands are carried out one by one before its next event (replication/pull.h); what they lead to at
 * once waits in `told` until then. Bounds: those of the puller: one structure a request, a READ, a slot; a client's
 * message is copied until the next turn.
 */
#ifndef BERTH_SHELL_PEERS_PULL_H
#define BERTH_SHELL_PEERS_PULL_H

#include "replication/pull.h"
#include "replication/pull_table.h"
#include "store/node_origin.h"
#include "store/shell/peers_internal.h"

/* An event that waits for its turn; what it points to is its owner's until drop. */
struct told {
    TAILQ_ENTRY(told) entry;
    struct pull_event ev;
    void (*drop)(struct told *t); /* after it was given, or the part closes */
};
TAILQ_HEAD(told_list, told);

struct core_op;
struct hash_op;
struct job;
TAILQ_HEAD(core_op_list, core_op);
TAILQ_HEAD(hash_op_list, hash_op);
TAILQ_HEAD(job_list, job);

/* A slot that bytes of others are written into, from the answer to CREATE until that to SEAL or ABORT. */
struct draft {
    struct pull_link by_id;
    uint64_t id; /* the puller's token */
    struct msg_token token;
};

struct taking {
    struct peers *peers;
    struct puller *puller;
    struct told_list told;
    bool running; /* events are being given */
    bool stopped; /* EV_PULL_STOP was given */

    /* peers_pull_read.c */
    struct pull_table reads; /* by the READ's id */
    struct hash_op_list hashes;

    /* peers_replica.c */
    struct core_op_list waiting;       /* not given to the core yet */
    struct core_op_list poor;          /* over the session's quota: again when it has given something back */
    struct pull_table asked;           /* given to the core and not answered, by message id */
    struct pull_table drafts;          /* by token */
    uint64_t last_message, last_draft; /* ids given */

    /* peers_pull_job.c */
    struct job_list jobs; /* all, in the order of their coming */
    struct pull_table jobs_by_id;
    uint64_t last_job;
    bool jobs_due; /* some are to be begun or cancelled */

    uint64_t leases[WIRE_LEASES_MAX]; /* of a RECALL */
};

/* Memory that a command can't be carried out without, zeroed: an event that never comes would be waited for for ever.
 * None left ends the process, as in dispatch.c. */
void *pull_memory(size_t bytes);

/* Keeps an event for the loop, and has it run. Any context. */
void pull_tell(struct taking *q, struct told *t);
/* The same of an event of which kind, id and status say all. */
void pull_tell_plain(struct taking *q, enum pull_event_kind kind, uint64_t id, int status);
/* .. which may be completed until its turn. */
struct told *pull_told_plain(struct taking *q, enum pull_event_kind kind, uint64_t id, int status);
/* Gives an event now, and all that follows from it. Turn context, not from within a command. */
void pull_give(struct taking *q, const struct pull_event *ev);

void pull_ask(struct taking *q, const struct pull_command *c);
void pull_lease(struct taking *q, const struct pull_command *c);
void pull_renew(struct taking *q, const struct pull_command *c);
void pull_state(struct taking *q, const struct pull_command *c);
void pull_release(struct taking *q, const struct pull_command *c);
void pull_corrupt(struct taking *q, const struct pull_command *c);
void pull_watch(struct taking *q, const struct pull_command *c);

/* EV_PULL_ANSWER or EV_PULL_LEASED with answers or grants, the other NULL: given at once, or when the checksums of
 * segments have come. Both lie in memory, which is freed afterwards. */
void pull_give_summed(struct taking *q, const struct pull_event *ev, struct pull_answer *answers,
                      struct pull_grant *grants, void *memory);

int pull_reads_open(struct taking *q);
void pull_reads_close(struct taking *q); /* every READ has completed */
void pull_read(struct taking *q, const struct pull_command *c);
void pull_cancel_read(struct taking *q, const struct pull_command *c);
void pull_hash(struct taking *q, const struct pull_command *c);
void pull_hash_turn(struct taking *q);

int replica_open(struct taking *q);
void replica_close(struct taking *q);
void replica_reserve(struct taking *q, const struct pull_command *c);
void replica_seal(struct taking *q, const struct pull_command *c);
void replica_abort(struct taking *q, const struct pull_command *c);
void replica_turn(struct taking *q); /* gives the core what it can take now */
/* Waits in the core until the key is sealed, given up, or nobody writes it any more (written: or nobody does now), at
 * most until the deadline. `done` is called once, from dispatch, with an enum msg_wait_state; or `drop`, if the node
 * ends before. Any context. */
typedef void core_wait_fn(void *arg, unsigned state);
void core_wait(struct taking *q, const struct key_ref *key, bool written, int64_t deadline, core_wait_fn *done,
               void (*drop)(void *arg), void *arg);
void *replica_at(const struct taking *q, uint64_t token, uint64_t at, uint64_t n); /* NULL: not in that slot */

int jobs_open(struct taking *q);
void jobs_close(struct taking *q);
void jobs_turn(struct taking *q);
void job_done(struct taking *q, const struct pull_command *c);

#endif
