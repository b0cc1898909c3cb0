/* null.c: a transport that reaches nobody: the ground that every other transport's table stands on. */
#include "replication/transport.h"

#include <errno.h>
#include <stdio.h>

static int null_open(void **ctx, const char *address, char *why, size_t why_size)
{
    (void)ctx;
    snprintf(why, why_size, "no transport was chosen for '%s'", address);
    return -EOPNOTSUPP;
}

static void null_close(void *ctx)
{
    (void)ctx;
}

static int null_connect(void *ctx, const char *peer, void **connection)
{
    (void)ctx, (void)peer, (void)connection;
    return -EOPNOTSUPP;
}

static void null_disconnect(void *ctx, void *connection)
{
    (void)ctx, (void)connection;
}

static int null_expose(void *ctx, void *base, uint64_t bytes, uint32_t *remote_key)
{
    (void)ctx, (void)base, (void)bytes, (void)remote_key;
    return -EOPNOTSUPP;
}

static int null_read(void *ctx, void *connection, struct transfer *t)
{
    (void)ctx, (void)connection, (void)t;
    return -EOPNOTSUPP;
}

static int null_send(void *ctx, void *connection, const void *message, size_t n)
{
    (void)ctx, (void)connection, (void)message, (void)n;
    return -EOPNOTSUPP;
}

static int null_poll(void *ctx, struct transfer **done, int max)
{
    (void)ctx, (void)done, (void)max;
    return -EOPNOTSUPP;
}

static int null_fence(void *ctx, void *connection)
{
    (void)ctx, (void)connection;
    return -EOPNOTSUPP;
}

const struct transport null_transport = {
    "null",      null_open, null_close, null_connect, null_disconnect,
    null_expose, null_read, null_send,  null_poll,    null_fence,
};
