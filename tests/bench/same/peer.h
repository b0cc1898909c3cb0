/* peer.h: a store as one client of the comparison sees it. tests/bench/peers builds work.c with one peer_*.c each.
 *
 * No call returns an error: a peer that fails ends the program by work_fail, so that no figure is made of half a run.
 * One thread calls. */
#ifndef BERTH_TESTS_BENCH_PEER_H
#define BERTH_TESTS_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_KEY 20u  /* bytes of a key: as many as Plasma's ids have */
#define PEER_MANY 32u /* items of a call, at most */
#ifndef PEER_BYTES
#define PEER_BYTES (UINT64_C(128) << 20) /* of all objects of a size, at most; a power of two. A test has less */
#endif

struct item {
    char key[PEER_KEY + 1];
    const uint8_t *data; /* put: what is put; get: set to where its bytes can be read, until peer_release */
    uint8_t *room;       /* get: size bytes for peers that don't show objects in place */
    size_t size;         /* bytes, known to the reader as well */
};

extern const bool peer_puts_many; /* peer_put takes more than one item in one request */

/* Connects. address: the peer's own form. Called once, first. */
void peer_open(const char *address);

/* Client library and version, for people; "" where there is none. */
const char *peer_client(void);

/* Puts n items, of keys that are not there. Returns when all can be read by others. */
void peer_put(struct item *items, unsigned n);

/* Gets n items: one request where the peer has one for several. */
void peer_get(struct item *items, unsigned n);

/* Gives back what the last peer_get showed. */
void peer_release(struct item *items, unsigned n);

/* Removes n items that are there. */
void peer_remove(struct item *items, unsigned n);

/* Ends the program with a sentence on stderr, exit 1. */
__attribute__((noreturn, format(printf, 1, 2))) void work_fail(const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
