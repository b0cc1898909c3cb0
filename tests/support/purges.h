/* purges.h: what tests of purges at one core share. */
#ifndef BERTH_TESTS_PURGES_H
#define BERTH_TESTS_PURGES_H

#include "tests/support/leases.h"

#define L 77u /* the lineage that is purged */

/* An object of 100 bytes with a lineage; the status, 1000: no answer yet. */
int purge_put(struct core *c, uint64_t session, const char *key, uint64_t lineage, uint32_t ns);
int purge_create(struct core *c, uint64_t session, const char *key, uint64_t lineage, struct msg_token *out);
/* n keys "many/00000" and on, of L. */
void purge_fill(struct core *c, uint32_t n);

struct msg_purge *purge_message(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix);
/* Asks as session 1; the request's id. */
uint64_t purge_ask(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix);
/* Its answer; fails the test if none has come when the node is at rest. */
struct msg_purged purge_answer(struct core *c, uint64_t id);
struct msg_purged purge_run(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix);
/* Ticks as long as one is due. */
void purge_settle(struct core *c);

bool purge_here(const struct core *c, const char *key); /* in the default namespace */
unsigned purge_marks(const struct core *c);             /* in the index */

#endif
