# The C in README.md and in the manual pages compiles without a warning: a whole program as it stands, a fragment as the
# body of a function that has a handle b.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/berth"
ln -s "$PWD/store/berth.h" "$directory/berth/berth.h"
"$PYTHON" - "$directory" <<'PYTHON'
import pathlib, re, sys
directory = pathlib.Path(sys.argv[1])
blocks = re.findall(r"^```c\n(.*?)^```", pathlib.Path("README.md").read_text(), re.M | re.S)
if len(blocks) < 2:
    sys.exit(f"only {len(blocks)} blocks of C were found")
for i, text in enumerate(blocks):
    if "main(" not in text:
        text = "#include <berth/berth.h>\n#include <string.h>\nvoid f(struct berth *b);\nvoid f(struct berth *b)\n{\n" + text + "}\n"
    (directory / f"readme{i}.c").write_text(text)
PYTHON
flags=(-std=c17 -Wall -Wextra -Wshadow -Werror -I"$directory")
for program in "$directory"/readme*.c; do
    "$CC" "${flags[@]}" -fsyntax-only "$program"
done
# It does see what it is there for.
sed -i 's/\.data = "b0", \.size = 2/"b0", 2/' "$directory/readme1.c"
if "$CC" "${flags[@]}" -fsyntax-only "$directory/readme1.c" 2>/dev/null; then
    echo "a snippet with a warning was taken"
    exit 1
fi
