/* pages FILE [--from BYTES] [--to BYTES] [--find TEXT] [--hold yes]: on which NUMA nodes the pages of a file lie, as
 * "node:pages .." in order of nodes; with --find only of pages that begin with the text. Shares no code with Berth:
 * move_pages is asked through a mapping of its own. With --hold it keeps that until it is ended. "absent" counts pages
 * that are not there.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES 64

static unsigned long count[NODES], absent;

static void look(char *page)
{
    void *pages[1] = {page};
    int status[1] = {-1};
    if (syscall(SYS_move_pages, 0, 1ul, pages, NULL, status, 0) != 0) {
        perror("pages: move_pages");
        exit(1);
    }
    if (status[0] >= 0 && status[0] < NODES)
        count[status[0]]++;
    else
        absent++;
}

int main(int argc, char **argv)
{
    const char *find = NULL;
    int hold = 0;
    struct stat st;
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "pages: no such file\n");
        return 2;
    }
    unsigned long from = 0, to = (unsigned long)st.st_size;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--from") == 0)
            from = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--to") == 0)
            to = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--find") == 0)
            find = argv[i + 1];
        else if (strcmp(argv[i], "--hold") == 0)
            hold = 1;
    }
    char *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        perror("pages: mmap");
        return 1;
    }
    for (unsigned long at = from; at + 4096 <= to; at += 4096) {
        volatile char *touched = base + at;
        (void)*touched;
        if (find == NULL || strncmp(base + at, find, strlen(find)) == 0)
            look(base + at);
    }
    for (int i = 0; i < NODES; i++)
        if (count[i] != 0)
            printf("%d:%lu ", i, count[i]);
    if (absent != 0)
        printf("absent:%lu ", absent);
    puts("");
    fflush(stdout);
    if (hold)
        pause();
    return 0;
}
