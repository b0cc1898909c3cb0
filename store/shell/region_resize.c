/* region_resize.c: see region_resize.h. */
#include "store/shell/region_resize.h"

#include "store/amount.h"
#include "store/bits.h"
#include "store/map.h"
#include "store/populate.h"
#include "store/shell/region_ours.h"
#include "store/shell/region_space.h"
#include "store/slot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PINS_AT_ONCE 4096u

static int refuse(int error, char *why, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse(int error, char *why, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return error;
}

/* ---- what lies beyond the end ---- */

/* Units of the slab or run that begins here; 0: none does. What contradicts itself is left to slabs_recover. */
static uint32_t units_at(const struct region *r, const struct resize *p, uint32_t unit)
{
    const struct slab_entry *e = &r->dir[unit];
    uint8_t kind = atomic_load_explicit(&e->kind, memory_order_acquire);
    bool begins = (kind == UNIT_SLAB || kind == UNIT_RUN) && e->units > 0 && e->units <= p->old_units - unit &&
                  e->slot_pages > 0 && e->slot_pages <= e->units * UNIT_PAGES;
    uint32_t slots = begins ? e->units * UNIT_PAGES / e->slot_pages : 0;
    begins = begins && e->header < r->super->max_headers && slots <= r->super->max_headers - e->header;
    return begins ? e->units : 0;
}

static void find_end(const struct region *r, struct resize *p)
{
    p->end = p->new_units;
    for (uint32_t u = 0, n; u<p->old_units; u += n> 0 ? n : 1) {
        n = units_at(r, p, u);
        if (n == 0)
            continue;
        uint32_t top = r->dir[u].header + n * UNIT_PAGES / r->dir[u].slot_pages;
        p->headers = top > p->headers ? top : p->headers;
        if (u < p->new_units && u + n > p->new_units)
            p->end = u;
    }
}

static bool is_beyond(const struct region *r, const struct resize *p, uint32_t slot)
{
    return slot < p->headers && r->headers[slot].page >= p->end * UNIT_PAGES;
}

struct count {
    const struct region *r;
    struct resize *p;
};

static int count_lost(void *arg, struct key_ref key, const struct record *record)
{
    const struct count *c = arg;
    (void)key;
    if (record == NULL || !record->ready || !is_beyond(c->r, c->p, record->slot))
        return 0;
    c->p->lost++;
    c->p->lost_bytes += record->size;
    c->p->held += record->n_holds > 0;
    c->p->held_bytes += record->n_holds > 0 ? record->size : 0;
    return 0;
}

static int refuse_loss(const struct region *r, const struct settings *s, const struct resize *p, char *why, size_t size)
{
    char from[AMOUNT_SIZE], to[AMOUNT_SIZE], lost[AMOUNT_SIZE];
    bool held = s->shrink != SHRINK_REFUSE;
    uint64_t n = held ? p->held : p->lost;
    return refuse(-EINVAL, why, size,
                  "a pool of %s in place of %s would lose %" PRIu64
                  " object%s with %s of region '%s'%s, beyond its end: "
                  "set pool=%" PRIu64 "MiB, or --shrink %s to lose them, or name another region",
                  amount(p->new_bytes, to), amount(p->old_bytes, from), n, plural(n),
                  amount(held ? p->held_bytes : p->lost_bytes, lost), r->path, held ? ", under holds" : "",
                  p->old_bytes >> 20, held || p->held > 0 ? "drop-held" : "drop");
}

/* ---- clients that live ---- */

static bool lock_is_held(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* A descriptor of the pin file, if its client lives; -1. */
static int open_living(const struct region *r, const char *name)
{
    int fd = openat(r->clients_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && region_is_pins(name, fd) && lock_is_held(fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* By pread: a mapping would give the file's holes memory. */
static bool pins_beyond(const struct region *r, const struct resize *p, int fd)
{
    uint32_t high = 0, slots[PINS_AT_ONCE];
    if (pread(fd, &high, sizeof high, offsetof(struct pins_file, high_water)) != (ssize_t)sizeof high)
        return false; /* nothing is in it yet */
    high = high < PINS_CAPACITY ? high : PINS_CAPACITY;
    for (uint32_t at = 0; at < high; at += PINS_AT_ONCE) {
        uint32_t n = high - at < PINS_AT_ONCE ? high - at : PINS_AT_ONCE;
        off_t from = (off_t)(offsetof(struct pins_file, entry) + at * sizeof *slots);
        if (pread(fd, slots, n * sizeof *slots, from) != (ssize_t)(n * sizeof *slots))
            return true;
        for (uint32_t i = 0; i < n; i++)
            if (slots[i] != 0 && is_beyond(r, p, slots[i] - 1))
                return true;
    }
    return false;
}

static bool session_lives(const struct region *r, uint64_t id)
{
    char name[32];
    snprintf(name, sizeof name, "%" PRIu64, id);
    int fd = open_living(r, name);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

struct find_row {
    uint64_t id;
    struct session_row row;
};

static int row_is(void *arg, uint64_t id, const struct session_row *row)
{
    struct find_row *f = arg;
    if (id == f->id)
        f->row = *row;
    return id == f->id;
}

static int refuse_in_use(const struct region *r, const struct resize *p, uint64_t session, const char *does, char *why,
                         size_t why_size)
{
    struct find_row f = {.id = session};
    char to[AMOUNT_SIZE], who[64] = "";
    lmdb_ops.sessions(r->index, row_is, &f);
    if (f.row.pid > 0)
        snprintf(who, sizeof who, " (pid %d)", (int)f.row.pid);
    return refuse(-EBUSY, why, why_size,
                  "a client of the last node lives, session %" PRIu64
                  "%s, and %s what lies beyond the end of a pool of "
                  "%s: end it first, or set pool=%" PRIu64 "MiB",
                  session, who, does, amount(p->new_bytes, to), p->old_bytes >> 20);
}

static int check_readers(const struct region *r, const struct resize *p, char *why, size_t why_size)
{
    int e = 0, fd = openat(r->clients_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        e = -errno;
        if (fd >= 0)
            close(fd);
        return refuse(e, why, why_size, "can't read '%s/clients': %s", r->path, strerror(-e));
    }
    for (struct dirent *d; e == 0 && (d = readdir(dir)) != NULL;) {
        int pins = open_living(r, d->d_name);
        if (pins >= 0 && pins_beyond(r, p, pins))
            e = refuse_in_use(r, p, strtoull(d->d_name, NULL, 10), "reads", why, why_size);
        if (pins >= 0)
            close(pins);
    }
    closedir(dir);
    return e;
}

/* ---- slots beyond the end ---- */

/* Calls back for each header of the slabs and runs that go, until one answers an error. */
static int each_beyond(struct region *r, const struct resize *p,
                       int (*each)(void *arg, struct region *r, uint32_t slot), void *arg)
{
    for (uint32_t u = p->end, n; u<p->old_units; u += n> 0 ? n : 1) {
        n = units_at(r, p, u);
        uint32_t slots = n > 0 ? n * UNIT_PAGES / r->dir[u].slot_pages : 0;
        for (uint32_t i = 0; i < slots; i++) {
            int e = each(arg, r, r->dir[u].header + i);
            if (e != 0)
                return e;
        }
    }
    return 0;
}

struct writer {
    uint64_t last; /* a session that was found dead */
    uint64_t found;
};

static int find_writer(void *arg, struct region *r, uint32_t slot)
{
    struct writer *w = arg;
    uint64_t session = r->headers[slot].version;
    if (word_state(slot_load(&r->headers[slot])) != SLOT_WRITING || session == w->last)
        return 0;
    w->last = session;
    w->found = session_lives(r, session) ? session : 0;
    return w->found != 0;
}

/* Neither may lose the memory that it has mapped: it would end by SIGBUS. */
static int check_clients(struct region *r, const struct resize *p, char *why, size_t why_size)
{
    struct writer w = {0};
    if (each_beyond(r, p, find_writer, &w) != 0)
        return refuse_in_use(r, p, w.found, "writes", why, why_size);
    return check_readers(r, p, why, why_size);
}

static int retire(void *arg, struct region *r, uint32_t slot)
{
    struct bits *retired = arg;
    struct slot_header *h = &r->headers[slot];
    uint64_t word = slot_load(h);
    if (word_state(word) == SLOT_READY) {
        slot_store(h, word_gen(word), SLOT_RETIRED);
        bits_set(retired, slot);
    }
    return 0;
}

static int restore(void *arg, struct region *r, uint32_t slot)
{
    struct slot_header *h = &r->headers[slot];
    if (bits_test(arg, slot))
        slot_store(h, word_gen(slot_load(h)), SLOT_READY);
    return 0;
}

/* Readers pin without asking anyone: as for each object that goes, first the word, then the fence, then their tables
 * (PROTOCOLS rule 2). Where one came in between, all is as it was. */
static int take_out(struct region *r, const struct resize *p, char *why, size_t why_size)
{
    struct bits retired;
    int e = bits_create(&retired, (uint64_t)p->headers + 1);
    if (e != 0)
        return refuse(e, why, why_size, "no memory to resize the pool of '%s'", r->path);
    each_beyond(r, p, retire, &retired);
    atomic_thread_fence(memory_order_seq_cst);
    e = check_clients(r, p, why, why_size);
    if (e != 0)
        each_beyond(r, p, restore, &retired);
    bits_destroy(&retired);
    return e;
}

static void free_units(struct region *r, uint32_t from, uint32_t to)
{
    for (uint32_t u = from; u < to; u++)
        atomic_store_explicit(&r->dir[u].kind, UNIT_FREE, memory_order_release);
}

/* ---- files ---- */

/* In one write of one page: a node that is killed leaves either size, never one field of each. */
static int write_super(struct region *r, uint64_t bytes)
{
    struct slots_super copy;
    const size_t n = offsetof(struct slots_super, reserved);
    memcpy(&copy, r->super, n);
    copy.pool_bytes = bytes;
    copy.n_units = (uint32_t)(bytes / UNIT_BYTES);
    return pwrite(r->slots_fd, &copy, n, 0) == (ssize_t)n ? 0 : -EIO;
}

int region_pool_cut(const struct region *r, uint64_t bytes)
{
    struct stat st;
    int fd = openat(r->dir_fd, "pool-0", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int e = fd < 0 || fstat(fd, &st) != 0 ? -errno : 0;
    if (e == 0 && (uint64_t)st.st_size > bytes && ftruncate(fd, (off_t)bytes) != 0)
        e = -errno;
    if (fd >= 0)
        close(fd);
    return e;
}

/* The new part gets memory while the file lacks its last byte. */
static int lengthen(int fd, const struct settings *s, const struct resize *p, const struct mem_progress *progress)
{
    bool whole = s->populate == POPULATE_ON;
    if (ftruncate(fd, (off_t)p->new_bytes - (whole ? 1 : 0)) != 0)
        return -errno;
    if (!whole)
        return 0;
    void *base = map_shared(fd, p->new_bytes, PROT_READ | PROT_WRITE);
    if (base == NULL)
        return -errno;
    int e = populate(base, fd, p->new_bytes, s->threads, progress);
    unmap_shared(base, p->new_bytes);
    if (e != 0)
        return e;
    return ftruncate(fd, (off_t)p->new_bytes) == 0 ? 0 : -errno;
}

static int grow(struct region *r, const struct settings *s, const struct resize *p, const struct mem_progress *progress,
                char *why, size_t why_size)
{
    uint64_t dir = (uint64_t)p->new_units * sizeof(struct slab_entry);
    int fd = openat(r->dir_fd, "pool-0", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int e = fd < 0 || fallocate(r->slots_fd, FALLOC_FL_KEEP_SIZE, REGION_DIR_OFFSET, (off_t)dir) != 0 ? -errno : 0;
    e = e != 0 ? e : lengthen(fd, s, p, progress);
    if (e == 0) {
        free_units(r, p->old_units, p->new_units);
        e = write_super(r, p->new_bytes);
    }
    if (fd >= 0)
        close(fd);
    if (e == 0)
        return 0;
    (void)region_pool_cut(r, p->old_bytes);
    char to[AMOUNT_SIZE];
    if (e == -ECANCELED)
        return refuse(e, why, why_size, "stopped before the pool was whole");
    return refuse(e, why, why_size, "the pool of '%s' can't grow to %s: %s: set pool=%" PRIu64 "MiB, or free memory",
                  r->path, amount(p->new_bytes, to), strerror(-e), p->old_bytes >> 20);
}

static int shrink(struct region *r, const struct resize *p, char *why, size_t why_size)
{
    int e = take_out(r, p, why, why_size);
    if (e != 0)
        return e;
    free_units(r, p->end, p->old_units);
    e = write_super(r, p->new_bytes);
    e = e != 0 ? e : region_pool_cut(r, p->new_bytes);
    return e == 0 ? 0 : refuse(e, why, why_size, "the pool of '%s' can't be cut: %s", r->path, strerror(-e));
}

/* ---- plan, and doing it ---- */

static int plan_growth(const struct region *r, const struct settings *s, const struct region_shape *shape,
                       const struct resize *p, char *why, size_t why_size)
{
    uint64_t most = (shape->headers_offset - REGION_DIR_OFFSET) / sizeof(struct slab_entry);
    char size[AMOUNT_SIZE];
    if (p->new_units > most)
        return refuse(-EINVAL, why, why_size,
                      "the pool of region '%s' was made to grow to at most %s: set that, or name another region",
                      r->path, amount(most * UNIT_BYTES, size));
    return region_space_grow(r, s, s->populate == POPULATE_ON ? p->new_bytes - p->old_bytes : 0, why, why_size);
}

int region_resize_plan(struct region *r, const struct settings *s, const struct region_shape *shape, struct resize *out,
                       char *why, size_t why_size)
{
    *out = (struct resize){.old_bytes = shape->pool_bytes,
                           .new_bytes = s->pool,
                           .old_units = shape->n_units,
                           .new_units = (uint32_t)(s->pool / UNIT_BYTES)};
    if (out->new_units > out->old_units)
        return plan_growth(r, s, shape, out, why, why_size);
    find_end(r, out);
    if (region_grow_headers(r, out->headers) != 0)
        return refuse(-ENOSPC, why, why_size, "no room for the slot headers of '%s'", r->path);
    struct count c = {.r = r, .p = out};
    int e = lmdb_ops.each(r->index, count_lost, &c);
    if (e < 0)
        return refuse(e, why, why_size, "the index of '%s' can't be read: %s", r->path, strerror(-e));
    if ((out->lost > 0 && s->shrink == SHRINK_REFUSE) || (out->held > 0 && s->shrink != SHRINK_DROP_HELD))
        return refuse_loss(r, s, out, why, why_size);
    return check_clients(r, out, why, why_size);
}

static void note(struct region *r, const struct region_shape *shape, const struct settings *s, const struct resize *p)
{
    char from[AMOUNT_SIZE], to[AMOUNT_SIZE], lost[AMOUNT_SIZE];
    struct region_shape asked;
    int n =
        snprintf(r->resize_note, sizeof r->resize_note, "the pool %s from %s to %s",
                 p->new_bytes > p->old_bytes ? "grew" : "shrank", amount(p->old_bytes, from), amount(p->new_bytes, to));
    region_shape(&asked, s);
    if (p->lost > 0)
        snprintf(r->resize_note + n, sizeof r->resize_note - (size_t)n,
                 ", %" PRIu64 " object%s with %s that lay beyond its end %s dropped, %" PRIu64 " of them had holds",
                 p->lost, plural(p->lost), amount(p->lost_bytes, lost), p->lost == 1 ? "is" : "are", p->held);
    else
        snprintf(r->resize_note + n, sizeof r->resize_note - (size_t)n, ", every object is kept%s",
                 asked.max_headers > shape->max_headers ? ", and max-objects what it was" : "");
}

int region_resize(struct region *r, const struct settings *s, struct region_shape *shape, const struct resize *plan,
                  const struct mem_progress *progress, char *why, size_t why_size)
{
    int e =
        plan->new_units > plan->old_units ? grow(r, s, plan, progress, why, why_size) : shrink(r, plan, why, why_size);
    if (e != 0)
        return e;
    shape->pool_bytes = plan->new_bytes;
    shape->n_units = plan->new_units;
    r->resized = true;
    r->dropped = plan->lost;
    note(r, shape, s, plan);
    return 0;
}
