/* region_files.c: slots, lookup and tails.
 *
 * slots and tails have their full size from the beginning, so that no mapping ever has to grow, but memory only as
 * far as they are used: fallocate goes ahead of use, because a store into a hole of a full tmpfs is a SIGBUS.
 */
#include "store/shell/region_files.h"

#include "store/evict_ghost.h"
#include "store/map.h"
#include "store/node_purge.h"
#include "store/shell/log.h"
#include "store/shell/space.h"
#include "store/whatif.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADERS_STEP 4096u /* 512 KiB */
#define TAILS_STEP 4096u   /* 256 KiB */
/* Measured of nodes with pools of 16 MiB to 1 GiB: kernel memory of 1/235 of the files; 19 MiB with 100 clients at
 * work. */
#define OWN_SHARE 192u
#define EVICT_BYTES 33u /* of an eviction policy and the tree of simulations, a slot */
/* What is remembered of keys that have gone. */
#define GONE_BYTES (GHOSTS_MAX * sizeof(uint64_t) + FATES_MAX * sizeof(struct fate))
#define OWN_BYTES (20u << 20)
#define CELLS_A_KEY ((KEY_MAX - KEY_HEAD + TAIL_CELL - 1) / TAIL_CELL)

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static uint64_t dir_end(uint64_t units)
{
    return round_up(REGION_DIR_OFFSET + units * sizeof(struct slab_entry), PAGE_BYTES);
}

static void shape_sizes(struct region_shape *s, uint64_t headers_offset)
{
    s->headers_offset = headers_offset;
    s->slots_bytes = round_up(s->headers_offset + (uint64_t)s->max_headers * sizeof(struct slot_header), PAGE_BYTES);
    s->tails_bytes = round_up((uint64_t)s->n_tails * TAIL_CELL, PAGE_BYTES);
}

/* Room for the longest key in every header. */
static uint32_t cells_for(uint64_t headers)
{
    uint64_t cells = headers * CELLS_A_KEY;
    return cells < UINT32_MAX ? (uint32_t)cells : UINT32_MAX - 1;
}

void region_shape(struct region_shape *out, const struct settings *s)
{
    uint64_t headers = s->max_objects; /* rounded by settings_finish */
    *out = (struct region_shape){
        .pool_bytes = s->pool,
        .mr_bytes = s->mr_size,
        .reserved_bytes = s->populate == POPULATE_ON ? 0 : s->pool,
        .n_units = (uint32_t)(s->pool / UNIT_BYTES),
        .max_headers = (uint32_t)headers,
        .n_tails = cells_for(headers),
        .lookup_bytes = lookup_bytes(headers),
    };
    uint64_t grown = (uint64_t)out->n_units * REGION_GROWTH;
    shape_sizes(out, dir_end(grown > REGION_UNITS_LEAST ? grown : REGION_UNITS_LEAST));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t headers_at_start(const struct region_shape *s)
{
    return least(s->slots_bytes - s->headers_offset, HEADERS_STEP * sizeof(struct slot_header));
}

/* The directory's room to grow has no memory. */
static uint64_t slots_at_start(const struct region_shape *s)
{
    return dir_end(s->n_units) + headers_at_start(s);
}

static uint64_t tails_at_start(const struct region_shape *s)
{
    return least(s->tails_bytes, TAILS_STEP * TAIL_CELL);
}

uint64_t region_files_bytes(const struct region_shape *s)
{
    return s->pool_bytes - s->reserved_bytes + slots_at_start(s) + s->lookup_bytes + tails_at_start(s);
}

uint64_t region_own_bytes(const struct region_shape *s)
{
    uint64_t slots = least(s->max_headers, s->pool_bytes / PAGE_BYTES);
    uint64_t grown = least(s->slots_bytes - s->headers_offset, slots * sizeof(struct slot_header));
    uint64_t start = headers_at_start(s);
    return OWN_BYTES + region_files_bytes(s) / OWN_SHARE + (grown > start ? grown - start : 0) + slots * EVICT_BYTES +
           GONE_BYTES + WHATIF_BYTES;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- as they are ---- */

static int open_old(int dir_fd, const char *name, int *out, uint64_t *bytes)
{
    struct stat st;
    int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EPROTO;
    }
    *out = fd;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static int super_read(int fd, uint64_t bytes, struct slots_super *super, struct region_shape *out)
{
    if (pread(fd, super, sizeof *super, 0) != (ssize_t)sizeof *super)
        return -EPROTO;
    if (super->magic != SLOTS_MAGIC || super->format != LAYOUT_FORMAT || super->fingerprint != LAYOUT_FINGERPRINT)
        return -EPROTO;
    *out = (struct region_shape){
        .pool_bytes = super->pool_bytes,
        .mr_bytes = super->mr_bytes,
        .n_units = super->n_units,
        .max_headers = super->max_headers,
        .n_tails = cells_for(super->max_headers),
    };
    uint64_t offset = super->headers_offset; /* beyond what it takes for this pool: room for a larger one */
    if (offset < dir_end(super->n_units) || offset > bytes || offset % PAGE_BYTES != 0)
        return -EPROTO;
    shape_sizes(out, offset);
    bool fits = super->n_units > 0 && super->pool_bytes == (uint64_t)super->n_units * UNIT_BYTES &&
                super->mr_bytes > 0 && super->mr_bytes % UNIT_BYTES == 0 && super->max_headers > 0 &&
                super->max_headers < TOUCH_CHILD && super->dir_offset == REGION_DIR_OFFSET &&
                bytes == out->slots_bytes && super->n_pools == 1 && super->page_shift == 12;
    return fits ? 0 : -EPROTO;
}

/* A longer one is what an interrupted resize leaves (region_resize.h). */
static int pool_fits(const struct region *r, uint64_t bytes)
{
    struct stat st;
    if (fstatat(r->dir_fd, "pool-0", &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -ENOENT;
    return S_ISREG(st.st_mode) && st.st_size >= 0 && (uint64_t)st.st_size >= bytes ? 0 : -EPROTO;
}

int region_files_probe(struct region *r, struct region_shape *out, struct slots_super *super)
{
    struct region_shape shape;
    int e = open_old(r->dir_fd, "slots", &r->slots_fd, &r->slots_bytes);
    if (e == 0 && open_old(r->dir_fd, "lookup", &r->lookup_fd, &r->lookup_bytes) != 0)
        r->lookup_bytes = 0;
    e = e != 0 ? e : super_read(r->slots_fd, r->slots_bytes, super, &shape);
    e = e != 0 ? e : open_old(r->dir_fd, "tails", &r->tails_fd, &r->tails_bytes);
    e = e != 0 ? e : pool_fits(r, shape.pool_bytes);
    if (e == 0 && r->tails_bytes != shape.tails_bytes)
        e = -EPROTO; /* cut short: keys would have lost their ends, and new ones would find no cell */
    if (e != 0) {
        region_files_close(r);
        return e;
    }
    shape.lookup_bytes = r->lookup_bytes;
    *out = shape;
    return 0;
}

/* ---- anew ---- */

static int refuse_make(const struct region *r, const char *name, uint64_t allocated, char *why, size_t why_size)
{
    int e = errno;
    snprintf(why, why_size, "can't make '%s/%s' with %llu KiB: %s: make the pool smaller, or the file system larger",
             r->path, name, (unsigned long long)(allocated >> 10), strerror(e));
    return -e;
}

static int make_one(struct region *r, const char *name, uint64_t bytes, uint64_t allocated, uint32_t mode, int *out,
                    char *why, size_t why_size)
{
    int fd = openat(r->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool done = fd >= 0 && fchmod(fd, mode) == 0 && ftruncate(fd, (off_t)bytes) == 0 &&
                fallocate(fd, 0, 0, (off_t)allocated) == 0;
    if (done) {
        *out = fd;
        return 0;
    }
    int e = refuse_make(r, name, allocated, why, why_size);
    if (fd >= 0)
        close(fd);
    return e;
}

static int format_lookup(const struct region *r, uint64_t bytes, const uint8_t uuid[16], uint64_t seed, char *why,
                         size_t why_size)
{
    void *lookup = map_shared(r->lookup_fd, bytes, PROT_READ | PROT_WRITE);
    if (lookup == NULL) {
        int e = errno;
        snprintf(why, why_size, "can't map '%s/lookup': %s", r->path, strerror(e));
        return -e;
    }
    lookup_format(lookup, bytes, uuid, seed);
    unmap_shared(lookup, bytes);
    return 0;
}

static const char *lookup_fault(const struct region *r, const struct slots_super *super)
{
    struct lookup l;
    if (r->lookup_fd < 0)
        return "missing";
    void *map = r->lookup_bytes > 0 ? map_shared(r->lookup_fd, r->lookup_bytes, PROT_READ) : NULL;
    const char *fault = NULL;
    if (map == NULL || lookup_attach(&l, map, r->lookup_bytes) != 0)
        fault = "damaged";
    else if (memcmp(l.super->uuid, super->uuid, sizeof super->uuid) != 0 || l.seed != super->hash_seed)
        fault = "of another pool";
    unmap_shared(map, r->lookup_bytes);
    return fault;
}

int region_files_relook(struct region *r, struct region_shape *shape, const struct slots_super *super, uint32_t mode,
                        char *why, size_t why_size)
{
    const char *fault = lookup_fault(r, super);
    if (fault == NULL)
        return 0;
    close_one(&r->lookup_fd);
    if (unlinkat(r->dir_fd, "lookup", 0) != 0 && errno != ENOENT) {
        int e = errno;
        snprintf(why, why_size, "'%s/lookup' is %s and can't be removed: %s", r->path, fault, strerror(e));
        return -e;
    }
    shape->lookup_bytes = lookup_bytes(shape->max_headers);
    int e = make_one(r, "lookup", shape->lookup_bytes, shape->lookup_bytes, mode, &r->lookup_fd, why, why_size);
    e = e != 0 ? e : format_lookup(r, shape->lookup_bytes, super->uuid, super->hash_seed, why, why_size);
    if (e != 0)
        return e;
    r->relooked = true;
    log_event(LOG_WARNING, "'%s/lookup' is %s: it is made anew from the index", r->path, fault);
    return 0;
}

int region_files_make(struct region *r, const struct region_shape *shape, const struct lmdb_identity *id, uint32_t mode,
                      char *why, size_t why_size)
{
    int e = make_one(r, "slots", shape->slots_bytes, dir_end(shape->n_units), mode, &r->slots_fd, why, why_size);
    if (e == 0 && fallocate(r->slots_fd, 0, (off_t)shape->headers_offset, (off_t)headers_at_start(shape)) != 0)
        e = refuse_make(r, "slots", headers_at_start(shape), why, why_size);
    if (e == 0)
        e = make_one(r, "lookup", shape->lookup_bytes, shape->lookup_bytes, mode, &r->lookup_fd, why, why_size);
    if (e == 0)
        e = make_one(r, "tails", shape->tails_bytes, tails_at_start(shape), mode, &r->tails_fd, why, why_size);
    if (e != 0)
        goto fail;
    struct slots_super super = {
        .format = LAYOUT_FORMAT,
        .fingerprint = LAYOUT_FINGERPRINT,
        .region_id = id->region_id,
        .pool_bytes = shape->pool_bytes,
        .mr_bytes = shape->mr_bytes,
        .dir_offset = REGION_DIR_OFFSET,
        .headers_offset = shape->headers_offset,
        .hash_seed = id->hash_seed,
        .n_units = shape->n_units,
        .max_headers = shape->max_headers,
        .n_pools = 1,
        .page_shift = 12,
    };
    memcpy(super.uuid, id->uuid, sizeof super.uuid);
    e = format_lookup(r, shape->lookup_bytes, id->uuid, id->hash_seed, why, why_size);
    if (e == 0 && pwrite(r->slots_fd, &super, sizeof super, 0) == (ssize_t)sizeof super)
        return 0;
    if (e == 0) {
        e = -errno;
        snprintf(why, why_size, "can't write '%s/slots': %s", r->path, strerror(-e));
    }
fail:
    region_files_close(r);
    return e;
}

int region_files_map(struct region *r, const struct region_shape *shape, char *why, size_t why_size)
{
    r->slots_bytes = shape->slots_bytes;
    r->lookup_bytes = shape->lookup_bytes;
    r->tails_bytes = shape->tails_bytes;
    r->n_tails = shape->n_tails;
    uint8_t *slots = map_shared(r->slots_fd, r->slots_bytes, PROT_READ | PROT_WRITE);
    void *lookup = map_shared(r->lookup_fd, r->lookup_bytes, PROT_READ | PROT_WRITE);
    r->tails = map_shared(r->tails_fd, r->tails_bytes, PROT_READ | PROT_WRITE);
    int e = slots == NULL || lookup == NULL || r->tails == NULL ? -ENOMEM
                                                                : lookup_attach(&r->lookup, lookup, r->lookup_bytes);
    if (e != 0) {
        snprintf(why, why_size, "can't map the files of '%s': %s", r->path, strerror(-e));
        unmap_shared(slots, r->slots_bytes);
        unmap_shared(lookup, r->lookup_bytes);
        region_files_close(r);
        return e;
    }
    map_collapse(lookup, 0, r->lookup_bytes);
    r->super = (struct slots_super *)slots;
    r->dir = (struct slab_entry *)(slots + REGION_DIR_OFFSET);
    r->headers = (struct slot_header *)(slots + shape->headers_offset);
    r->lookup.headers = r->headers;
    r->lookup.n_headers = shape->max_headers;
    r->lookup.tails = r->tails;
    r->lookup.n_tails = r->n_tails;
    return 0;
}

void region_files_close(struct region *r)
{
    unmap_shared(r->tails, r->tails_bytes);
    unmap_shared(r->lookup.super, r->lookup_bytes);
    unmap_shared(r->super, r->slots_bytes);
    r->tails = NULL;
    r->lookup = (struct lookup){0};
    r->super = NULL;
    close_one(&r->tails_fd);
    close_one(&r->lookup_fd);
    close_one(&r->slots_fd);
}

/* ---- growing ---- */

static int allocate(int fd, uint64_t from, uint64_t bytes, bool is_last_try)
{
    char why[400];
    int e;
    if (!space_fits(fd, bytes, why, sizeof why)) {
        if (is_last_try)
            log_often(LOG_WARNING, "no room for more slots or longer keys: %s", why);
        return -ENOMEM;
    }
    do
        e = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)bytes) == 0 ? 0 : errno;
    while (e == EINTR);
    return -e;
}

/* A step ahead where there is room for it, else just what is needed. */
static int grow(int fd, uint64_t offset, uint32_t item, uint32_t n, uint32_t most, uint32_t step, uint32_t *ready)
{
    if (n <= *ready)
        return 0;
    if (n > most)
        return -ENOSPC;
    uint32_t ahead = (uint32_t)least(most, round_up((uint64_t)n, step));
    for (uint32_t to = ahead;; to = n) {
        uint64_t from = offset + (uint64_t)*ready * item, bytes = (uint64_t)(to - *ready) * item;
        if (allocate(fd, from, bytes, to == n) == 0) {
            *ready = to;
            return 0;
        }
        if (to == n)
            return -ENOSPC;
    }
}

static uint64_t header_end(const struct region *r, uint32_t n)
{
    return r->super->headers_offset + (uint64_t)n * sizeof(struct slot_header);
}

int region_grow_headers(void *env, uint32_t n)
{
    struct region *r = env;
    uint32_t before = r->headers_ready;
    int e = grow(r->slots_fd, r->super->headers_offset, sizeof(struct slot_header), n, r->super->max_headers,
                 HEADERS_STEP, &r->headers_ready);
    if (r->headers_ready > before) {
        uint64_t from = header_end(r, before) / UNIT_BYTES * UNIT_BYTES;
        map_collapse(r->super, from, header_end(r, r->headers_ready));
    }
    return e;
}

int region_grow_tails(void *env, uint32_t n)
{
    struct region *r = env;
    return grow(r->tails_fd, 0, TAIL_CELL, n, r->n_tails, TAILS_STEP, &r->tails_ready);
}
