/* pull_floor.c: versions that were returned from replaceable namespaces: a node never goes back below them within T
 * (rule 27).
 *
 * The memory is bounded. When a version that still counts has to go, every key without one is asked for at its home
 * until T has passed: the home has the greatest.
 */
#include "replication/pull_internal.h"

static struct floor *find(struct puller *p, const struct keybox *k)
{
    for (struct link *l = table_first(&p->floors, k->hash); l; l = table_next(l)) {
        struct floor *f = CONTAINER(l, struct floor, by_key);
        if (key_same(f->key, k)) {
            return f;
        }
    }
    return NULL;
}

static void drop(struct puller *p, struct floor *f)
{
    table_remove(&p->floors, &f->by_key);
    list_remove(&f->by_time);
    key_drop(f->key);
    free(f);
}

struct object_version floor_get(struct puller *p, const struct keybox *k)
{
    struct floor *f = k->flags & PULL_REPLACEABLE ? find(p, k) : NULL;
    if (!f || p->mono - f->at >= p->config.fresh_ns) {
        return (struct object_version){0, 0};
    }
    return f->version;
}

bool floor_unknown(struct puller *p, const struct keybox *k)
{
    return (k->flags & PULL_REPLACEABLE) && p->mono < p->floors_lost_until && !find(p, k);
}

static void lost(struct puller *p, int64_t at)
{
    if (at + p->config.fresh_ns > p->floors_lost_until) {
        p->floors_lost_until = at + p->config.fresh_ns;
    }
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
        table_add(&p->floors, &f->by_key, k->hash);
    } else {
        lost(p, p->mono);
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
            lost(p, oldest->at);
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
