/* resolver.h: names asked of the system's resolver, which may take minutes: on a thread for each question, that nobody
 * waits for, so that a node stops at once whatever the name service does.
 *
 * Of a question that is dropped only its memory and its thread are left until the resolver gives up; they touch nothing
 * of the node's. An application that unloads the library while its name service hangs has to wait for it.
 *
 * Used by the loop's thread alone. Bound: whoever asks; the peers have one question a member at a time.
 */
#ifndef BERTH_SHELL_RESOLVER_H
#define BERTH_SHELL_RESOLVER_H

#include "replication/transport.h"

#include <uv.h>

struct resolver;
struct question;

struct resolved {
    int status;                         /* 0, or the negative error of the transport's resolve */
    char digits[TRANSPORT_ADDRESS_MAX]; /* with status 0 */
    char why[TRANSPORT_WHY_MAX];        /* else */
};

/* answered(arg) is called on the loop when an answer may have come. NULL: no memory. */
struct resolver *resolver_open(uv_loop_t *loop, void (*answered)(void *arg), void *arg);
/* After the last question was taken or dropped. No call comes after it. NULL is passed over. */
void resolver_close(struct resolver *r);

/* Begins to ask for an address (at most TRANSPORT_ADDRESS_MAX - 1 bytes). 0, -ENAMETOOLONG, -ENOMEM, -EAGAIN. */
int resolver_ask(struct resolver *r, const struct transport *transport, const char *address, struct question **out);
/* Whether the answer is there: then it is in out, and the question is gone. */
bool question_answered(struct question *q, struct resolved *out);
void question_drop(struct question *q);

#endif
