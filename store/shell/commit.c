#include "store/shell/commit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct commit {
    const struct index_ops *ops;
    void *ix;
    uint32_t inline_max;
    bool threaded;
    bool running; /* the loop's: submitted and not taken */
    int fd;
    _Atomic uint32_t *sleeping;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct batch *job;   /* guarded: given, not finished */
    struct batch *batch; /* the loop's copy */
    bool quit;           /* guarded */
    int status;          /* written before `done` */
    _Atomic uint32_t done;
};

static void commit_finish(struct commit *c, int status)
{
    pthread_mutex_lock(&c->lock);
    c->job = NULL;
    c->status = status;
    atomic_store(&c->done, 1);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    /* done is stored before sleeping is read, the loop stores sleeping before it reads done: one of them sees the
     * other. */
    if (atomic_load(c->sleeping)) {
        uint64_t one = 1;
        ssize_t n = write(c->fd, &one, sizeof(one));
        (void)n; /* a counter that is full is readable as well */
    }
}

static void *commit_thread(void *arg)
{
    struct commit *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->job && !c->quit)
            pthread_cond_wait(&c->changed, &c->lock);
        if (!c->job)
            break;
        const struct batch *b = c->job;
        pthread_mutex_unlock(&c->lock);
        commit_finish(c, c->ops->commit(c->ix, b));
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static int commit_thread_start(struct commit *c)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&c->thread, NULL, commit_thread, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    c->threaded = error == 0;
    return -error;
}

int commit_create(struct commit **out, const struct index_ops *ops, void *ix, uint32_t inline_max,
                  _Atomic uint32_t *sleeping)
{
    struct commit *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->ops = ops;
    c->ix = ix;
    c->inline_max = inline_max;
    c->sleeping = sleeping;
    c->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int error = c->fd < 0 ? -errno : 0;
    if (error)
        goto free_commit;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (inline_max != UINT32_MAX)
        error = commit_thread_start(c);
    if (error)
        goto close_fd;
    *out = c;
    return 0;

close_fd:
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    close(c->fd);
free_commit:
    free(c);
    return error;
}

void commit_destroy(struct commit *c)
{
    if (!c)
        return;
    if (c->threaded) {
        pthread_mutex_lock(&c->lock);
        c->quit = true;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    close(c->fd);
    free(c);
}

int commit_fd(const struct commit *c)
{
    return c->fd;
}

void commit_rung(struct commit *c)
{
    uint64_t rung;
    ssize_t n = read(c->fd, &rung, sizeof(rung));
    (void)n; /* nothing in it is as good */
}

bool commit_done(const struct commit *c)
{
    return c->running && atomic_load(&c->done);
}

bool commit_running(const struct commit *c)
{
    return c->running;
}

bool commit_submit(struct commit *c, struct batch *b, int *status)
{
    if (!c->threaded || batch_count(b) <= c->inline_max) {
        *status = c->ops->commit(c->ix, b);
        return true;
    }
    c->running = true;
    c->batch = b;
    pthread_mutex_lock(&c->lock);
    c->job = b;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return false;
}

struct batch *commit_take(struct commit *c, int *status)
{
    if (!c->running || !atomic_load(&c->done))
        return NULL;
    atomic_store(&c->done, 0);
    c->running = false;
    *status = c->status;
    return c->batch;
}

int commit_now(struct commit *c, const struct batch *b)
{
    pthread_mutex_lock(&c->lock);
    while (c->job)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return c->ops->commit(c->ix, b);
}
