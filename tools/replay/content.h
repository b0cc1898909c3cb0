/* content.h: what a block of a replay holds: a function of its number and size, so that every byte can be proven
 * again.
 */
#ifndef BERTH_TOOLS_REPLAY_CONTENT_H
#define BERTH_TOOLS_REPLAY_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#define CONTENT_KEY 32u

/* The key of a block: another block size is another object. */
void content_key(uint64_t block, uint64_t size, uint8_t key[CONTENT_KEY]);

void content_fill(void *data, uint64_t size, uint64_t block);

/* How many of the bytes are not what content_fill writes. */
uint64_t content_bad(const void *data, uint64_t size, uint64_t block);

#endif
