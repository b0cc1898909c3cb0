#include "tools/start_code.h"

#include <errno.h>

#include "tools/cli.h"

int start_code(int error)
{
    switch (error) {
    case 0:
        return CLI_OK;
    case -EINVAL:
        return CLI_USAGE;
    case -EBUSY:
    case -EADDRINUSE:
    case -ENOSPC:
    case -ENOMEM:
    case -EPERM:
    case -ENOTEMPTY:
    case -EACCES:
        return CLI_REFUSED;
    default:
        return CLI_FAILED;
    }
}
