/* puller.h: a puller under a script: events in by hand, commands kept until the test takes them. */
#ifndef BERTH_TESTS_PULLER_H
#define BERTH_TESTS_PULLER_H

#include "replication/pull.h"

#define KEPT_MAX 1024u
#define MS INT64_C(1000000)

struct kept { /* a command with copies of what it pointed to */
    struct pull_command c;
    char key[PULL_KEYS_MAX][16];
    struct pull_result result[PULL_KEYS_MAX];
    struct lease_release release[256];
    struct pull_part part[64];
};

struct script {
    struct puller *p;
    struct pull_config config;
    struct reader_now now;
    uint16_t homes[PULL_HOMES_MAX];
    uint32_t n_homes;
    struct kept *kept;
    uint32_t n_kept;
    uint64_t next_lease;
};

struct script *script_new(void); /* five members, 0 is self, 1 and 2 are homes, all but 4 are up and proven */
void script_free(struct script *s);
void script_start(struct script *s); /* after changes of config */
void script_event(struct script *s, const struct pull_event *ev);
void script_pass(struct script *s, int64_t ns); /* time, and a tick */
/* Takes the first command of the kind; fails the test where there is none. Good until the next take. */
const struct kept *script_take(struct script *s, enum pull_command_kind kind);
uint32_t script_count(const struct script *s, enum pull_command_kind kind);

void script_pull(struct script *s, uint64_t id, const char *keys, enum pull_destination d, uint32_t flags,
                 int64_t deadline); /* keys: one letter each; sample 1 unless VERIFY bits say more */
void script_request(struct script *s, const struct pull_request *r);
struct lease_terms script_terms(struct script *s, uint64_t generation, uint64_t size);
void script_found(struct script *s, uint64_t rpc, uint32_t n, uint16_t member, uint64_t counter);
void script_says(struct script *s, uint64_t rpc, enum home_says says, const uint16_t *missing, uint32_t n_missing);
void script_grant(struct script *s, uint64_t rpc, uint32_t n, uint64_t generation, uint64_t size);
void script_status(struct script *s, enum pull_event_kind kind, uint64_t id, int status);
void script_member(struct script *s, enum pull_event_kind kind, uint16_t member, uint64_t incarnation);
void script_hashed(struct script *s, uint64_t id, uint64_t sum);
void script_reserved(struct script *s, uint64_t id, uint64_t token);

#define SUM UINT64_C(0x5a5a) /* the checksum of script_terms */

#endif
