/* token.c: see token.h. */
#include "store/token.h"

static uint16_t *place_of(struct tokens *t, uint32_t slot)
{
    uint16_t *at = &t->chain[slot % TOKENS_CHAINS];
    while (*at && t->token[*at - 1].slot != slot) {
        at = &t->next[*at - 1];
    }
    return at;
}

bool tokens_add(struct tokens *t, const struct msg_token *token)
{
    uint16_t *at = place_of(t, token->slot);
    if (*at) {
        t->token[*at - 1] = *token;
        return true;
    }
    if (t->count == TOKENS_MAX) {
        return false;
    }
    t->token[t->count] = *token;
    t->next[t->count] = 0;
    *at = (uint16_t)++t->count;
    return true;
}

void tokens_remove(struct tokens *t, const struct msg_token *token)
{
    uint16_t *at = place_of(t, token->slot);
    if (!*at || t->token[*at - 1].gen != token->gen) {
        return;
    }
    uint32_t hole = *at - 1u;
    *at = t->next[hole];
    uint32_t last = --t->count;
    if (hole != last) { /* the last one moves into the hole, and whatever pointed to it follows */
        at = place_of(t, t->token[last].slot);
        t->token[hole] = t->token[last];
        t->next[hole] = t->next[last];
        *at = (uint16_t)(hole + 1);
    }
}

bool tokens_has(const struct tokens *t, const struct msg_token *token)
{
    uint16_t at = t->chain[token->slot % TOKENS_CHAINS];
    while (at && t->token[at - 1].slot != token->slot) {
        at = t->next[at - 1];
    }
    return at && t->token[at - 1].gen == token->gen;
}
