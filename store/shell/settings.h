/* settings.h: the node's settings: one table of name, default, meaning and parser, whatever they come from: a flag of
 * berthd (--pool), the environment (BERTH_POOL), the INI file ([node] pool = ..), or an embedded node's URL (pool=..).
 */
#ifndef BERTH_SHELL_SETTINGS_H
#define BERTH_SHELL_SETTINGS_H

#include "replication/wire.h"
#include "store/memkind.h"
#include "store/node.h"
#include "store/numa.h"

#define SETTINGS_CLASSES 32u
#define SETTINGS_NAMESPACES 256u
#define SETTINGS_PEERS 128u                     /* members of the list, this node included */
#define SETTINGS_NODE_NAME (WIRE_NAME_MAX + 1)  /* bytes of a node's or a cluster's name, its NUL included */
#define SETTINGS_ADDRESS (WIRE_ADDRESS_MAX + 1) /* bytes of an address, its NUL included */
#define SETTINGS_WEIGHT_MAX 65535u
#define SETTINGS_OBJECTS_LEAST 4096u

enum setting_origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_URL, ORIGIN_FLAG }; /* later ones win */

enum peer_trust {
    TRUST_HOST,   /* peers are on this host: loopback addresses only */
    TRUST_NETWORK /* whoever reaches the address may read and write all objects */
};

enum settings_numa {
    NUMA_AUTO, /* all nodes whose memory this process may use */
    NUMA_OFF,  /* wherever the kernel puts them */
    NUMA_LIST
};

enum populate_pool { POPULATE_ON, POPULATE_OFF /* for measuring */ };

enum shrink_pool {                   /* what a start with a smaller pool may lose of what lies beyond its end */
                   SHRINK_REFUSE,    /* no object */
                   SHRINK_DROP,      /* objects without a hold */
                   SHRINK_DROP_HELD, /* every object */
};

/* A member of the list. */
struct settings_peer {
    char name[SETTINGS_NODE_NAME];
    char address[SETTINGS_ADDRESS]; /* tcp://HOST:PORT; empty: left out, for this node only */
    uint32_t weight;                /* 1 .. SETTINGS_WEIGHT_MAX; its share as a home */
};

struct settings {
    char region[256];  /* directory; default /dev/shm/berth-UID */
    char socket[108];  /* default: where_to_serve's */
    char metrics[108]; /* off | HOST:PORT (loopback addresses only) | unix:PATH; default off */
    char policy[16];
    uint64_t pool;        /* bytes, rounded up to 2 MiB; default 1GiB */
    uint32_t shrink;      /* enum shrink_pool; default refuse */
    uint64_t mr_size;     /* default 1GiB */
    uint64_t index_size;  /* LMDB map; 0: from max-objects */
    uint64_t max_objects; /* 0: from the pool: a 4 KiB object each up to 1 GiB of pool, then 16 KiB; rounded up to what
                             is made, SETTINGS_OBJECTS_LEAST and then steps of UNIT_PAGES */
    uint64_t high, low;   /* bytes of sealed slots: high 95%, low 90% of the pool; a size or a percentage */
    uint64_t draft_quota; /* bytes a session may have unsealed; default 50% of the pool */
    uint64_t pin_quota;   /* bytes a session may pin; 0: no limit */
    uint32_t classes[SETTINGS_CLASSES]; /* --class SIZE, repeatable: slot sizes in pages beside the fixed ones */
    uint32_t n_classes;
    uint32_t populate;               /* enum populate_pool; default on */
    enum mem_lock lock;              /* off | auto | required */
    uint32_t threads;                /* for prefault; 0: as many as there are CPUs, at most 8 */
    uint32_t numa;                   /* enum settings_numa; default auto */
    uint32_t numa_nodes[NUMA_PARTS]; /* of the list: the pool is spread over these */
    uint32_t n_numa;
    uint32_t numa_strict;  /* pages that are elsewhere are no warning but the end of the start; default no */
    uint32_t spin_us;      /* most that the node spins after a request before it sleeps; 0 never; default 50 */
    uint32_t mode;         /* of region files and socket, octal: 0600; 0640 lets a group read */
    int64_t quarantine_ns; /* duration: 1s, 500ms */
    uint32_t log_level;    /* error | warning | info | debug */
    uint32_t log_format;   /* enum log_format: text | json */
    struct node_namespace namespaces[SETTINGS_NAMESPACES]; /* [namespace NAME] replaceable = yes|no, and
                                                               replaceable = NAME[,NAME..] */
    uint32_t n_namespaces;
    char shares[SETTINGS_NAMESPACES][24]; /* [namespace NAME] share = SIZE|PERCENT, and share = NAME=SIZE|PERCENT[,..]:
                                             as they were written, "": none */
    char name[SETTINGS_NODE_NAME];        /* of this node among its peers; default: the host's */
    char cluster[SETTINGS_NODE_NAME];     /* nodes of another one are refused; default berth */
    char listen[SETTINGS_ADDRESS]; /* off | tcp://HOST:PORT, port 0: a free one. Default: its own entry's, else off */
    uint32_t peer_trust;           /* enum peer_trust; default host */
    char peers_wrong[280];         /* in settings_set's copy, after it refused a value of `peers`: why */
    struct settings_peer peers[SETTINGS_PEERS]; /* with this node's own entry; after settings_finish sorted by name */
    uint32_t n_peers;
    uint32_t homes;       /* of a key, 1 .. 3; default 2, and at most the members */
    int64_t lease_ns;     /* duration of a lease that asks for none; default 5s, at most 30s */
    uint64_t lease_quota; /* bytes that one peer may have leased, or one larger object; default 50% of the pool */
    uint32_t verify;      /* one transfer in so many is verified: 1 always (the default), 0 none: the lease alone */
    int64_t tombstone_ns; /* how long a removal is remembered; default 1h, the same on all nodes */
    int64_t fresh_ns;     /* in a replaceable namespace a version that was current so long ago is still good; 60s */
    bool embedded;        /* by server_embedded: a private region, removed at close; no listening socket, no WRITEMAP */
    struct {
        enum setting_origin origin;
        char text[128];                  /* as given */
        char where[256];                 /* "/etc/berth/berthd.ini:12", "$BERTH_POOL", "--pool" */
    } source[40];                        /* by index in the table */
    const struct mem_progress *progress; /* of the prefault, for region_open; NULL: none */
};

struct setting {
    const char *name;     /* "max-objects"; the flag is --max-objects, the variable BERTH_MAX_OBJECTS */
    const char *value;    /* placeholder for help: SIZE, PATH, N, DURATION */
    const char *range;    /* of the number in it: "100ms to 30s", "from 0", "WEIGHT 1 to 65535"; empty: no number */
    const char *fallback; /* default as text */
    const char *doc;      /* one line */
};
extern const struct setting settings_table[];
extern const unsigned settings_count;

void settings_init(struct settings *s);
/* Sets one by name. A later origin overrides an earlier one, an earlier origin after a later one is ignored (but still
 * checked). 0, -ENOENT (unknown name), -EINVAL; why[] has a sentence that names option, value and accepted units. */
int settings_set(struct settings *s, const char *name, const char *value, enum setting_origin origin, const char *where,
                 char *why, size_t why_size);
/* NAME = ADDRESS [WEIGHT] of the [peers] section; adds to what the file has said. */
int settings_peer(struct settings *s, const char *name, const char *value, const char *where, char *why,
                  size_t why_size);
/* Whether the node is to be one of several. */
bool settings_wants_peers(const struct settings *s);
/* A key of a [namespace NAME] section. */
int settings_namespace(struct settings *s, const char *name, const char *key, const char *value, const char *where,
                       char *why, size_t why_size);
/* Resolves percentages and defaults that depend on others and checks them together; once, after the last set. */
int settings_finish(struct settings *s, char *why, size_t why_size);
/* The value in effect as text, in out: what settings_set takes; a share of the pool as it was said. */
void settings_value(const struct settings *s, unsigned index, char *out, size_t size);
/* Bytes of a setting that may be a share of the pool; false: it is none. */
bool settings_share(const struct settings *s, unsigned index, uint64_t *bytes);

#endif
