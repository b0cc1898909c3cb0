/* abbreviated.h: getopt_long takes an option's beginning for the option; a later release may have another that begins
 * so. */
#ifndef BERTH_TOOLS_ABBREVIATED_H
#define BERTH_TOOLS_ABBREVIATED_H

/* After getopt_long has found the long option `name`: what was typed, if that is only how it begins, else NULL. */
const char *abbreviated(char **argv, const char *name);

#endif
