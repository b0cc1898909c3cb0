/* ports.h: ports that tests may listen on. */
#ifndef BERTH_TESTS_PORTS_H
#define BERTH_TESTS_PORTS_H

#include <stdint.h>

/* A TCP port of 127.0.0.1 that is free now, each once in a process. Below those that the kernel gives to connections,
 * so that no other test's connection takes it before it is listened on. */
uint16_t free_port(void);

#endif
