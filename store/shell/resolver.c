/* resolver.c: see resolver.h. */
#include "store/shell/resolver.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct resolver {
    uv_async_t wake;
    void (*answered)(void *arg); /* NULL: closed */
    void *arg;
};

/* The loop's and its thread's. `lock` guards resolver and done: who finds the other one gone frees it. */
struct question {
    pthread_mutex_t lock;
    struct resolver *resolver; /* NULL: dropped */
    bool done;
    const struct transport *transport;
    char address[TRANSPORT_ADDRESS_MAX];
    struct resolved answer; /* the thread's until done */
};

static void on_wake(uv_async_t *wake)
{
    struct resolver *r = wake->data;
    if (r->answered)
        r->answered(r->arg);
}

static void on_closed(uv_handle_t *wake)
{
    free(wake->data);
}

struct resolver *resolver_open(uv_loop_t *loop, void (*answered)(void *arg), void *arg)
{
    struct resolver *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->answered = answered;
    r->arg = arg;
    r->wake.data = r;
    if (uv_async_init(loop, &r->wake, on_wake) < 0) {
        free(r);
        return NULL;
    }
    return r;
}

void resolver_close(struct resolver *r)
{
    if (!r)
        return;
    r->answered = NULL;
    uv_close((uv_handle_t *)&r->wake, on_closed);
}

static void question_free(struct question *q)
{
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static void *ask(void *arg)
{
    struct question *q = arg;
    struct resolved *a = &q->answer;
    a->status = q->transport->resolve(q->address, a->digits, sizeof a->digits, a->why, sizeof a->why);
    pthread_mutex_lock(&q->lock);
    bool wanted = q->resolver;
    q->done = true;
    if (wanted)
        uv_async_send(&q->resolver->wake); /* under the lock: it is not closed before the question is dropped */
    pthread_mutex_unlock(&q->lock);
    if (!wanted)
        question_free(q);
    return NULL;
}

static int start(struct question *q)
{
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_t thread;
    sigfillset(&all);
    if (pthread_attr_init(&attr) != 0)
        return -ENOMEM;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the application's, or the loop's */
    int error = pthread_create(&thread, &attr, ask, q);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return -error;
}

int resolver_ask(struct resolver *r, const struct transport *transport, const char *address, struct question **out)
{
    size_t n = strlen(address);
    if (n >= TRANSPORT_ADDRESS_MAX)
        return -ENAMETOOLONG;
    struct question *q = calloc(1, sizeof *q);
    if (!q || pthread_mutex_init(&q->lock, NULL) != 0) {
        free(q);
        return -ENOMEM;
    }
    q->resolver = r;
    q->transport = transport;
    memcpy(q->address, address, n + 1);
    int e = start(q);
    if (e < 0)
        question_free(q);
    else
        *out = q;
    return e;
}

bool question_answered(struct question *q, struct resolved *out)
{
    pthread_mutex_lock(&q->lock);
    bool done = q->done;
    pthread_mutex_unlock(&q->lock);
    if (!done)
        return false;
    *out = q->answer;
    question_free(q);
    return true;
}

void question_drop(struct question *q)
{
    pthread_mutex_lock(&q->lock);
    q->resolver = NULL;
    bool done = q->done;
    pthread_mutex_unlock(&q->lock);
    if (done)
        question_free(q);
}
