#include "store/where.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN_DIR "/run/berth"

static void private_dir(char out[WHERE_PATH])
{
    snprintf(out, WHERE_PATH, "/tmp/berth-%u", (unsigned)geteuid());
}

unsigned where_sockets(char out[WHERE_SOCKETS][WHERE_PATH])
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    char dir[WHERE_PATH];
    unsigned n = 0;
    if (run != NULL && *run == '/' && strlen(run) + sizeof "/berth.sock" <= WHERE_PATH)
        snprintf(out[n++], WHERE_PATH, "%s/berth.sock", run);
    snprintf(out[n++], WHERE_PATH, RUN_DIR "/berth.sock");
    private_dir(dir);
    snprintf(out[n++], WHERE_PATH, "%.90s/berth.sock", dir);
    return n;
}

static void directory_of(const char *socket, char out[WHERE_PATH])
{
    const char *slash = strrchr(socket, '/');
    if (slash == NULL)
        snprintf(out, WHERE_PATH, ".");
    else
        snprintf(out, WHERE_PATH, "%.*s", slash == socket ? 1 : (int)(slash - socket), socket);
}

static bool may_write(const char *dir)
{
    return faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0;
}

void where_to_serve(char out[WHERE_PATH])
{
    char list[WHERE_SOCKETS][WHERE_PATH], dir[WHERE_PATH];
    unsigned n = where_sockets(list), i = 0;
    for (; i + 1 < n; i++) {
        directory_of(list[i], dir);
        if (may_write(dir) || (errno == ENOENT && strcmp(dir, RUN_DIR) == 0 && may_write("/run")))
            break;
    }
    memset(out, 0, WHERE_PATH);
    strcpy(out, list[i]);
}

static bool is_private_dir(const char *dir)
{
    char name[WHERE_PATH];
    private_dir(name);
    return strcmp(dir, name) == 0;
}

static bool is_ours_alone(const char *dir)
{
    struct stat st;
    return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

/* Whatever the umask is, clients of other users come through /run/berth, and none through the other. */
static bool make(const char *dir)
{
    bool shared = strcmp(dir, RUN_DIR) == 0;
    if (!shared && !is_private_dir(dir))
        return false;
    return mkdir(dir, 0700) == 0 && (!shared || chmod(dir, 0755) == 0);
}

int where_prepare(const char *socket, bool *made, char *why, size_t why_size)
{
    char dir[WHERE_PATH];
    struct stat st;
    directory_of(socket, dir);
    *made = make(dir);
    if (stat(dir, &st) != 0) {
        int e = errno;
        if (e == ENOENT)
            snprintf(why, why_size, "the directory of '%s' is missing: make it, or choose another --socket", socket);
        else
            snprintf(why, why_size, "the directory of '%s' can't be used: %s: choose another --socket", socket,
                     strerror(e));
        return -e;
    }
    if (is_private_dir(dir) && !is_ours_alone(dir)) {
        snprintf(why, why_size,
                 "'%s' is not a directory of this user's alone (a link, another user's, or open to others): remove "
                 "it, or choose another --socket",
                 dir);
        return -EACCES;
    }
    if (!S_ISDIR(st.st_mode) || !may_write(dir)) {
        int e = S_ISDIR(st.st_mode) ? errno : ENOTDIR;
        snprintf(why, why_size, "socket '%s' can't be made: %s: choose another --socket", socket, strerror(e));
        return -e;
    }
    return 0;
}

void where_unmake(const char *socket)
{
    char dir[WHERE_PATH];
    directory_of(socket, dir);
    rmdir(dir);
}

bool where_trusted(const char *socket)
{
    char dir[WHERE_PATH];
    directory_of(socket, dir);
    return !is_private_dir(dir) || is_ours_alone(dir);
}
