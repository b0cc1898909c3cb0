/* collide.h: another key with the same 64-bit hash, as a client can compute one that knows the seed. */
#ifndef BERTH_TESTS_COLLIDE_H
#define BERTH_TESTS_COLLIDE_H

#include <stdint.h>

#define COLLIDE_BYTES 32u

/* `which`, 1 to 3: three keys of 32 bytes that are not `key` and have its XXH3-64 under the seed of namespace ns in a
 * region of this seed. They may have any bytes, but for words of key that happen to be alike under the seed. */
void collide(uint8_t out[COLLIDE_BYTES], const uint8_t key[COLLIDE_BYTES], uint64_t seed, uint32_t ns, unsigned which);
/* Fills key with a text, and other[0 .. 3) with texts of its hash: none has a zero byte, all end in one. */
void collide_texts(char key[COLLIDE_BYTES + 1], char other[3][COLLIDE_BYTES + 1], uint64_t seed, uint32_t ns);

#endif
