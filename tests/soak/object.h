/* object.h: what the workers of the soak put and read, all of them the same keys.
 *
 * Bytes are a function of the key, since in a namespace that is not replaceable a key has the same bytes always. In the
 * replaceable one they begin with the key's number and a stamp that no other put has; the rest is a function of both.
 */
#ifndef BERTH_TESTS_SOAK_OBJECT_H
#define BERTH_TESTS_SOAK_OBJECT_H

#include "store/berth.h"

#include <stdbool.h>
#include <stdint.h>

#define OBJECTS 4000u /* about 750 MiB, so that two pools of 128 MiB evict all the time */
#define CHAINS 400u
#define MEMBERS 8u /* of a chain, which is put as a group and read as a prefix */
#define SESSIONS 300u
#define OBJECT_MOST (8u << 20) /* bytes */
#define STAMP 16u              /* bytes at the front of a replaceable object; it has no less */
#define TAG 77u                /* lineage of some objects, for purges by it */

struct item {
    char key[112];
    uint32_t key_size; /* bytes */
    uint32_t ns;
    uint64_t id;      /* of its content */
    uint64_t size;    /* bytes; of a replaceable one: of the one that is put */
    uint32_t segment; /* bytes; 0: none */
    bool replaceable;
};

void object_seed(uint64_t seed, uint64_t first_stamp);
/* A number below the limit, which is not 0. */
uint64_t draw(uint64_t below);

/* One of OBJECTS, little numbers more often; a member of a chain; one of SESSIONS; one of all these. */
struct item object_any(void);
struct item member_of(unsigned chain, unsigned position);
struct item session_any(uint32_t ns);
struct item any_of(uint32_t sessions_ns);
/* Bytes of the object that has this number: 0 to OBJECT_MOST, most of them small. */
uint64_t size_of(uint64_t id);

struct berth_key key_of(const struct item *o);
/* Some of everything; the deadline is in half a second. */
struct berth_put_opts options_of(const struct item *o);

/* The bytes to put, o->size of them; of a replaceable object new ones. */
void fill(const struct item *o, void *data);
/* Whether op has read a whole object as it was put: else it is said (record_wrong). */
void compare(const char *op, const struct item *o, const void *data, uint64_t size);

#endif
