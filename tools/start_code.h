/* start_code.h: the exit code of a node that does not start, in both programs. */
#ifndef BERTH_TOOLS_START_CODE_H
#define BERTH_TOOLS_START_CODE_H

/* Of the error that a start, or an embedded node's opening, ended with: 0, or 1 failure, 2 configuration, 5 refused
 * (region in use, files that are not the node's, no space, no memory, address taken, not permitted). */
int start_code(int error);

#endif
