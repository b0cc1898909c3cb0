# Every C file is formatted as .clang-format says.
set -euo pipefail
. tests/build/sources.sh
c_sources | xargs clang-format --style=file --dry-run -Werror
