/* address.c: see address.h. */
#include "replication/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int port_of(const char *digits)
{
    size_t n = strlen(digits);
    if (n < 1 || n > 5 || strspn(digits, "0123456789") != n)
        return -EINVAL;
    long port = strtol(digits, NULL, 10);
    return port <= 65535 ? (int)port : -EINVAL;
}

int address_split(const char *text, struct address_text *out)
{
    const char *scheme = strstr(text, "://"), *at = scheme ? scheme + 3 : text;
    const char *colon = strchr(at, ':'), *end;
    bool brackets = *at == '[';
    if (brackets) {
        end = strchr(++at, ']');
        if (!end || (end[1] != '\0' && end[1] != ':'))
            return -EINVAL;
        colon = end[1] ? end + 1 : NULL;
    } else {
        /* An IPv6 address has colons of its own: without brackets all of it is the host. */
        colon = colon && strchr(colon + 1, ':') ? NULL : colon;
        end = colon ? colon : at + strlen(at);
    }
    size_t n = (size_t)(end - at);
    int port = colon ? port_of(colon + 1) : -1;
    if (n == 0 || n > ADDRESS_HOST_MAX || port == -EINVAL)
        return -EINVAL;
    memcpy(out->host, at, n);
    out->host[n] = '\0';
    out->port = port;
    return 0;
}

bool address_any_v6(const struct in6_addr *a)
{
    return IN6_IS_ADDR_UNSPECIFIED(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr32[3] == 0);
}

bool address_reachable(const char *text)
{
    struct address_text a;
    struct in_addr v4;
    struct in6_addr v6;
    if (address_split(text, &a) < 0 || strcmp(a.host, "*") == 0)
        return false;
    a.host[strcspn(a.host, "%")] = '\0'; /* the zone of a link-local address */
    if (inet_pton(AF_INET6, a.host, &v6) == 1)
        return !address_any_v6(&v6);
    /* inet_aton knows the short forms, as 0 and 0x0.0, that connect() would be given too. */
    return *a.host && (!inet_aton(a.host, &v4) || v4.s_addr != 0);
}
