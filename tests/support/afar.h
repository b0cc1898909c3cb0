/* afar.h: two berthds that are peers, each home to a share of the keys, and clients of theirs without a node (tcp:). */
#ifndef BERTH_TESTS_AFAR_H
#define BERTH_TESTS_AFAR_H

#include "tests/support/daemon.h"

#include <stdint.h>

#define NODES 2u
#define SECONDS(n) ((n)*INT64_C(1000000000))
#define MS(n) ((n)*INT64_C(1000000))
#define SOON_MS 30000
#define LARGE (9u << 20)

extern const char *const afar_names[NODES];
extern struct daemon afar_daemon[NODES];
extern struct berth *afar_node[NODES]; /* local handles; NULL while it is killed */
extern char afar_address[NODES][64];   /* tcp://HOST:PORT */
extern uint8_t afar_got[LARGE + 64];   /* where afar_into reads to */

/* Fixtures of a group: the nodes, with the replaceable namespaces "turned" and "models". At the end index, slots and
 * lookup agree. */
int afar_start(void **unused);
int afar_end(void **unused);
void afar_kill(unsigned node);
void afar_again(unsigned node);
uint16_t afar_port(void); /* one that was free a moment ago */

void afar_put(unsigned node, const char *key, size_t size, uint32_t segment);
/* Until the homes know of all that was put. */
void afar_settle(void);

int64_t afar_now(void); /* CLOCK_MONOTONIC ns */
struct berth *afar_client(const char *url);
/* berth_get_into into afar_got; ns: from now, or BERTH_FOREVER. */
long afar_into(struct berth *c, const char *key, int64_t ns);
/* It comes whole, and nothing is written behind it. */
void afar_reads(struct berth *c, const char *key, size_t size);
/* In the end afar_into gives that. */
void afar_reads_soon(struct berth *c, const char *key, long want);

struct afar_wish {
    struct berth *c;
    const char *key;
    long want, rc;
};

/* For eventually(). */
bool afar_comes(void *wish);

#endif
