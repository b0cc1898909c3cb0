/* grant.h: granted slots that wait for a put: with one at hand a put is one message.
 *
 * Slots are kept by the pages of the objects that they were asked for. A put asks for its replacement in the same
 * message; how many are kept grows each time that a put finds none, so a queue of puts finds as many as it has in
 * flight. Everything here is called under the handle's lock.
 */
#ifndef BERTH_STORE_GRANT_H
#define BERTH_STORE_GRANT_H

#include "store/msg.h"

#include <stdbool.h>

#define GRANT_CLASSES 16u
#define GRANT_MAX 64u

struct grant_class {
    uint32_t pages;  /* 0: unused */
    uint32_t n;      /* at hand */
    uint32_t coming; /* asked for by puts and grants in flight */
    uint32_t target; /* at hand and coming together, at most */
    uint64_t used;
    struct msg_token token[GRANT_MAX];
};

struct grants {
    struct grant_class class[GRANT_CLASSES];
    uint64_t clock;
};

struct berth;

static inline uint32_t grant_pages(uint64_t size)
{
    return size ? (uint32_t)((size + PAGE_BYTES - 1) / PAGE_BYTES) : 1;
}

/* A slot for `pages`, if one is at hand. */
bool grant_take(struct berth *b, uint32_t pages, struct msg_token *out);
/* How many to ask for when none is at hand; counted as coming. */
uint32_t grant_ask(struct berth *b, uint32_t pages);
/* How many a PUT is to ask for beside what is at hand and coming, 0 to 4; counted as coming. */
uint32_t grant_want(struct berth *b, uint32_t pages);
/* Some that were asked for have come, or not. Those that are not kept stay in the handle's tokens and are given back.
 */
void grant_came(struct berth *b, uint32_t pages, uint32_t asked, const struct msg_token *tokens, uint32_t n);
/* Gives slots back to the node, and forgets them. */
void grant_give_back(struct berth *b, const struct msg_token *tokens, uint32_t n);
/* Gives back every slot at hand. Whether there was one. */
bool grant_return_all(struct berth *b);

#endif
