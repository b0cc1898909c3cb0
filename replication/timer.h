/* timer.h: many timers in a binary heap; ties go in the order of setting. No allocation once there is room.
 */
#ifndef BERTH_REPLICATION_TIMER_H
#define BERTH_REPLICATION_TIMER_H

#include <stdint.h>

struct timer {
    int64_t when;  /* ns; set by timers_set */
    uint64_t turn; /* order of setting */
    uint32_t at;   /* place in the heap + 1; 0: not set */
    uint8_t kind;  /* the owner's */
};

struct timers {
    struct timer **heap;
    uint32_t count, room;
    uint64_t turn;
};

/* Makes room for n timers in all, set or not. 0, -ENOMEM. */
int timers_reserve(struct timers *ts, uint32_t n);
void timers_destroy(struct timers *ts);
void timers_set(struct timers *ts, struct timer *t, int64_t when); /* again: moved; INT64_MAX: cleared */
void timers_clear(struct timers *ts, struct timer *t);             /* nothing if it is not set */
/* Takes out the first that is due; NULL: none. */
struct timer *timers_due(struct timers *ts, int64_t now);
int64_t timers_next(const struct timers *ts); /* INT64_MAX: none */

#endif
