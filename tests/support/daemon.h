/* daemon.h: a berthd of a test's own, in a directory of its own under /dev/shm. */
#ifndef BERTH_TESTS_DAEMON_H
#define BERTH_TESTS_DAEMON_H

#include "store/berth.h"

#include <stdbool.h>
#include <sys/types.h>

struct daemon {
    pid_t pid;
    char dir[64];   /* holds region and socket */
    char node[128]; /* unix:.. for berth_open */
    char region[96];
    char socket[96];
    const char *extra[24]; /* flags, NULL-terminated */
    const char *cgroup;    /* directory of one that it is started in; NULL: the test's own */
    void (*before)(void);  /* called in the new process before it becomes berthd; NULL: nothing */
    int log;               /* its stderr */
    char text[1 << 16];    /* what was read of it */
    size_t text_size;
};

/* Makes the directory and starts; extra flags are kept for restarts. Fails the test if it does not become ready. */
void daemon_start(struct daemon *d, const char *const *extra);
/* Starts again in the same directory, after stop or kill. */
void daemon_again(struct daemon *d);
/* As daemon_again, but it may refuse: its exit code, or 0 when it is ready. */
int daemon_try(struct daemon *d);
int daemon_stop(struct daemon *d);  /* SIGTERM; the exit code */
void daemon_kill(struct daemon *d); /* SIGKILL, reaped */
void daemon_end(struct daemon *d);  /* stops if it runs, removes the directory */
/* Waits until the log has this text, at most so long. */
bool daemon_says(struct daemon *d, const char *text, int timeout_ms);

struct berth *daemon_open(const struct daemon *d, const char *name);
/* A number of the status JSON by path, as "counters.puts". */
double daemon_number(struct berth *b, const char *path);
/* The same of the JSON that berth_query gives for `what`. */
double query_number(struct berth *b, enum berth_question what, const char *path);

/* The value of one line of the metrics, "berth_local_hits_total" or with labels as they are printed. */
double daemon_metric(struct berth *b, const char *line);

/* Calls until it is true or the time is over; pauses only between looks at another process. */
bool eventually(bool (*is)(void *arg), void *arg, int timeout_ms);

/* So many slots are RETIRED within 10 s: those that nobody reads may gather for some ms (store/node_retire.c). */
void daemon_retired(struct berth *b, unsigned n);

struct berth_key key_of(const char *text);
/* The payload of a key: a function of its text, so that any process can verify it. */
void payload_fill(void *data, size_t size, const char *key);
bool payload_is(const void *data, size_t size, const char *key);

#endif
