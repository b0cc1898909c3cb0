/* embedded.c: a node on a thread of the application. */
#include "store/fd.h"
#include "store/shell/log.h"
#include "store/shell/loop.h"
#include "store/shell/server.h"
#include "store/shell/state.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "pool=256MiB&lock=off": each a setting as berthd has it. `text` is cut into pieces. */
static int apply(struct settings *s, char *text, char *why, size_t why_size)
{
    char *rest = text;
    for (char *part = strsep(&rest, "&"); part; part = strsep(&rest, "&")) {
        char *value = strchr(part, '=');
        if (!*part)
            continue;
        if (!value) {
            snprintf(why, why_size, "'%s' has no value: write NAME=VALUE, several joined by '&'", part);
            return -EINVAL;
        }
        *value++ = 0;
        int error = settings_set(s, part, value, ORIGIN_URL, "embedded:", why, why_size);
        if (error)
            return error == -ENOENT ? -EINVAL : error;
    }
    return settings_finish(s, why, why_size);
}

static int parse(struct settings *s, const char *url, char *why, size_t why_size)
{
    settings_init(s);
    s->embedded = true;
    if (url && *url == '?')
        url++;
    char *text = strdup(url ? url : "");
    if (!text) {
        snprintf(why, why_size, "no memory for the node");
        return -ENOMEM;
    }
    int error = apply(s, text, why, why_size);
    free(text);
    return error;
}

/* The process has one level for all its nodes, and without a word of the application's it stays as it is. */
static void apply_log_level(const struct settings *s)
{
    for (unsigned i = 0; i < settings_count; i++)
        if (strcmp(settings_table[i].name, "log-level") == 0 && s->source[i].origin != ORIGIN_DEFAULT)
            log_set_level((enum log_level)s->log_level);
}

static void *node_thread(void *arg)
{
    server_run(arg);
    return NULL;
}

/* Signals are the application's: its threads take them. */
static int start_thread(struct server *s)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&s->thread, NULL, node_thread, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        pthread_setname_np(s->thread, "berth-node");
    return -error;
}

static int create(struct server **out, const char *url_settings, int *fd, char *why, size_t why_size)
{
    struct settings *settings = malloc(sizeof(*settings));
    struct server *s = NULL;
    if (!settings) {
        snprintf(why, why_size, "no memory for the node");
        return -ENOMEM;
    }
    int error = parse(settings, url_settings, why, why_size);
    if (!error) {
        apply_log_level(settings);
        error = server_create(&s, settings, why, why_size);
    }
    free(settings);
    if (error)
        return error;
    s->shared = true;
    int socket = server_connect(s);
    error = socket < 0 ? socket : start_thread(s);
    if (error) {
        snprintf(why, why_size, "the node's thread can't be started: %s", strerror(-error));
        if (socket >= 0)
            close(socket);
        server_destroy(s);
        return error;
    }
    *out = s;
    *fd = socket;
    return 0;
}

/* The loop and the index open files of their own while they are created, and none later: meanwhile the numbers of
 * closed standard streams are taken. */
int server_embedded(struct server **out, const char *url_settings, int *fd, char *why, size_t why_size)
{
    int held = fd_hold_stdio();
    if (held < 0) {
        snprintf(why, why_size, "'/dev/null' can't be opened in place of a closed standard stream: %s",
                 strerror(-held));
        return held;
    }
    int error = create(out, url_settings, fd, why, why_size);
    fd_release_stdio(held);
    return error;
}

bool server_drive(struct server *s, bool (*done)(void *arg), void *arg, int64_t until)
{
    return loop_drive(s, done, arg, until);
}

void server_poke(struct server *s)
{
    uv_async_send(&s->async);
}

void server_embedded_stop(struct server *s)
{
    if (!s)
        return;
    server_stop(s);
    pthread_join(s->thread, NULL);
    server_destroy(s);
}
