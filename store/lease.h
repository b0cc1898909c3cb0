/* lease.h: what peers ask of the node core, and what it answers: leases, serves, recalls (PROTOCOLS rules 19 to 24).
 *
 * A lease keeps a slot from being used again until `end` = the clock at its grant or last renewal + ttl * (1 + rho) +
 * grace, on node_now.raw, whatever happens to the key meanwhile. It is a reference as a pin is: eviction passes over
 * leased slots, and a retired one waits until the last lease has ended and nothing is served from it.
 *
 * A lease belongs to (peer, incarnation of the peer) and counts from nobody else; its id names an entry of a bounded
 * table and that entry's generation, and means nothing to another incarnation of this node. Nothing here is trusted:
 * ids, counts, sizes and times are checked, and what does not fit is answered with an error or ignored.
 *
 * A lease is busy while the peer says that a transfer is in flight (every new lease begins so), or while something is
 * served from it; else it is idle. Bytes of slots that only idle leases keep are bounded: the oldest are recalled.
 */
#ifndef BERTH_STORE_LEASE_H
#define BERTH_STORE_LEASE_H

#include "index/record.h"

#include <stdbool.h>
#include <stdint.h>

#define LEASE_KEYS_MAX 256u                      /* keys of one request, leases of one renewal or release */
#define LEASE_TTL_LIMIT_NS INT64_C(30000000000)  /* no configuration may ask for more */
#define LEASE_GRACE_LIMIT_NS INT64_C(5000000000) /* nor for more than this .. */
#define LEASE_RHO_LIMIT_PPM 250000u              /* .. and this: the horizon's bound rests on them */
#define LEASE_TABLE_LIMIT (1u << 24)             /* leases that an id can name */
#define LEASE_WAIT_BYTES (8u << 20)              /* requests that wait for the horizon's commit, in all */

/* 0 in any field is its default. */
struct lease_config {
    int64_t ttl_ns;            /* given where a peer asks for none; 5 s */
    int64_t ttl_max_ns;        /* the most that is given; 30 s */
    int64_t grace_ns;          /* after ttl * (1 + rho); 250 ms, at least 10 ms: raw may be a millisecond off */
    uint32_t rho_ppm;          /* drift of both clocks; 10000, and 250000 where `raw` is not CLOCK_MONOTONIC_RAW */
    uint32_t max_leases;       /* of all peers; 65,536 */
    uint32_t peer_leases;      /* of one peer; half of max_leases */
    uint32_t max_serves;       /* of all peers; 65,536 */
    uint32_t retired_renewals; /* of a retired or recalled object, for a transfer in flight; 12 */
    uint64_t peer_bytes; /* slot bytes that one peer may have leased; a quarter of the pool. One object above it is
                                  leased all the same, alone */
    uint64_t idle_bytes; /* slot bytes that only idle leases keep: above it the oldest are recalled; 1/8 of the pool */
};

struct lease_ref {
    uint64_t id;
    uint32_t uses;  /* RELEASE: reads since the lease was given: they count as touches */
    bool in_flight; /* RENEW: a transfer under this lease is under way */
};

/* Who asks, and what: of an event only the fields that its kind names are read. */
struct lease_event {
    uint16_t peer;               /* member index */
    uint32_t connection;         /* the shell's number of the connection: never used twice */
    uint64_t incarnation;        /* of the peer, from its HELLO */
    uint64_t request;            /* LEASE, RENEW: comes back with the answer */
    int64_t ttl_ns;              /* LEASE, RENEW: wanted; 0: the default, more than the most: the most */
    uint32_t flags;              /* LEASE: 0, others are refused with -EINVAL */
    const struct key_ref *keys;  /* LEASE: n of them */
    const struct lease_ref *ref; /* RENEW, RELEASE: n of them; SERVE_BEGIN: one */
    uint32_t n;                  /* 1 to LEASE_KEYS_MAX */
    uint64_t token;              /* SERVE_*: names the serve among those of its connection */
    bool reset; /* SERVE_END: the connection was reset: bytes may still be on their way to the reader */
};

/* One key's or lease's answer. RENEW gives status, lease and duration_ns only. */
struct lease_grant {
    int32_t status; /* LEASE: 0, -ENOENT, -EINVAL (the key), BERTH_EQUOTA (figure), -ENOMEM;
                       RENEW: 0, BERTH_ESTALE: there is no such lease of this peer, or it is not renewed any more */
    uint32_t slot;
    uint64_t lease;
    uint64_t generation;
    uint64_t offset;          /* in the pool, bytes */
    uint64_t size;            /* of the payload, bytes */
    uint64_t counter, region; /* the version */
    uint64_t checksum, lineage;
    uint8_t segment;     /* log2 of the segment size, 0: one segment */
    int64_t duration_ns; /* the ttl, from before the reader's request on the reader's clock */
    uint64_t figure[3];  /* EQUOTA: slot bytes asked, bytes (or leases) that the peer has, the bound */
};

/* CMD_LEASED, CMD_RENEWED, CMD_RECALL, CMD_SERVE. */
struct lease_answer {
    uint16_t peer;
    uint32_t connection;
    uint64_t incarnation;
    uint64_t request;
    int32_t status; /* 0; LEASED, RENEWED: -EINVAL (count, flags), BERTH_ENODE (the node stops, or did not start),
                       -EAGAIN (too much waits, or the index takes no commit), -ENOMEM: then there are no grants;
                       SERVE: 0: send, then SERVE_END; BERTH_ESTALE: no live lease; -EEXIST: the token is in use;
                       -EAGAIN: too many serves */
    const struct lease_grant *grant; /* LEASED, RENEWED: n in the order of the request; SERVE: one: lease, slot,
                                        generation, offset, size */
    const uint64_t *id;              /* RECALL: n leases */
    uint32_t n;
    uint64_t token; /* SERVE */
};

struct node_lease_info {
    uint64_t lease, incarnation, generation;
    uint32_t slot, connection, serves;
    uint16_t peer;
    int64_t left_ns; /* until its end, never negative; 0: over, kept by what is served or until the next tick */
    bool in_flight, recalled, gone, released;
};

#endif
