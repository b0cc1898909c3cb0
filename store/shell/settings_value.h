/* settings_value.h: reading and showing the value of one setting. */
#ifndef BERTH_SHELL_SETTINGS_VALUE_H
#define BERTH_SHELL_SETTINGS_VALUE_H

#include "store/shell/settings.h"

enum setting_index { /* order of settings_table */
                     SET_REGION,
                     SET_SOCKET,
                     SET_METRICS,
                     SET_POLICY,
                     SET_POOL,
                     SET_SHRINK,
                     SET_MR_SIZE,
                     SET_INDEX_SIZE,
                     SET_MAX_OBJECTS,
                     SET_HIGH,
                     SET_LOW,
                     SET_DRAFT_QUOTA,
                     SET_PIN_QUOTA,
                     SET_CLASS,
                     SET_POPULATE,
                     SET_LOCK,
                     SET_THREADS,
                     SET_NUMA,
                     SET_NUMA_STRICT,
                     SET_SPIN,
                     SET_MODE,
                     SET_QUARANTINE,
                     SET_LOG_LEVEL,
                     SET_LOG_FORMAT,
                     SET_NAME,
                     SET_CLUSTER,
                     SET_LISTEN,
                     SET_PEER_TRUST,
                     SET_PEERS,
                     SET_HOMES,
                     SET_LEASE,
                     SET_LEASE_QUOTA,
                     SET_VERIFY,
                     SET_TOMBSTONES,
                     SET_FRESH,
                     SET_REPLACEABLE,
                     SET_SHARE,
                     SETTINGS
};

/* Stores the value into its field; shares of the pool are only checked. 0, -EINVAL (not a value), -ERANGE. */
int value_parse(struct settings *s, unsigned index, const char *text);
/* What is wrong after value_parse returned `error`, and what to write instead. Static storage. */
const char *value_units(unsigned index, int error);
/* A SIZE|PERCENT: 0, -EINVAL, -ERANGE. */
int value_check_share(const char *text);
/* Bytes of a checked one of the pool. */
uint64_t value_share(const char *text, uint64_t pool);

#define SETTINGS_PIECE (SETTINGS_NODE_NAME + SETTINGS_ADDRESS + 16) /* bytes of one of a list, its NUL included */

/* "none", or pieces with commas between them: `one` is called for each, which it may cut, until one fails. What it
 * returned, or -EINVAL: a piece is too long. */
int parse_list(struct settings *s, const char *text, int (*one)(struct settings *s, char *piece));

/* Where a value was said; more: beside the places that are there. settings.c. */
void settings_where(char *out, size_t size, const char *where, bool more);

/* ---- settings_namespaces.c ---- */

/* The namespace of this name, made if it is new: 0, -EINVAL (no name), -ERANGE (one too many). */
int namespace_find(struct settings *s, const char *name, struct node_namespace **out);
int parse_replaceable(struct settings *s, char *piece);
int parse_share(struct settings *s, char *piece);
void show_replaceable(const struct settings *s, char *out, size_t size);
void show_shares(const struct settings *s, char *out, size_t size);
/* Makes them bytes of the pool. 0, or -EINVAL with a sentence. */
int finish_shares(struct settings *s, char *why, size_t why_size);

/* HOST:PORT that only processes of this host reach. */
bool address_is_loopback(const char *text);

/* ---- settings_numa.c ---- */

int parse_numa(struct settings *s, const char *text);
void show_numa(const struct settings *s, char *out, size_t size);
int finish_numa(const struct settings *s, char *why, size_t why_size);

/* ---- settings_peers.c: what makes a node one of several ---- */

void default_name(char *out, size_t size); /* the host's, as far as it is a name */
int parse_node_name(const char *text, char *out, size_t size);
int parse_listen(const char *text, char *out, size_t size);
int parse_peers(struct settings *s, const char *text);
int parse_verify(const char *text, uint32_t *out);
void show_peers(const struct settings *s, char *out, size_t size);
void show_verify(uint32_t sample, char *out, size_t size);
/* Checks them together: 0, or -EINVAL with a sentence. */
int finish_peers(struct settings *s, char *why, size_t why_size);

#endif
