/* api_buffer.c: memory that this process has registered with the node, and where in it a destination lies.
 *
 * A registration is one connection's: after another attachment it is made again when it is first wanted, from the
 * descriptor that is kept for it. `buffer_lock` is held while one is made, so that a descriptor and the message that
 * names it are not torn apart; the list itself is the handle's lock's.
 */
#include "store/mapping.h"
#include "store/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANNOUNCE_TRIES 3u /* an attachment that changes under a registration costs one */
#define PAGE 4096u

struct registered {
    struct registered *next;
    uint8_t *data; /* where the process has it mapped */
    uint64_t size, offset;
    uint32_t id;         /* the caller's */
    uint32_t number;     /* the node's, of .. */
    uint64_t attachment; /* .. this one; 0: of none */
    struct kept_fd fd;
    bool ours; /* mapped by berth_buffer_alloc */
};

/* ---- with the node ---- */

static struct call *build_register(const struct registered *r, uint64_t cookie)
{
    struct call *c = call_new(MSG_BUFFER, sizeof(struct msg_buffer));
    if (c) {
        struct msg_buffer *m = (struct msg_buffer *)c->message;
        m->kind = MSG_BUFFER_REGISTER;
        m->cookie = cookie;
        m->offset = r->offset;
        m->bytes = r->size;
    }
    return c;
}

/* Under the lock: the descriptor goes ahead of the message. */
static int send_descriptor(struct berth *b, const struct registered *r, uint64_t cookie)
{
    struct attach_buffer said = {.magic = ATTACH_BUFFER_MAGIC, .cookie = cookie};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = &said, .iov_len = sizeof said};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &r->fd.fd, sizeof(int));
    if (b->calls.state != CALLS_UP || !fd_is_ours(&b->calls.socket)) {
        return BERTH_ENODE;
    }
    if (!fd_is_ours(&r->fd)) {
        return -EBADF;
    }
    return sendmsg(b->calls.socket.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof said ? 0 : BERTH_ENODE;
}

/* Under buffer_lock. The status, with the reply in *reply. deadline BERTH_FOREVER: the handle's time-out. */
static int announce_once(struct berth *b, struct registered *r, int64_t deadline, struct call_result *reply)
{
    struct call *c = build_register(r, ++b->cookies);
    if (!c) {
        return -ENOMEM;
    }
    if (deadline != BERTH_FOREVER) {
        call_deadline(b, c, deadline);
    }
    pthread_mutex_lock(&b->lock);
    int rc = send_descriptor(b, r, b->cookies);
    uint64_t attachment = b->attachments;
    pthread_mutex_unlock(&b->lock);
    if (rc) {
        free(c);
        return rc;
    }
    rc = call_run(b, c, reply, NULL, NULL);
    if (rc == 0) {
        pthread_mutex_lock(&b->lock);
        r->number = (uint32_t)reply->reply.counter;
        r->attachment = attachment;
        pthread_mutex_unlock(&b->lock);
    }
    return rc;
}

static int announce(struct berth *b, struct registered *r, int64_t deadline, struct call_result *reply)
{
    int rc = -ESTALE;
    for (unsigned i = 0; i < ANNOUNCE_TRIES && rc == -ESTALE; i++) {
        rc = announce_once(b, r, deadline, reply);
    }
    return rc == -ESTALE ? BERTH_ENODE : rc;
}

/* ---- the list ---- */

static struct registered *around(const struct berth *b, const void *data, uint64_t size)
{
    uintptr_t at = (uintptr_t)data;
    for (struct registered *r = b->registered; r; r = r->next) {
        uintptr_t base = (uintptr_t)r->data;
        if (at >= base && at - base <= r->size && size <= r->size - (at - base)) {
            return r;
        }
    }
    return NULL;
}

static bool overlaps(const struct berth *b, const void *data, uint64_t size)
{
    uintptr_t at = (uintptr_t)data;
    for (const struct registered *r = b->registered; r; r = r->next) {
        if (at < (uintptr_t)r->data + r->size && (uintptr_t)r->data < at + size) {
            return true;
        }
    }
    return false;
}

static void cut(struct berth *b, const struct registered *r)
{
    for (struct registered **at = &b->registered; *at; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            return;
        }
    }
}

static void registered_free(struct registered *r)
{
    if (r->ours) {
        munmap(r->data, r->size);
    }
    fd_drop(&r->fd);
    free(r);
}

void buffers_close(struct berth *b)
{
    for (struct registered *r = b->registered, *next; r; r = next) {
        next = r->next;
        registered_free(r);
    }
    b->registered = NULL;
}

/* Made again where the attachment is another. buffer_lock keeps it from being unregistered meanwhile. */
static bool place_registered(struct berth *b, const void *data, uint64_t size, int64_t deadline, struct pull_place *out)
{
    if (deadline <= BERTH_NOW || !call_lock(&b->buffer_lock, deadline)) {
        return false; /* no peer will be asked */
    }
    pthread_mutex_lock(&b->lock);
    struct registered *r = around(b, data, size);
    bool good = r && r->attachment == b->attachments;
    pthread_mutex_unlock(&b->lock);
    struct call_result reply;
    if (r && !good) {
        good = announce(b, r, deadline, &reply) == 0;
    }
    if (r && good) {
        *out = (struct pull_place){.kind = MSG_PULL_REGISTERED,
                                   .buffer = r->number,
                                   .attachment = r->attachment,
                                   .to = (uint64_t)((const uint8_t *)data - r->data)};
    }
    pthread_mutex_unlock(&b->buffer_lock);
    return good;
}

bool pull_place(struct berth *b, const void *data, uint64_t size, int64_t deadline, struct pull_place *out)
{
    static uint8_t nothing; /* an address for 0 bytes */
    if (pull_direct(b)) {
        const void *at = data ? data : &nothing;
        *out = (struct pull_place){.kind = MSG_PULL_BUFFER, .buffer = (uint64_t)(uintptr_t)at};
        return true;
    }
    pthread_mutex_lock(&b->lock);
    bool any = b->registered;
    pthread_mutex_unlock(&b->lock);
    return any && place_registered(b, data, size, deadline, out);
}

/* ---- the API ---- */

#define CAN_BE_CUT "the memfd may be cut under the node: seal it with F_SEAL_SHRINK first"
#define CAN_T_WRITE                                                                                                    \
    "the memfd is sealed against the node's writing (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE): use one without, since what " \
    "pulls bring is written there"

/* Seals that the node needs, or that keep it from what it is to do. */
static int check_seals(int fd, int seals)
{
    if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) {
        return berth_fail(-EACCES, CAN_T_WRITE);
    }
    if (!(seals & F_SEAL_SHRINK) && seals & F_SEAL_SEAL) {
        return berth_fail(-EPERM,
                          "descriptor %d may be cut under the node and takes no seals any more: make the memory with "
                          "memfd_create and MFD_ALLOW_SEALING, or berth_buffer_alloc",
                          fd);
    }
    return seals & F_SEAL_SHRINK ? 0 : berth_fail(-EPERM, CAN_BE_CUT);
}

static int check_descriptor(int fd, uint64_t offset, size_t size)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0) {
        return berth_fail(-EINVAL,
                          "descriptor %d is no memfd: make the memory with memfd_create, or berth_buffer_alloc", fd);
    }
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
        return berth_fail(-EACCES, "descriptor %d is not open for reading and writing: the node has to write there",
                          fd);
    }
    int rc = check_seals(fd, seals);
    if (rc) {
        return rc;
    }
    if (fstat(fd, &st) != 0 || offset > (uint64_t)st.st_size || size > (uint64_t)st.st_size - offset) {
        return berth_fail(-EINVAL, "%zu bytes from %llu on are not in the memfd", size, (unsigned long long)offset);
    }
    return 0;
}

/* The node writes into the file: the caller is to see it. */
static int check_mapping(int fd, uint64_t offset, const void *data, size_t size)
{
    switch (mapping_of(data, size, fd, offset)) {
    case MAPPING_NONE:
        return berth_fail(-EINVAL, "a part of the %zu bytes is not mapped: map them from the memfd first", size);
    case MAPPING_OTHER:
        return berth_fail(-EINVAL,
                          "the memory is not that of descriptor %d from byte %llu on: what pulls bring would "
                          "not be seen there",
                          fd, (unsigned long long)offset);
    case MAPPING_PRIVATE:
        return berth_fail(-EINVAL, "the memory is mapped MAP_PRIVATE: map it MAP_SHARED, or what pulls bring is not "
                                   "seen there");
    case MAPPING_READ_ONLY:
        return berth_fail(-EINVAL, "the memory is not mapped readable and writable: use PROT_READ | PROT_WRITE");
    case MAPPING_GOOD:
        break;
    }
    return 0;
}

static int check_arguments(struct berth *b, const void *data, size_t size, uint64_t offset, const uint32_t *id)
{
    int rc = client_check(b);
    if (rc) {
        return rc;
    }
    if (!b->writable) {
        return client_fail_readonly(b);
    }
    if (!id || !data || size == 0 || offset % PAGE || (uintptr_t)data > UINTPTR_MAX - size) {
        return berth_fail(-EINVAL, "a buffer needs an address, bytes, and an offset that is a multiple of %u", PAGE);
    }
    return 0;
}

static int fail_register(struct berth *b, int rc, const struct call_result *reply)
{
    if (rc == -EPERM || rc == -EACCES) { /* a seal was set meanwhile, or could be seen at the node only */
        return berth_fail(rc, rc == -EPERM ? CAN_BE_CUT : CAN_T_WRITE);
    }
    if (rc == -EINVAL) {
        return berth_fail(rc, "the node can't map that: a memfd on pages of 4 KiB, large enough, is needed");
    }
    if (rc == BERTH_EQUOTA) {
        return berth_fail(rc, "too many buffers of this handle, or too many bytes in them: unregister some");
    }
    return rc == BERTH_EREADONLY ? client_fail_reply(b, reply) : berth_fail_plain(rc);
}

/* Enters r and makes it known; on an error it is freed. */
static int enter(struct berth *b, struct registered *r, uint32_t *id)
{
    struct call_result reply = {0};
    pthread_mutex_lock(&b->buffer_lock);
    pthread_mutex_lock(&b->lock);
    bool twice = overlaps(b, r->data, r->size);
    pthread_mutex_unlock(&b->lock);
    int rc = twice ? -EEXIST : announce(b, r, BERTH_FOREVER, &reply);
    if (rc == 0) {
        pthread_mutex_lock(&b->lock);
        *id = r->id = ++b->last_registered;
        r->next = b->registered;
        b->registered = r;
        pthread_mutex_unlock(&b->lock);
    }
    pthread_mutex_unlock(&b->buffer_lock);
    if (rc) {
        registered_free(r);
        return rc == -EEXIST ? berth_fail(rc, "a part of that memory is registered already")
                             : fail_register(b, rc, &reply);
    }
    return 0;
}

static struct registered *registered_new(void *data, size_t size, uint64_t offset, int fd)
{
    struct registered *r = calloc(1, sizeof *r);
    int own = r ? fd_above_stdio(fcntl(fd, F_DUPFD_CLOEXEC, 3)) : -1;
    if (own < 0) {
        free(r);
        return NULL;
    }
    *r = (struct registered){.data = data, .size = size, .offset = offset};
    fd_keep(&r->fd, own);
    return r;
}

int berth_buffer_register(struct berth *b, int fd, uint64_t offset, void *data, size_t size, uint32_t *id)
{
    int rc = check_arguments(b, data, size, offset, id);
    rc = rc ? rc : check_descriptor(fd, offset, size);
    rc = rc ? rc : check_mapping(fd, offset, data, size);
    if (rc) {
        return rc;
    }
    struct registered *r = registered_new(data, size, offset, fd);
    return r ? enter(b, r, id) : attach_fail_descriptors(errno == EMFILE || errno == ENFILE ? -errno : -EMFILE);
}

int berth_buffer_alloc(struct berth *b, size_t size, void **data, uint32_t *id)
{
    int rc = check_arguments(b, data, size, 0, id);
    if (rc) {
        return rc;
    }
    int fd = fd_above_stdio(memfd_create("berth-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void *map = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    struct registered *r = map == MAP_FAILED ? NULL : registered_new(map, size, 0, fd);
    rc = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (!r) {
        if (map != MAP_FAILED) {
            munmap(map, size);
        }
        return berth_fail_plain(rc ? -rc : -ENOMEM);
    }
    madvise(map, size, MADV_DONTFORK);
    r->ours = true;
    rc = enter(b, r, id);
    if (rc == 0) {
        *data = map;
    }
    return rc;
}

/* What the node says; that it does not know it is as good as done. */
static int retract(struct berth *b, const struct registered *r)
{
    struct call_result reply;
    struct call *c = call_new(MSG_BUFFER, sizeof(struct msg_buffer));
    if (!c) {
        return -ENOMEM;
    }
    struct msg_buffer *m = (struct msg_buffer *)c->message;
    m->kind = MSG_BUFFER_UNREGISTER;
    m->number = r->number;
    int rc = call_run(b, c, &reply, NULL, NULL);
    return rc == -ENOENT ? 0 : rc;
}

int berth_buffer_unregister(struct berth *b, uint32_t id)
{
    int rc = client_check(b);
    if (rc) {
        return rc;
    }
    pthread_mutex_lock(&b->buffer_lock);
    pthread_mutex_lock(&b->lock);
    struct registered *r = b->registered;
    while (r && r->id != id) {
        r = r->next;
    }
    bool known = r && r->attachment == b->attachments;
    pthread_mutex_unlock(&b->lock);
    rc = !r ? -ENOENT : known ? retract(b, r) : 0;
    if (rc == 0) {
        pthread_mutex_lock(&b->lock);
        cut(b, r);
        pthread_mutex_unlock(&b->lock);
        registered_free(r);
    }
    pthread_mutex_unlock(&b->buffer_lock);
    if (rc == -ENOENT) {
        return berth_fail(
            rc, "no buffer %u is registered by this handle: give the id of berth_buffer_register or _alloc", id);
    }
    if (rc == -EBUSY) {
        return berth_fail(rc, "a pull writes into buffer %u: wait for it, or cancel it", id);
    }
    return rc ? berth_fail_plain(rc) : 0;
}
