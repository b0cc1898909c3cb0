#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define FIRST 16384u
#define PORTS 16000u

static bool given[PORTS];

static bool is_free(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_true(fd >= 0);
    bool is = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return is;
}

uint16_t free_port(void)
{
    for (unsigned tries = 0; tries < 1000; tries++) {
        uint32_t at;
        assert_int_equal(getrandom(&at, sizeof at, 0), sizeof at);
        at %= PORTS;
        if (!given[at] && is_free((uint16_t)(FIRST + at))) {
            given[at] = true;
            return (uint16_t)(FIRST + at);
        }
    }
    fail_msg("no port is free");
    return 0;
}
