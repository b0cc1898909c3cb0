/* tcp_address.h: addresses as people write them, and sentences about those that don't work. */
#ifndef BERTH_REPLICATION_TCP_ADDRESS_H
#define BERTH_REPLICATION_TCP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

union tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum tcp_use {
    TCP_USE_LISTEN, /* names and interfaces are resolved, port 0 is allowed, 0.0.0.0 is not */
    TCP_USE_ANY,    /* the same, and 0.0.0.0 and :: are allowed */
    TCP_USE_PEER,   /* names are resolved; a port, and no 0.0.0.0 */
    TCP_USE_DIGITS  /* a peer's, and no names: asks nobody, never blocks */
};

/* "HOST:PORT", "[HOST]:PORT", with or without "tcp://". 0, -EINVAL, or -EHOSTUNREACH (an unknown name), or
 * -EADDRNOTAVAIL (an interface without an address), with a sentence in why. */
int tcp_address_parse(const char *text, enum tcp_use use, union tcp_address *out, char *why, size_t why_size);

bool tcp_address_is_any(const union tcp_address *a);
bool tcp_address_is_loopback(const union tcp_address *a); /* 127.0.0.0/8, ::1 */
/* Whether both are the same but for the port. */
bool tcp_address_same_host(const union tcp_address *a, const union tcp_address *b);
socklen_t tcp_address_size(const union tcp_address *a);
/* HOST:PORT in digits; -ENOSPC. */
int tcp_address_print(const union tcp_address *a, char *text, size_t size);
/* Why an address can't be listened on: error is a positive errno of socket, bind or listen. */
void tcp_listen_sentence(const char *address, int error, char *why, size_t why_size);

#endif
