/* peer_hiredis.c: Redis by its C client library. ADDRESS is the path of a Unix socket. */
#include "peer.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

const bool peer_puts_many = true;
static redisContext *connection;
static redisReply *reply;

void peer_open(const char *address)
{
    connection = redisConnectUnix(address);
    if (!connection || connection->err)
        work_fail("%s: %s", address, connection ? connection->errstr : "no memory");
}

const char *peer_client(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    return text;
}

static void next_reply(int type)
{
    void *r = NULL;

    if (redisGetReply(connection, &r) != REDIS_OK)
        work_fail("redis: %s", connection->errstr);
    reply = r;
    if (reply->type != type)
        work_fail("redis: an answer of type %d: %s", reply->type, reply->str ? reply->str : "");
}

static void end_reply(void)
{
    freeReplyObject(reply);
    reply = NULL;
}

void peer_put(struct item *items, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const char *argv[] = {"SET", items[i].key, (const char *)items[i].data};
        const size_t sizes[] = {3, PEER_KEY, items[i].size};

        redisAppendCommandArgv(connection, 3, argv, sizes);
    }
    for (unsigned i = 0; i < n; i++) {
        next_reply(REDIS_REPLY_STATUS);
        end_reply();
    }
}

/* VERB key.. */
static void of_keys(const char *verb, struct item *items, unsigned n)
{
    const char *argv[1 + PEER_MANY] = {verb};
    size_t sizes[1 + PEER_MANY] = {strlen(verb)};

    for (unsigned i = 0; i < n; i++) {
        argv[1 + i] = items[i].key;
        sizes[1 + i] = PEER_KEY;
    }
    redisAppendCommandArgv(connection, (int)n + 1, argv, sizes);
}

void peer_get(struct item *items, unsigned n)
{
    of_keys(n == 1 ? "GET" : "MGET", items, n);
    next_reply(n == 1 ? REDIS_REPLY_STRING : REDIS_REPLY_ARRAY);
    if (n > 1 && reply->elements != n)
        work_fail("redis: %zu answers", reply->elements);
    for (unsigned i = 0; i < n; i++) {
        const redisReply *one = n == 1 ? reply : reply->element[i];

        if (one->type != REDIS_REPLY_STRING || one->len != items[i].size)
            work_fail("redis: %s is not there", items[i].key);
        items[i].data = (const uint8_t *)one->str;
    }
}

void peer_release(struct item *items, unsigned n)
{
    (void)items;
    (void)n;
    end_reply();
}

void peer_remove(struct item *items, unsigned n)
{
    of_keys("DEL", items, n);
    next_reply(REDIS_REPLY_INTEGER);
    if (reply->integer != (long long)n)
        work_fail("redis: removed %lld of %u", reply->integer, n);
    end_reply();
}
