/* rendezvous.h: which members are the homes of a key: weighted rendezvous hashing over a list that all members share.
 *
 * A member's cost for a key is -log2(u) / weight, u in (0, 1) being a hash of key and member; the k cheapest are the
 * key's homes. So a member is home to a share of the keys that is as its weight (of k = 1 exactly), and a member that
 * comes or goes moves only keys that it gets or had, since nobody else's cost depends on it.
 *
 * Every machine must choose alike. So no floating point and no libm: the logarithm comes from a table of 1,025 values
 * with 32 bits behind the point, made by repeated squaring of integers and read with linear interpolation (absolute
 * error below 2e-7); costs are integers, and equal ones are ordered by the member's id. Hashes are XXH3-64 under a
 * fixed seed.
 *
 * Reachability plays no part: a member that is down stays home to its keys, else members that see different things
 * would choose differently. k homes are there for that. Immutable after creation: any thread. Part of the
 * deterministic core.
 */
#ifndef BERTH_REPLICATION_RENDEZVOUS_H
#define BERTH_REPLICATION_RENDEZVOUS_H

#include "replication/publication.h"

#define RENDEZVOUS_WEIGHT_MAX 65535u

enum rendezvous_state {
    MEMBER_IN,     /* takes keys */
    MEMBER_LEAVING /* in the list, serves what it has, is home to nothing */
};

struct rendezvous_member {
    uint64_t id;     /* the same on all members, whatever its place in the list: rendezvous_id of its name */
    uint32_t weight; /* 1 .. RENDEZVOUS_WEIGHT_MAX */
    uint8_t state;   /* enum rendezvous_state */
};

struct rendezvous;

/* The id of a member's name: XXH3-64 under a fixed seed. */
uint64_t rendezvous_id(const char *name, uint32_t size);

/* Copies the list. k: homes of a key, 1 .. HOMES_MAX. 0; -EINVAL (no member, more than MEMBERS_MAX, two with one id, a
 * weight or a state out of range, k out of range); -ENOMEM. About 10 KiB and 32 bytes a member. */
int rendezvous_create(struct rendezvous **out, const struct rendezvous_member *members, uint32_t n, uint32_t k);
void rendezvous_destroy(struct rendezvous *r);

/* Where a key stands: by its route, else by namespace and key. */
uint64_t rendezvous_place(const struct home_key *key);

/* The homes of a place, cheapest first, as indices of the list given: the smaller of k and the members that are IN.
 * out has room for HOMES_MAX. */
uint32_t rendezvous_homes(const struct rendezvous *r, uint64_t place, uint16_t *out);

/* A fingerprint of everything that the choice rests on: ids, weights, states and k, in any order of the list. Equal
 * revisions choose alike. Never 0. */
uint64_t rendezvous_revision(const struct rendezvous *r);

uint32_t rendezvous_count(const struct rendezvous *r);
uint64_t rendezvous_member_id(const struct rendezvous *r, uint16_t member); /* 0 if there is none */

#endif
