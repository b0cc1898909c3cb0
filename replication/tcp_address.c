/* tcp_address.c: see tcp_address.h. */
#include "replication/tcp_address.h"

#include "replication/address.h"
#include "replication/transport.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static int split(const char *text, struct address_text *out)
{
    bool other = strstr(text, "://") && strncmp(text, "tcp://", 6) != 0;
    return other || address_split(text, out) < 0 || out->port < 0 ? -EINVAL : 0;
}

static void set_port(union tcp_address *a, uint16_t port)
{
    if (a->any.sa_family == AF_INET) {
        a->v4.sin_port = htons(port);
    } else {
        a->v6.sin6_port = htons(port);
    }
}

static void take(union tcp_address *out, const struct sockaddr *from)
{
    memset(out, 0, sizeof *out);
    memcpy(out, from, from->sa_family == AF_INET ? sizeof out->v4 : sizeof out->v6);
}

/* The first address of an interface, IPv4 before IPv6; link-local ones, which no peer could use without a scope, are
 * none. */
static int of_interface(const char *name, union tcp_address *out)
{
    struct ifaddrs *all;
    int found = -EADDRNOTAVAIL;
    if (getifaddrs(&all) != 0) {
        return -errno;
    }
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || strcmp(i->ifa_name, name) != 0) {
            continue;
        }
        const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
        if (i->ifa_addr->sa_family == AF_INET) {
            take(out, i->ifa_addr);
            found = 0;
            break;
        }
        if (i->ifa_addr->sa_family == AF_INET6 && found < 0 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
            take(out, i->ifa_addr);
            found = 0;
        }
    }
    freeifaddrs(all);
    return found;
}

static int of_name(const struct address_text *s, enum tcp_use use, union tcp_address *out, const char **cause)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list;
    int e = getaddrinfo(s->host, NULL, &hints, &list);
    if (e != 0 && use != TCP_USE_DIGITS) {
        hints.ai_flags = use == TCP_USE_PEER ? 0 : AI_PASSIVE;
        e = getaddrinfo(s->host, NULL, &hints, &list);
    }
    if (e != 0) {
        *cause = e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e);
        return use == TCP_USE_DIGITS ? -EINVAL : -EHOSTUNREACH;
    }
    take(out, list->ai_addr);
    freeaddrinfo(list);
    return 0;
}

/* Names are asked for last: an interface's name would go to the resolver, and might wait there. */
static int find(const struct address_text *s, enum tcp_use use, const char *text, union tcp_address *out, char *why,
                size_t size)
{
    bool listening = use == TCP_USE_LISTEN || use == TCP_USE_ANY;
    if (listening && if_nametoindex(s->host) != 0) {
        int e = of_interface(s->host, out);
        if (e < 0) {
            snprintf(why, size, "cannot listen on '%s': interface '%s' has no address", text, s->host);
        }
        return e;
    }
    const char *cause = "";
    int e = of_name(s, use, out, &cause);
    if (e == -EINVAL) {
        snprintf(why, size, "'%s': '%s' is not an address in digits", text, s->host);
    } else if (e < 0) {
        snprintf(why, size, "cannot find '%s' of '%s': %s", s->host, text, cause);
    }
    return e;
}

int tcp_address_parse(const char *text, enum tcp_use use, union tcp_address *out, char *why, size_t why_size)
{
    struct address_text s;
    union tcp_address a;
    bool peer = use == TCP_USE_PEER || use == TCP_USE_DIGITS;
    if (split(text, &s) < 0) {
        snprintf(why, why_size, "'%s' is not an address: it has to be HOST:PORT or [HOST]:PORT", text);
        return -EINVAL;
    }
    if (peer && s.port == 0) {
        snprintf(why, why_size, "'%s' has no port that could be connected to", text);
        return -EINVAL;
    }
    int e = find(&s, use, text, &a, why, why_size);
    if (e < 0) {
        return e;
    }
    if (tcp_address_is_any(&a) && use != TCP_USE_ANY) {
        snprintf(why, why_size,
                 peer ? "'%s' stands for every address of a machine: it is no peer's"
                      : "'%s' would listen on every address of this machine: name one, or allow it",
                 text);
        return -EINVAL;
    }
    set_port(&a, (uint16_t)s.port);
    *out = a;
    return 0;
}

bool tcp_address_is_any(const union tcp_address *a)
{
    if (a->any.sa_family == AF_INET) {
        return a->v4.sin_addr.s_addr == htonl(INADDR_ANY);
    }
    return address_any_v6(&a->v6.sin6_addr);
}

bool tcp_address_is_loopback(const union tcp_address *a)
{
    if (a->any.sa_family == AF_INET) {
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

bool tcp_address_same_host(const union tcp_address *a, const union tcp_address *b)
{
    if (a->any.sa_family != b->any.sa_family) {
        return false;
    }
    if (a->any.sa_family == AF_INET) {
        return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    }
    return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0;
}

socklen_t tcp_address_size(const union tcp_address *a)
{
    return a->any.sa_family == AF_INET ? sizeof a->v4 : sizeof a->v6;
}

int tcp_address_print(const union tcp_address *a, char *text, size_t size)
{
    char host[64], port[8];
    if (getnameinfo(&a->any, tcp_address_size(a), host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return -EINVAL;
    }
    bool v6 = a->any.sa_family == AF_INET6;
    int n = snprintf(NULL, 0, v6 ? "[%s]:%s" : "%s:%s", host, port);
    if (n < 0 || (size_t)n >= size) {
        return -ENOSPC;
    }
    snprintf(text, size, v6 ? "[%s]:%s" : "%s:%s", host, port);
    return 0;
}

void tcp_listen_sentence(const char *address, int error, char *why, size_t why_size)
{
    const char *cause = strerror(error);
    if (error == EADDRINUSE) {
        cause = "something listens on this port already";
    } else if (error == EADDRNOTAVAIL) {
        cause = "no interface of this machine has this address";
    } else if (error == EACCES) {
        cause = "this port needs a privilege";
    }
    snprintf(why, why_size, "cannot listen on '%s': %s", address, cause);
}
