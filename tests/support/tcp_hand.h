/* tcp_hand.h: a peer of the TCP transport made by hand, byte by byte. The node under test is turned meanwhile. */
#ifndef BERTH_TESTS_TCP_HAND_H
#define BERTH_TESTS_TCP_HAND_H

#include "tests/support/tcp_node.h"

extern struct tcp_node *hand_node; /* the node under test */

struct hand {
    int control, bulk;
};

int hand_dial(void);                         /* a connection to the node, and not a byte said */
int hand_listen(char *address, size_t size); /* a listener for the node to connect to */
int hand_accept(int listener);
void hand_say(int fd, const void *bytes, size_t size);
size_t hand_hear(int fd, void *bytes, size_t size); /* size bytes, or fewer when the node closes */
bool hand_is_closed(int fd);                        /* whatever comes before is thrown away */
void hand_greet(int fd, bool accepting, int lane, const uint8_t *token);
void hand_hear_greeting(int fd, struct greeting *g);
void hand_say_frame(int fd, const struct frame *f);
bool hand_settled(void *unused); /* the node's connect has an outcome */

void hand_connect(struct hand *h);      /* we connect to the node */
void hand_be_connected(struct hand *h); /* the node connects to us */
void hand_hang_up(struct hand *h);      /* and the node is closed */

#endif
