/* client.h: a handle, as the client's files share it.
 *
 * Reads go through the mappings alone (find.h, pin.h). Everything else is a call (call.h): a request in the ring and
 * its reply. `lock` guards what calls, grants, tokens and queues share; it is never held while payload is copied or
 * waited for.
 */
#ifndef BERTH_STORE_CLIENT_H
#define BERTH_STORE_CLIENT_H

#include "index/lookup.h"
#include "store/attach.h"
#include "store/berth.h"
#include "store/call.h"
#include "store/error.h"
#include "store/fd.h"
#include "store/grant.h"
#include "store/token.h"

#include <pthread.h>

/* The handle's word in a MADV_WIPEONFORK page: a child reads 0. */
enum life {
    LIFE_FORKED = 0,
    LIFE_LIVE = 1,
    LIFE_REMOTE = 3, /* of a client without a node: for the calls that are written for it (remote.h) */
    LIFE_GONE = 2    /* the node came back with another pool: only views that exist go on */
};

struct mapped {
    void *base;
    uint64_t bytes;
};

#define KEPT_NAMESPACES 64u

struct berth {
    /* what every read needs */
    _Atomic uint32_t *life;
    struct lookup lookup;
    const uint8_t *pool;
    uint64_t pool_bytes;
    struct pins_file *pins;
    struct ring_shared *ring;
    uint64_t lineage;
    uint64_t region_id;
    _Atomic uint32_t pin_entries; /* acknowledged by the node */
    _Atomic bool muted;           /* no touches: the ring is being shown to a node again, and must be empty */
    bool unmeasured; /* gets leave counters and samples out: `berth bench overhead` sets it, to know what they cost */

    /* the rest */
    uint8_t *writable; /* pool; NULL for a reader */
    struct mapped slots, lookups, tails;
    struct server *server; /* embedded */
    struct remote *remote; /* tcp://; then nothing is mapped, and all above but life, ring and lineage is NULL */
    pthread_mutex_t grow_lock;
    pthread_mutex_t query_lock; /* the node keeps one text a session */
    pthread_mutex_t buffer_lock;
    uint64_t cookies; /* of descriptors sent; buffer_lock's */
    int64_t timeout_ns;
    uint32_t flags;
    char name[NAME_MAX_BYTES + 1];
    char path[108];
    uint8_t uuid[16];
    uint64_t session;
    uint64_t object_max;
    struct kept_fd ring_fd;
    _Atomic int64_t look_at; /* coarse CLOCK_MONOTONIC ns: when to look again whether the node is there */

    pthread_mutex_t lock;
    struct calls calls;
    struct grants grants;
    struct tokens tokens; /* every slot that this session may write */
    struct berth_queue *queues;
    struct registered *registered; /* buffers */
    uint32_t last_registered;
    uint64_t attachments;           /* from 1 */
    uint32_t kept[KEPT_NAMESPACES]; /* namespaces known not to be replaceable, beside the default */
    _Atomic uint32_t n_kept;
};

static inline int client_life(const struct berth *b)
{
    return (int)atomic_load_explicit(b->life, memory_order_relaxed);
}

/* What is mapped answers for ever, whatever became of the node. So calls that need not ask it look now and then whether
 * its socket has hung up, and if so attach again, which says whether the pool is still the one that is mapped. */
#define CLIENT_LOOK_NS INT64_C(100000000)
void client_look(struct berth *b);

static inline bool client_lives(struct berth *b)
{
    if (client_life(b) == LIFE_LIVE) {
        client_look(b);
    }
    return client_life(b) == LIFE_LIVE;
}

/* Whether the handle can be used, and maps a node's region: 0, or the error recorded. */
int client_check(struct berth *b);
/* The same for a key. */
int client_check_key(struct berth *b, const struct berth_key *key);
/* The same where a handle without a node will do. */
int client_check_any(struct berth *b);
int client_check_key_any(struct berth *b, const struct berth_key *key);

int64_t client_now(void); /* CLOCK_MONOTONIC ns */

/* Records the figures of a pool without room: asked, free, largest run, in use. Returns status, which is BERTH_EFULL or
 * -ETIMEDOUT. */
int client_fail_full(int status, const uint64_t figure[4]);
/* Records what a reply says and returns its status. */
int client_fail_reply(const struct berth *b, const struct call_result *r);
/* Records why this handle may not write: it was opened as a reader, or the node is another user's. */
int client_fail_readonly(const struct berth *b);

/* Whether a put on an existing key of this namespace keeps it, as far as is known. */
bool client_keeps(const struct berth *b, uint32_t ns);

/* api_buffer.c: frees the list. */
void buffers_close(struct berth *b);

/* attach.c: hello, welcome, mappings. On an error the sentence is recorded. */
/* limit_ns: how long it may wait in the node's queue; -EAGAIN: in vain. */
int attach_connect(const char *path, int64_t limit_ns);
int attach_first(struct berth *b, int socket);
void attach_unmap(struct berth *b);
/* Records that no descriptor is left, here or in the system; returns the error. */
int attach_fail_descriptors(int error);
/* One try to go on with the session, in two halves that both wait for nothing: whoever leads has others' deadlines to
 * look after meanwhile. attach_begin connects and says hello: a socket, which is the caller's and becomes readable when
 * the node answers; -EBADF: the handle's descriptors are gone; another negative one: not now. attach_end: 1: the
 * session goes on, and the socket is the handle's; 0: it does not, the pool is another; -EAGAIN: no answer is there
 * yet; another negative one: not now. attach_over after every end of a try. */
int attach_begin(struct berth *b);
int attach_end(struct berth *b, int socket);
void attach_over(struct berth *b);

#endif
