/* region.c: opening a region: the decision between a warm restart and an empty one, and the order of things.
 *
 * First whether the directory may be a region's at all; then the lock; then what is there is looked at, then removed or
 * kept; then space is checked; then memory is taken. What makes a region whole comes last: the magic of slots, then the
 * identity in the index. A start that is killed in between leaves something that the next one takes for nothing.
 */
#include "store/shell/region.h"

#include "store/amount.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/region_files.h"
#include "store/shell/region_lock.h"
#include "store/shell/region_numa.h"
#include "store/shell/region_ours.h"
#include "store/shell/region_resize.h"
#include "store/shell/region_space.h"
#include "store/shell/settings_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct opening {
    struct region *r;
    const struct settings *s;
    const struct mem_progress *progress;
    struct region_shape shape;
    struct lmdb_identity id;
    uint64_t records;
    uint32_t file_mode;
    bool unfinished; /* what is there was never a region: the start that made it did not come to its end */
    char *why;
    size_t why_size;
};

static int refuse(const struct opening *o, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int refuse(const struct opening *o, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(o->why, o->why_size, format, args);
    va_end(args);
    return error;
}

static int refuse_errno(const struct opening *o, const char *what, const char *name)
{
    int e = errno;
    return refuse(o, -e, "can't %s '%s%s': %s", what, o->r->path, name, strerror(e));
}

static void began(struct region *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void began(struct region *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->began, sizeof r->began, format, args);
    va_end(args);
}

/* ---- directory ---- */

static mode_t directory_mode(const struct settings *s)
{
    return (s->mode & 040) != 0 ? 0750 : 0700;
}

static int make_private(const struct opening *o)
{
    struct region *r = o->r;
    snprintf(r->path, sizeof r->path, "/dev/shm/berth-%u-XXXXXX", (unsigned)geteuid());
    if (mkdtemp(r->path) == NULL) {
        int e = errno;
        return refuse(o, -e, "can't make a directory in '/dev/shm': %s: name one on tmpfs with region=PATH",
                      strerror(e));
    }
    r->made = r->remove = true;
    return 0;
}

static int make_directory(const struct opening *o)
{
    struct region *r = o->r;
    if (o->s->embedded && o->s->source[SET_REGION].origin == ORIGIN_DEFAULT)
        return make_private(o);
    snprintf(r->path, sizeof r->path, "%s", o->s->region);
    r->made = mkdir(r->path, directory_mode(o->s)) == 0;
    return r->made || errno == EEXIST ? 0 : refuse_errno(o, "make", "");
}

/* In /dev/shm anyone may make a directory of this name first: what another user owns or may write is not used. */
static int open_directory(const struct opening *o)
{
    struct region *r = o->r;
    struct stat st;
    int e = make_directory(o);
    if (e != 0)
        return e;
    r->dir_fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (r->dir_fd < 0 || fstat(r->dir_fd, &st) != 0)
        return refuse_errno(o, "open", "");
    if ((st.st_mode & S_ISVTX) != 0 && (st.st_mode & 022) != 0) /* what it would take to use it breaks other programs */
        return refuse(o, -EACCES, "'%s' is a directory that users share: name one below it, as --region %s%sberth-%u",
                      r->path, r->path, r->path[strlen(r->path) - 1] == '/' ? "" : "/", (unsigned)geteuid());
    if (st.st_uid != geteuid())
        return refuse(o, -EACCES, "'%s' belongs to uid %u, this is uid %u: run as that user, or choose another region",
                      r->path, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 022) != 0)
        return refuse(o, -EACCES, "'%s' may be written by other users: chmod go-w it, or choose another region",
                      r->path);
    return 0;
}

static int open_subdirectories(const struct opening *o)
{
    struct region *r = o->r;
    if (mkdirat(r->dir_fd, "clients", 0700) != 0 && errno != EEXIST)
        return refuse_errno(o, "make", "/clients");
    if (mkdirat(r->dir_fd, "index", 0700) != 0 && errno != EEXIST)
        return refuse_errno(o, "make", "/index");
    r->clients_fd = openat(r->dir_fd, "clients", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return r->clients_fd < 0 ? refuse_errno(o, "open", "/clients") : 0;
}

/* ---- what is there ---- */

static int boot_id(uint8_t out[16])
{
    char text[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f == NULL)
        return -errno;
    bool read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    unsigned n = 0, byte;
    for (const char *at = text; read && n < 16; n++, at += 2) {
        at += *at == '-';
        if (sscanf(at, "%2x", &byte) != 1)
            break;
        out[n] = (uint8_t)byte;
    }
    return n == 16 ? 0 : -EIO;
}

static int index_open(const struct opening *o, uint64_t map_bytes, bool look)
{
    struct region *r = o->r;
    char dir[sizeof r->path + 8];
    snprintf(dir, sizeof dir, "%s/index", r->path);
    struct lmdb_config c = {
        .dir = dir,
        .map_bytes = map_bytes,
        .writemap = !o->s->embedded && !look, /* it cuts a file that is larger than the map */
        .preallocate = true,
        .mode = 0600,
    };
    int e = lmdb_open(&r->index, &c);
    if (e == -ENOSPC)
        return region_space_refuse_index(r, map_bytes, o->why, o->why_size);
    return e == 0 ? 0 : refuse(o, e, "the index in '%s' can't be opened: %s", dir, strerror(-e));
}

static void index_close(struct region *r)
{
    if (r->index != NULL)
        lmdb_close(r->index);
    r->index = NULL;
}

/* The index is made as large as was asked for only where it is going to be used, and where there is room: to fill a
 * file system first, and to be refused then, takes minutes. */
static int index_open_old(const struct opening *o)
{
    if (o->shape.pool_bytes != o->s->pool)
        return index_open(o, LMDB_MAP_MIN, true);
    int e = region_space_index(o->r, o->s, o->why, o->why_size);
    return e != 0 ? e : index_open(o, o->s->index_size, false);
}

/* Why what is there is not taken over; NULL if it is. */
static const char *identity_differs(const struct lmdb_identity *found, const struct slots_super *super)
{
    uint8_t boot[16];
    if (found->format != LAYOUT_FORMAT)
        return "its index has another format";
    if (memcmp(found->uuid, super->uuid, sizeof found->uuid) != 0 || found->region_id != super->region_id ||
        found->hash_seed != super->hash_seed)
        return "its index is of another pool";
    if (boot_id(boot) != 0 || memcmp(found->boot_id, boot, sizeof boot) != 0)
        return "it was made under another boot";
    return NULL;
}

/* Whether a region was there of which something is gone. The pool is made first, the index last; slots has its magic
 * only when a start was whole: a pool alone, and slots without it, are what an interrupted first start leaves. */
static bool region_was_there(const struct region *r, const struct slots_super *super)
{
    static const char *const later[] = {"lookup", "tails", "index/data.mdb"};
    bool slots = faccessat(r->dir_fd, "slots", F_OK, AT_SYMLINK_NOFOLLOW) == 0, any = false;
    for (unsigned i = 0; i < sizeof later / sizeof *later; i++)
        any |= faccessat(r->dir_fd, later[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    return slots ? super->magic != 0 : any;
}

/* 1: taken over, and open; 0: nothing usable, *reason says why; negative: an error that no empty start would mend. */
static int take_over(struct opening *o, const char **reason)
{
    struct region *r = o->r;
    struct slots_super super = {0};
    struct stat st;
    int e = region_files_probe(r, &o->shape, &super);
    if (e == -ENOENT || fstatat(r->dir_fd, "index/data.mdb", &st, AT_SYMLINK_NOFOLLOW) != 0) {
        *reason = !r->made && region_was_there(r, &super) ? "files of it are missing" : NULL;
        return 0;
    }
    o->unfinished = e == -EPROTO && super.magic == 0 && super.format == LAYOUT_FORMAT;
    if (o->unfinished)
        return 0;
    *reason = "its files are of another format";
    if (e == 0)
        e = region_files_relook(r, &o->shape, &super, o->file_mode, o->why, o->why_size);
    if (e == 0)
        e = region_files_map(r, &o->shape, o->why, o->why_size);
    if (e == -EPROTO)
        return 0;
    e = e != 0 ? e : index_open_old(o);
    if (e == -EBADMSG) {
        *reason = "its index is damaged";
        return 0;
    }
    if (e != 0)
        return e;
    e = lmdb_identity(r->index, &o->id);
    o->unfinished = e == -ENOENT;
    *reason = e == -EBADMSG ? "its index is damaged" : NULL;
    if (e == -ENOENT || e == -EBADMSG)
        return 0;
    if (e == 0 && (*reason = identity_differs(&o->id, &super)) != NULL)
        return 0;
    return e == 0 ? 1 : refuse(o, e, "the index of '%s' can't be read: %s", r->path, strerror(-e));
}

/* A pool of another size. The index was only looked at, and becomes as large as it is to be before anything is lost. */
static int resize(struct opening *o)
{
    struct resize plan;
    int e = region_resize_plan(o->r, o->s, &o->shape, &plan, o->why, o->why_size);
    e = e != 0 ? e : region_space_index(o->r, o->s, o->why, o->why_size);
    if (e != 0)
        return e;
    index_close(o->r);
    e = index_open(o, o->s->index_size, false);
    return e != 0 ? e : region_resize(o->r, o->s, &o->shape, &plan, o->progress, o->why, o->why_size);
}

/* 1: the pool has the size that it is to have, by now; 0: nothing is in it, so it is made anew. */
static int pool_size_agrees(struct opening *o, const char **reason)
{
    struct index_usage usage;
    if (o->shape.pool_bytes == o->s->pool)
        return 1;
    lmdb_ops.usage(o->r->index, &usage);
    *reason = "the pool was to have another size";
    if (usage.records == 0)
        return 0;
    int e = resize(o);
    return e < 0 ? e : 1;
}

/* ---- making and taking over ---- */

static int reserve_pool(const struct opening *o)
{
    struct region *r = o->r;
    char path[sizeof r->path + 8];
    snprintf(path, sizeof path, "%s/pool-0", r->path);
    region_numa_plan(r, o->s, o->shape.pool_bytes);
    int e = r->kind->reserve(&r->pool, path, o->shape.pool_bytes, o->s->lock,
                             o->s->populate == POPULATE_ON ? o->s->threads : 0, &r->numa.plan, o->progress, o->why,
                             o->why_size);
    if (e < 0)
        return e;
    r->locked = o->s->lock != MEM_LOCK_OFF && o->why[0] == '\0';
    snprintf(r->lock_note, sizeof r->lock_note, "%s", o->s->lock == MEM_LOCK_OFF ? "lock is off" : o->why);
    e = region_numa_found(r, o->s, o->why, o->why_size);
    if (e != 0)
        return e;
    return fchmod(r->pool.fd, o->file_mode) == 0 ? 0 : refuse_errno(o, "change the mode of", "/pool-0");
}

/* A batch of its own, before the core has any. */
static int write_meta(struct region *r, enum meta_number a, uint64_t a_value, enum meta_number b, uint64_t b_value)
{
    struct batch *batch = batch_create();
    if (batch == NULL)
        return -ENOMEM;
    int e = batch_meta(batch, a, a_value);
    e = e != 0 ? e : batch_meta(batch, b, b_value);
    e = e != 0 ? e : lmdb_ops.commit(r->index, batch);
    batch_destroy(batch);
    return e;
}

static int make_identity(struct lmdb_identity *id)
{
    struct {
        uint8_t uuid[16];
        uint64_t region_id, hash_seed;
    } drawn;
    *id = (struct lmdb_identity){.format = LAYOUT_FORMAT};
    do {
        if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
            return -EIO;
    } while (drawn.region_id == 0);
    memcpy(id->uuid, drawn.uuid, sizeof id->uuid);
    id->region_id = drawn.region_id;
    id->hash_seed = drawn.hash_seed;
    return boot_id(id->boot_id);
}

/* The last step of a start: from here on the next start finds a region, and this process in it. */
static int stamp(struct opening *o)
{
    struct region *r = o->r;
    r->clean = lmdb_ops.meta(r->index, META_CLEAN) == 1;
    r->incarnation = lmdb_ops.meta(r->index, META_INCARNATION) + 1;
    int e = write_meta(r, META_CLEAN, 0, META_INCARNATION, r->incarnation);
    r->super->magic = SLOTS_MAGIC;
    o->id.pid = getpid();
    o->id.start_time = process_start_time(getpid());
    e = e != 0 ? e : lmdb_identify(r->index, &o->id);
    e = e != 0 ? e : region_lock_stamp(r->lock_fd, r->remove);
    if (e != 0 && r->clean)
        write_meta(r, META_CLEAN, 1, META_INCARNATION, r->incarnation);
    return e == 0 ? 0 : refuse(o, e, "the index of '%s' can't be written: %s", r->path, strerror(-e));
}

static int make_region(struct opening *o, const char *reason)
{
    struct region *r = o->r;
    struct region_shape shape;
    region_shape(&shape, o->s);
    r->first = reason == NULL; /* until then what is there is a region, and stays if this start is refused */
    int e = region_space(r, o->s, &shape, region_allocated(r->dir_fd), o->why, o->why_size);
    if (e != 0)
        return e;
    r->first = true;
    index_close(r);
    region_files_close(r);
    region_remove_files(r->dir_fd, false);
    o->shape = shape;
    close(r->clients_fd);
    r->clients_fd = -1;
    e = open_subdirectories(o);
    if (e == 0) /* who has the old files mapped keeps their memory */
        e = region_space(r, o->s, &o->shape, 0, o->why, o->why_size);
    if (e == 0 && (e = make_identity(&o->id)) != 0)
        return refuse(o, e, "no random numbers, or no boot id: %s", strerror(-e));
    e = e != 0 ? e : reserve_pool(o);
    e = e != 0 ? e : region_files_make(r, &o->shape, &o->id, o->file_mode, o->why, o->why_size);
    e = e != 0 ? e : region_files_map(r, &o->shape, o->why, o->why_size);
    e = e != 0 ? e : index_open(o, o->s->index_size, false);
    e = e != 0 ? e : stamp(o);
    if (reason == NULL)
        began(r, "new region: %s",
              o->unfinished ? "the start that made what was there did not finish" : "there was none");
    else
        began(r, "new region, what was there is gone: %s", reason);
    return e;
}

/* The files are an earlier node's, which may have been given another mode. */
static int renew_modes(const struct opening *o)
{
    const int fds[] = {o->r->slots_fd, o->r->lookup_fd, o->r->tails_fd};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fchmod(fds[i], o->file_mode) != 0)
            return refuse_errno(o, "change the mode of", "/{slots,lookup,tails}");
    return 0;
}

/* Settings that were given, and that a region has from its beginning. */
static void say_kept(const struct opening *o)
{
    struct region_shape asked;
    char has[AMOUNT_SIZE], wants[AMOUNT_SIZE];
    region_shape(&asked, o->s);
    if (o->s->source[SET_MR_SIZE].origin != ORIGIN_DEFAULT && asked.mr_bytes != o->shape.mr_bytes)
        log_event(LOG_WARNING, "mr-size is %s in region '%s', not %s: a region keeps what it was made with",
                  amount(o->shape.mr_bytes, has), o->r->path, amount(asked.mr_bytes, wants));
    if (o->s->source[SET_MAX_OBJECTS].origin != ORIGIN_DEFAULT && asked.max_headers != o->shape.max_headers)
        log_event(LOG_WARNING, "max-objects is %u in region '%s', not %u: a region keeps what it was made with",
                  o->shape.max_headers, o->r->path, asked.max_headers);
}

static int resume_region(struct opening *o)
{
    struct region *r = o->r;
    struct index_usage usage;
    lmdb_ops.usage(r->index, &usage);
    say_kept(o);
    int e = renew_modes(o);
    if (e == 0 && (e = region_pool_cut(r, o->shape.pool_bytes)) != 0)
        return refuse(o, e, "the pool file of '%s' can't be cut: %s", r->path, strerror(-e));
    e = e != 0 ? e : reserve_pool(o);
    e = e != 0 ? e : stamp(o);
    uint64_t kept = usage.records - r->dropped;
    began(r, "warm restart with %llu object%s: the last node %s%s%s", (unsigned long long)kept, plural(kept),
          r->clean ? "stopped cleanly" : "was killed or lost its host process", r->resized ? "; " : "", r->resize_note);
    return e;
}

static int open_or_make(struct opening *o)
{
    const char *reason = NULL;
    int taken = take_over(o, &reason);
    if (taken > 0)
        taken = pool_size_agrees(o, &reason);
    if (taken < 0)
        return taken;
    if (taken > 0)
        return resume_region(o);
    struct index_usage usage = {.records = 1}; /* what can't be read may have had some */
    if (o->r->index != NULL)
        lmdb_ops.usage(o->r->index, &usage);
    o->r->lost = reason != NULL && usage.records > 0;
    o->r->relooked = false;
    return make_region(o, reason);
}

static void close_all(struct region *r)
{
    index_close(r);
    region_files_close(r);
    if (r->pool.base != NULL)
        r->kind->release(&r->pool);
    if (r->clients_fd >= 0)
        close(r->clients_fd);
}

static void close_directory(struct region *r)
{
    if (r->lock_fd >= 0)
        close(r->lock_fd);
    if (r->dir_fd >= 0)
        close(r->dir_fd);
}

int region_open(struct region *r, const struct settings *s, const struct mem_progress *progress, char *why,
                size_t why_size)
{
    *r = (struct region){
        .dir_fd = -1,
        .clients_fd = -1,
        .lock_fd = -1,
        .slots_fd = -1,
        .lookup_fd = -1,
        .tails_fd = -1,
        .kind = &host_memkind,
        .pool = {.fd = -1},
    };
    struct opening o = {
        .r = r,
        .s = s,
        .progress = s->progress != NULL ? s->progress : progress,
        .file_mode = s->mode & 0640, /* who may write a file may cut it short under its readers */
        .why = why,
        .why_size = why_size,
    };
    int e = open_directory(&o);
    if (e != 0)
        goto close_directory;
    e = region_ours(r->dir_fd, r->path, why, why_size);
    if (e != 0)
        goto close_directory;
    r->lock_fd = region_lock(r->dir_fd, r->path, r->remove, o.progress, why, why_size);
    if (r->lock_fd < 0) {
        e = r->lock_fd;
        goto close_directory;
    }
    e = open_subdirectories(&o);
    e = e != 0 ? e : open_or_make(&o);
    if (e == 0) {
        region_leftovers(r->path, r->dir_fd);
        return 0;
    }

    close_all(r);
    if (r->first || r->made)
        region_remove_files(r->dir_fd, true);
close_directory:
    if (r->made)
        rmdir(r->path);
    close_directory(r);
    return e;
}

void region_close(struct region *r, bool clean)
{
    int e = clean && !r->remove ? write_meta(r, META_CLEAN, 1, META_INCARNATION, r->incarnation) : 0;
    if (e != 0)
        log_event(LOG_WARNING, "region '%s' can't be marked clean: %s", r->path, strerror(-e));
    close_all(r);
    if (r->remove) {
        region_remove_clients(r->dir_fd);
        region_remove_files(r->dir_fd, true);
        if (r->made)
            rmdir(r->path); /* only if it is empty: files that are not ours stay */
    } else if (clean && e == 0) {
        region_lock_clear(r->lock_fd);
    }
    close_directory(r);
}

/* ---- is it still there ---- */

static bool is_linked(int dir_fd, const char *name, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(dir_fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

int region_linked(const struct region *r, char *why, size_t why_size)
{
    const struct {
        const char *name;
        int fd;
    } files[] = {{"pool-0", r->pool.fd}, {"slots", r->slots_fd},     {"lookup", r->lookup_fd},
                 {"tails", r->tails_fd}, {"clients", r->clients_fd}, {"lock", r->lock_fd}};
    const char *gone = NULL;
    if (!is_linked(AT_FDCWD, r->path, r->dir_fd))
        gone = ".";
    for (unsigned i = 0; i < sizeof files / sizeof *files && gone == NULL; i++) {
        if (!is_linked(r->dir_fd, files[i].name, files[i].fd))
            gone = files[i].name;
    }
    if (gone == NULL && faccessat(r->dir_fd, "index/data.mdb", F_OK, 0) != 0)
        gone = "index/data.mdb";
    if (gone == NULL)
        return 0;
    snprintf(why, why_size,
             "'%s/%s' was removed or replaced by another process: who is attached keeps its data, new clients and a "
             "restart will not find it: keep clean-up services (logind's RemoveIPC, tmpfiles) from it, then restart "
             "the node",
             r->path, gone);
    return -ENOENT;
}
