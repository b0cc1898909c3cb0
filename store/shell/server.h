/* server.h: a node with its shell: region, core, loop, sessions. berthd runs one, an embedded node is one on a thread.
 */
#ifndef BERTH_SHELL_SERVER_H
#define BERTH_SHELL_SERVER_H

#include "store/shell/settings.h"

struct server;

/* Opens the region, recovers, adopts sessions that live, listens. On an error `why` has the sentence; -EBUSY, -ENOSPC,
 * -ENOMEM, -EPERM, -EACCES, -EADDRINUSE as region_open and bind give them. */
int server_create(struct server **out, const struct settings *s, char *why, size_t why_size);
/* Serves until server_stop; the calling thread becomes the node's. 0, or a negative error if it could not stop cleanly.
 */
int server_run(struct server *s);
/* Ends server_run: takes no more requests, commits, marks the region clean. Any thread, signal handlers too. */
void server_stop(struct server *s);
void server_destroy(struct server *s);
/* Instead of server_destroy for a start that fails after server_create: a region that this start made goes too. */
void server_discard(struct server *s);

/* A connected socket of a client of this process, as if it had connected to the Unix socket. Any thread. Negative:
 * error. */
int server_connect(struct server *s);

/* Calls ready(arg) on the node's thread when fd is readable. Before server_run, or on the node's thread. */
int server_watch(struct server *s, int fd, void (*ready)(void *arg), void *arg);
/* Calls tick(arg) on the node's thread about every period_ms. */
int server_every(struct server *s, unsigned period_ms, void (*tick)(void *arg), void *arg);

/* A report (enum msg_what), malloc'd; on the node's thread. key may be NULL. JSON objects with "schema", keys and names
 * escaped by escape_bytes; Prometheus text for QUERY_METRICS. */
char *server_report(struct server *s, unsigned what, const struct key_ref *key);

/* What the node knows of its health: 0 and "ok", or -1 and the cause. On the node's thread. */
int server_health(struct server *s, char *why, size_t why_size);

/* For berth_open("embedded:..."): parses the settings of the URL, starts a server on a thread of its own, returns a
 * connected socket in *fd. server_embedded_stop ends and destroys it. */
int server_embedded(struct server **out, const char *url_settings, int *fd, char *why, size_t why_size);
void server_embedded_stop(struct server *s);
/* Of an embedded node, by a thread that waits for an answer of it: does the node's work until done(arg) or `until`
 * (CLOCK_MONOTONIC ns). False: it did not, since the node's own thread is at work or the node stops. done is called
 * between pieces of work, without a lock. */
bool server_drive(struct server *s, bool (*done)(void *arg), void *arg, int64_t until);
/* Whoever drives asks done(arg) again. Any thread. */
void server_poke(struct server *s);

#endif
