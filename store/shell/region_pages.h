/* region_pages.h: which part of a region lies on pages of 2 MiB, measured at the start and said in one line. */
#ifndef BERTH_SHELL_REGION_PAGES_H
#define BERTH_SHELL_REGION_PAGES_H

#include "store/shell/region.h"

/* Asks the kernel about the mappings of an open region, fills r->pages, and logs the line: as a warning, with what it
 * costs, where some of it lies on pages of 4 KiB. A pool that is not populated is left out. */
void region_pages(struct region *r, const struct settings *s);

#endif
