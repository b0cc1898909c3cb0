/* address.h: addresses of nodes as people write them: [SCHEME://]HOST[:PORT], an IPv6 address in brackets where a port
 * follows. Pure text: nobody is asked, nothing blocks. Any thread.
 */
#ifndef BERTH_REPLICATION_ADDRESS_H
#define BERTH_REPLICATION_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>

#define ADDRESS_HOST_MAX 255u /* bytes of a host: the longest name that there is */

struct address_text {
    char host[ADDRESS_HOST_MAX + 1]; /* name, digits or interface; without brackets, with a zone if it has one */
    int port;                        /* 0..65535; -1: none is said */
};

/* 0, or -EINVAL: no host, or one too long, or a port that is no number up to 65535. The scheme may be any. */
int address_split(const char *text, struct address_text *out);

/* Whether it is :: or ::ffff:0.0.0.0, which is 0.0.0.0 in other words: every address of a machine. */
bool address_any_v6(const struct in6_addr *a);

/* Whether others can reach this address at all: it can be split, and is no wildcard such as 0.0.0.0, [::] or *. */
bool address_reachable(const char *text);

#endif
