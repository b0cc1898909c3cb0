/* session.h: one client: its ring, its replies, what it may still be owed.
 *
 * Requests are copied out of the ring once and checked in the copy. One is taken only if the largest reply that it can
 * have fits the reply ring beside those that are owed already, so a reply never finds the ring full: a client that does
 * not read its replies stops being served, and nobody else waits for it.
 */
#ifndef BERTH_SHELL_SESSION_H
#define BERTH_SHELL_SESSION_H

#include "store/shell/state.h"

/* A session without connection, ring or place in the list. NULL: no memory. */
struct session *session_make(struct server *s, uint64_t id);
/* Frees one that was never in the list. */
void session_unmake(struct session *c);
/* Into the list; -EUSERS if it is full. */
int sessions_insert(struct session *c);
struct session *sessions_find(struct server *s, uint64_t id);
/* Off the list: closes everything and, as soon as nobody holds the pin file's lock any more, unlinks it. Its memory
 * stays until sessions_free, because a message of its own may have led here. */
void session_close(struct session *c, bool remove_file);
void sessions_free(struct server *s);

/* Gives it a ring, which is mapped, and the client's eventfd. */
void session_connect(struct session *c, struct ring_shared *ring, int wake_fd);
/* Takes ring, socket and doorbell from it. Nothing is told to the core. */
void session_disconnect(struct session *c);

/* Tells the core what it touched. Whether there was anything. */
bool session_touches(struct session *c);
/* The two steps of taking one. Whether a whole, checked message stands in c->message: 1; none, or no room for its reply
 * now: 0; the ring is broken: -EPROTO. */
int session_next(struct session *c);
/* After 1: its answer is owed. NULL: it was answered here (bad, or DETACH: then c->leaving). */
const struct msg_head *session_take(struct session *c);
/* Takes up to SESSION_TURN requests. Whether there was any. */
bool session_requests(struct session *c);
/* Whether a request could be taken now. */
bool session_has_work(struct session *c);
/* Whether its next request waits for room in the reply ring. */
bool session_stalled(const struct session *c);

/* Answers a request that is owed an answer; another reply is dropped: the attachment that asked is gone. */
void session_reply(struct session *c, const struct msg_reply *r);
/* A reply without more than a status. */
void session_answer(struct session *c, const struct msg_head *request, int32_t status, uint64_t counter);
/* Rings the client's eventfd if it sleeps and has replies. */
void session_wake(struct session *c);

/* Lets the client use `entries` of its pin table; the reply in r says how many it has now. */
void session_grow(struct session *c, uint32_t entries, const struct msg_reply *r);
/* Writes the word that forbids further pins. */
void session_refuse(struct session *c, bool refuse);

#endif
