/* pull_floor.c: versions that were returned from replaceable namespaces: a node never goes back below them within T
 * (rule 27).
 *
 * The memory is bounded. A version that has to go while it still counts leaves its mark in one of as many buckets, by
 * the key's hash: keys that share a bucket share the greatest. So what is forgotten makes a key too strict for a while
 * (it may answer "not now" where an old copy is all there is), never too lax.
 */
#include "replication/pull_internal.h"

static struct floor *find(struct puller *p, const struct keybox *k)
{
    for (struct pull_link *l = pull_table_first(&p->floors, k->hash); l; l = pull_table_next(l)) {
        struct floor *f = CONTAINER(l, struct floor, by_key);
        if (key_same(f->key, k)) {
            return f;
        }
    }
    return NULL;
}

static void drop(struct puller *p, struct floor *f)
{
    pull_table_remove(&p->floors, &f->by_key);
    list_remove(&f->by_time);
    key_drop(f->key);
    free(f);
}

static struct floor_bucket *bucket_of(struct puller *p, const struct keybox *k)
{
    return &p->floor_bucket[k->hash % p->config.max_floors];
}

struct object_version floor_get(struct puller *p, const struct keybox *k)
{
    struct object_version none = {0, 0};
    if (!(k->flags & PULL_REPLACEABLE)) {
        return none;
    }
    const struct floor *f = find(p, k);
    if (f) {
        return p->mono - f->at < p->config.fresh_ns ? f->version : none;
    }
    const struct floor_bucket *b = bucket_of(p, k);
    return p->mono - b->at < p->config.fresh_ns ? b->version : none;
}

static void raise_bucket(struct puller *p, const struct keybox *k, struct object_version v, int64_t at)
{
    struct floor_bucket *b = bucket_of(p, k);
    bool counts = p->mono - b->at < p->config.fresh_ns;
    if (!counts || version_compare(v, b->version) > 0) {
        b->version = v;
    }
    b->at = counts && b->at > at ? b->at : at;
}

void floor_set(struct puller *p, struct keybox *k, struct object_version v)
{
    if (!(k->flags & PULL_REPLACEABLE)) {
        return;
    }
    struct floor *f = find(p, k);
    if (f) {
        list_remove(&f->by_time);
    } else if ((f = calloc(1, sizeof *f))) {
        f->key = key_keep(k);
        pull_table_add(&p->floors, &f->by_key, k->hash);
    } else {
        raise_bucket(p, k, v, p->mono);
        return;
    }
    f->version = v;
    f->at = p->mono;
    list_push(&p->floors_by_time, &f->by_time);
    while (!list_empty(&p->floors_by_time)) {
        struct floor *oldest = CONTAINER(p->floors_by_time.next, struct floor, by_time);
        bool counts = p->mono - oldest->at < p->config.fresh_ns;
        if (counts && p->floors.count <= p->config.max_floors) {
            break;
        }
        if (counts) {
            raise_bucket(p, oldest->key, oldest->version, oldest->at);
        }
        drop(p, oldest);
    }
}

void floors_free(struct puller *p)
{
    while (!list_empty(&p->floors_by_time)) {
        drop(p, CONTAINER(p->floors_by_time.next, struct floor, by_time));
    }
}
