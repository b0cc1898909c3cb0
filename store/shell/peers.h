/* peers.h: what makes a node one of several: the member list, the connections, and the parts that talk over them.
 *
 * All on the node's thread. NULL stands for a node without peers everywhere here: then nothing is done and nothing
 * costs.
 */
#ifndef BERTH_SHELL_PEERS_H
#define BERTH_SHELL_PEERS_H

#include "store/node.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct peers;
struct server;
struct settings;

/* Whether the settings ask for peers at all: an address to listen on, or a member list. */
bool peers_wanted(const struct server *s);

/* Memory that the table of what others have takes at most, for a region of this shape; 0 without other members. */
uint64_t peers_home_bytes(uint64_t headers, uint64_t pool_bytes, const struct settings *s);

/* After recovery, before clients are listened for. Listens, and begins to connect; *out is NULL where nothing is
 * wanted. 0; -EINVAL, -EADDRINUSE, -EADDRNOTAVAIL, -EHOSTUNREACH, -EACCES, -EMFILE, -ENOMEM, with a sentence in why. */
int peers_open(struct peers **out, struct server *s, char *why, size_t why_size);

/* One pass: what has come, what is due, and what has been queued is sent. True: there was work. Not from dispatch. */
bool peers_turn(struct peers *p);
/* When peers_turn is wanted by the clock (server_clock); INT64_MAX: not at all. */
int64_t peers_timer(const struct peers *p);
/* Whether something had come from peers in the last peers_turn. */
bool peers_heard(const struct peers *p);
/* While the node polls: looks whether something has come, for the next peers_turn. One system call. */
void peers_look(struct peers *p);
/* Whether what is under way from peers is little: it then comes at once or not at all, and polling for it pays. */
bool peers_light(const struct peers *p);
/* Something is left to be done at once: the node must not sleep. */
bool peers_busy(const struct peers *p);

/* A command of the node core that is the peers': LEASED, RENEWED, RECALL, PUBLISHED, SERVE. Called from dispatch. */
void peers_command(struct peers *p, const struct node_command *c);

/* An answer of the core to its session NODE_PULLER. Called from dispatch. */
void peers_reply(struct peers *p, const struct msg_reply *r);
struct session;
/* PULL and CANCEL of a client: answered by session_reply, without peers at once: nothing is known of any key. Of a
 * client of other nodes STAT too, as a PULL that has its op. Called from dispatch. */
void peers_pull(struct peers *p, struct session *from, const struct msg_pull *m);
/* A STAT of what is not here, likewise. */
void peers_stat(struct peers *p, struct session *from, const struct msg_key *m);
void peers_cancel_pull(struct peers *p, struct session *from, const struct msg_cancel *m);
/* PUBLISHED of a client: answered when the homes have it, without peers at once. Called from dispatch. */
void peers_await_homes(struct peers *p, struct session *from, const struct msg_published *m);
/* Nobody waits for its pulls any more: they end, without an answer. From anywhere on the node's thread. */
void peers_session_gone(struct peers *p, uint64_t session);

/* GOODBYE to everybody, and no new connection. Once, before EV_STOP. */
void peers_stop(struct peers *p);
/* Waits a little (PEERS_LINGER_NS) for the other ends to hang up, then ends everything. */
void peers_close(struct peers *p);

/* For reports: an array of objects, a member each; NULL: no memory. Metrics are appended to f in Prometheus' format. */
json_t *peers_report(const struct peers *p);
void peers_metrics(const struct peers *p, FILE *f);
/* Of the home's table and of what this node published: {entries, bytes, locations, missing, .. told, published, queued,
 * ..}; null without peers. */
json_t *home_part_report(const struct peers *p);
/* What this node takes from peers: counters, causes of failures, phases, and each peer as a source; null without
 * peers. */
json_t *pull_part_report(const struct peers *p);
/* What peers get from this node: an object; and the name of who has a lease. */
json_t *peers_remote_report(const struct peers *p, const struct node_status *st);
void peers_holder(const struct peers *p, const struct node_lease_info *l, char *out, size_t size);

#endif
