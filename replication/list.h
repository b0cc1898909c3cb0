/* list.h: doubly linked lists whose nodes stand in their members. A node is in one list at most; a node in none has
 * next == NULL.
 */
#ifndef BERTH_REPLICATION_LIST_H
#define BERTH_REPLICATION_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline bool list_in(const struct list *node)
{
    return node->next;
}

static inline void list_push(struct list *head, struct list *node) /* last */
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_remove(struct list *node) /* nothing if it is in none */
{
    /* The analyzer does not follow a list through its nodes. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    if (node->next) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        node->next = node->prev = NULL;
    }
}

#endif
