/* null.h: the functions of null_memkind, for the tables of kinds that cannot do one thing or another. */
#ifndef BERTH_STORE_NULL_H
#define BERTH_STORE_NULL_H

#include "store/memkind.h"

int null_register_nic(struct mem_pool *p, void *nic, uint64_t offset, uint64_t bytes, void **mr);

#endif
