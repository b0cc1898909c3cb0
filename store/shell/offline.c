/* offline.c: see offline.h. */
#include "store/shell/offline.h"

#include "store/shell/region_files.h"
#include "store/shell/region_lock.h"
#include "store/shell/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(int error, char *why, size_t why_size, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse(int error, char *why, size_t why_size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_size, format, args);
    va_end(args);
    return error;
}

static int open_directory(struct region *r, const char *directory, char *why, size_t why_size)
{
    struct stat st;
    if (strlen(directory) >= sizeof r->path)
        return refuse(-ENAMETOOLONG, why, why_size, "the path of a region has at most %zu bytes", sizeof r->path - 1);
    memcpy(r->path, directory, strlen(directory) + 1);
    r->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (r->dir_fd < 0 || fstat(r->dir_fd, &st) != 0)
        return refuse(-errno, why, why_size, "can't open '%s': %s", directory, strerror(errno));
    if (st.st_uid != geteuid() && geteuid() != 0)
        return refuse(-EACCES, why, why_size, "'%s' belongs to uid %u: run as that user, or as root", directory,
                      (unsigned)st.st_uid);
    /* Before the lock, whose file would be made: a folder that is no region stays as it is. */
    if (faccessat(r->dir_fd, "slots", F_OK, 0) != 0 || faccessat(r->dir_fd, "index/data.mdb", F_OK, 0) != 0)
        return refuse(-ENOENT, why, why_size, "'%s' is no region: slots and index/data.mdb are not both there",
                      directory);
    return 0;
}

/* One above the last header that a slab has: what lies behind it was never used, and has no memory. */
static uint32_t headers_used(const struct region *r)
{
    uint32_t used = 0, most = r->super->max_headers;
    for (uint32_t unit = 0; unit < r->super->n_units; unit++) {
        const struct slab_entry *e = &r->dir[unit];
        uint8_t kind = atomic_load_explicit(&e->kind, memory_order_relaxed);
        if ((kind != UNIT_SLAB && kind != UNIT_RUN) || e->slot_pages == 0)
            continue;
        uint64_t slots = kind == UNIT_RUN ? 1 : (uint64_t)e->units * UNIT_PAGES / e->slot_pages;
        uint64_t end = e->header + slots < most ? e->header + slots : most;
        used = end > used ? (uint32_t)end : used;
    }
    return used;
}

static int open_files(struct region *r, char *why, size_t why_size)
{
    struct slots_super super;
    struct region_shape shape;
    int e = region_files_probe(r, &shape, &super);
    if (e == 0 && r->lookup_bytes == 0)
        e = -EPROTO;
    if (e != 0)
        return refuse(e, why, why_size, "the files of '%s' can't be taken over: %s", r->path,
                      e == -EPROTO ? "another format, or damaged" : strerror(-e));
    e = region_files_map(r, &shape, why, why_size);
    return e == 0 || why[0] != '\0' ? e : refuse(e, why, why_size, "can't map '%s': %s", r->path, strerror(-e));
}

static int open_index(struct region *r, char *why, size_t why_size)
{
    struct lmdb_identity id;
    char dir[sizeof r->path + 8];
    snprintf(dir, sizeof dir, "%s/index", r->path);
    const struct lmdb_config c = {.dir = dir, .map_bytes = LMDB_MAP_MIN, .mode = 0600};
    int e = lmdb_open(&r->index, &c);
    e = e != 0 ? e : lmdb_identity(r->index, &id);
    if (e != 0)
        return refuse(e, why, why_size, "the index in '%s' can't be read: %s", dir,
                      e == -EBADMSG ? "it is damaged" : strerror(-e));
    if (memcmp(id.uuid, r->super->uuid, sizeof id.uuid) != 0 || id.region_id != r->super->region_id)
        return refuse(-EBADMSG, why, why_size, "the index in '%s' is of another pool than its slots", dir);
    return 0;
}

int offline_check(const char *directory, char **text, char *why, size_t why_size)
{
    struct region r = {.dir_fd = -1, .clients_fd = -1, .lock_fd = -1, .slots_fd = -1, .lookup_fd = -1, .tails_fd = -1};
    why[0] = '\0';
    int e = open_directory(&r, directory, why, why_size);
    if (e == 0 && (r.lock_fd = region_lock(r.dir_fd, r.path, false, NULL, why, why_size)) < 0)
        e = r.lock_fd;
    e = e != 0 ? e : open_files(&r, why, why_size);
    e = e != 0 ? e : open_index(&r, why, why_size);
    if (e == 0 && (*text = report_check(&r, headers_used(&r), NULL)) == NULL)
        e = refuse(-ENOMEM, why, why_size, "no memory for the report");
    if (r.index != NULL)
        lmdb_close(r.index);
    region_files_close(&r);
    if (r.lock_fd >= 0)
        close(r.lock_fd);
    if (r.dir_fd >= 0)
        close(r.dir_fd);
    return e;
}
