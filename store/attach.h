/* attach.h: what client and node say on the Unix socket (SOCK_SEQPACKET): attach, liveness, wake-up, descriptors.
 *
 * One hello, one welcome; after that the socket carries single bytes that wake a client of another user, whose eventfd
 * the node does not trust to take a write without waiting, and from the client attach_buffer with one descriptor each,
 * ahead of the BUFFER that names its cookie (msg.h); nothing else. Its hang-up is a reason to look whether the
 * other side lives, never proof (PROTOCOLS rule 6). All requests go through the ring.
 *
 * Hello comes with three descriptors: the ring (a memfd of sizeof(struct ring_shared), sealed SHRINK | GROW; its header
 * filled in, all indices 0: a client that attaches again resets its ring first, when it has quiesced it, and sends its
 * unanswered requests again), an eventfd that the node rings when client_sleeping is set, and a pidfd that the client
 * opened on itself. Where the kernel has SO_PEERPIDFD the node uses that and ignores the third.
 *
 * Welcome comes with the descriptors pool, slots, lookup, tails, pins, doorbell in this order (doorbell: the eventfd
 * that the client rings when node_sleeping is set). pool is read-write for the node's own uid and root, read-only
 * otherwise; slots, lookup, tails are read-only. pins is the description through which the node took the file's lock:
 * the client maps the table through it, so that its mapping keeps the lock, and both close their descriptors
 * afterwards.
 */
#ifndef BERTH_STORE_ATTACH_H
#define BERTH_STORE_ATTACH_H

#include "store/layout.h"

#define ATTACH_MAGIC 0x3148415454454248ULL
#define ATTACH_BUFFER_MAGIC 0x3146425454454248ULL
#define ATTACH_HELLO_FDS 3
#define ATTACH_WELCOME_FDS 6

enum attach_flags {
    ATTACH_READER = 1, /* hello: no writable pool wanted; welcome: none given */
    ATTACH_RESUMED = 2 /* welcome: the session of hello goes on, its pins and drafts with it */
};

struct attach_hello {
    uint64_t magic;
    uint32_t format;      /* LAYOUT_FORMAT */
    uint32_t fingerprint; /* LAYOUT_FINGERPRINT */
    uint64_t session;     /* to go on with; 0: a new one */
    uint8_t uuid[16];     /* of the pool that it was on */
    uint32_t flags;
    uint32_t reserved;
    char name[NAME_MAX_BYTES + 1]; /* NUL-terminated, shown in reports, escaped there */
};

struct attach_buffer {
    uint64_t magic;  /* ATTACH_BUFFER_MAGIC */
    uint64_t cookie; /* not 0; of the last one that came the descriptor is kept */
};

struct attach_welcome {
    uint64_t magic;
    int32_t status; /* 0, or a negative error: then `sentence` says why and no descriptors come */
    uint32_t flags;
    uint64_t session;
    uint8_t uuid[16];
    uint64_t region_id;
    uint64_t incarnation; /* counts starts of the node on this region */
    uint64_t pool_bytes, slots_bytes, lookup_bytes, tails_bytes;
    uint32_t pin_entries; /* acknowledged so far */
    uint32_t applied_pad;
    uint64_t applied;    /* resumed: highest request id whose effect is in the index */
    uint64_t object_max; /* bytes of the largest object that can be here */
    char sentence[240];
};

#endif
