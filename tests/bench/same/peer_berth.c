/* peer_berth.c: a client of a berthd, which reads in place. Of several small objects a queue puts one after the other;
 * larger ones are a group, filled in place and sealed by one request. ADDRESS is a node's name. */
#include "peer.h"

#include "store/berth.h"

#include <string.h>

#define QUEUED 16384u /* bytes of an object that a queue is faster for, at most: a create waits for its answer */

const bool peer_puts_many = true;
static struct berth *handle;
static struct berth_queue *queue;
static struct berth_view views[PEER_MANY];

static struct berth_key key_of(const struct item *item)
{
    return (struct berth_key){.data = item->key, .size = PEER_KEY};
}

static void must(bool good, const char *what, int code)
{
    struct berth_error_info e = {0};

    if (good)
        return;
    if (code >= 0)
        work_fail("berth: %s: %s", what, code == BERTH_KEPT ? "the key is there" : "nothing came");
    berth_error(NULL, &e);
    work_fail("berth: %s: %s: %s", what, berth_error_name(code), e.sentence);
}

void peer_open(const char *address)
{
    int error = berth_open(&handle, address, NULL);

    must(!error, "open", error);
    error = berth_queue_open(handle, PEER_MANY, &queue);
    must(!error, "queue_open", error);
}

const char *peer_client(void)
{
    return "";
}

/* One kind of operation for all items, and its end. */
static void queued(struct item *items, unsigned n, uint16_t opcode)
{
    struct berth_op ops[PEER_MANY] = {0}, *done[PEER_MANY];

    for (unsigned i = 0; i < n; i++)
        ops[i] = (struct berth_op){.opcode = opcode,
                                   .deadline = BERTH_FOREVER,
                                   .key = key_of(&items[i]),
                                   .data = (void *)(uintptr_t)items[i].data,
                                   .size = items[i].size};
    for (unsigned given = 0, ended = 0; ended < n;) {
        int some = given < n ? berth_submit(queue, ops + given, n - given) : 0;
        long r;

        must(some >= 0 || some == BERTH_EBUSY_RING, "submit", some);
        given += some > 0 ? (unsigned)some : 0;
        r = berth_reap(queue, done, PEER_MANY, BERTH_FOREVER);
        must(r > 0, "reap", (int)r);
        for (long i = 0; i < r; i++)
            must(done[i]->result == 0, "operation", (int)done[i]->result);
        ended += (unsigned)r;
    }
}

static void grouped(struct item *items, unsigned n)
{
    static struct berth_draft drafts[PEER_MANY];
    int r;

    for (unsigned i = 0; i < n; i++) {
        r = berth_create(handle, key_of(&items[i]), items[i].size, NULL, &drafts[i]);
        must(r == 0, "create", r);
        drafts[i].checksum = berth_copy(drafts[i].data, items[i].data, items[i].size);
        drafts[i].flags |= BERTH_HAS_CHECKSUM;
    }
    r = berth_seal(handle, drafts, n);
    must(r == 0, "seal", r);
}

void peer_put(struct item *items, unsigned n)
{
    if (n == 1) {
        int r = berth_put(handle, key_of(items), items->data, items->size, NULL);

        must(r == 0, "put", r);
    } else if (items[0].size <= QUEUED) {
        queued(items, n, BERTH_OP_PUT);
    } else {
        grouped(items, n);
    }
}

void peer_get(struct item *items, unsigned n)
{
    struct berth_key keys[PEER_MANY];
    long r;

    if (n == 1) {
        r = berth_get(handle, key_of(items), views, 0, BERTH_FOREVER);
        must(r == 0, "get", (int)r);
    } else {
        for (unsigned i = 0; i < n; i++)
            keys[i] = key_of(&items[i]);
        r = berth_get_many(handle, keys, n, views, 0, BERTH_FOREVER);
        must(r == (long)n, "get_many", r < 0 ? (int)r : views[0].status);
    }
    for (unsigned i = 0; i < n; i++)
        items[i].data = views[i].data;
}

void peer_release(struct item *items, unsigned n)
{
    (void)items;
    berth_release(handle, views, n);
}

void peer_remove(struct item *items, unsigned n)
{
    queued(items, n, BERTH_OP_REMOVE);
}
