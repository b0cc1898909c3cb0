/* settings.c: the table, and where its values come from. What reads and shows one value is in settings_value.c. */
#include "store/shell/settings.h"

#include "store/shell/log.h"
#include "store/amount.h"
#include "store/shell/settings_value.h"
#include "store/where.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct setting settings_table[] = {
    [SET_REGION] = {"region", "PATH", "", "/dev/shm/berth-UID", "directory of the region, on tmpfs"},
    [SET_SOCKET] = {"socket", "PATH", "",
                    "$XDG_RUNTIME_DIR/berth.sock, else /run/berth/berth.sock, else /tmp/berth-UID/berth.sock",
                    "socket for clients"},
    [SET_METRICS] = {"metrics", "off|HOST:PORT|unix:PATH", "", "off",
                     "where /metrics is served; loopback addresses only"},
    [SET_POLICY] = {"policy", "pwl|lru", "", "pwl", "how objects to evict are chosen"},
    [SET_POOL] = {"pool", "SIZE", "1B to 16777214MiB", "1GiB", "bytes of payload memory, rounded up to 2MiB"},
    [SET_SHRINK] = {"shrink", "refuse|drop|drop-held", "", "refuse",
                    "what a start with a smaller pool does with objects beyond its end; drop spares those with holds"},
    [SET_MR_SIZE] = {"mr-size", "SIZE", "1B to 16777214MiB", "1GiB",
                     "no object is larger, or straddles a multiple of it"},
    [SET_INDEX_SIZE] = {"index-size", "SIZE", "from 256KiB", "auto", "bytes of the index map; auto: from max-objects"},
    [SET_MAX_OBJECTS] = {"max-objects", "N", "1 to 4294967294", "auto",
                         "objects that have room at once, made 4096 or more, in steps of 512; auto: from the pool"},
    [SET_HIGH] = {"high", "SIZE|PERCENT", "0.0001% to 100%", "95%", "evict when sealed objects take more of the pool"},
    [SET_LOW] = {"low", "SIZE|PERCENT", "0.0001% to 100%", "90%", "evict down to this much of the pool"},
    [SET_DRAFT_QUOTA] = {"draft-quota", "SIZE|PERCENT", "0.0001% to 100%", "50%",
                         "most that one client may have unsealed"},
    [SET_PIN_QUOTA] = {"pin-quota", "SIZE", "from 0", "0", "most that one client may pin; 0: no limit"},
    [SET_CLASS] = {"class", "SIZE[,SIZE..]", "1 to 1GiB", "none", "slot sizes beside the fixed ones; may be repeated"},
    [SET_POPULATE] = {"populate", "on|off", "", "on",
                      "off, for measuring: pool pages come at first use, and no room is then a SIGBUS of who writes or "
                      "reads them; lock is off too"},
    [SET_LOCK] = {"lock", "off|auto|required", "", "auto", "lock the pool in memory"},
    [SET_THREADS] = {"threads", "N", "0 to 64", "0", "threads that populate the pool; 0: one a CPU, at most 8"},
    [SET_NUMA] = {"numa", "auto|off|N[,N..]", "N 0 to 1023", "auto",
                  "NUMA nodes that the pool is spread over; auto: all that this process may use; off: not asked for"},
    [SET_NUMA_STRICT] = {"numa-strict", "yes|no", "", "no",
                         "refuse to start where a page of the pool is not on the NUMA node asked for"},
    [SET_SPIN] = {"spin-us", "N", "0 to 1000000", "50", "most microseconds to poll for a request or an answer"},
    [SET_MODE] = {"mode", "0600|0640", "", "0600", "of socket and region files; 0640 lets a group read"},
    [SET_QUARANTINE] = {"quarantine", "DURATION", "0s to 24h", "1s", "between a writer's death and reuse of its slots"},
    [SET_LOG_LEVEL] = {"log-level", "error|warning|info|debug", "", "info", "how much is logged"},
    [SET_LOG_FORMAT] = {"log-format", "text|json", "", "text", "how a line of the log looks"},
    [SET_NAME] = {"name", "NAME", "", "the host's name", "this node's name among its peers"},
    [SET_CLUSTER] = {"cluster", "NAME", "", "berth", "peers of another cluster are refused"},
    [SET_LISTEN] = {"listen", "off|tcp://HOST:PORT", "", "the address of its own entry in peers, else off",
                    "where peers connect to; port 0: a free one"},
    [SET_PEER_TRUST] = {"peer-trust", "host|network", "", "host",
                        "who may be a peer: processes of this host, or whoever reaches the address"},
    [SET_PEERS] = {"peers", "NAME=tcp://HOST:PORT[*WEIGHT][,..]", "WEIGHT 1 to 65535", "none",
                   "all nodes, this one included, the same list on each; may be repeated"},
    [SET_HOMES] = {"homes", "N", "1 to 3", "2", "nodes that know where a key is; at most as many as there are"},
    [SET_LEASE] = {"lease", "DURATION", "100ms to 30s", "5s", "how long a peer may read an object that it was given"},
    [SET_LEASE_QUOTA] = {"lease-quota", "SIZE|PERCENT", "0.0001% to 100%", "50%",
                         "most that one peer may have leased; one larger object alone"},
    [SET_VERIFY] = {"verify", "always|1/N|lease", "N 1 to 1000000000", "always",
                    "which objects from peers have their checksum verified"},
    [SET_TOMBSTONES] =
        {"tombstones", "DURATION", "1s to 24h", "1h",
         "how long removals are remembered, the same on all nodes; who was away longer confirms its objects"},
    [SET_FRESH] = {"fresh", "DURATION", "1s to 24h", "60s",
                   "how old news of a replaceable namespace may be, the same on all nodes"},
    [SET_REPLACEABLE] =
        {"replaceable", "NAME[,NAME..]", "", "none",
         "namespaces where a put replaces, beside those of [namespace] sections; may be repeated; the same on "
         "all nodes"},
    [SET_SHARE] = {"share", "NAME=SIZE|PERCENT[,..]", "PERCENT 0.0001% to 100%", "none",
                   "what a namespace has up to this much of the pool is not evicted for others, beside those of "
                   "[namespace] sections; all together at most high; may be repeated"},
};
const unsigned settings_count = sizeof settings_table / sizeof *settings_table;
_Static_assert(SETTINGS <= sizeof((struct settings *)0)->source / sizeof((struct settings *)0)->source[0], "source");

void settings_init(struct settings *s)
{
    *s = (struct settings){.lock = MEM_LOCK_AUTO};
    for (unsigned i = 0; i < settings_count; i++) {
        const char *fallback = settings_table[i].fallback;
        snprintf(s->source[i].text, sizeof s->source[i].text, "%s", fallback);
        if (i != SET_REGION && i != SET_SOCKET && i != SET_NAME && i != SET_LISTEN)
            value_parse(s, i, fallback);
    }
    snprintf(s->region, sizeof s->region, "/dev/shm/berth-%u", (unsigned)geteuid());
    _Static_assert(sizeof s->socket == WHERE_PATH, "socket");
    where_to_serve(s->socket);
    default_name(s->name, sizeof s->name);
    snprintf(s->listen, sizeof s->listen, "off");
}

static int find(const char *name)
{
    for (unsigned i = 0; i < settings_count; i++) {
        if (strcmp(settings_table[i].name, name) == 0)
            return (int)i;
    }
    return -ENOENT;
}

/* Their names would not fit into a sentence. */
static void say_unknown(const char *name, char *why, size_t size)
{
    char shown[100];
    escape_bytes(shown, sizeof shown, name, strlen(name));
    snprintf(why, size, "unknown setting '%s': `berthd --help` and `man berthd` list them all", shown);
}

/* Lists: a repetition from the same place adds, one from a later place begins anew. */
static bool adds(const struct settings *s, unsigned i, enum setting_origin origin)
{
    return s->source[i].origin == origin && origin != ORIGIN_DEFAULT;
}

/* more: of a setting that may be repeated every place is kept, as far as there is room for whole ones. */
void settings_where(char *out, size_t size, const char *where, bool more)
{
    size_t kept = more && strcmp(out, where) != 0 ? strlen(out) : 0;
    if (kept + strlen(where) + 3 > size)
        kept = 0;
    if (kept > 0) {
        memcpy(out + kept, ", ", 2);
        kept += 2;
    }
    snprintf(out + kept, size - kept, "%s", where);
}

int settings_set(struct settings *s, const char *name, const char *value, enum setting_origin origin, const char *where,
                 char *why, size_t why_size)
{
    int found = find(name);
    if (found < 0) {
        say_unknown(name, why, why_size);
        return found;
    }
    unsigned i = (unsigned)found;
    bool list = i == SET_CLASS || i == SET_PEERS || i == SET_REPLACEABLE || i == SET_SHARE;
    if (origin == ORIGIN_URL && s->source[i].origin == ORIGIN_URL && !list) {
        snprintf(why, why_size, "'%s' stands twice in the URL: leave one of them out", name);
        return -EINVAL;
    }
    struct settings *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        snprintf(why, why_size, "no memory to read '%s'", name);
        return -ENOMEM;
    }
    *copy = *s;
    if (i == SET_CLASS && !adds(s, i, origin))
        copy->n_classes = 0;
    if (i == SET_PEERS && !adds(s, i, origin))
        copy->n_peers = 0;
    if (i == SET_SHARE && !adds(s, i, origin))
        memset(copy->shares, 0, sizeof copy->shares);
    int e = value_parse(copy, i, value);
    if (e != 0 && *copy->peers_wrong) {
        snprintf(why, why_size, "'%s': %s", name, copy->peers_wrong);
    } else if (e != 0) {
        char shown[100];
        escape_bytes(shown, sizeof shown, value, strlen(value));
        snprintf(why, why_size, "'%s' is '%s': %s", name, shown, value_units(i, e));
    } else if (origin >= s->source[i].origin) {
        copy->source[i].origin = origin;
        snprintf(copy->source[i].text, sizeof copy->source[i].text, "%s", value);
        settings_where(copy->source[i].where, sizeof copy->source[i].where, where, adds(s, i, origin));
        *s = *copy;
    }
    free(copy);
    return e != 0 ? -EINVAL : 0;
}

int settings_peer(struct settings *s, const char *name, const char *value, const char *where, char *why,
                  size_t why_size)
{
    char text[SETTINGS_NODE_NAME + SETTINGS_ADDRESS + 32], address[SETTINGS_ADDRESS] = "", weight[16] = "", rest[2];
    int n = sscanf(value, "%255s %15s %1s", address, weight, rest);
    if (n == 3 || strchr(name, ',') || strchr(name, '=') || strchr(value, ',')) {
        snprintf(why, why_size, "a peer is NAME = tcp://HOST:PORT, or NAME = tcp://HOST:PORT WEIGHT");
        return -EINVAL;
    }
    int size =
        snprintf(text, sizeof text, "%s%s%s%s%s", name, *address ? "=" : "", address, *weight ? "*" : "", weight);
    if (size < 0 || (size_t)size >= sizeof text) {
        snprintf(why, why_size, "the peer's name or address is too long");
        return -EINVAL;
    }
    return settings_set(s, "peers", text, ORIGIN_FILE, where, why, why_size);
}

/* ---- what depends on others ---- */

/* As many headers as are made: a slab of 4 KiB slots takes UNIT_PAGES of them in one piece, and small regions are to
 * have some slabs of other sizes too. */
static void round_objects(struct settings *s)
{
    uint64_t n = s->max_objects < SETTINGS_OBJECTS_LEAST ? SETTINGS_OBJECTS_LEAST : s->max_objects;
    n = (n + UNIT_PAGES - 1) / UNIT_PAGES * UNIT_PAGES;
    s->max_objects = n < TOUCH_CHILD ? n : TOUCH_CHILD - 1;
}

static void resolve_objects(struct settings *s)
{
    uint64_t first = UINT64_C(1) << 30;
    if (s->max_objects == 0) {
        uint64_t small = s->pool < first ? s->pool : first;
        s->max_objects = small / PAGE_BYTES + (s->pool - small) / (4 * PAGE_BYTES);
    }
    round_objects(s);
    if (s->index_size == 0) /* 269 bytes a record with a key of 70 were measured in a map that random keys filled */
        s->index_size = s->max_objects * 288 > (1u << 20) ? s->max_objects * 288 : 1u << 20;
}

static int resolve_marks(struct settings *s, char *why, size_t why_size)
{
    char text[AMOUNT_SIZE];
    bool low_given = s->source[SET_LOW].origin != ORIGIN_DEFAULT;
    s->high = value_share(s->source[SET_HIGH].text, s->pool);
    /* The distance of the defaults, for whoever sets only the high mark. */
    s->low = low_given ? value_share(s->source[SET_LOW].text, s->pool) : s->high / 19 * 18 + s->high % 19 * 18 / 19;
    s->draft_quota = value_share(s->source[SET_DRAFT_QUOTA].text, s->pool);
    s->lease_quota = value_share(s->source[SET_LEASE_QUOTA].text, s->pool);
    if (s->high > s->pool || s->high == 0) {
        snprintf(why, why_size, "'high' is %s, the pool %s: set it above 0 and to at most the pool",
                 s->source[SET_HIGH].text, amount(s->pool, text));
        return -EINVAL;
    }
    if (s->low > s->high) {
        snprintf(why, why_size, "'low' is %s, 'high' %s of a pool of %s: set low to at most high",
                 s->source[SET_LOW].text, s->source[SET_HIGH].text, amount(s->pool, text));
        return -EINVAL;
    }
    return 0;
}

/* To lock a pool is to populate it. */
static int resolve_lock(struct settings *s, char *why, size_t why_size)
{
    if (s->populate == POPULATE_ON)
        return 0;
    if (s->lock == MEM_LOCK_REQUIRED) {
        snprintf(why, why_size,
                 "'populate' is off and 'lock' required: a locked pool is populated: set one of them "
                 "otherwise");
        return -EINVAL;
    }
    s->lock = MEM_LOCK_OFF;
    return 0;
}

int settings_finish(struct settings *s, char *why, size_t why_size)
{
    s->pool = (s->pool + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    s->mr_size = (s->mr_size + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    resolve_objects(s);
    if (s->threads == 0) {
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        s->threads = cpus < 1 ? 1 : cpus > 8 ? 8 : (uint32_t)cpus;
    }
    int e = resolve_marks(s, why, why_size);
    e = e ? e : finish_shares(s, why, why_size);
    e = e != 0 ? e : resolve_lock(s, why, why_size);
    e = e != 0 ? e : finish_numa(s, why, why_size);
    return e != 0 ? e : finish_peers(s, why, why_size);
}
