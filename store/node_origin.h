/* node_origin.h: replicas: objects that this node holds under the version that another region gave them.
 *
 * The node's own puller is the session NODE_PULLER: it attaches by EV_ATTACH without a row, and sends EV_REQUEST like
 * any client: MSG_CREATE, MSG_ABORT, and instead of MSG_SEAL a node_seal_origin, which no other session may send.
 * Answers come as CMD_REPLY of that session. Its drafts go with the node, after the quarantine.
 */
#ifndef BERTH_STORE_NODE_ORIGIN_H
#define BERTH_STORE_NODE_ORIGIN_H

#include "store/msg.h"

#define NODE_PULLER (UINT64_MAX - 1)
#define NODE_SEAL_ORIGIN 0x8000u             /* op: beyond MSG_OPS, so msg_check refuses it to every client */
#define COUNTER_LIMIT (UINT64_MAX / 2)       /* the greatest that a message can name */
#define COUNTER_SEEN_MAX (COUNTER_LIMIT / 2) /* ours go beyond what others have up to here: they must not run out */

/* Seals one draft with {counter, region}. Answer: 0 sealed; BERTH_KEPT the key is here already: in a namespace that is
 * not replaceable in any version, else in this one or a newer; the draft is gone in both cases. Errors as MSG_SEAL,
 * and -EINVAL (MSG_AGAIN, region 0, counter 0 or above COUNTER_LIMIT), BERTH_EQUOTA: objects of REGIONS_MAX - 1 other
 * regions are here, and the draft is the puller's still. */
struct node_seal_origin {
    struct msg_head head;
    struct msg_token token;
    uint64_t checksum; /* XXH3-64 */
    uint64_t lineage;
    uint64_t counter, region;
};

#endif
