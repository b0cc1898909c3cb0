/* bench_scale.h: a node with many objects whose payload nobody writes, in a pool that is reserved and not populated.
 *
 * An object of 0 bytes touches no page of the pool. One of more bytes is created and sealed without its payload ever
 * being written or read: its pages stay holes, which read as zeros, and the checksum that the bench gives with it is
 * that of so many zeros. So 1 TiB of objects takes the memory of its metadata only; pool_allocated shows that it did.
 */
#ifndef BERTH_TOOLS_BENCH_SCALE_H
#define BERTH_TOOLS_BENCH_SCALE_H

#include "tools/bench/bench.h"
#include "tools/bench/bench_get.h"

#define SCALE_GROUP 256u /* drafts that are created together, then sealed one by one */

/* Bytes that a node takes; as its status says them, and as they are seen from outside. */
struct scale_memory {
    uint64_t index, headers, state, lookup;                  /* counted by the node */
    uint64_t slots_file, lookup_file, tails_file, anonymous; /* allocated of the files, and anonymous of the process */
    uint64_t pool_allocated;                                 /* of the pool's file */
    uint64_t objects;
    uint64_t retired, sessions;
};

struct scale_node {
    struct bench b; /* its own keys, node and handle; objects: what it is filled with */
    uint8_t *keys;  /* b.objects of them, in no order of the pool */
    struct reader reader;
    uint64_t checksum; /* of a payload that was never written */
    uint64_t number;   /* of the next key */
    double fill_seconds;
    struct scale_memory empty, full;
    bool open, reads;
};

/* Starts a node with room for `objects` and `room` more. Exit codes, after the error was reported; a node that is not
 * open may be closed. */
int scale_open(struct scale_node *n, const struct bench *b, uint64_t objects, uint64_t room);
/* Puts its objects; what it takes before and after stands in empty and full. */
int scale_fill(struct scale_node *n);
int scale_close(struct scale_node *n, int code);

/* Puts `count` new keys. 0 or a negative error. */
int scale_put(struct scale_node *n, uint64_t count);
/* Stops and starts the node, and looks whether all objects are there again. ns: until it was ready; cpu_ns: of its
 * process until then and a moment after. Exit codes, after the error was reported. */
int scale_restart(struct scale_node *n, int64_t *ns, int64_t *cpu_ns);
/* What the node takes. 0 or a negative error. */
int scale_memory(struct scale_node *n, struct scale_memory *m);
/* ns that reading what a start has to read takes: slot headers and the used part of the index, once, by 1 MiB. */
int scale_read_files(struct scale_node *n, int64_t *ns);

#endif
