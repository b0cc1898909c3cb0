#include "tools/replay/nodes_place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli.h"

/* Below the kernel's own choice (32768 and up by default): nobody's outgoing connection takes one between the look and
 * the node's start, or while the node is down. */
#define PORT_FIRST 16384u
#define PORTS 16000u
#define PORT_TRIES 1000u

/* ---- the directory ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    int ignored = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);

    (void)ignored; /* it may not be there */
}

static void keep(const struct nodes_place *p, int fd)
{
    char byte;

    if (fd > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, UINT32_MAX, 0);
    setsid(); /* an interrupt from the terminal is for the others */
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    remove_tree(p->dir);
    _exit(0);
}

int nodes_place_open(struct nodes_place *p)
{
    int ends[2], error;

    *p = (struct nodes_place){.dir = "/dev/shm/berth-run-XXXXXX", .kept = -1};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    if (!mkdtemp(p->dir)) {
        error = -errno;
        goto close_ends;
    }
    fflush(NULL);
    p->keeper = fork();
    if (p->keeper == 0)
        keep(p, ends[0]);
    if (p->keeper < 0) {
        error = -errno;
        rmdir(p->dir);
        goto close_ends;
    }
    close(ends[0]);
    p->kept = ends[1];
    return 0;
close_ends:
    close(ends[0]);
    close(ends[1]);
    return error;
}

void nodes_place_close(struct nodes_place *p)
{
    close(p->kept);
    while (waitpid(p->keeper, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void node_dir(const struct nodes_place *p, unsigned i, char out[96])
{
    snprintf(out, 96, "%s/n%u", p->dir, i);
}

void nodes_place_empty(const struct nodes_place *p, unsigned i)
{
    char path[96];

    node_dir(p, i, path);
    remove_tree(path);
}

/* ---- ports ---- */

static bool is_free(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool is;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    is = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0;
    close(fd);
    return is;
}

static bool has_port(const struct nodes_place *p, unsigned n, uint16_t port)
{
    for (unsigned i = 0; i < n; i++)
        if (p->port[i] == port)
            return true;
    return false;
}

/* Two replays that begin together look at different ones. */
static uint16_t some_port(struct nodes_place *p)
{
    uint64_t z = ((uint64_t)getpid() << 32 ^ (uint64_t)cli_now()) + ++p->tries * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return (uint16_t)(PORT_FIRST + (z ^ z >> 27) % PORTS);
}

int nodes_place_ports(struct nodes_place *p, unsigned n)
{
    unsigned tries = 0;

    for (unsigned i = 0; i < n;) {
        uint16_t port = some_port(p);

        if (++tries > PORT_TRIES)
            return -EADDRINUSE;
        if (!has_port(p, i, port) && is_free(port))
            p->port[i++] = port;
    }
    return 0;
}

void nodes_place_url(const struct nodes_place *p, const struct bench_node_config *config, unsigned i, unsigned n,
                     char out[NODES_URL])
{
    char settings[512], dir[96];
    size_t at;

    /* The directory's name as that of the cluster: nodes of another replay that has a port of ours are strangers. */
    bench_node_settings(config, settings, sizeof(settings));
    node_dir(p, i, dir);
    at = (size_t)snprintf(out, NODES_URL,
                          "embedded:%s&region=%s&cluster=%s&log-level=error&name=n%u&listen=tcp://127.0.0.1:%u",
                          settings, dir, strrchr(p->dir, '/') + 1, i, p->port[i]);
    for (unsigned k = 0; k < n && at < NODES_URL; k++)
        at +=
            (size_t)snprintf(out + at, NODES_URL - at, "%sn%u=tcp://127.0.0.1:%u", k ? "," : "&peers=", k, p->port[k]);
}
