/* token.h: the slots that this session may write: what it names when it goes on with a node that restarted, which
 * aborts every other (PROTOCOLS rule 10). A token enters with the reply that gives it and leaves with the reply that
 * ends it.
 */
#ifndef BERTH_STORE_TOKEN_H
#define BERTH_STORE_TOKEN_H

#include "store/msg.h"

#include <stdbool.h>

#define TOKENS_MAX (2 * GROUP_MAX) /* as many as one MSG_RESUME names */
#define TOKENS_CHAINS 1024u

struct tokens {
    struct msg_token token[TOKENS_MAX]; /* the first `count` */
    uint16_t chain[TOKENS_CHAINS];      /* by slot: index + 1 */
    uint16_t next[TOKENS_MAX];
    uint32_t count;
};

/* false: there are too many. One that is there already stays, with the new generation. */
bool tokens_add(struct tokens *t, const struct msg_token *token);
/* Forgets a token; one that is not there is passed over. */
void tokens_remove(struct tokens *t, const struct msg_token *token);
bool tokens_has(const struct tokens *t, const struct msg_token *token);

#endif
