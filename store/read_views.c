/* read_views.c: what is told and counted of the views of one call. */
#include "store/read.h"

#define TOUCH_MAX 512u /* slots told to the node in one piece */

/* Deepest first, so that the first of a prefix is the most recent; of a long run the part that would be overwritten in
 * the ring anyway is left out. */
void read_touch_views(struct berth *b, struct client_thread *t, const struct berth_view *v, size_t n, bool run)
{
    uint32_t slots[TOUCH_MAX], used = 0;
    touch_flush(b, t);
    for (size_t i = n < RING_TOUCHES / 2 ? n : RING_TOUCHES / 2; i-- > 0;) {
        if (v[i].data) {
            slots[used++] = v[i].slot | (run && i > 0 ? TOUCH_CHILD : 0);
        }
        if (used && (used == TOUCH_MAX || i == 0)) {
            touch_push(b, slots, used);
            used = 0;
        }
    }
}

void read_count_views(struct berth *b, struct client_thread *t, const struct berth_view *v, size_t found, size_t n,
                      const struct read_brought *got)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += v[i].data ? v[i].size : 0;
    }
    size_t pulled = got->n < found ? got->n : found;
    uint64_t pulled_bytes = got->bytes < bytes ? got->bytes : bytes;
    stat_add(b, t, LANE_HITS, found - pulled);
    stat_add(b, t, LANE_HIT_BYTES, bytes - pulled_bytes);
    if (pulled) {
        stat_add(b, t, LANE_PULLED, pulled);
        stat_add(b, t, LANE_PULLED_BYTES, pulled_bytes);
    }
}
