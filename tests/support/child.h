/* child.h: a client process of a test. */
#ifndef BERTH_TESTS_CHILD_H
#define BERTH_TESTS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    int to, from; /* pipes: the parent's ends */
};

/* Forks; the child runs body(arg) and exits with what it returns. It dies with its parent. */
void child_start(struct child *c, int (*body)(void *arg), void *arg);
/* In the child: tells the parent one byte, and waits for one. */
void child_tell(char what);
char child_hear(void);
/* In the parent. hear: 0 when the child has ended. */
char parent_hear(struct child *c, int timeout_ms);
void parent_tell(struct child *c, char what);
int child_wait(struct child *c);  /* exit code, or 128 + signal */
void child_kill(struct child *c); /* SIGKILL, reaped */

/* In a child, where cmocka's assertions can't be used: says what failed and exits. */
#define CHECK(condition)                                  \
    do {                                                  \
        if (!(condition)) {                               \
            child_failed(__FILE__, __LINE__, #condition); \
        }                                                 \
    } while (0)
_Noreturn void child_failed(const char *file, int line, const char *what);

#endif
