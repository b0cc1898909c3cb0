/* tcp_node.h: a TCP transport with everything it tells written down, for tests. */
#ifndef BERTH_TESTS_TCP_NODE_H
#define BERTH_TESTS_TCP_NODE_H

#include "replication/tcp.h"
#include "replication/tcp_frame.h"

struct tcp_node {
    void *ctx;
    struct connection *c; /* the last one that was connected or accepted, until it ends */
    char address[TRANSPORT_ADDRESS_MAX];
    int fd;
    uint8_t *pool;
    uint64_t pool_bytes;

    int connected, failed, accepted, closed, messages, rooms, admitted, served;
    int status;           /* of the last connected or closed */
    int served_status;    /* of the last served */
    int served_errors;    /* served with a status other than 0 */
    int admit_answer;     /* what admit says; 0 */
    uint64_t last_token;  /* of the last admit: 1, 2, .. */
    uint64_t most_flying; /* greatest in_flight seen by a turn */
    char why[TRANSPORT_WHY_MAX];
    uint8_t *message; /* the last one */
    size_t message_bytes;
    uint32_t next_number; /* messages that begin with a number: what is expected next */
    int disorder;
};

/* Config as given, listening on a free port of 127.0.0.1 where config->listen is NULL and pool_bytes is not 0. */
void tcp_node_open(struct tcp_node *n, const struct transport_config *config, uint64_t pool_bytes);
void tcp_node_close(struct tcp_node *n);
/* Turns every node until done(arg), 20 s at most; in a child process too. */
void tcp_nodes_until(struct tcp_node **nodes, int n, bool (*done)(void *arg), void *arg);
void tcp_nodes_turn(struct tcp_node **nodes, int n, int wait_ms);
/* Connects a to b in this process. */
void tcp_nodes_pair(struct tcp_node *a, struct tcp_node *b);

/* A read into memory of its own, checked by tcp_job_check. */
struct tcp_job {
    struct transfer t;
    struct iovec to[64];
    uint8_t *memory;
    uint64_t progressed; /* bytes that progress told of, in order */
    int disorder, completions;
    uint64_t cancel_at; /* progress cancels from here on; 0: never */
    struct tcp_node *node;
};

#define TCP_POISON 0xA5
#define TCP_GAP 64 /* poisoned bytes around and between the parts */

/* parts: the destination lies in so many pieces with gaps. */
void tcp_job_init(struct tcp_job *j, struct tcp_node *n, uint64_t offset, uint64_t bytes, uint32_t parts);
void tcp_job_post(struct tcp_job *j);
bool tcp_job_done(void *job);
/* Whether every byte is what b's pool has there, and the gaps are as they were. */
bool tcp_job_is_right(const struct tcp_job *j, const uint8_t *pool);
/* Poisons everything again; later tcp_job_is_poison. */
void tcp_job_poison(struct tcp_job *j);
bool tcp_job_is_poison(const struct tcp_job *j);
void tcp_job_free(struct tcp_job *j);

#endif
