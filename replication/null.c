/* null.c: a transport that reaches nobody: the ground that every other transport's table stands on. */
#include "replication/transport.h"

#include <errno.h>
#include <stdio.h>

static int null_resolve(const char *address, char *digits, size_t size, char *why, size_t why_size)
{
    (void)digits, (void)size;
    snprintf(why, why_size, "no transport was chosen for '%s'", address);
    return -EOPNOTSUPP;
}

static int null_open(void **ctx, const struct transport_config *config, const struct transport_events *events,
                     void *env, char *why, size_t why_size)
{
    (void)ctx, (void)events, (void)env;
    snprintf(why, why_size, "no transport was chosen for '%s'", config->listen ? config->listen : "");
    return -EOPNOTSUPP;
}

static void null_close(void *ctx)
{
    (void)ctx;
}

static int null_address(void *ctx, char *text, size_t size)
{
    (void)ctx, (void)text, (void)size;
    return -EOPNOTSUPP;
}

static int null_descriptor(void *ctx)
{
    (void)ctx;
    return -EOPNOTSUPP;
}

static bool null_look(void *ctx)
{
    (void)ctx;
    return false;
}

static int null_turn(void *ctx)
{
    (void)ctx;
    return -EOPNOTSUPP;
}

static void null_flush(void *ctx)
{
    (void)ctx;
}

static int null_connect(void *ctx, const char *peer, void *user, struct connection **c, char *why, size_t why_size)
{
    (void)ctx, (void)user, (void)c;
    snprintf(why, why_size, "no transport was chosen for '%s'", peer);
    return -EOPNOTSUPP;
}

static void null_disconnect(void *ctx, struct connection *c)
{
    (void)ctx, (void)c;
}

static int null_fence(void *ctx, struct connection *c)
{
    (void)ctx, (void)c;
    return -EOPNOTSUPP;
}

static int null_expose(void *ctx, int fd, const void *base, uint64_t bytes)
{
    (void)ctx, (void)fd, (void)base, (void)bytes;
    return -EOPNOTSUPP;
}

static int null_send(void *ctx, struct connection *c, const void *message, size_t n)
{
    (void)ctx, (void)c, (void)message, (void)n;
    return -EOPNOTSUPP;
}

static int null_read(void *ctx, struct connection *c, struct transfer *t)
{
    (void)ctx, (void)c, (void)t;
    return -EOPNOTSUPP;
}

static int null_cancel(void *ctx, struct transfer *t)
{
    (void)ctx, (void)t;
    return -EOPNOTSUPP;
}

static int null_stop(void *ctx, struct connection *c, uint64_t token, int status)
{
    (void)ctx, (void)c, (void)token, (void)status;
    return -EOPNOTSUPP;
}

static void null_stats(void *ctx, struct transport_stats *out)
{
    (void)ctx;
    *out = (struct transport_stats){0};
}

static bool null_proves(void *ctx)
{
    (void)ctx;
    return false;
}

const struct transport null_transport = {
    "null",    null_resolve, null_open,    null_close,      null_address, null_descriptor, null_look,
    null_turn, null_flush,   null_connect, null_disconnect, null_fence,   null_expose,     null_send,
    null_read, null_cancel,  null_stop,    null_stats,      null_proves,
};
