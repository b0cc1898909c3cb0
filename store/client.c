/* client.c: opening and closing a handle. */
#include "store/client.h"

#include "store/clock.h"
#include "store/map.h"
#include "store/pin.h"
#include "store/remote.h"
#include "store/shell/remote.h"
#include "store/shell/server.h"
#include "store/touch.h"
#include "store/where.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof((struct berth *)0)->path == WHERE_PATH, "path");

#define DEFAULT_TIMEOUT_NS INT64_C(30000000000)
#define DETACH_NS INT64_C(1000000000)
/* In words; away from the start of a page, where the hot stores of a get may be (see thread.c). */
#define LIFE_OFFSET 500u

int64_t client_now(void)
{
    return clock_mono();
}

/* A clock that is one load, as fine as a tick. */
static int64_t coarse_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void client_look(struct berth *b)
{
    int64_t at = atomic_load_explicit(&b->look_at, memory_order_relaxed), now = coarse_now();
    if (now < at || b->server || /* a node of this process ends with the handle */
        !atomic_compare_exchange_strong_explicit(&b->look_at, &at, now + CLIENT_LOOK_NS, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return;
    }
    if (b->calls.state != CALLS_ENDED) {
        int error = errno; /* no caller of a get expects another */
        calls_poll(b, true);
        errno = error;
    }
}

int client_check_any(struct berth *b)
{
    if (!b) {
        return berth_fail(-EINVAL, "no handle was given: open one first");
    }
    if (client_lives(b) || client_life(b) == LIFE_REMOTE) {
        return 0;
    }
    int life = client_life(b);
    return berth_fail_plain(life == LIFE_FORKED ? BERTH_EFORKED : BERTH_ERESTART);
}

int client_check(struct berth *b)
{
    int rc = client_check_any(b);
    if (rc == 0 && client_life(b) == LIFE_REMOTE) {
        return berth_fail(
            -EOPNOTSUPP, "a client without a node (tcp://) reads into its own memory, with berth_get_into, "
                         "berth_get_range, berth_exists and berth_stat, and no more: open a node of this host (unix:), "
                         "or an embedded one");
    }
    return rc;
}

static int check_key(int rc, const struct berth_key *key)
{
    if (rc) {
        return rc;
    }
    if (!key->data || key->size < 1 || key->size > BERTH_KEY_MAX) {
        return berth_fail(-EINVAL, "a key of %u bytes: 1 to %u are possible", key->size, BERTH_KEY_MAX);
    }
    return 0;
}

int client_check_key(struct berth *b, const struct berth_key *key)
{
    return check_key(client_check(b), key);
}

int client_check_key_any(struct berth *b, const struct berth_key *key)
{
    return check_key(client_check_any(b), key);
}

bool client_keeps(const struct berth *b, uint32_t ns)
{
    uint32_t n = atomic_load_explicit(&b->n_kept, memory_order_acquire);
    for (uint32_t i = 0; ns && i < n; i++) {
        if (b->kept[i] == ns) {
            return true;
        }
    }
    return ns == 0;
}

/* Bytes for a sentence, in the unit that shows them best. */
static const char *bytes_text(char out[24], uint64_t bytes)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    unsigned i = 0;
    double v = (double)bytes;
    for (; v >= 1024 && i < 4; i++) {
        v /= 1024;
    }
    snprintf(out, 24, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
    return out;
}

int client_fail_full(int status, const uint64_t figure[4])
{
    char t[4][24];
    for (unsigned i = 0; i < 4; i++) {
        bytes_text(t[i], figure[i]);
    }
    const char *what = status == BERTH_EFULL ? "the pool has no room" : "no room came before the deadline";
    if (figure[3]) {
        berth_fail(status,
                   "%s: %s asked, %s free, %s in one piece, %s in use by readers; release views, drop holds, or "
                   "enlarge the pool",
                   what, t[0], t[1], t[2], t[3]);
    } else {
        berth_fail(status,
                   "%s: %s asked, %s free, %s in one piece, and no reader keeps it full: drop holds, seal or abort "
                   "drafts (`berth status` counts both), or enlarge the pool",
                   what, t[0], t[1], t[2]);
    }
    berth_fail_figures(figure);
    return status;
}

static void fail_quota(const uint64_t figure[4])
{
    char t[3][24];
    berth_fail(
        BERTH_EQUOTA,
        "%s more would be over the %s that one client may have unsealed, and it has %s: seal or abort drafts, or "
        "raise draft-quota",
        bytes_text(t[0], figure[0]), bytes_text(t[1], figure[1]), bytes_text(t[2], figure[2]));
}

int client_fail_readonly(const struct berth *b)
{
    return b->flags & BERTH_OPEN_READER
               ? berth_fail(BERTH_EREADONLY, "the handle was opened as a reader: open one without BERTH_OPEN_READER")
               : berth_fail_plain(BERTH_EREADONLY);
}

int client_fail_reply(const struct berth *b, const struct call_result *r)
{
    uint64_t figure[4] = {r->reply.counter, r->reply.region, r->reply.figure[0], r->reply.figure[1]};
    if ((r->status == BERTH_EFULL || r->status == -ETIMEDOUT) && figure[0]) {
        return client_fail_full(r->status, figure);
    } else if (r->status == BERTH_EQUOTA && figure[1]) {
        fail_quota(figure);
    } else if (r->status == -ENOENT && r->reply.head.op == MSG_DROP && figure[0]) {
        return berth_fail(-ENOENT, "the key has no hold of this label: see its holds with stat");
    } else if (r->status == -EINVAL && r->reply.head.op == MSG_SEAL) {
        return berth_fail(-EINVAL, "two drafts of the group have the same key, or are the same draft");
    } else if (r->status == -EINVAL && (r->reply.head.op == MSG_PUT || r->reply.head.op == MSG_CREATE)) {
        return berth_fail(-EINVAL, NO_NAMESPACE);
    } else if (r->status == BERTH_EREADONLY) {
        return client_fail_readonly(b);
    } else if (b->remote) {
        return remote_fail(r->status);
    } else {
        return berth_fail_plain(r->status);
    }
    berth_fail_figures(figure);
    return r->status;
}

/* ---- open ---- */

static int read_opts(struct berth *b, const struct berth_open_opts *o)
{
    b->timeout_ns = DEFAULT_TIMEOUT_NS;
    const char *name = program_invocation_short_name;
    if (o) {
        if (o->size != sizeof *o) {
            return berth_fail(-EINVAL, "options of %zu bytes: set size to sizeof(struct berth_open_opts)", o->size);
        }
        if ((o->flags & ~BERTH_OPEN_READER) || o->timeout_ns < 0) {
            return berth_fail(-EINVAL, "open has a flag that is not known, or a negative time-out");
        }
        name = o->name ? o->name : name;
        b->lineage = o->lineage;
        b->flags = o->flags;
        b->timeout_ns = o->timeout_ns ? o->timeout_ns : b->timeout_ns;
    }
    if (o && o->name && strlen(o->name) > NAME_MAX_BYTES) {
        return berth_fail(-EINVAL, "a client's name has at most %u bytes", NAME_MAX_BYTES);
    }
    snprintf(b->name, sizeof b->name, "%s", name);
    return 0;
}

/* A page of which a forked child sees zeros. */
static int make_life(struct berth *b)
{
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return -errno;
    }
    if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) != 0) {
        int error = errno;
        munmap(page, PAGE_BYTES);
        return -error;
    }
    b->life = (_Atomic uint32_t *)page + LIFE_OFFSET;
    atomic_store_explicit(b->life, LIFE_LIVE, memory_order_relaxed);
    return 0;
}

static int make_ring(struct berth *b)
{
    int fd = fd_above_stdio(memfd_create("berth-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    int error = errno;
    fd_keep(&b->ring_fd, fd);
    if (fd < 0) {
        return -error;
    }
    if (ftruncate(fd, sizeof(struct ring_shared)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return -errno;
    }
    b->ring = map_shared(fd, sizeof(struct ring_shared), PROT_READ | PROT_WRITE);
    if (!b->ring) {
        return -errno;
    }
    fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    error = errno;
    fd_keep(&b->calls.wake_fd, fd);
    if (fd < 0) {
        return -error;
    }
    b->ring->magic = RING_MAGIC;
    b->ring->format = LAYOUT_FORMAT;
    b->ring->fingerprint = LAYOUT_FINGERPRINT;
    ring_request_producer(&b->calls.requests, b->ring);
    ring_reply_consumer(&b->calls.replies, b->ring);
    return 0;
}

static void drop_fds(struct berth *b)
{
    fd_drop(&b->ring_fd);
    fd_drop(&b->calls.wake_fd);
    fd_drop(&b->calls.doorbell);
    fd_drop(&b->calls.socket);
    fd_drop(&b->calls.joining);
}

/* Whatever stage opening has reached. */
static void dismantle(struct berth *b)
{
    attach_unmap(b);
    unmap_shared(b->ring, sizeof(struct ring_shared));
    drop_fds(b);
    if (b->server) {
        server_embedded_stop(b->server);
    }
    remote_stop(b->remote);
    if (b->life) {
        munmap(b->life - LIFE_OFFSET, PAGE_BYTES);
    }
    calls_free(b);
    pthread_mutex_destroy(&b->lock);
    buffers_close(b);
    pthread_mutex_destroy(&b->buffer_lock);
    pthread_mutex_destroy(&b->grow_lock);
    pthread_mutex_destroy(&b->query_lock);
    free(b);
}

static struct berth *make(void)
{
    struct berth *b = aligned_alloc(64, (sizeof *b + 63) & ~(size_t)63);
    if (!b) {
        return NULL;
    }
    memset(b, 0, sizeof *b);
    b->ring_fd = FD_NONE;
    if (calls_init(b)) {
        free(b);
        return NULL;
    }
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->grow_lock, NULL);
    pthread_mutex_init(&b->buffer_lock, NULL);
    b->attachments = 1;
    pthread_mutex_init(&b->query_lock, NULL);
    return b;
}

static const char *why_unreachable(int error)
{
    return error == ENOENT         ? "the socket does not exist"
           : error == ECONNREFUSED ? "nobody listens at the socket"
           : error == EAGAIN       ? "it takes no connection in time"
                                   : strerror(error);
}

static int connect_path(struct berth *b, const char *path)
{
    int n = snprintf(b->path, sizeof b->path, "%s", path);
    if (n < 1 || n >= (int)sizeof b->path) {
        return berth_fail(-EINVAL, "a socket path of %d bytes: 1 to %zu are possible", n, sizeof b->path - 1);
    }
    int fd = attach_connect(b->path, b->timeout_ns);
    if (fd == -EMFILE || fd == -ENFILE) {
        return attach_fail_descriptors(fd);
    }
    if (fd == -EACCES || fd == -EPERM) {
        return berth_fail(-EACCES, "no permission for socket '%s': run as the node's user or group", b->path);
    }
    return fd >= 0
               ? fd
               : berth_fail(BERTH_ENODE, "no node at '%s' (%s): start berthd, or name another with -n or $BERTH_NODE",
                            b->path, why_unreachable(-fd));
}

static int connect_default(struct berth *b)
{
    char list[WHERE_SOCKETS][WHERE_PATH];
    const char *denied = NULL;
    unsigned n = where_sockets(list);
    for (unsigned i = 0; i < n; i++) {
        int fd = where_trusted(list[i]) ? attach_connect(list[i], b->timeout_ns) : -ENOENT;
        if (fd >= 0) {
            memcpy(b->path, list[i], sizeof b->path);
            return fd;
        }
        if (fd == -EMFILE || fd == -ENFILE) {
            return attach_fail_descriptors(fd);
        }
        if (!denied && (fd == -EACCES || fd == -EPERM)) {
            denied = list[i];
        }
    }
    if (denied) {
        return connect_path(b, denied);
    }
    return berth_fail(BERTH_ENODE,
                      "no node at '%s'%s%s%s or '%s': start berthd, or name another with -n or $BERTH_NODE", list[0],
                      n > 2 ? ", '" : "", n > 2 ? list[1] : "", n > 2 ? "'" : "", list[n - 1]);
}

static int start_embedded(struct berth *b, const char *settings)
{
    char why[256] = "";
    int fd = -1;
    int rc = server_embedded(&b->server, settings, &fd, why, sizeof why);
    if (rc) {
        b->server = NULL;
        return berth_fail(rc, "%s", why[0] ? why : berth_error_text(rc));
    }
    return fd;
}

/* HOST:PORT, as it may stand behind tcp:// */
static bool is_address(const char *name)
{
    const char *colon = strrchr(name, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    return colon && colon > name && digits && (colon[1 + digits] == '\0' || colon[1 + digits] == '?');
}

/* The name of no node: what was meant is guessed. */
static int fail_name(const char *node)
{
    const char *behind = strncmp(node, "tcp:", 4) == 0 ? node + 4 : node;
    behind += behind == node ? 0 : strspn(behind, "/");
    if (behind != node) {
        return berth_fail(-EINVAL, "'%s' is no node's name: an address is written tcp://HOST:PORT%s%s", node,
                          is_address(behind) ? ", here tcp://" : "", is_address(behind) ? behind : "");
    }
    if (*node == '/' || *node == '.') {
        return berth_fail(-EINVAL, "'%s' is no node's name: a socket's path is written unix:%s", node, node);
    }
    if (is_address(node)) {
        return berth_fail(-EINVAL, "'%s' is no node's name: an address is written tcp://%s", node, node);
    }
    return berth_fail(-EINVAL, "'%s' is no node's name: it begins with embedded:, unix: or tcp://", node);
}

/* A connected socket to the node of this name. */
static int reach(struct berth *b, const char *node)
{
    if (!node) {
        return connect_default(b);
    }
    if (strncmp(node, "embedded:", 9) == 0) {
        return start_embedded(b, node[9] == '?' ? node + 10 : node + 9);
    }
    if (strncmp(node, "unix:", 5) == 0) {
        return connect_path(b, node + 5);
    }
    if (strncmp(node, "verbs://", 8) == 0) {
        return berth_fail(-EOPNOTSUPP, "'%s': a later version has verbs: use tcp://, unix: or embedded:", node);
    }
    return fail_name(node);
}

int berth_open(struct berth **out, const char *node, const struct berth_open_opts *opts)
{
    if (!out) {
        return berth_fail(-EINVAL, "no place for the handle was given");
    }
    struct berth *b = make();
    if (!b) {
        return berth_fail_plain(-ENOMEM);
    }
    int rc = read_opts(b, opts);
    if (rc) {
        goto fail;
    }
    rc = make_life(b);
    rc = rc ? rc : make_ring(b);
    if (rc) {
        rc = rc == -EMFILE || rc == -ENFILE ? attach_fail_descriptors(rc)
                                            : berth_fail(rc, "no memory for the handle: %s", berth_error_text(rc));
        goto fail;
    }
    bool given = node != NULL;
    node = given ? node : getenv("BERTH_NODE");
    if (node && !*node) {
        rc = berth_fail(-EINVAL, "%s is empty: name a node (unix:, tcp://, embedded:), or leave it out for the default",
                        given ? "the node's name" : "$BERTH_NODE");
        goto fail;
    }
    if (node && strncmp(node, "tcp://", 6) == 0) {
        rc = remote_attach(b, node);
        if (rc) {
            goto fail;
        }
        *out = b;
        return 0;
    }
    int socket = reach(b, node);
    if (socket < 0) {
        rc = socket;
        goto fail;
    }
    rc = attach_first(b, socket);
    if (rc) {
        close(socket);
        goto fail;
    }
    *out = b;
    return 0;
fail:
    dismantle(b);
    return rc;
}

/* ---- close ---- */

/* What the child of a fork may do: its copy's memory and descriptors go, node, locks and mappings are the parent's. */
static void close_in_child(struct berth *b)
{
    drop_fds(b);
    munmap(b->life - LIFE_OFFSET, PAGE_BYTES);
    free(b->calls.reply);
    free(b);
}

static void detach(struct berth *b)
{
    struct call *c = b->calls.state == CALLS_UP ? call_new(MSG_DETACH, sizeof(struct msg_head)) : NULL;
    struct call_result r;
    if (c) {
        int64_t wait = b->timeout_ns < DETACH_NS ? b->timeout_ns : DETACH_NS;
        c->limit = client_now() + wait;
        c->limit_code = BERTH_ENODE;
        call_run(b, c, &r, NULL, NULL);
    }
}

void berth_close(struct berth *b)
{
    if (!b) {
        return;
    }
    if (client_life(b) == LIFE_FORKED) {
        close_in_child(b);
        return;
    }
    struct client_thread *t = thread_self();
    if (client_life(b) == LIFE_LIVE) {
        touch_flush(b, t);
    }
    if (t->handle ==
        b) { /* others that still name it would give another handle at this address some touches, no more */
        t->handle = NULL;
    }
    detach(b);
    pthread_mutex_lock(&b->lock);
    calls_end(b, BERTH_ENODE);
    pthread_mutex_unlock(&b->lock);
    dismantle(b);
}
