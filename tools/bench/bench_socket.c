#include "tools/bench/bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE_BYTES 128

struct bench_socket {
    int end[2];
    pthread_t thread;
};

static void *answer(void *arg)
{
    struct bench_socket *s = arg;
    char message[MESSAGE_BYTES];

    while (recv(s->end[1], message, sizeof(message), 0) == MESSAGE_BYTES)
        if (send(s->end[1], message, sizeof(message), MSG_NOSIGNAL) != MESSAGE_BYTES)
            break;
    return NULL;
}

int bench_socket_open(struct bench_socket **out)
{
    struct bench_socket *s = calloc(1, sizeof(*s));
    int error;

    if (!s)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->end) < 0) {
        error = -errno;
        goto free_socket;
    }
    error = -pthread_create(&s->thread, NULL, answer, s);
    if (error)
        goto close_ends;
    *out = s;
    return 0;
close_ends:
    close(s->end[0]);
    close(s->end[1]);
free_socket:
    free(s);
    return error;
}

void bench_socket_round(struct bench_socket *s)
{
    char message[MESSAGE_BYTES] = {0};

    if (send(s->end[0], message, sizeof(message), MSG_NOSIGNAL) == MESSAGE_BYTES)
        (void)!recv(s->end[0], message, sizeof(message), 0);
}

void bench_socket_close(struct bench_socket *s)
{
    shutdown(s->end[0], SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->end[0]);
    close(s->end[1]);
    free(s);
}
