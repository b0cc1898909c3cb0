/* settings_units.c: what is said of a value that is none. */
#include "store/shell/settings_value.h"

#include "store/duration.h"

#include <errno.h>

#define SIZE_UNITS "write bytes, or a number with K M G T, KiB MiB GiB TiB (binary) or KB MB GB TB (decimal)"

static const char *bare_units(unsigned index)
{
    bool share = index == SET_HIGH || index == SET_LOW || index == SET_DRAFT_QUOTA || index == SET_LEASE_QUOTA ||
                 index == SET_SHARE;
    return share
               ? "without a unit it is bytes, and too few to be meant: write a unit, as 64GiB, or a percentage, as 30%"
               : "without a unit it is bytes, and too few to be meant: write a unit, as 64MiB or 64GiB, or B";
}

static const char *share_units(int error)
{
    switch (error) {
    case -ERANGE:
        return "a share is above 0 and at most 100% of the pool, and all of them together are at most 'high'";
    case -EUSERS:
        return "63 namespaces can have a share, and 256 be configured";
    default:
        return "write none, or NAME=SIZE or NAME=PERCENT as chat=30%, several joined by commas; a name has 1 to 63 of "
               "the characters a-z A-Z 0-9 . _ -";
    }
}

static const char *peering_units(unsigned index, int error)
{
    bool range = error == -ERANGE;
    switch (index) {
    case SET_NAME:
    case SET_CLUSTER:
        return "a name has 1 to 63 of the characters a-z A-Z 0-9 . _ -";
    case SET_LISTEN:
        return range ? "0.0.0.0 and :: are no address of this node: there is no authentication yet: name one interface"
                     : "write off or tcp://HOST:PORT, with [] around an IPv6 address";
    case SET_PEER_TRUST:
        return "write host or network";
    case SET_PEERS:
        return range ? "there are at most 128 members, each name once, with a weight from 1 to 65535"
                     : "write none, or NAME=tcp://HOST:PORT, with *WEIGHT behind it or not, several joined by commas";
    case SET_HOMES:
        return "write 1, 2 or 3";
    case SET_LEASE:
        return range ? "it must be 100ms to 30s" : "that is no duration: write " DURATION_UNITS;
    case SET_TOMBSTONES:
    case SET_FRESH:
        return range ? "it must be 1s to 24h" : "that is no duration: write " DURATION_UNITS;
    case SET_REPLACEABLE:
        return range ? "256 namespaces can be configured"
                     : "write none, or names of 1 to 63 of the characters a-z A-Z 0-9 . _ -, several joined by commas; "
                       "it names namespaces and is no switch: yes, no, true, false, on and off are refused";
    case SET_SHARE:
        return share_units(error);
    case SET_VERIFY:
        return "write always, 1/N with N up to 1000000000, or lease";
    default:
        return "there is no such setting";
    }
}

const char *value_units(unsigned index, int error)
{
    bool range = error == -ERANGE;
    if (error == -EDOM)
        return bare_units(index);
    switch ((enum setting_index)index) {
    case SET_REGION:
        return range ? "the path is too long: at most 255 bytes" : "it is empty: write a path";
    case SET_SOCKET:
        return range ? "the path is too long: at most 107 bytes" : "it is empty: write a path";
    case SET_METRICS:
        return "write off, unix:PATH or HOST:PORT with a loopback address: there is no authentication";
    case SET_POLICY:
        return "there is no such policy: write pwl or lru";
    case SET_POOL:
    case SET_MR_SIZE:
        return range ? "it must be above 0 and below 16TiB: " SIZE_UNITS : "that is no size: " SIZE_UNITS;
    case SET_INDEX_SIZE:
        return range ? "it must be at least 256KiB: " SIZE_UNITS : "that is no size: write auto, or " SIZE_UNITS;
    case SET_MAX_OBJECTS:
        return "write auto, or a number from 1 to 4294967294";
    case SET_HIGH:
    case SET_LOW:
    case SET_DRAFT_QUOTA:
    case SET_LEASE_QUOTA:
        return range ? "it must be above 0 and at most 100%" : "that is no share: write 95%, or a size: " SIZE_UNITS;
    case SET_PIN_QUOTA:
        return "that is no size: " SIZE_UNITS;
    case SET_CLASS:
        return range ? "classes are 1 byte to 1GiB, 32 at most" : "that is no size: write none, or " SIZE_UNITS;
    case SET_SHRINK:
        return "write refuse, drop or drop-held";
    case SET_POPULATE:
        return "write on or off";
    case SET_LOCK:
        return "write off, auto or required";
    case SET_NUMA:
        return range ? "nodes are 0 to 1023, 16 of them at most" : "write auto, off, or different nodes as 0,1";
    case SET_NUMA_STRICT:
        return "write yes or no";
    case SET_THREADS:
        return "write a number from 0 to 64";
    case SET_SPIN:
        return "write a number of microseconds from 0 to 1000000";
    case SET_MODE:
        return "write 0600, or 0640 to let a group read: no mode lets it write";
    case SET_QUARANTINE:
        return range ? "it must be at most 24h" : "that is no duration: write " DURATION_UNITS;
    case SET_LOG_LEVEL:
        return "write error, warning, info or debug";
    case SET_LOG_FORMAT:
        return "write text or json";
    default:
        return peering_units(index, error);
    }
}
