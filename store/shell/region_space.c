/* region_space.c: see region_space.h. */
#include "store/shell/region_space.h"

#include "store/amount.h"
#include "store/shell/peers.h"
#include "store/shell/region_lock.h"
#include "store/shell/space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* As a word of a command; a path with anything else is named, without one. */
static bool is_plain_path(const char *path)
{
    return path[strspn(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+,:@-")] == '\0' &&
           path[0] != '-';
}

/* Whole or not at all: a command that removes must not be cut short. */
static void name_kept(const struct region_beside *beside, char *why, size_t why_size)
{
    char size[AMOUNT_SIZE], all[AMOUNT_SIZE], more[100] = "", text[1400];
    size_t has = strlen(why);
    if (beside->n_kept > 1)
        snprintf(more, sizeof more, ", the %u such regions there %s", beside->n_kept, amount(beside->kept_bytes, all));
    bool plain = is_plain_path(beside->largest);
    int n =
        snprintf(text, sizeof text, "; '%s', the region of a node that does not run, has %s%s: if it is not wanted%s%s",
                 beside->largest, amount(beside->largest_bytes, size), more, plain ? ", rm -r " : " remove it",
                 plain ? beside->largest : "");
    if (n > 0 && (size_t)n < sizeof text && has + (size_t)n < why_size)
        memcpy(why + has, text, (size_t)n + 1);
}

int region_space(const struct region *r, const struct settings *s, const struct region_shape *shape, uint64_t freed,
                 char *why, size_t why_size)
{
    struct space_need need = {
        .path = r->path,
        .dir_fd = r->dir_fd,
        .bytes = region_files_bytes(shape) + lmdb_file_bytes(s->index_size),
        .freed_bytes = freed,
        .own_bytes = region_own_bytes(shape) + peers_home_bytes(shape->max_headers, shape->pool_bytes, s),
        .lock_bytes = shape->pool_bytes,
        .lock = s->lock,
        .root = "",
    };
    struct region_beside beside;
    char unused[1024];
    int e = space_check(&need, why, why_size);
    if (e != -ENOSPC && e != -ENOMEM)
        return e;
    region_beside(r->path, r->dir_fd, &beside);
    need.freed_bytes = freed + beside.left_bytes;
    if (beside.left_bytes > 0 && space_check(&need, unused, sizeof unused) == 0) {
        region_leftovers(r->path, r->dir_fd);
        need.freed_bytes = freed;
        return space_check(&need, why, why_size);
    }
    need.freed_bytes += beside.kept_bytes;
    if (beside.kept_bytes > 0 && space_check(&need, unused, sizeof unused) == 0)
        name_kept(&beside, why, why_size);
    return e;
}

int region_space_grow(const struct region *r, const struct settings *s, uint64_t bytes, char *why, size_t why_size)
{
    const struct space_need need = {
        .path = r->path,
        .dir_fd = r->dir_fd,
        .bytes = bytes,
        .own_bytes = peers_home_bytes(r->super->max_headers, s->pool, s),
        .lock_bytes = s->pool,
        .lock = s->lock,
        .root = "",
    };
    return space_check(&need, why, why_size);
}

static uint64_t file_allocated(const struct region *r, const char *name)
{
    struct stat st;
    return fstatat(r->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

int region_space_refuse_index(const struct region *r, uint64_t bytes, char *why, size_t why_size)
{
    snprintf(
        why, why_size,
        "the index of %llu MiB finds no room in '%s/index': make it smaller (--index-size), or the file system larger",
        (unsigned long long)(bytes >> 20), r->path);
    return -ENOSPC;
}

int region_space_index(const struct region *r, const struct settings *s, char *why, size_t why_size)
{
    uint64_t needs = lmdb_file_bytes(s->index_size);
    uint64_t has = file_allocated(r, "index/data.mdb") + file_allocated(r, "index/lock.mdb");
    struct space_need need = {.path = r->path, .dir_fd = r->dir_fd, .bytes = needs - has, .root = ""};
    char short_of[512];
    if (needs <= has || space_check(&need, short_of, sizeof short_of) == 0)
        return 0;
    return region_space_refuse_index(r, s->index_size, why, why_size);
}
