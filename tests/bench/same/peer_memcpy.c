/* peer_memcpy.c: no store: memcpy into and out of a mapped file of tmpfs that writer and reader share. ADDRESS is its
 * path. What the others are held against. */
#include "peer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PARTS 3u /* of PEER_BYTES: one for the objects of each size */

const bool peer_puts_many = true;
static uint8_t *shared;

void peer_open(const char *address)
{
    int fd = open(address, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, PEER_BYTES * PARTS) < 0)
        work_fail("%s can't be made", address);
    shared = mmap(NULL, PEER_BYTES * PARTS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (shared == MAP_FAILED)
        work_fail("%s can't be mapped", address);
    close(fd);
}

const char *peer_client(void)
{
    return "";
}

static uint8_t *place(const struct item *item)
{
    unsigned part = item->size <= 4096 ? 0 : item->size <= 65536 ? 1 : 2;
    uint64_t index = strtoull(item->key + 8, NULL, 10);

    if ((index + 1) * item->size > PEER_BYTES)
        work_fail("%s has no place", item->key);
    return shared + part * PEER_BYTES + index * item->size;
}

void peer_put(struct item *items, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        memcpy(place(&items[i]), items[i].data, items[i].size);
}

void peer_get(struct item *items, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        memcpy(items[i].room, place(&items[i]), items[i].size);
        items[i].data = items[i].room;
    }
}

void peer_release(struct item *items, unsigned n)
{
    (void)items;
    (void)n;
}

void peer_remove(struct item *items, unsigned n)
{
    (void)items;
    (void)n;
}
