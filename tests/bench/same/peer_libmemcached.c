/* peer_libmemcached.c: memcached by its C client library. ADDRESS is the path of a Unix socket. Sets of several that
 * wait for their answers it does not have. */
#include "peer.h"

#include <libmemcached/memcached.h>
#include <string.h>

const bool peer_puts_many = false;
static memcached_st *connection;
static memcached_result_st results[PEER_MANY]; /* kept, so that their memory is allocated once */

static void must(memcached_return_t r, const char *what)
{
    if (r != MEMCACHED_SUCCESS)
        work_fail("memcached: %s: %s", what, memcached_strerror(connection, r));
}

void peer_open(const char *address)
{
    connection = memcached_create(NULL);
    must(memcached_server_add_unix_socket(connection, address), "server_add");
    for (unsigned i = 0; i < PEER_MANY; i++)
        memcached_result_create(connection, &results[i]);
}

const char *peer_client(void)
{
    return "libmemcached " LIBMEMCACHED_VERSION_STRING;
}

void peer_put(struct item *items, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        must(memcached_set(connection, items[i].key, PEER_KEY, (const char *)items[i].data, items[i].size, 0, 0),
             "set");
}

/* Answers come in the order of the keys from one server. */
void peer_get(struct item *items, unsigned n)
{
    const char *keys[PEER_MANY] = {0};
    size_t sizes[PEER_MANY] = {0};
    memcached_return_t r;

    for (unsigned i = 0; i < n; i++) {
        keys[i] = items[i].key;
        sizes[i] = PEER_KEY;
    }
    must(memcached_mget(connection, keys, sizes, n), "mget");
    for (unsigned i = 0; i < n; i++) {
        if (!memcached_fetch_result(connection, &results[i], &r) ||
            memcached_result_length(&results[i]) != items[i].size)
            work_fail("memcached: %s: %s", items[i].key, memcached_strerror(connection, r));
        items[i].data = (const uint8_t *)memcached_result_value(&results[i]);
    }
    if (memcached_fetch_result(connection, &results[0], &r) || r != MEMCACHED_END)
        work_fail("memcached: more answers than keys");
}

void peer_release(struct item *items, unsigned n)
{
    (void)items;
    (void)n;
}

void peer_remove(struct item *items, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        must(memcached_delete(connection, items[i].key, PEER_KEY, 0), "delete");
}
