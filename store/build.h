/* build.h: requests from arguments of berth.h: what is checked here is checked once for the call and for the queue. */
#ifndef BERTH_STORE_BUILD_H
#define BERTH_STORE_BUILD_H

#include "store/client.h"

/* 0, or the error recorded. size: of the object; flags: those that the options may have. */
int build_check_put(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts,
                    uint32_t flags);
int build_check_drafts(const struct berth *b, const struct berth_draft *d, size_t n);
int build_check_label(const char *label);

static inline int64_t build_deadline(const struct berth_put_opts *opts)
{
    return opts ? opts->deadline : BERTH_NOW;
}

/* log2 of a checked segment size, or 0. */
static inline uint8_t build_shift(uint32_t segment)
{
    return segment ? (uint8_t)__builtin_ctz(segment) : 0;
}

/* Each a call ready to be submitted, or NULL: no memory. Arguments have been checked. */
/* key: for which it is asked. */
struct call *build_grant(struct berth *b, const struct berth_key *key, uint32_t pages, size_t size, uint32_t count,
                         int64_t deadline);
struct call *build_put(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts,
                       const struct msg_token *token, uint64_t checksum, const uint64_t *sums);
struct call *build_create(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts);
/* Ahead of build_seal: the checksums of the segments of those drafts that have some are computed, where the caller has
 * not, and on their way; d[i].checksum is what proves them. 0 or -ENOMEM. */
int build_sums(struct berth *b, struct berth_draft *d, size_t n);

/* How many of them create has kept: these are no drafts, and seal passes them over. */
size_t build_without_draft(const struct berth_draft *d, size_t n);
/* A PUBLISHED: of a key that was put, or kept, or of those of n drafts that were sealed and ask for it; *asked: are
 * there any. The deadline is the caller's to set. */
struct call *build_published(const struct berth_key *key, bool kept, const struct berth_draft *d, size_t n,
                             bool *asked);
/* What its outcome is to the caller of a put, which has succeeded with `put`. */
int build_take_published(int status, int put);
/* Computes the checksums that the caller has not. */
struct call *build_seal(struct berth *b, const struct berth_draft *d, size_t n);
struct call *build_abort(const struct berth_draft *d, size_t n);
/* Under the lock, before an abort is submitted. */
void build_forget(struct berth *b, const struct call *abort);
struct call *build_key(enum msg_op op, const struct berth_key *key, const struct berth_version *expected);
struct call *build_hold(enum msg_op op, const struct berth_key *key, const char *label, int64_t ttl_ns);

/* What a reply means for the caller's structures, as call_take. */
struct created {
    struct berth_draft *draft;
    size_t size;
    uint32_t segment;
    uint32_t flags; /* of the options */
};
struct sealed {
    struct berth_draft *drafts;
    size_t n;
};
struct granted {
    struct msg_token token;
    size_t size;
};
int build_take_created(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes);
int build_take_sealed(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes);
int build_take_granted(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes);
int build_take_stat(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes);

/* Maps the pages of a slot that is about to be written. */
void build_map_pages(const void *start, size_t size);
/* Copies a payload into a granted slot, counted and timed. The checksum; with segments (shift is not 0) that of `sums`,
 * of SEGMENTS_MAX, where theirs are. */
uint64_t build_copy(struct berth *b, const struct msg_token *token, const void *data, size_t size, uint8_t shift,
                    uint64_t *sums);

#endif
