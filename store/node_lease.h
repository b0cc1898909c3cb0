/* node_lease.h: the core's table of leases and serves. Part of node_internal.h.
 *
 * An entry is live from its grant until nothing of it can touch the slot any more: `end` has passed or the peer gave it
 * back, and nothing is served. Live entries are counted by slot; a slot with a count is leased. Entries whose end is
 * still to come stand in the heap. Each is of one class: busy, idle, or asked (recalled, gone or given back: there is
 * nobody to ask). A RETIRED slot that is leased stands in the list `leased`, neither `fresh` nor `waiting`.
 */
#ifndef BERTH_STORE_NODE_LEASE_H
#define BERTH_STORE_NODE_LEASE_H

#include "store/lease.h"

#define LEASE_NONE UINT32_MAX
#define LEASE_PEER_CHAINS 1024u
#define LEASE_SERVE_CHAINS 4096u
#define LEASE_ID_BITS 24u
#define LEASE_RECALLS 256u /* leases recalled in one step */
#define LEASE_TOUCHES 4u   /* uses of one release that count */
#define HORIZON_RETRY_NS 1000000000
#define LEASE_TRIES 4u /* commits that a request waits for */

enum lease_flag {
    LEASE_LIVE = 1,
    LEASE_IN_FLIGHT = 2,
    LEASE_RECALLED = 4,
    LEASE_GONE = 8,      /* its connection went: not renewed any more */
    LEASE_RELEASED = 16, /* given back */
    LEASE_RESET = 32 /* something that was served from it never arrived: it lasts until its end, given back or not */
};

enum lease_class { LEASE_BUSY, LEASE_IDLE, LEASE_ASKED };

struct lease {
    uint64_t gen; /* of the entry: grows at every use of it */
    int64_t end;  /* node_now.raw */
    uint32_t slot;
    uint32_t peer; /* entry */
    uint32_t connection;
    uint32_t serves;
    uint32_t heap;         /* place in the heap, LEASE_NONE: its end has passed */
    uint32_t newer, older; /* idle list */
    uint32_t next, prev;   /* the peer's leases; next also of the free list */
    uint16_t extra;        /* renewals that it had though retired or recalled */
    uint8_t flags, class;
};

struct lease_peer {
    uint64_t incarnation;
    uint64_t bytes;
    uint32_t count;
    uint32_t first, last; /* leases, oldest first */
    uint32_t chain;       /* same hash, or the next free one */
    uint16_t peer;
};

struct serve {
    uint64_t token;
    uint32_t connection;
    uint32_t lease;
    uint32_t chain; /* same hash, or the next free one */
    uint16_t peer;
    bool used;
};

struct leased { /* one slot */
    uint32_t leases, busy, idle;
};

struct lease_wait {
    struct lease_wait *next;
    int kind;
    size_t bytes;
    unsigned tries;
    struct lease_event ev; /* points into data */
    uint8_t data[];
};

struct lease_table {
    struct lease *entry;
    uint32_t used, room, free, count; /* used: one above the highest entry ever used; count: live ones */
    uint32_t *heap;
    uint32_t n_heap;
    struct leased *slot;
    size_t slot_bytes;
    uint32_t top;            /* one above the highest slot that was ever leased */
    uint32_t oldest, newest; /* idle */
    struct lease_peer *peer;
    uint32_t peers, peers_room, peer_free;
    uint32_t peer_chain[LEASE_PEER_CHAINS];
    struct serve *serve;
    uint32_t serves_used, serves_room, serve_free, serves;
    uint32_t serve_chain[LEASE_SERVE_CHAINS];
    uint64_t bytes;       /* slots with a lease */
    uint64_t ready_bytes; /* of them the READY ones */
    uint64_t idle_bytes;  /* slots that only idle leases keep, one of them not asked for yet */
    uint64_t asked_bytes; /* slots that only leases keep that were asked for */
    int64_t horizon;      /* CLOCK_BOOTTIME ns: the index has it */
    int64_t ahead_at;     /* mono: not moved ahead of need before: the last commit of it failed */
    bool horizon_asked;   /* a greater one is on its way there */
    int64_t
        closed_until; /* CLOCK_BOOTTIME ns: slots that were in use at the start are not used again before; 0: passed */
    struct lease_wait *waits, **waits_end;
    size_t wait_bytes;
};

#endif
