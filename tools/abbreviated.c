#include "tools/abbreviated.h"

#include <getopt.h>
#include <string.h>

const char *abbreviated(char **argv, const char *name)
{
    const char *typed = argv[optind - (optarg && optarg == argv[optind - 1] ? 2 : 1)];

    return strncmp(typed, "--", 2) || strcspn(typed + 2, "=") != strlen(name) ? typed : NULL;
}
