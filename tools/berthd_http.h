/* berthd_http.h: /metrics and /healthz over HTTP, on a loopback port or a Unix socket, on the node's own thread. */
#ifndef BERTH_TOOLS_BERTHD_HTTP_H
#define BERTH_TOOLS_BERTHD_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "store/shell/server.h"

struct http_address {
    bool off;
    socklen_t size;
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    };
};

/* off, HOST:PORT with a loopback address (127.0.0.0/8, [::1], localhost), or unix:PATH. There is no login here, so
 * anything that other hosts could reach is refused. 0, or -EINVAL with a sentence. */
int http_address(struct http_address *a, const char *text, char *why, size_t why_size);

struct http;
/* Listens and hands its descriptor to the server; text is the address as it was given, for sentences, mode is a Unix
 * socket's. Before server_run. 0, or a negative error with a sentence; *out is NULL where the address is off. */
int http_start(struct http **out, struct server *s, const struct http_address *a, const char *text, unsigned mode,
               char *why, size_t why_size);
/* After server_destroy: the server watches its descriptor until then. h may be NULL. */
void http_stop(struct http *h);

#endif
