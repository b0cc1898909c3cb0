#include "tools/bench/bench_scale.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/layout.h"
#include "tools/cli.h"

#define SLAB_MOST (UINT64_C(64) << 20)
#define SLACK_LEAST 512u /* max-objects comes in such steps */
#define PIECE (UINT64_C(1) << 20)

static const char *const reserved_pool[] = {"populate=off", NULL};

/* ---- puts ---- */

struct put {
    struct scale_node *n;
    uint8_t *keys; /* one an operation in flight */
    struct berth_draft *draft;
    uint64_t first;
};

static void put_next(void *arg, struct berth_op *op, unsigned slot, uint64_t number)
{
    struct put *p = arg;
    uint8_t *key = p->keys + (size_t)slot * BENCH_KEY_MAX;

    bench_key(&p->n->b, number, key);
    op->opcode = p->draft ? BERTH_OP_CREATE : BERTH_OP_PUT;
    op->key = (struct berth_key){.data = key, .size = p->n->b.key_size};
    op->size = p->n->b.size;
    op->draft = p->draft ? &p->draft[number - p->first] : NULL;
    op->deadline = BERTH_FOREVER;
}

static void seal_next(void *arg, struct berth_op *op, unsigned slot, uint64_t number)
{
    struct put *p = arg;

    (void)slot;
    op->opcode = BERTH_OP_SEAL;
    op->draft = &p->draft[number - p->first];
    op->draft->checksum = p->n->checksum;
    op->draft->flags = BERTH_HAS_CHECKSUM;
    op->n = 1;
    op->deadline = BERTH_FOREVER;
}

/* Payload of more than 0 bytes is not written: created, and sealed with the checksum of zeros. */
static int put_drafts(struct put *p, uint64_t count)
{
    struct bench *b = &p->n->b;
    struct bench_flow create = {.depth = b->depth, .next = put_next, .arg = p};
    struct bench_flow seal = {.depth = b->depth, .next = seal_next, .arg = p};
    uint64_t end = p->first + count;
    int error = 0;

    for (; p->first < end && !error; p->first += SCALE_GROUP) {
        uint64_t n = end - p->first < SCALE_GROUP ? end - p->first : SCALE_GROUP;

        memset(p->draft, 0, SCALE_GROUP * sizeof(*p->draft));
        error = bench_flow(b, &create, p->first, n);
        if (!error)
            error = bench_flow(b, &seal, p->first, n);
    }
    return error;
}

int scale_put(struct scale_node *n, uint64_t count)
{
    struct put p = {.n = n, .first = n->number};
    struct bench_flow flow = {.depth = n->b.depth, .next = put_next, .arg = &p};
    int error = -ENOMEM;

    p.keys = malloc((size_t)n->b.depth * BENCH_KEY_MAX);
    if (n->b.size)
        p.draft = malloc(SCALE_GROUP * sizeof(*p.draft));
    if (p.keys && (p.draft || !n->b.size))
        error = p.draft ? put_drafts(&p, count) : bench_flow(&n->b, &flow, n->number, count);
    n->number += count;
    free(p.draft);
    free(p.keys);
    return error;
}

/* ---- what it takes ---- */

static uint64_t allocated(const struct scale_node *n, const char *name)
{
    char path[128];
    struct stat st;

    snprintf(path, sizeof(path), "%s/region/%s", n->b.node.dir, name);
    return stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

static uint64_t anonymous_bytes(pid_t pid)
{
    char path[64], line[128];
    uint64_t kib = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

static uint64_t member(const json_t *status, const char *section, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(status, section), name));
}

int scale_memory(struct scale_node *n, struct scale_memory *m)
{
    char *text;
    json_t *status;
    int error = berth_query(n->b.b, BERTH_STATUS, NULL, &text);

    if (error)
        return error;
    status = json_loads(text, 0, NULL);
    free(text);
    if (!status)
        return -ENOMEM;
    *m = (struct scale_memory){
        .index = member(status, "index", "used_bytes"),
        .headers = member(status, "metadata", "header_bytes"),
        .state = member(status, "metadata", "state_bytes"),
        .lookup = member(status, "metadata", "lookup_bytes"),
        .objects = member(status, "slots", "objects"),
        .retired = member(status, "slots", "retired"),
        .sessions = member(status, "process", "sessions"),
        .slots_file = allocated(n, "slots"),
        .lookup_file = allocated(n, "lookup"),
        .tails_file = allocated(n, "tails"),
        .pool_allocated = allocated(n, "pool-0"),
        .anonymous = anonymous_bytes(n->b.node.pid),
    };
    json_decref(status);
    return 0;
}

static int read_file(const struct scale_node *n, const char *name, uint64_t bytes, uint8_t *piece)
{
    char path[128];
    int fd, error = 0;

    snprintf(path, sizeof(path), "%s/region/%s", n->b.node.dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (uint64_t at = 0; at < bytes && !error; at += PIECE)
        error = pread(fd, piece, PIECE, (off_t)at) < 0 ? -errno : 0;
    close(fd);
    return error;
}

int scale_read_files(struct scale_node *n, int64_t *ns)
{
    uint8_t *piece = calloc(1, PIECE);
    int error = piece ? 0 : -ENOMEM;

    *ns = bench_now();
    error = error ? error : read_file(n, "slots", n->full.headers, piece);
    error = error ? error : read_file(n, "index/data.mdb", n->full.index, piece);
    *ns = bench_now() - *ns;
    free(piece);
    return error;
}

/* ---- from start to end ---- */

/* Neighbours in the order of reading are no neighbours in the pool. */
static void shuffle(struct scale_node *n)
{
    uint8_t other[BENCH_KEY_MAX];
    uint64_t word = 88172645463325252u;
    unsigned size = n->b.key_size;

    for (uint64_t i = n->b.objects; i > 1; i--) {
        uint8_t *a = n->keys + (i - 1) * size, *b;

        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        b = n->keys + word % i * size;
        memcpy(other, a, size);
        memmove(a, b, size);
        memcpy(b, other, size);
    }
}

/* A slab takes its headers at once: those of two that are begun, of 4 KiB slots 16,384 each. */
static uint64_t slack_headers(const struct bench *b)
{
    uint64_t two = 2 * SLAB_MOST / bench_slot_bytes(b->size);

    return two < SLACK_LEAST ? SLACK_LEAST : two;
}

int scale_open(struct scale_node *n, const struct bench *b, uint64_t objects, uint64_t room)
{
    uint8_t *zeros = calloc(1, b->size + 1);
    int code;

    *n = (struct scale_node){.b = *b};
    if (!zeros)
        return bench_no_memory();
    n->checksum = berth_checksum(zeros, b->size);
    free(zeros);
    n->b.objects = objects;
    n->b.headers = objects + room + slack_headers(b);
    n->b.settings = reserved_pool;
    if (objects != b->objects)
        n->b.pool = 0; /* a pool of its own size is for the node with all objects */
    code = bench_open(&n->b, objects, room);
    n->open = code == 0;
    return code;
}

static int fill(struct scale_node *n)
{
    struct cli_progress progress;
    uint64_t left = n->b.objects, step = 65536;
    int64_t begin = bench_now();
    int error = 0;

    cli_progress_begin(&progress, "putting objects", left, false);
    for (; left && !error; left -= step) {
        step = left < step ? left : step;
        error = scale_put(n, step);
        cli_progress_at(&progress, n->number);
    }
    cli_progress_end(&progress);
    n->fill_seconds = (double)(bench_now() - begin) / 1e9;
    return error;
}

int scale_fill(struct scale_node *n)
{
    int error = scale_memory(n, &n->empty);

    error = error ? error : fill(n);
    error = error ? error : scale_memory(n, &n->full);
    if (error)
        return bench_fail(error);
    if (n->full.objects != n->b.objects)
        return cli_fail(-EIO, n->b.which->name, "not all objects that were put are there");
    n->keys = bench_keys(&n->b);
    if (!n->keys || reader_open(&n->reader, &n->b, n->keys, 0))
        return bench_no_memory();
    n->reads = true;
    shuffle(n);
    return 0;
}

/* User and system time; 0: not known. */
static int64_t cpu_of(pid_t pid)
{
    char path[64];
    unsigned long long user = 0, system = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        user = system = 0;
    if (f)
        fclose(f);
    return (int64_t)(user + system) * (1000000000 / sysconf(_SC_CLK_TCK));
}

int scale_restart(struct scale_node *n, int64_t *ns, int64_t *cpu_ns)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth bench", .timeout_ns = cli.timeout_ns};
    struct scale_memory m;
    int error;

    berth_queue_close(n->b.queue);
    berth_close(n->b.b);
    n->b.queue = NULL;
    n->b.b = NULL;
    error = bench_node_restart(&n->b.node, ns);
    if (error)
        return cli_fail(error, n->b.which->name, "berthd did not stop cleanly, or did not start again");
    *cpu_ns = cpu_of(n->b.node.pid);
    error = berth_open(&n->b.b, n->b.node.url, &opts);
    error = error ? error : scale_memory(n, &m);
    if (error)
        return bench_fail(error);
    if (m.objects != n->b.objects)
        return cli_fail(-EIO, n->b.which->name, "not all objects are there after the restart");
    reader_slice(&n->reader, reader_get, BENCH_BATCH, BENCH_BATCH, 1000000);
    return n->reader.error ? bench_fail(n->reader.error) : 0;
}

int scale_close(struct scale_node *n, int code)
{
    if (n->reads)
        reader_close(&n->reader);
    free(n->keys);
    return n->open ? bench_close(&n->b, code) : code;
}
