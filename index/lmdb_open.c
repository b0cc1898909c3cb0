/* lmdb_open.c: opening an index: its files allocated whole before LMDB maps them, its tables checked. */
#define _GNU_SOURCE
#include "index/batch.h"
#include "index/lmdb_ahead.h"
#include "index/lmdb_env.h"
#include "index/lmdb_verify.h"
#include "store/map.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_NAME "data.mdb"
#define LOCK_NAME "lock.mdb"
#define LOCK_BYTES 16384u /* above what LMDB takes for READERS */
#define READERS 8u
#define IDENTITY_KEY "identity"
#define IDENTITY_BYTES 64u
#define PATH_BYTES 512u
#define RESERVE_MAX (10u << 20)
#define RESERVE_EXTRA (1u << 20)
#define PLACE_LEAST (UINT64_C(32) << 20) /* a smaller map gains nothing by huge pages */
#define PLACE_GAP (UINT64_C(8) << 20)    /* above what LMDB maps beside its file: 3 MiB of lists, 8 KiB of locks */

/* POSIX locks belong to the process: a second open would share them, and its close would drop them. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct lmdb_index *open_list;

/* The last one came later: an index without it is another format's, and an index all the same. */
static const char *const table_names[TABLES] = {LMDB_OBJECTS_NAME, "meta", "sessions", "namespaces", "tombstones"};

struct file {
    char path[PATH_BYTES];
    off_t size; /* before */
    bool made;
};

static int enlist(struct lmdb_index *ix, const char *dir)
{
    struct stat st;
    if (stat(dir, &st) < 0)
        return -errno;
    ix->dev = st.st_dev;
    ix->ino = st.st_ino;
    int rc = 0;
    pthread_mutex_lock(&open_lock);
    for (struct lmdb_index *o = open_list; o; o = o->next) {
        if (o->dev == ix->dev && o->ino == ix->ino)
            rc = -EBUSY;
    }
    if (rc == 0) {
        ix->next = open_list;
        open_list = ix;
    }
    pthread_mutex_unlock(&open_lock);
    return rc;
}

static void delist(struct lmdb_index *ix)
{
    pthread_mutex_lock(&open_lock);
    struct lmdb_index **at = &open_list;
    while (*at != ix)
        at = &(*at)->next;
    *at = ix->next;
    pthread_mutex_unlock(&open_lock);
}

/* Deletes in parts of 64 must always find pages: they and the put before them copy each page that they touch, and what
 * one transaction frees serves only the second after it. No tree is copied more than whole, hence the factor 3. */
static uint64_t reserve_bytes(uint64_t map_bytes)
{
    uint64_t whole = map_bytes < RESERVE_MAX ? 3 * map_bytes + RESERVE_EXTRA : RESERVE_MAX;
    return whole < RESERVE_MAX ? whole : RESERVE_MAX;
}

static uint64_t page_round(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

uint64_t lmdb_file_bytes(uint64_t map_bytes)
{
    return page_round(map_bytes) + page_round(reserve_bytes(map_bytes)) + LOCK_BYTES;
}

static void file_undo(const struct file *f)
{
    if (f->made)
        (void)unlink(f->path);
    else if (truncate(f->path, f->size) < 0)
        return; /* it stays longer than it was, which harms nothing */
}

/* Makes the file where it is not there and, for bytes > 0, gives it that many without changing its size: LMDB takes an
 * empty file for a new one, and a mapped page that the file system can't provide is SIGBUS. */
static int file_prepare(struct file *f, const char *dir, const char *name, uint64_t bytes, uint32_t mode)
{
    if ((size_t)snprintf(f->path, sizeof f->path, "%s/%s", dir, name) >= sizeof f->path)
        return -ENAMETOOLONG;
    int fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    f->made = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int rc = 0;
    struct stat st;
    if (fstat(fd, &st) < 0)
        rc = -errno;
    else
        f->size = st.st_size;
    if (rc == 0 && bytes > 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0)
        rc = -errno;
    close(fd);
    if (rc < 0 && f->made)
        (void)unlink(f->path);
    return rc;
}

/* Before LMDB maps it: an empty one is new. */
static int file_verify(const struct file *f)
{
    if (f->size == 0)
        return 0;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = lmdb_verify(fd, (uint64_t)f->size, table_names, TABLES);
    close(fd);
    return rc;
}

static int file_allocate(const struct file *f, uint64_t bytes)
{
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static void touch(const volatile uint8_t *map, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 4096)
        (void)map[i];
}

/* Sizes the file and makes every page of it present: first use of a page costs more than the put that needs it. */
static int file_populate(const struct file *f, uint64_t bytes)
{
    int rc = file_allocate(f, bytes);
    int fd = rc < 0 ? -1 : open(f->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return rc < 0 ? rc : -errno;
    void *map = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    rc = map == NULL ? -errno : 0;
    close(fd);
    if (rc < 0)
        return rc;
    map_collapse(map, 0, bytes);
    if (madvise(map, bytes, MADV_POPULATE_WRITE) < 0) {
        if (errno == EINVAL) /* before Linux 5.14: the pages are allocated, a read makes them present */
            touch(map, bytes);
        else
            rc = -errno;
    }
    unmap_shared(map, bytes);
    return rc;
}

/* LMDB takes the place that the kernel gives its map, which is none where huge pages fit but by chance: the kernel
 * looks from the top for the first gap that is large enough. So all places but a fitting one are taken while it opens,
 * and a gap above it is left for what else it maps, its lists and its lock file. A hint: another thread may take it. */
struct place {
    uint8_t *low, *high; /* what is taken, below and above */
    size_t low_bytes, high_bytes;
};

static void place_take(struct place *p, uint64_t bytes)
{
    *p = (struct place){0};
    if (bytes < PLACE_LEAST)
        return;
    uint64_t whole = page_round(bytes), page = page_round(1);
    uint8_t *base = mmap(NULL, whole + HUGE_BYTES + page + PLACE_GAP, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return;
    p->low = base;
    p->low_bytes = -(uintptr_t)base % HUGE_BYTES;
    uint8_t *place = base + p->low_bytes;
    p->high = place + whole;
    p->high_bytes = HUGE_BYTES - p->low_bytes + page;
    munmap(place, whole);
    munmap(p->high + p->high_bytes, PLACE_GAP);
}

static void place_give(const struct place *p)
{
    if (p->low_bytes > 0)
        munmap(p->low, p->low_bytes);
    if (p->high_bytes > 0)
        munmap(p->high, p->high_bytes);
}

static int env_open(struct lmdb_index *ix, const struct lmdb_config *c, uint64_t bytes)
{
    int rc = mdb_env_create(&ix->env);
    if (rc != 0)
        return lmdb_error(rc);
    rc = mdb_env_set_maxdbs(ix->env, TABLES);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(ix->env, READERS);
    if (rc == 0)
        rc = mdb_env_set_mapsize(ix->env, bytes);
    unsigned flags = MDB_NOSYNC | MDB_NOTLS | (c->writemap ? MDB_WRITEMAP : 0);
    struct place place;
    place_take(&place, bytes);
    if (rc == 0)
        rc = mdb_env_open(ix->env, c->dir, flags, (mdb_mode_t)c->mode);
    place_give(&place);
    if (rc != 0) {
        mdb_env_close(ix->env);
        return lmdb_error(rc);
    }
    return 0;
}

static void env_size(struct lmdb_index *ix)
{
    MDB_envinfo info;
    MDB_stat st;
    mdb_env_info(ix->env, &info);
    mdb_env_stat(ix->env, &st);
    ix->page_bytes = st.ms_psize;
    ix->total_pages = info.me_mapsize / st.ms_psize;
    ix->limit_pages = ix->map_bytes / st.ms_psize;
}

static int check_numbers(struct lmdb_index *ix, MDB_txn *txn)
{
    for (unsigned i = 0; i < META_NUMBERS; i++) {
        const char *name = meta_name((enum meta_number)i);
        MDB_val key = {.mv_size = strlen(name), .mv_data = (void *)(uintptr_t)name}, value;
        uint64_t number;
        int rc = mdb_get(txn, ix->dbi[TABLE_META], &key, &value);
        if (rc != 0 && rc != MDB_NOTFOUND)
            return lmdb_error(rc);
        if (rc == 0 && batch_parse_number(value.mv_data, value.mv_size, &number) < 0)
            return -EBADMSG;
    }
    return 0;
}

static int tables_open(struct lmdb_index *ix)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(ix->env, NULL, 0, &txn);
    if (rc != 0)
        return lmdb_error(rc);
    for (unsigned i = 0; i < TABLES && rc == 0; i++)
        rc = mdb_dbi_open(txn, table_names[i], MDB_CREATE, &ix->dbi[i]);
    int err = rc == 0 ? check_numbers(ix, txn) : lmdb_error(rc);
    if (err < 0) {
        mdb_txn_abort(txn);
        return err;
    }
    rc = mdb_txn_commit(txn);
    if (rc == 0)
        rc = mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &ix->read);
    if (rc != 0)
        return lmdb_error(rc);
    mdb_txn_reset(ix->read);
    return 0;
}

/* Where more is in use than a map that was made smaller holds, deletes need the reserve of what is in use. */
static int grow_for_deletes(struct lmdb_index *ix, const struct lmdb_config *c, const struct file *data,
                            uint64_t *bytes)
{
    uint64_t live = 0;
    int rc = mdb_txn_renew(ix->read);
    if (rc != 0)
        return lmdb_error(rc);
    rc = lmdb_live_pages(ix, ix->read, &live);
    mdb_txn_reset(ix->read);
    uint64_t need = lmdb_file_bytes(live * ix->page_bytes) - LOCK_BYTES;
    if (rc != 0 || need <= ix->total_pages * ix->page_bytes)
        return lmdb_error(rc);
    int err = c->preallocate ? file_allocate(data, need) : 0;
    if (err < 0)
        return err;
    rc = mdb_env_set_mapsize(ix->env, need);
    if (rc != 0)
        return lmdb_error(rc);
    ix->total_pages = need / ix->page_bytes;
    *bytes = need;
    return 0;
}

static int open_mapped(struct lmdb_index *ix, const struct lmdb_config *c, const struct file *data, uint64_t bytes)
{
    int rc = env_open(ix, c, bytes);
    if (rc < 0)
        return rc;
    env_size(ix);
    rc = tables_open(ix);
    if (rc < 0)
        goto close_env;
    rc = grow_for_deletes(ix, c, data, &bytes);
    if (rc == 0 && c->preallocate)
        rc = file_populate(data, bytes);
    if (rc < 0)
        goto end_read;
    return 0;

end_read:
    mdb_txn_abort(ix->read);
close_env:
    mdb_env_close(ix->env);
    return rc;
}

static int open_files(struct lmdb_index *ix, const struct lmdb_config *c)
{
    uint64_t bytes = lmdb_file_bytes(ix->map_bytes) - LOCK_BYTES;
    struct file data, lock;
    int rc = file_prepare(&data, c->dir, DATA_NAME, c->preallocate ? bytes : 0, c->mode);
    if (rc < 0)
        return rc;
    rc = file_verify(&data);
    if (rc == 0)
        rc = file_prepare(&lock, c->dir, LOCK_NAME, c->preallocate ? LOCK_BYTES : 0, c->mode);
    if (rc < 0)
        goto undo_data;
    rc = open_mapped(ix, c, &data, bytes);
    if (rc < 0)
        goto undo_lock;
    return 0;

undo_lock:
    file_undo(&lock);
undo_data:
    file_undo(&data);
    return rc;
}

int lmdb_open(struct lmdb_index **out, const struct lmdb_config *config)
{
    if (config->map_bytes < LMDB_MAP_MIN || config->map_bytes > INT64_MAX - RESERVE_MAX)
        return -EINVAL;
    struct lmdb_index *ix = calloc(1, sizeof *ix);
    if (!ix)
        return -ENOMEM;
    ix->map_bytes = page_round(config->map_bytes);
    ix->ahead_least = LMDB_AHEAD_LEAST;
    int rc = enlist(ix, config->dir);
    if (rc < 0)
        goto free_index;
    rc = open_files(ix, config);
    if (rc < 0)
        goto delist_index;
    *out = ix;
    return 0;

delist_index:
    delist(ix);
free_index:
    free(ix);
    return rc;
}

void lmdb_close(struct lmdb_index *ix)
{
    if (!ix)
        return;
    mdb_txn_abort(ix->read);
    mdb_env_close(ix->env);
    delist(ix);
    free(ix);
}

struct identity_row { /* little-endian, no holes */
    uint8_t uuid[16], boot_id[16];
    uint64_t region_id, hash_seed, start_time;
    uint32_t format, pid;
};
_Static_assert(sizeof(struct identity_row) == IDENTITY_BYTES, "identity row");

int lmdb_identity(struct lmdb_index *ix, struct lmdb_identity *out)
{
    MDB_val key = {.mv_size = strlen(IDENTITY_KEY), .mv_data = IDENTITY_KEY}, value;
    int rc = mdb_txn_renew(ix->read);
    if (rc != 0)
        return lmdb_error(rc);
    rc = mdb_get(ix->read, ix->dbi[TABLE_META], &key, &value);
    struct identity_row row;
    int err = rc != 0 ? lmdb_error(rc) : value.mv_size != sizeof row ? -EBADMSG : 0;
    if (err == 0)
        memcpy(&row, value.mv_data, sizeof row);
    mdb_txn_reset(ix->read);
    if (err < 0)
        return err;
    *out = (struct lmdb_identity){
        .format = le32toh(row.format),
        .region_id = le64toh(row.region_id),
        .hash_seed = le64toh(row.hash_seed),
        .pid = (int32_t)le32toh(row.pid),
        .start_time = le64toh(row.start_time),
    };
    memcpy(out->uuid, row.uuid, sizeof out->uuid);
    memcpy(out->boot_id, row.boot_id, sizeof out->boot_id);
    return 0;
}

int lmdb_identify(struct lmdb_index *ix, const struct lmdb_identity *id)
{
    struct identity_row row = {
        .region_id = htole64(id->region_id),
        .hash_seed = htole64(id->hash_seed),
        .start_time = htole64(id->start_time),
        .format = htole32(id->format),
        .pid = htole32((uint32_t)id->pid),
    };
    memcpy(row.uuid, id->uuid, sizeof row.uuid);
    memcpy(row.boot_id, id->boot_id, sizeof row.boot_id);
    MDB_val key = {.mv_size = strlen(IDENTITY_KEY), .mv_data = IDENTITY_KEY};
    MDB_val value = {.mv_size = sizeof row, .mv_data = &row};
    MDB_txn *txn;
    int rc = mdb_txn_begin(ix->env, NULL, 0, &txn);
    if (rc != 0)
        return lmdb_error(rc);
    rc = mdb_put(txn, ix->dbi[TABLE_META], &key, &value, 0);
    if (rc != 0)
        mdb_txn_abort(txn);
    else
        rc = mdb_txn_commit(txn);
    return rc == 0 ? 0 : lmdb_error(rc);
}

bool lmdb_is_index(int fd)
{
    return lmdb_names(fd, table_names, TABLE_TOMBSTONES);
}
