/* berth.h: the public interface of libberth.
 *
 * Berth keeps large immutable objects in a pinned pool that every process of the host maps. A reader pins an object and
 * reads it in place; a writer fills a slot in place and seals it. Nothing is copied that the caller does not copy, and
 * no slot is used again while a pin or a hold stands.
 *
 * Conventions. A call returns 0 or a positive count, or a negative error: an errno value, or one of enum
 * berth_error_code beyond -4095; berth_error() has the name, the number, a sentence and figures. Output parameters are
 * written only on success, unless a call says otherwise. Deadlines are absolute CLOCK_MONOTONIC nanoseconds, or
 * BERTH_NOW, or BERTH_FOREVER. Where the caller's own node does not answer a call ends 50 ms after its deadline at
 * most, 100 ms where it asks twice, and -ETIMEDOUT leaves open whether the node does yet what it was asked; memory that
 * an embedded node or a thread of tcp: writes into is waited for until it is quiet. Sizes are bytes. Unknown flags are
 * refused with -EINVAL, those reserved for later versions with -EOPNOTSUPP. Option structures begin with their size,
 * set it to sizeof. A handle serves many threads; any thread may release any view. After fork the child's copy of a
 * handle answers BERTH_EFORKED: open another. After a node came back with another pool, or with another lookup, every
 * call on the handle but berth_close and berth_release answers BERTH_ERESTART. A call that asks the node learns of it
 * at once. One that reads what is mapped looks for it ten times a second at most, and so learns within a second after
 * the new node serves; but of gets that find their key, and nothing else, a thread may do 16 more first. Until the node
 * is back what is mapped goes on.
 *
 * Arguments that are the same everywhere: b is an open handle, q an open queue, n the number of elements of the arrays.
 */
#ifndef BERTH_H
#define BERTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 1
#define BERTH_VERSION_PATCH 0

#if defined(__GNUC__)
#define BERTH_API __attribute__((visibility("default")))
#else
#define BERTH_API
#endif

#define BERTH_NOW INT64_C(0)
#define BERTH_FOREVER INT64_MAX
#define BERTH_KEY_MAX 480u             /* bytes of a key, at least 1 */
#define BERTH_OBJECT_MAX (1024u << 20) /* bytes of an object, at least 0; a pool or MR size below lowers it */
#define BERTH_GROUP_MAX 1024u          /* drafts that one seal publishes together */
#define BERTH_LABEL_MAX 63u            /* bytes of a hold's label */
#define BERTH_SEGMENT_MIN 4096u        /* bytes of a segment, a power of two */
#define BERTH_SEGMENTS_MAX 1024u       /* segments of an object */
#define BERTH_RANGES_MAX 65536u        /* ranges of one call */

/* Our own errors: code, number, sentence. Everything else is an errno value. */
#define BERTH_ERRORS(X)                                                                                       \
    X(BERTH_EFULL, 4097, "the pool has no room for it and nothing more may be evicted")                       \
    X(BERTH_EINDEXFULL, 4098, "the index map is full: raise index-size and restart the node")                 \
    X(BERTH_EHELD, 4099, "the object is held: drop its holds first")                                          \
    X(BERTH_ENODE, 4100, "the node does not answer: is berthd running, and is the node name right")           \
    X(BERTH_EFORKED, 4101, "the handle was made by the parent process: open one after fork")                  \
    X(BERTH_ESTALE, 4102, "the draft is no longer this client's: create it again")                            \
    X(BERTH_EPINS, 4103, "the pin table is full: release views, or attach a second handle")                   \
    X(BERTH_EQUOTA, 4104, "over the quota of pinned or unsealed bytes: release views, seal or abort drafts")  \
    X(BERTH_EREADONLY, 4105, "another user's node is read-only for this process: run as the node's user")     \
    X(BERTH_ELINEAGE, 4106, "the object was made by another model or layout: its lineage tag differs")        \
    X(BERTH_EVERSION, 4107, "the object has another version than expected")                                   \
    X(BERTH_ECORRUPT, 4108, "the payload does not match its checksum")                                        \
    X(BERTH_EFORMAT, 4109, "node and library do not share a format: use the same release of both")            \
    X(BERTH_EUNKNOWN, 4110, "the node restarted before it answered: the effect may or may not have happened") \
    X(BERTH_ERESTART, 4111, "the pool, or (tcp://) a node's member list, is another: open the handle again")  \
    X(BERTH_EHASH, 4112, "the key's hash belongs to another key: choose another key")                         \
    X(BERTH_EGROUP, 4113, "the keys are not of one seal: seal them together, or read without SAME_GROUP")     \
    X(BERTH_EHOLDS, 4114, "the object has as many holds as it can: drop some first")                          \
    X(BERTH_EBUSY_RING, 4115, "the queue is full: reap completions first")                                    \
    X(BERTH_EUNSURE, 4116, "a member that may have it can't be reached: whether it exists is not known")      \
    X(BERTH_ENOTNOW, 4117, "its owners could not serve it in time: try again")                                \
    X(BERTH_EUNPUBLISHED, 4118, "it was put, but not all of its homes have acknowledged it in time")          \
    X(BERTH_EPURGED, 4119, "a purge of its key came after the draft was created: create it again")            \
    X(BERTH_EABORTED, 4120, "the key's writer gave it up before it was sealed: create it yourself")           \
    X(BERTH_EDIED, 4121, "the key's writer ended before it was sealed: create it yourself")

enum berth_error_code {
#define BERTH_ERROR_ENUM(code, number, sentence) code = -(number),
    BERTH_ERRORS(BERTH_ERROR_ENUM)
#undef BERTH_ERROR_ENUM
};

#define BERTH_KEPT 1    /* of berth_put and berth_create: the key exists and was kept */
#define BERTH_WRITING 2 /* in the status of a draft after berth_create: another draft of the key was open then */

struct berth;       /* a handle on one node */
struct berth_queue; /* completions of asynchronous operations */

/* A key: 1 to BERTH_KEY_MAX bytes of any value, in a namespace. The library copies what it needs before a call returns,
 * but for operations of a queue, whose keys must stay until they are reaped. */
struct berth_key {
    const void *data;
    uint32_t size;
    uint32_t ns;    /* from berth_namespace(); 0 is the default namespace */
    uint64_t route; /* 0: the key's own hash decides which nodes are its homes; keys with one route share them, so that
                       a question for all of them goes to few nodes. Nothing on a node without peers */
};

/* The sealing node's counter and region id: greater is newer, equal means the same bytes. */
struct berth_version {
    uint64_t counter;
    uint64_t region;
};

/* A pinned object. A value in the caller's storage: copy it, but release one copy only. data stays valid and unchanged
 * until berth_release, whatever happens to the key. Of an object of 0 bytes data is a valid pointer to nothing. */
struct berth_view {
    const void *data; /* NULL: not found or not pinned; status says which */
    uint64_t size;
    struct berth_version version;
    uint64_t checksum; /* XXH3-64 of the payload; of an object with segments, of the list of their XXH3-64: 8 bytes
                          each, little-endian, in order */
    uint64_t lineage;
    uint32_t slot;
    uint32_t entry; /* the library's */
    int32_t status; /* 0, -ENOENT or another error; set for every member of a batch */
    uint32_t pad;
    uint64_t reserved[2];
};

/* A slot while the caller writes it. Write data[0 .. size) from any thread of this process, then seal or abort.
 * The structure must stay where it is until then. A node that restarts keeps the drafts of clients that live. */
struct berth_draft {
    void *data;
    uint64_t size;
    uint64_t checksum; /* before seal: XXH3-64 of the payload if the caller has it, with BERTH_HAS_CHECKSUM in flags;
                          else seal computes it. Of a draft with segments seal sets it */
    uint32_t flags;    /* BERTH_HAS_CHECKSUM, BERTH_PUBLISHED */
    int32_t status;    /* after create: 0, or BERTH_WRITING; after seal of a group: 0 sealed, BERTH_KEPT the key
                                 existed and was kept */
    const uint64_t *segments; /* before seal of a draft with segments: XXH3-64 of each, with BERTH_HAS_CHECKSUM */
    uint64_t generation;      /* the library's from here */
    uint32_t slot;
    uint32_t page;
    uint32_t segment; /* bytes, as the options of create said; 0: none */
    uint32_t reserved;
};
#define BERTH_HAS_CHECKSUM 1u

/* What reads do beside looking here; or them together. Reads: get, get_into, get_range, get_many, prefix. */
enum berth_flags {
    BERTH_VERIFY = 1u << 0,     /* reads: compare the checksum, of all segments (get_range: of those that it touches) */
    BERTH_NO_TOUCH = 1u << 1,   /* reads: do not count as a use for eviction */
    BERTH_SAME_GROUP = 1u << 2, /* prefix, get_many: all members from one seal, or BERTH_EGROUP */
    BERTH_LOCAL = 1u << 3, /* reads, exists: look here only, as without a flag; -EINVAL with BERTH_PEERS, or on tcp: */
    /* reads: wait for a key that is not there until it is sealed, the last that writes it gives it up or ends, or the
     * deadline. A key that nobody writes is waited for too: somebody may create it; with BERTH_PEERS also where a
     * member that may have it is down. -ETIMEDOUT says that it did not come in time, and no more. BERTH_NOW waits for
     * nothing, BERTH_FOREVER without end. What a call has found stays pinned while it waits for the rest */
    BERTH_WAIT = 1u << 17,
    /* reads: what is not here is pulled from peers into this pool, under a lease, and pinned here as any other object.
     * Nothing is asked where it is here. The deadline is that of the whole call: -ETIMEDOUT; BERTH_NOW asks nobody,
     * so that what is not here is -ETIMEDOUT, BERTH_FOREVER waits as long as there is somebody to ask. Without peers
     * what is not here is -ENOENT. Errors: see berth_get. With BERTH_VERIFY what comes is compared with its checksum on
     * its way, whatever the node's setting `verify` is. get_into and get_range may need no room in the pool: see
     * berth_get_range */
    BERTH_PEERS = 1u << 16,
    BERTH_FRESH = 1u << 18 /* with BERTH_PEERS, else -EINVAL: in a replaceable namespace ask the home for the newest
                              version even though one is here; in others what is here is the newest */
};
#define BERTH_PULL_MAX 256u /* keys of one BERTH_OP_PULL */

/* Options of berth_open. All 0 but size: the defaults. */
struct berth_open_opts {
    size_t size;      /* sizeof(struct berth_open_opts) */
    const char *name; /* shown by `berth pins`, at most 63 bytes; NULL: the program's name */
    uint64_t lineage; /* tag of this process's model, dtype and layout: puts carry it, and objects with another one are
                           refused to it with BERTH_ELINEAGE; 0: no tag, no comparison */
    int64_t timeout_ns; /* how long the node may be silent before a call ends with BERTH_ENODE; 0: 30 s */
    uint32_t flags;     /* BERTH_OPEN_READER: map the pool read-only, no puts */
    uint32_t reserved[5];
};
#define BERTH_OPEN_READER 1u

/* Options of berth_put and berth_create. All 0 but size: the defaults. */
struct berth_put_opts {
    size_t size;
    uint64_t lineage;               /* 0: the handle's */
    const struct berth_key *parent; /* the object before this one in its prefix; NULL: none */
    uint32_t ttl_s;                 /* seconds after which it may go first; 0: none */
    uint8_t priority; /* 0 to 255, 0 is the default; more is kept longer: it counts as 0, 1, 2 to 3, 4 to 7 .. */
    uint8_t pad[3];
    uint32_t segment; /* bytes: a power of two, at least BERTH_SEGMENT_MIN, and so that the object has at most
                         BERTH_SEGMENTS_MAX of them. Each then has a checksum of its own, and a range can be verified
                         without the rest. 0: one checksum for all of it */
    uint32_t flags;   /* BERTH_JOIN, for berth_create; BERTH_PUBLISHED */
    int64_t deadline; /* to wait for room, with BERTH_JOIN for the other writer, with BERTH_PUBLISHED for homes;
                         BERTH_NOW: no longer than an eviction takes, and for no writer and no home */
    uint64_t reserved[4];
};

/* create: where another draft of the key is open, wait for its outcome instead of writing the same bytes twice. Sealed:
 * BERTH_KEPT, in every namespace. Given up, or its writer has ended: one of those who wait gets a draft, the others go
 * on to wait for that one. */
#define BERTH_JOIN 1u
/* put, and create for the seal of its draft (it sets the flag in the draft): return when all homes of the key have
 * acknowledged it, so that a pull from any node finds it (a node without peers: at once). The wait of a put ends at the
 * options' deadline, that of create and seal after the handle's time-out, in a queue at the operation's deadline.
 * BERTH_EUNPUBLISHED: it is put, readers of this node have it, and homes go on to be told; BERTH_EVERSION: it was put,
 * and has been removed or replaced since, or gave way to another node's. A draft whose data is NULL was sealed.
 * Put and create say BERTH_KEPT only of an object that all homes hold for good: one that was removed at another node,
 * of which this node may not have heard, is given up, and the put goes on as of a new key. Without this flag BERTH_KEPT
 * says that the key is here at that moment, and no more. Members of a group that seal keeps are not waited for. */
#define BERTH_PUBLISHED 2u

/* Opens a node: "embedded:?pool=256MiB" (a node on a thread of this process, over a region of its own; settings as
 * for berthd, separated by &; replaceable=NAME,.. and share=NAME=SIZE,.. stand for its [namespace] sections; calls
 * that wait for it do its work on their own thread, which needs a stack of at least 128 KiB), "unix:PATH", or NULL:
 * $BERTH_NODE, else the first that answers of unix:$XDG_RUNTIME_DIR/berth.sock, unix:/run/berth/berth.sock and
 * unix:/tmp/berth-UID/berth.sock (whose directory has to be this user's alone); an empty name is none.
 * "tcp://HOST:PORT" is a node of another host, at the address where it listens for its peers (settings behind a "?",
 * separated by &: cluster=NAME, verify=always | 1/N | lease, peer-trust=network for an address that is no loopback):
 * a client without a node. Whichever member of a fleet is named, objects of all of them are read, into the caller's
 * memory: berth_get_into, berth_get_range, berth_exists, berth_stat, the queues' operations of these names and
 * BERTH_OP_CANCEL, as if with BERTH_PEERS; and berth_namespace. Everything else needs a node on this host:
 * -EOPNOTSUPP. It runs on a thread of this process, until berth_close. Where the fleet's list of members has changed,
 * or nodes have lists that differ, calls say BERTH_ERESTART. "verbs://" is a name of later versions. opts may be NULL.
 * *b is the caller's until berth_close. Any thread.
 * Errors: -EINVAL (name or option), BERTH_ENODE, -EACCES (not permitted; tcp: another cluster, too), BERTH_EFORMAT,
 * -ENOMEM, -EMFILE, -EOPNOTSUPP (verbs:), -EUSERS (the node has 1024 sessions, the most that it serves; tcp: 256
 * clients without a node); embedded also what berthd refuses to start with: -EBUSY (another node has the region),
 * -ENOTEMPTY (its directory has files that are not a node's), -ENOSPC (no room for the pool), -EPERM (the pool can't
 * be locked), -EADDRINUSE, or the errno of a file. berth_error(NULL, ..) has the sentence. */
BERTH_API int berth_open(struct berth **b, const char *node, const struct berth_open_opts *opts);

/* Closes a handle: unsealed drafts are aborted, remaining views become invalid, queues must be closed before. Ends an
 * embedded node. b may be NULL. Not while another thread uses the handle. */
BERTH_API void berth_close(struct berth *b);

/* A namespace's id (*ns), registered at the node if it is new. name: 1 to 63 bytes of [a-zA-Z0-9._-]; "" is the
 * default, 0. The id follows from the name and is the same on every node. Errors: -EINVAL, -EEXIST (another namespace
 * has that id: choose another name), BERTH_ENODE, BERTH_EINDEXFULL, BERTH_EREADONLY (a new name, by a reader). */
BERTH_API int berth_namespace(struct berth *b, const char *name, uint32_t *ns);

/* Puts an object whole: copies size bytes from data into the pool with their checksum, and seals. data may be NULL
 * for size 0. Where the key exists it is kept (BERTH_KEPT), unless its namespace is replaceable: then readers of this
 * node go over to the new bytes at once and views of the old stay. Other nodes may show a copy of the old for as long
 * as the setting `fresh` says (BERTH_FRESH asks for the newest). Returns 0 or BERTH_KEPT.
 * Errors: -EINVAL (an argument, or the key's namespace id is none of this node), -E2BIG (larger than any object can
 * be; the sentence says the limit), BERTH_EFULL (figures: asked, free, largest, pinned), BERTH_EQUOTA (figures:
 * asked, quota, had), BERTH_EINDEXFULL, BERTH_EREADONLY, BERTH_EHASH, BERTH_ENODE, -ETIMEDOUT (deadline; with
 * figures for want of room, without them the node did not answer in time and may put it yet); with BERTH_PUBLISHED also
 * BERTH_EUNPUBLISHED and BERTH_EVERSION (it has been removed or replaced since): then it has been put all the same. */
BERTH_API int berth_put(struct berth *b, struct berth_key key, const void *data, size_t size,
                        const struct berth_put_opts *opts);

/* Reserves a slot under a key for the caller to fill. Nobody sees the key before berth_seal. Returns 0, or BERTH_KEPT
 * where the key exists in a namespace that is not replaceable: then there is no draft, d->data is NULL, and seal and
 * abort pass d over, so that a group can be sealed as it was created. Two creators of one key do not disturb each
 * other; the first to seal wins. d->status is BERTH_WRITING where another draft of the key is open, of this client or
 * another; opts->flags BERTH_JOIN waits for that one instead. d is the caller's storage. Errors: -EINVAL (an
 * argument, or the key's namespace id is none of this node), -E2BIG (larger than any object can be; the sentence says
 * the limit), BERTH_EFULL (figures: asked, free, largest, pinned), BERTH_EQUOTA (figures: asked, quota, had),
 * BERTH_EREADONLY, BERTH_ENODE, BERTH_EFORKED, -ENOMEM, -ETIMEDOUT (no room came, or the other still wrote, by the
 * deadline), with BERTH_JOIN -EAGAIN (too many wait), with BERTH_PUBLISHED BERTH_EUNPUBLISHED (it was kept, and the
 * homes have not said that they hold it) and BERTH_EVERSION (others go on putting and removing it). */
BERTH_API int berth_create(struct berth *b, struct berth_key key, size_t size, const struct berth_put_opts *opts,
                           struct berth_draft *d);

/* Seals n drafts, 1 to BERTH_GROUP_MAX: readers see all of them from one moment on, or none if it fails. Members
 * whose key exists by then are kept (d[i].status), the others become visible together. A member that create has kept
 * is no draft: it is passed over. Returns how many were kept, those included. d[i].data says whether a draft is still
 * there. It is NULL after success and after an error of the node. It stays, and the draft may be sealed again or
 * aborted, after BERTH_ENODE, -ETIMEDOUT, BERTH_EINDEXFULL and -ENOMEM, and where the arguments were wrong: then no
 * draft was touched. A draft with segments has its checksums sent ahead, in the order of the drafts.
 * Errors: -EINVAL (count, a key twice in a group, a draft without data that was not kept), BERTH_ESTALE,
 * BERTH_EPURGED (a purge that covers one of them came after it was created: none is sealed),
 * BERTH_EINDEXFULL, BERTH_EHASH, BERTH_ENODE, BERTH_EUNKNOWN, -ETIMEDOUT, -ENOMEM; of drafts with BERTH_PUBLISHED
 * also BERTH_EUNPUBLISHED and BERTH_EVERSION (one was removed or replaced since): they were sealed all the same. */
BERTH_API int berth_seal(struct berth *b, struct berth_draft *d, size_t n);

/* Gives n drafts back unsealed. A draft without data is passed over. Errors: -EINVAL, BERTH_ENODE (they are given back
 * when the node answers again). */
BERTH_API int berth_abort(struct berth *b, struct berth_draft *d, size_t n);

/* Pins an object and shows it in place. No system call unless the lookup table is incomplete for this key, but for
 * the look at the node's socket that is due ten times a second at most. flags: BERTH_VERIFY, BERTH_NO_TOUCH,
 * BERTH_LOCAL, BERTH_WAIT, BERTH_PEERS (what is not here is pulled from other nodes), BERTH_FRESH (their newest
 * version). deadline bounds the rare question to the node; BERTH_FOREVER: the handle's time-out. With BERTH_WAIT it
 * bounds the wait, over restarts of the node too; with BERTH_PEERS the whole call, BERTH_NOW asks nobody. Errors:
 * -ENOENT, BERTH_ELINEAGE, BERTH_EPINS, BERTH_EQUOTA, BERTH_ECORRUPT (with VERIFY, or from a peer), BERTH_EFORKED,
 * -EINVAL (an argument; with BERTH_PEERS the key's namespace id is none of this node, too: take it from
 * berth_namespace); with BERTH_WAIT also -ETIMEDOUT, BERTH_EABORTED, BERTH_EDIED, BERTH_ENODE, and -EAGAIN (the node
 * has as many waits as it takes: wait for fewer keys); with BERTH_PEERS also -ETIMEDOUT, BERTH_EUNSURE (the sentence
 * has the member that could not be asked, where it is known), BERTH_ENOTNOW, BERTH_ENODE, BERTH_EREADONLY (another
 * user's node may not be filled), and of the copy here BERTH_EFULL, -E2BIG (larger than this node's pool takes),
 * BERTH_EINDEXFULL, BERTH_EHASH, -ENOMEM. Room is waited for until the deadline: -ETIMEDOUT with the figures of
 * BERTH_EFULL; with BERTH_FOREVER for a second only, since what keeps it may be what the caller itself has pinned. An
 * owner lends one node `lease-quota` bytes at a time, or one object that is larger: what is above it is waited for. */
BERTH_API int berth_get(struct berth *b, struct berth_key key, struct berth_view *view, unsigned flags,
                        int64_t deadline);

/* Pins n objects in one pass (n up to 65,536): hashes, prefetches and pins them in batches. flags as berth_get, and
 * BERTH_SAME_GROUP. With BERTH_PEERS what is missing is pulled, 256 keys at a time, and a key that can't be had keeps
 * no other from being brought; the deadline is that of the call. Returns how many were found; v[i].data is NULL and
 * v[i].status says why for the others: an error of berth_get, with BERTH_PEERS and BERTH_WAIT those of these flags.
 * Errors: -EINVAL, BERTH_EFORKED, BERTH_EGROUP for the call as a whole; in v[i].status as berth_get. */
BERTH_API long berth_get_many(struct berth *b, const struct berth_key *keys, size_t n, struct berth_view *v,
                              unsigned flags, int64_t deadline);

/* Copies an object into the caller's memory and releases it. buffer holds size bytes; an object that is larger is
 * -ENOSPC with its size in the error's first figure, nothing is copied. Returns the object's size. flags as
 * berth_get. Errors as berth_get; -ENOSPC (buffer is too small). Where bytes come straight from a peer (tcp:, or an
 * embedded node with BERTH_PEERS) an error may leave some of them in buffer; when the call returns nothing is written
 * there any more. */
BERTH_API long berth_get_into(struct berth *b, struct berth_key key, void *buffer, size_t size, unsigned flags,
                              int64_t deadline);

/* A part of an object, and where it is copied to. */
struct berth_range {
    uint64_t offset; /* in the object, bytes */
    uint64_t size;   /* bytes; 0 is possible */
    void *data;      /* the caller's, size bytes; NULL where size is 0 */
};

/* Copies n ranges, 1 to BERTH_RANGES_MAX, of one object into the caller's memory, all of one version, and releases
 * it. They may overlap in the object and come in any order. flags as berth_get; BERTH_VERIFY verifies the segments
 * that the ranges touch and no others, of an object without segments all of it. With BERTH_PEERS ranges of an object
 * with segments come alone into memory of an embedded node or a registered buffer, as get_into does: straight, with
 * no room in the pool, and an error may leave some of them. Into other memory, and to verify an object without
 * segments, all of it comes into the pool. Returns the bytes copied. Errors as berth_get; -ERANGE (a range goes
 * beyond the object; figures: the object's size, the range's index, its offset and size), -EOPNOTSUPP (tcp: with
 * BERTH_VERIFY: ranges of an operation that can't be verified alone). Other errors copy nothing, but on a handle of
 * tcp: as with berth_get_into. There BERTH_OP_GET_RANGE takes at most 1,024 ranges. */
BERTH_API long berth_get_range(struct berth *b, struct berth_key key, const struct berth_range *ranges, size_t n,
                               unsigned flags, int64_t deadline);

/* ---- memory that pulls write into ---- */

/* Registers memory of this process with its node: what get_into and get_range with BERTH_PEERS (and their operations
 * of a queue) bring from peers into it is written there straight, with no copy and no room in the pool. Other memory
 * is served by a copy out of the pool as ever, so nothing has to be registered; of an embedded node all memory is as
 * good. data: size bytes that the process has mapped, shared and writable, from offset of fd on, a multiple of 4,096.
 * fd: a memfd on pages of 4 KiB that is sealed with F_SEAL_SHRINK: one that may be cut would be the node's end. It
 * may be closed afterwards. *id names the buffer until berth_buffer_unregister. A destination belongs to the node
 * until the call that names it returns; after BERTH_ENODE or -ETIMEDOUT of such a call it may be written until the
 * buffer is unregistered or the handle closed. Over a restart of the node the library registers it anew. At most 64
 * buffers of 256 GiB together for a handle.
 * Errors: -EINVAL (an argument; data is not mapped so, is of another file or from another offset on), -EACCES (fd is
 * not open for reading and writing), -EPERM (no seal), -EEXIST (it overlaps another), BERTH_EQUOTA (of buffers: more,
 * or more bytes, than a handle may have), BERTH_EREADONLY, -EMFILE, -ENOMEM, BERTH_ENODE, BERTH_EFORKED. */
BERTH_API int berth_buffer_register(struct berth *b, int fd, uint64_t offset, void *data, size_t size, uint32_t *id);

/* Makes size bytes of such memory, zeroed, mapped at *data, and registers them under *id. unregister unmaps them.
 * Errors: -EINVAL, BERTH_EQUOTA, BERTH_EREADONLY, -EMFILE, -ENOMEM, BERTH_ENODE, BERTH_EFORKED. */
BERTH_API int berth_buffer_alloc(struct berth *b, size_t size, void **data, uint32_t *id);

/* Ends the registration id. Errors: -ENOENT (no such buffer), -EBUSY (a pull writes into it: nothing has changed),
 * BERTH_ENODE, -ETIMEDOUT. */
BERTH_API int berth_buffer_unregister(struct berth *b, uint32_t id);

/* Pins the longest run keys[0 .. r) of which every member is there, in one call: lookup and pin cannot be torn apart by
 * an eviction. Keys are in prefix order; the run ends at the first that is missing or of another lineage. Touches the
 * run deepest first. With BERTH_WAIT the run may grow until the deadline: it returns when all n are there, when the
 * next one was given up by its writer, or at the deadline, with the run that there is. With BERTH_PEERS it goes on with
 * what peers have: a key that they don't have, or can't give in time or at all, ends it, and is no error of the call.
 * flags as berth_get, and BERTH_SAME_GROUP. Returns r; views from r on are not written. Errors: -EINVAL, BERTH_EPINS,
 * BERTH_EQUOTA, BERTH_EGROUP, BERTH_EFORKED, with BERTH_WAIT also BERTH_ENODE and -EAGAIN, with BERTH_PEERS also
 * BERTH_ENODE, BERTH_EREADONLY and -ENOMEM: then nothing is pinned. */
BERTH_API long berth_prefix(struct berth *b, const struct berth_key *keys, size_t n, struct berth_view *v,
                            unsigned flags, int64_t deadline);

/* Which of n keys are ready to be read: present[i] 1 or 0. Pins nothing, touches nothing. flags: 0 or BERTH_LOCAL.
 * Peers are asked by berth_stat_peers, one key at a time. Returns how many are. On a handle of tcp: the owners are
 * asked, within the handle's time-out. There present[i] is 2 where it could not be learned, and the call returns the
 * first reason: the others' answers stand. Errors: -EINVAL, BERTH_EFORKED, on a handle of tcp: BERTH_EUNSURE,
 * BERTH_ENOTNOW, BERTH_ENODE, -ETIMEDOUT, -ENOMEM. */
BERTH_API long berth_exists(struct berth *b, const struct berth_key *keys, size_t n, uint8_t *present, unsigned flags);

/* Releases n views; those whose data is NULL are passed over, so a whole batch can be given. data becomes NULL. Any
 * thread. Never fails; in a forked child it does nothing. */
BERTH_API void berth_release(struct berth *b, struct berth_view *v, size_t n);

/* A hold on a key, as berth_stat shows it. */
struct berth_hold_info {
    char label[BERTH_LABEL_MAX + 1];
    int64_t ttl_ns; /* left; 0: no end */
};

/* What berth_stat says of a key. */
struct berth_stat {
    struct berth_version version;
    uint64_t size;       /* bytes of payload */
    uint64_t slot_bytes; /* bytes it takes in the pool */
    uint64_t checksum;
    uint64_t lineage;
    uint64_t created_us; /* wall clock at the seal, for people */
    uint64_t generation;
    uint32_t slot;
    uint32_t ttl_s;
    uint32_t ns;
    uint32_t n_holds; /* of the object; holds[] has the first 16 */
    uint8_t priority;
    uint8_t tier;
    uint16_t key_size;
    uint32_t segment; /* bytes; 0: none */
    struct berth_hold_info holds[16];
};

/* What the index knows of a key; on a handle of tcp: version, size, checksum, lineage, segment and the key's own
 * fields, the others are 0. Errors: -ENOENT, -EINVAL, BERTH_ENODE, -ETIMEDOUT, there BERTH_EUNSURE, BERTH_ENOTNOW. */
BERTH_API int berth_stat(struct berth *b, struct berth_key key, struct berth_stat *st);

/* What berth_stat says, and of a key that is not here what a peer's lease on it says: *st is filled as on a handle of
 * tcp:, where slot_bytes is 0. Nothing comes into the pool. The deadline is that of the whole call. Errors: -ENOENT
 * (it is nowhere), -EINVAL, BERTH_EUNSURE, BERTH_ENOTNOW, BERTH_EREADONLY (another user's node), BERTH_ENODE,
 * -ETIMEDOUT. */
BERTH_API int berth_stat_peers(struct berth *b, struct berth_key key, struct berth_stat *st, int64_t deadline);

/* A key of a listing. */
struct berth_entry {
    struct berth_version version;
    uint64_t size;
    uint64_t slot_bytes;
    uint64_t lineage;
    uint64_t created_us;
    uint32_t n_holds;
    uint32_t key_size;
    uint8_t key[BERTH_KEY_MAX];
};

/* Where a listing stands: zero it before the first call. */
struct berth_cursor {
    uint32_t key_size;
    uint32_t done;
    uint8_t key[BERTH_KEY_MAX];
};

/* Lists keys of the namespace ns that begin with prefix (prefix_size 0: all), in byte order, n at most: sealed ones
 * only. A listing is no snapshot: keys that come or go meanwhile may or may not be shown, others are shown once.
 * Returns the number of entries, 0 at the end. Errors: -EINVAL, BERTH_ENODE, -ETIMEDOUT. */
BERTH_API long berth_list(struct berth *b, uint32_t ns, const void *prefix, size_t prefix_size,
                          struct berth_cursor *cursor, struct berth_entry *entries, size_t n);

/* Removes a key; views of it stay valid. expected: remove only this version (BERTH_EVERSION otherwise), NULL: any. A
 * copy that another node pulled stays there until that node hears of the removal as a home of the key, or has told the
 * key's homes of it again, half of the setting `tombstones` at most; holds on it end with it. No peer is asked: where
 * only another node has the key it is -ENOENT here, and is removed at a node that has a copy. In a namespace that is
 * not replaceable don't put other bytes under a key that was removed.
 * Errors: -ENOENT, -EINVAL, BERTH_EHELD, BERTH_EVERSION, BERTH_EREADONLY, BERTH_ENODE, BERTH_EUNKNOWN, -ETIMEDOUT. */
BERTH_API int berth_remove(struct berth *b, struct berth_key key, const struct berth_version *expected);

/* What berth_purge removes. */
enum berth_purge_kind {
    BERTH_PURGE_LINEAGE = 1,   /* lineage: objects with this tag, in every namespace */
    BERTH_PURGE_NAMESPACE = 2, /* ns: all of it; 0 is the default namespace */
    BERTH_PURGE_PREFIX = 3     /* ns and prefix: keys of a namespace that begin so */
};

/* Fields that a kind does not have are 0. */
struct berth_purge {
    enum berth_purge_kind kind;
    uint32_t ns;
    uint64_t lineage;   /* not 0 */
    const void *prefix; /* the caller's */
    size_t prefix_size; /* 1 to BERTH_KEY_MAX */
};

/* What a purge did. */
struct berth_purged {
    uint64_t removed; /* objects */
    uint64_t bytes;   /* of their payload */
    uint64_t held;    /* objects that were passed over: they are held */
    uint64_t drafts;  /* that can't be sealed any more: BERTH_EPURGED */
    uint64_t untold;  /* of removed: from this node only. Homes have too many removals of it to acknowledge, so that
                         copies at other nodes stay */
    uint64_t reserved[3];
};

/* Removes all objects that what covers and that were sealed before the call, held ones excepted; views of them stay
 * valid. Drafts that were created before it and are covered can't be sealed; what is put or created later stays. It
 * removes what this node has: with peers each removal goes to the homes of its key as one of berth_remove does, and
 * copies elsewhere go with it. When it returns 0 none of it is found at this node any more. *purged (may be NULL) is
 * what it did. The node takes it on in steps and serves others meanwhile; one purge after the other. After -ETIMEDOUT,
 * BERTH_ENODE and BERTH_EUNKNOWN the node goes on with it, over a restart too. BERTH_NOW begins it and waits a moment.
 * Errors: -EINVAL (a field, or ns is no namespace of this node), -EAGAIN (16 purges are under way), BERTH_EREADONLY,
 * BERTH_ENODE, BERTH_EUNKNOWN (the node restarted), -ETIMEDOUT, -ENOMEM, -EBADMSG and -EIO (the index is damaged, or
 * can't be read: what it had not come to stays). */
BERTH_API int berth_purge(struct berth *b, const struct berth_purge *what, int64_t deadline,
                          struct berth_purged *purged);

/* Holds a key under a label, 1 to 63 bytes: never evicted nor removed until dropped or ttl_ns (0: no end) of real time
 * has passed, also over restarts of the node. The same label again renews it. A hold stays with the key when it is
 * replaced; a removal at another node ends it, as it ends the key. No peer is asked: a key that only another node has
 * is held at a node that has a copy, or here after a get with BERTH_PEERS has brought one. Errors: -ENOENT, -EINVAL,
 * BERTH_EHOLDS (16 a key), BERTH_EINDEXFULL, BERTH_EREADONLY, BERTH_ENODE, BERTH_EUNKNOWN, -ETIMEDOUT. */
BERTH_API int berth_hold(struct berth *b, struct berth_key key, const char *label, int64_t ttl_ns);

/* Drops a hold. Errors: -ENOENT (key or label), -EINVAL, BERTH_EREADONLY, BERTH_ENODE, BERTH_EUNKNOWN, -ETIMEDOUT. */
BERTH_API int berth_drop(struct berth *b, struct berth_key key, const char *label);

/* What berth_query is to report. */
enum berth_question {
    BERTH_STATUS = 0,  /* pool, index, sessions, settings, counters, phases */
    BERTH_PINS = 1,    /* who pins, holds and leases what; with a key: who has that, or has it still */
    BERTH_CHECK = 2,   /* every difference between index, slots and lookup */
    BERTH_METRICS = 3, /* Prometheus text */
    BERTH_WHY = 4,     /* of a key, which has to be given: whether it is here, and what last became of it */
    BERTH_WHATIF = 5   /* hit ratios with other capacities, also by namespace and lineage */
};

/* Asks the node for a report: JSON text (METRICS: Prometheus text), malloc'd, the caller frees it. key may be NULL
 * but for WHY. Errors: -EINVAL, BERTH_ENODE, -ETIMEDOUT, -ENOMEM. */
BERTH_API int berth_query(struct berth *b, enum berth_question what, const struct berth_key *key, char **text);

/* Ends the processes that pin a key's object, or one that was removed or replaced and waits for them, by SIGKILL
 * through their pidfds, and nothing else: a pin can't be taken from a living reader. Returns how many were signalled.
 * The caller's own process is passed over. Errors: -ENOENT, -EINVAL, BERTH_EREADONLY, BERTH_ENODE. */
BERTH_API int berth_revoke(struct berth *b, struct berth_key key);

/* ---- asynchronous ---- */

/* What an operation of a queue does, and which of its fields it takes. */
enum berth_opcode {
    BERTH_OP_NOP = 0,
    BERTH_OP_PUT = 1,        /* key, data, size, put -> status 0 or BERTH_KEPT */
    BERTH_OP_CREATE = 2,     /* key, size, put, draft */
    BERTH_OP_SEAL = 3,       /* draft, n */
    BERTH_OP_ABORT = 4,      /* draft, n */
    BERTH_OP_GET = 5,        /* key, view, flags */
    BERTH_OP_GET_INTO = 6,   /* key, data (written), size, flags; result is the size */
    BERTH_OP_REMOVE = 7,     /* key, version (0, 0: any) */
    BERTH_OP_HOLD = 8,       /* key, label, ttl_ns */
    BERTH_OP_DROP = 9,       /* key, label */
    BERTH_OP_STAT = 10,      /* key, stat */
    BERTH_OP_GET_RANGE = 11, /* key, ranges, n, flags; result is the bytes copied */
    BERTH_OPCODES = 12,
    /* data: the operation to cancel, submitted to this queue: a pull, or a read with BERTH_PEERS that is at its peers.
     * Result 0: it has completed, with -ECANCELED unless it was done before, and nothing writes into its memory any
     * more; -ENOENT: no such pull is under way; -EALREADY: it is being cancelled. */
    BERTH_OP_CANCEL = 32,
    /* key, or n keys at data (struct berth_key, 1 to BERTH_PULL_MAX; -E2BIG: too long together), flags: from peers into
     * this pool, and not pinned. Result of one: 0, BERTH_KEPT (it was here), or its error; of n: how many are here. */
    BERTH_OP_PULL = 34,
    BERTH_OP_PURGE = 33 /* reserved: -EOPNOTSUPP; berth_purge does it */
};

/* Where the time of a pull went, one phase after the other: together they are TOTAL, unless it shared the transfer of
 * another, whose phases it then shows. */
enum berth_phase {
    BERTH_PHASE_PREPARE = 0,  /* submitted -> taken up by the node */
    BERTH_PHASE_HOME = 1,     /* a home's answer was awaited */
    BERTH_PHASE_ADMIT = 2,    /* an owner's lease was awaited */
    BERTH_PHASE_WAIT = 3,     /* for a key that was not there yet */
    BERTH_PHASE_REGISTER = 4, /* room in the pool was awaited */
    BERTH_PHASE_QUEUE = 5,    /* for a window of bytes in flight */
    BERTH_PHASE_TRANSFER = 6, /* until the last bytes had come */
    BERTH_PHASE_COMPLETE = 7, /* until the node saw that; after a transfer in vain until it could begin again */
    BERTH_PHASE_VERIFY = 8,
    BERTH_PHASE_PUBLISH = 9, /* the copy became this node's own */
    BERTH_PHASE_TOTAL = 10,  /* submitted -> answered by the node */
    BERTH_PHASES = 11
};

#define BERTH_RECORD_VERIFIED 1u /* its checksum was compared on its way */
#define BERTH_RECORD_SHARED 2u   /* it waited for the transfer of another operation: bytes and copied are that one's */
#define BERTH_RECORD_LOCAL 4u    /* it was in this node's pool, or had come there meanwhile */

/* What moved an operation's bytes. */
struct berth_record {
    char source[64];                /* name of the node that they came from; empty: none */
    char transport[16];             /* over what: "tcp"; empty: nothing came */
    uint64_t bytes;                 /* of payload that came over the transport, in vain too */
    uint64_t copied;                /* of these, copied into place by a CPU of this host: over tcp all, by the kernel */
    uint64_t copied_out;            /* that the caller's thread then copied out of the pool: GET_INTO, GET_RANGE */
    uint64_t lease;                 /* the owner's number of the lease; 0: none */
    int64_t phase_ns[BERTH_PHASES]; /* enum berth_phase; all 0 where nothing was asked */
    uint32_t flags;                 /* BERTH_RECORD_VERIFIED, _SHARED, _LOCAL */
    uint32_t member;                /* place of the source in the list of members; 65,535: none */
    uint32_t requests;              /* requests to other nodes that it took part in */
    uint32_t stale;                 /* times that it was read again, its lease or slot being over */
    uint64_t reserved[4];
};

/* One operation of a queue: the caller's storage, unchanged and in place from submit until it is reaped, and so are
 * key, data, put, draft, view, stat, label, ranges and record. One that waits (BERTH_WAIT, BERTH_JOIN) holds no other
 * up. */
struct berth_op {
    uint16_t opcode; /* enum berth_opcode */
    uint16_t reserved0;
    uint32_t flags;   /* enum berth_flags: of operations that read, those that the call of the same name takes */
    int64_t deadline; /* -ETIMEDOUT afterwards; what the node had begun may still happen */
    struct berth_key key;
    void *data;
    size_t size;
    uint64_t offset; /* reserved: 0 */
    const struct berth_put_opts *put;
    struct berth_draft *draft;
    size_t n;
    struct berth_view *view;
    struct berth_stat *stat;
    struct berth_version version;
    const char *label;
    int64_t ttl_ns;
    long result;   /* set before it is reaped: as the synchronous call returns */
    uint64_t user; /* the caller's */
    const struct berth_range *ranges;
    /* NULL, or where GET, GET_INTO, GET_RANGE and PULL say what moved the bytes, of a PULL of n keys n of them. Set
     * when it completes with 0 or more, and after a pull that failed as far as the node said why; else not written. */
    struct berth_record *record;
    uint64_t reserved[6]; /* the library's while submitted */
};

/* A queue for up to depth operations in flight (1 to 4,096). Errors: -EINVAL, -ENOMEM, -EMFILE. */
BERTH_API int berth_queue_open(struct berth *b, unsigned depth, struct berth_queue **q);

/* Closes a queue: waits for what is in flight, bounded by the handle's time-out; completions not reaped are lost, their
 * views released. q may be NULL. */
BERTH_API void berth_queue_close(struct berth_queue *q);

/* A descriptor for poll, select and epoll: readable when berth_reap may have something. It belongs to the queue.
 * Never fails. */
BERTH_API int berth_queue_fd(struct berth_queue *q);

/* Submits n operations in order; those of one queue with an effect are applied in the order of submission. Returns
 * how many were taken, fewer than n when the queue or the ring is full. An operation with bad arguments is taken and
 * completes with its error. Errors: -EINVAL, BERTH_EFORKED, BERTH_EBUSY_RING (none could be taken). Any thread. */
BERTH_API int berth_submit(struct berth_queue *q, struct berth_op *ops, size_t n);

/* Takes up to max completed operations, waiting for the first until deadline. Returns how many; 0 when the deadline
 * passed or nothing is in flight. Errors: -EINVAL, BERTH_EFORKED. Any thread. */
BERTH_API long berth_reap(struct berth_queue *q, struct berth_op **done, size_t max, int64_t deadline);

/* ---- errors, helpers ---- */

/* An error as berth_error gives it. */
struct berth_error_info {
    int code;           /* negative */
    const char *name;   /* "BERTH_EFULL", "ENOENT" */
    char sentence[256]; /* what happened and what to do */
    uint64_t figure[4]; /* BERTH_EFULL, -ETIMEDOUT for want of room: bytes asked, free, largest free run, pinned;
                           BERTH_EQUOTA: asked, quota, had; -ENOSPC of get_into, -ERANGE: as the call says */
};

/* The calling thread's last error on any handle; b may be NULL. Returns its code, 0 if there was none.
 * Never fails. */
BERTH_API int berth_error(struct berth *b, struct berth_error_info *e);

/* Name and sentence of an error number, code, positive or negative; static storage, never NULL. */
BERTH_API const char *berth_error_name(int code);
BERTH_API const char *berth_error_text(int code);

/* CLOCK_MONOTONIC now plus ns_from_now, for a deadline; saturates at BERTH_FOREVER. */
BERTH_API int64_t berth_deadline(int64_t ns_from_now);

/* Copies n bytes from src to dst, a mapping of the pool, past the cache, and returns their XXH3-64 checksum: what
 * berth_put does, for callers that fill a draft from memory. The bytes are visible to every reader when it returns. */
BERTH_API uint64_t berth_copy(void *dst, const void *src, size_t n);

/* XXH3-64 of the n bytes of data, as checksum fields have it. */
BERTH_API uint64_t berth_checksum(const void *data, size_t n);

/* Parses a size from text: digits with optional fraction or exponent, optional blanks, and a unit: K M G T and KiB
 * MiB GiB TiB are binary, KB MB GB TB decimal, in any case, B or nothing is bytes. Errors: -EINVAL (empty, no digits,
 * unknown unit, negative, no whole number of bytes), -ERANGE (it has more than 64 bits). */
BERTH_API int berth_parse_size(const char *text, uint64_t *bytes);

/* "major.minor.patch" of the library. */
BERTH_API const char *berth_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
