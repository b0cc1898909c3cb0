/* client_internal.h: what the files of a replay's client share. */
#ifndef BERTH_TOOLS_REPLAY_CLIENT_INTERNAL_H
#define BERTH_TOOLS_REPLAY_CLIENT_INTERNAL_H

#include "tools/replay/client.h"
#include "tools/replay/content.h"

struct replay_client {
    const struct replay_job *job;
    struct replay_counts *c;
    struct berth *b;
    struct berth_queue *queue;
    uint8_t (*bytes)[CONTENT_KEY]; /* each of as many as the longest request has blocks */
    struct berth_key *key;
    struct berth_view *view;
    struct berth_draft *draft;
    struct berth_op *op;
    struct berth_put_opts *opts;
    uint8_t *present; /* of the longest request's blocks: which are here */
    uint8_t *buffer;  /* with peers: of `chunk` blocks */
    uint32_t chunk;   /* blocks that are read from peers at once */
    int64_t since;
};

/* The time since the last lap belongs to this phase. */
void client_lap(struct replay_client *r, enum replay_phase phase);
/* Notes the error and its sentence; returns it. */
int client_failed(struct replay_counts *c, int error, const char *what);
/* Counts an error of a read from peers. */
void client_note_kind(struct replay_counts *c, int code);
/* Proves the bytes of the views [from, to). */
void client_verify(struct replay_client *r, const uint64_t *blocks, uint32_t from, uint32_t to);

/* The leading run of n blocks that is here or at peers: how many; those that are here are pinned, the views of the
 * others have no data. Every byte is proven. A negative error, noted, ends the replay; then nothing is pinned. */
long client_run_over_peers(struct replay_client *r, const uint64_t *blocks, uint32_t n);

#endif
