/* peers_home.c: the home's table, questions to it, and this node's publications: opening, members, time. */
#include "store/shell/peers_home_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* ---- opening ---- */

static void bounds(struct home_config *c, uint64_t headers, uint64_t pool_bytes, uint32_t homes)
{
    uint64_t pages = pool_bytes / PAGE_BYTES;
    home_bounds(c, headers < pages ? headers : pages, homes);
}

uint64_t peers_home_bytes(uint64_t headers, uint64_t pool_bytes, const struct settings *s)
{
    struct home_config c = {0};
    if (s->n_peers < 2)
        return 0;
    bounds(&c, headers, pool_bytes, s->homes);
    return home_memory(&c);
}

static struct home_config table_config(const struct peers *p)
{
    const struct server *s = p->server;
    struct home_config c = {.life = home_life_of(&p->identity), .tombstone_ns = s->settings.tombstone_ns};
    bounds(&c, s->region.super->max_headers, s->region.pool.bytes, s->settings.homes);
    return c;
}

static int make_table(struct home_part *h)
{
    struct home_config c = table_config(h->peers);
    if (getrandom(&c.seed, sizeof c.seed, 0) != (ssize_t)sizeof c.seed)
        return -EIO;
    int e = home_create(&h->home, &c);
    if (e == 0)
        home_members(h->home, h->peers->homes);
    return e;
}

static void note(struct home_part *h, enum meta_number which, uint64_t value)
{
    struct node_event ev = {.kind = EV_NOTE, .meta = which, .counter = value};
    dispatch(h->peers->server, &ev);
}

/* How long it is since this region's node was in touch with another member. The index does not outlive the boot, so
 * the clock of the boot has run all the time. A region that never had others has nothing that they could have removed.
 */
static int64_t away_ns(const struct home_part *h)
{
    struct server *s = h->peers->server;
    uint64_t at = node_meta(s->node, META_IN_TOUCH);
    return at ? peers_now(h->peers).boot - (int64_t)at : 0;
}

/* Another list than the last run's: it was not settled under any that may come back. */
static void read_settled(struct home_part *h)
{
    h->settled = node_meta(h->peers->server->node, META_SETTLED);
    if (h->settled && h->settled != h->peers->revision) {
        h->settled = 0;
        note(h, META_SETTLED, 0);
    }
}

static int make_publication(struct home_part *h, int64_t now)
{
    struct publish_config c = {.life = h->self,
                               .queue_entries = HOME_QUEUE,
                               .window = HOME_WINDOW,
                               .resend_ns = HOME_RESEND_NS,
                               .full_ns = HOME_FULL_NS,
                               .settled = h->settled};
    int64_t away = away_ns(h);
    enum absence absence = publish_absence(away, h->peers->server->settings.tombstone_ns, h->peers->n_members - 1);
    c.held = absence == ABSENCE_LONG;
    int e = c.held ? home_confirm_begin(h, away) : 0;
    e = e == 0 ? publish_create(&h->publish, &c) : e;
    return e == 0 ? publish_members(h->publish, h->peers->self, h->peers->homes, now) : e;
}

/* This node is a member as the others are: its batches go straight into its own table. */
static int join(struct home_part *h, int64_t now)
{
    uint16_t self = h->peers->self;
    int e = home_hello(h->home, self, h->self);
    if (e < 0)
        return e;
    home_reachable(h->home, self, true);
    publish_up(h->publish, self, h->self, now);
    return 0;
}

int home_part_open(struct peers *p, char *why, size_t why_size)
{
    int64_t now = peers_mono(p);
    struct home_part *h = calloc(1, sizeof *h);
    p->home = h;
    int e = h ? 0 : -ENOMEM;
    if (e == 0) {
        h->peers = p;
        TAILQ_INIT(&h->waits);
        h->wait_at = INT64_MAX;
        h->self = home_life_of(&p->identity);
        h->next_sweep = now + HOME_SWEEP_NS;
        h->told_at = now - HOME_LOG_NS;
        h->renew_all_at = now + p->server->settings.tombstone_ns / 2;
        h->renew_at = now + p->server->settings.fresh_ns / 2;
        h->renew_at = h->renew_at < h->renew_all_at ? h->renew_at : h->renew_all_at;
        read_settled(h);
        h->targets = calloc(p->n_members, sizeof *h->targets);
        e = h->targets ? make_table(h) : -ENOMEM;
    }
    for (uint32_t i = 0; e == 0 && i < p->n_members; i++)
        h->targets[i] = (struct home_target){.part = h, .member = (uint16_t)i};
    if (e == 0)
        e = make_publication(h, now);
    if (e == 0)
        e = join(h, now);
    if (e < 0)
        snprintf(why, why_size, "the table of who has what can't be made: error %d", e);
    return e;
}

void home_part_close(struct peers *p)
{
    struct home_part *h = p->home;
    struct home_wait *w;
    if (!h)
        return;
    while ((w = TAILQ_FIRST(&h->waits)))
        home_wait_free(h, w);
    home_confirm_end(h);
    publish_destroy(h->publish);
    home_destroy(h->home);
    free(h->targets);
    free(h);
    p->home = NULL;
}

/* ---- time ---- */

int64_t home_part_timer(const struct peers *p)
{
    const struct home_part *h = p->home;
    if (!h || p->stopping)
        return INT64_MAX;
    struct home_stat st;
    home_stat(h->home, &st);
    int64_t at = publish_timer(h->publish), confirm = home_confirm_timer(h);
    at = confirm < at ? confirm : at;
    at = !h->confirm && h->renew_at < at ? h->renew_at : at; /* nothing is renewed before it is confirmed */
    at = h->touch_at < at ? h->touch_at : at;
    at = h->wait_at < at ? h->wait_at : at;
    return st.entries && h->next_sweep < at ? h->next_sweep : at;
}

/* While it is held nothing of the sort is kept: should it end now, it was away for long all the same. */
static void touch(struct home_part *h, int64_t now)
{
    bool any = false;
    home_confirm_touch(h);
    for (uint32_t i = 0; i < h->peers->n_members; i++)
        any = any || h->peers->members[i].link;
    h->touch_at = now + h->peers->server->settings.tombstone_ns / HOME_TOUCH_SHARE;
    if (any && !h->confirm)
        note(h, META_IN_TOUCH, (uint64_t)peers_now(h->peers).boot);
}

static void settle(struct home_part *h)
{
    if (h->settled != h->peers->revision && publish_settled(h->publish)) {
        h->settled = h->peers->revision;
        note(h, META_SETTLED, h->settled);
    }
}

void home_part_turn(struct peers *p, int64_t now)
{
    struct home_part *h = p->home;
    if (!h || p->stopping)
        return;
    if (now >= h->next_sweep) {
        home_tick(h->home, now);
        h->next_sweep = now + HOME_SWEEP_NS;
    }
    if (now >= publish_timer(h->publish))
        publish_tick(h->publish, now);
    if (now >= h->touch_at)
        touch(h, now);
    home_confirm_turn(h, now);
    bool more = home_renew_turn(h, now);
    if (home_publish_turn(h, now) || more)
        p->again = true;
    home_waits_turn(h, now);
    settle(h);
}

/* ---- members ---- */

/* The table hears of another life before anything of it is published, and before this node publishes to it. */
void home_part_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    struct home_part *h = p->home;
    if (!h || number >= p->n_members)
        return;
    struct home_life life = home_life_of(other);
    if (home_hello(h->home, number, life) < 0) {
        struct link *l = link_of(p, number);
        if (l)
            link_blame(l, -ESTALE, "it is of an earlier start than the one that was here before");
        return;
    }
    home_reachable(h->home, number, true);
    if (!home_confirm_returned(h, number, life))
        publish_up(h->publish, number, life, peers_mono(p));
    h->touch_at = 0;
    p->again = true;
}

void home_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    struct home_part *h = p->home;
    (void)serial, (void)status;
    if (!h || number >= p->n_members)
        return;
    publish_down(h->publish, number, peers_mono(p));
    home_confirm_gone(h, number);
    home_reachable(h->home, number, false);
    p->again = true;
}

uint32_t home_part_homes(struct peers *p, const struct key_ref *key, uint64_t route, uint16_t *out, uint32_t max)
{
    struct home_key k = home_key_of(key, route);
    uint16_t all[HOMES_MAX];
    uint32_t n = rendezvous_homes(p->homes, rendezvous_place(&k), all);
    n = n < max ? n : max;
    for (uint32_t i = 0; i < n; i++)
        out[i] = all[i];
    return n;
}
