/* transport.h: the table of a way to move payload between nodes: tcp, verbs and loop follow.
 *
 * What a back end cannot do stands in null_transport as a function that answers -EOPNOTSUPP: no pointer here is NULL. A
 * transfer passes through posted, completed and consumable; nothing hands out bytes in any but the last.
 */
#ifndef BERTH_REPLICATION_TRANSPORT_H
#define BERTH_REPLICATION_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

enum transfer_state {
    TRANSFER_IDLE,
    TRANSFER_POSTED,    /* the destination belongs to the transport */
    TRANSFER_COMPLETED, /* every part's fate is known; the bytes are not yet proven */
    TRANSFER_CONSUMABLE /* lease deadline or checksum checked after the last completion */
};

struct transfer {
    enum transfer_state state;
    uint64_t remote_offset; /* in the owner's pool, never a pointer */
    uint64_t bytes;
    void *destination;
    uint32_t remote_key;
    int status;
    void *owner;
};

struct transport {
    const char *name;
    int (*open)(void **ctx, const char *address, char *why, size_t why_size);
    void (*close)(void *ctx);
    int (*connect)(void *ctx, const char *peer, void **connection);
    void (*disconnect)(void *ctx, void *connection);
    int (*expose)(void *ctx, void *base, uint64_t bytes, uint32_t *remote_key);
    int (*read)(void *ctx, void *connection, struct transfer *t); /* one-sided; completes through poll */
    int (*send)(void *ctx, void *connection, const void *message, size_t n);
    int (*poll)(void *ctx, struct transfer **done, int max);
    int (*fence)(void *ctx, void *connection); /* returns when no read of this peer can still complete */
};

extern const struct transport null_transport;

#endif
