#include "tests/support/index_dir.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

void index_unlink(const struct index_dir *f)
{
    char path[96];
    snprintf(path, sizeof path, "%s/data.mdb", f->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/lock.mdb", f->dir);
    unlink(path);
}

int index_setup(void **out)
{
    struct index_dir *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/dev/shm/berth-test-lmdb-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    f->config =
        (struct lmdb_config){.dir = f->dir, .map_bytes = 4u << 20, .writemap = true, .preallocate = true, .mode = 0600};
    f->b = batch_create();
    *out = f;
    return lmdb_open(&f->ix, &f->config);
}

int index_teardown(void **in)
{
    struct index_dir *f = *in;
    lmdb_close(f->ix);
    batch_destroy(f->b);
    index_unlink(f);
    int rc = rmdir(f->dir); /* fails if anything else was left behind */
    free(f);
    return rc;
}

int index_reopen(struct index_dir *f)
{
    lmdb_close(f->ix);
    f->ix = NULL;
    return lmdb_open(&f->ix, &f->config);
}

struct key_ref index_key(const char *text, uint32_t ns)
{
    return (struct key_ref){.data = text, .size = (uint32_t)strlen(text), .ns = ns};
}

void index_add(struct index_dir *f, const char *text, uint32_t ns, uint64_t counter)
{
    struct record r = {.counter = counter, .slot = 1, .ready = true};
    assert_int_equal(batch_put(f->b, index_key(text, ns), &r), 0);
}

int index_commit(struct index_dir *f)
{
    int rc = lmdb_ops.commit(f->ix, f->b);
    batch_clear(f->b);
    return rc;
}

uint64_t index_counter(struct index_dir *f, const char *text, uint32_t ns)
{
    struct record r;
    int rc = lmdb_ops.get(f->ix, index_key(text, ns), &r);
    return rc == 0 ? r.counter : (uint64_t)(int64_t)rc;
}

void index_smallest(struct index_dir *f, bool writemap)
{
    lmdb_close(f->ix);
    f->ix = NULL;
    index_unlink(f);
    f->config.map_bytes = LMDB_MAP_MIN;
    f->config.writemap = writemap;
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
}
