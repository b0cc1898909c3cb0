/* bench_buffer.h: where a reader reads to. */
#ifndef BERTH_TOOLS_BENCH_BUFFER_H
#define BERTH_TOOLS_BENCH_BUFFER_H

#include <stdint.h>

/* Memory of this process to read into, its pages there, huge ones where they can be had (an engine's buffers are on
 * such); unmap it. A process that is started later doesn't share them: a fork would make every page's next write a
 * fault. NULL: no memory. */
uint8_t *bench_buffer(uint64_t bytes);

#endif
