/* berthd_config.h: where berthd's settings come from: flags, environment, INI file; one table (settings.h) names them.
 */
#ifndef BERTH_TOOLS_BERTHD_CONFIG_H
#define BERTH_TOOLS_BERTHD_CONFIG_H

#include <stdbool.h>

#include "store/shell/settings.h"

#define BERTHD_CONFIG "/etc/berth/berthd.ini"

struct berthd_config {
    struct settings settings;
    const char *file; /* --config, or BERTHD_CONFIG where that exists; NULL: none was read */
    bool print, help, version;
};

/* Reads flags, environment and file into *c, checks them together. 0; -EINVAL: why[] says which flag, variable, or file
 * and line; -errno if the file cannot be read. With help or version set nothing else was looked at. */
int config_load(struct berthd_config *c, int argc, char **argv, char **environment, char *why, size_t why_size);
/* --print-config: an INI file that makes this configuration, with each value's origin as a comment. */
void config_print(const struct berthd_config *c);
void config_help(void);

#endif
