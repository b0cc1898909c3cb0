# Manual pages: no gap in the comments that they are made of, and no page that troff warns of.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$PYTHON" tools/mkman --check store/berth.h

# The check must see what it is there for.
must_find() { # gap, sed expression that makes it
    sed -E "$2" store/berth.h >"$directory/broken.h"
    if "$PYTHON" tools/mkman --check "$directory/broken.h" 2>"$directory/gaps" || ! grep -qF "$1" "$directory/gaps"; then
        cat "$directory/gaps"
        echo "the gap '$1' was not found"
        exit 1
    fi
}
must_find "berth_drop: no comment" '/^\/\* Drops a hold/d'
must_find "berth_drop: its comment has neither errors" 's/^(\/\* Drops a hold\.).*/\1 *\//'
must_find "berth_hold: its comment does not mention 'ttl_ns'" 's/ttl_ns (\(|of)/time \1/; s/or ttl_ns/or a time/'
must_find "enum berth_phase: no comment" '/^\/\* Where the time of a pull went/,/\*\/$/d'
must_find "berth_get_into: 'ENOSPC' stands in its text" 's/; -ENOSPC \(buffer is too small\)//'
must_find "BERTH_EHELD: no comment says" 's/^( \* .*)BERTH_EHELD, /\1/'

# The examples are programs.
"$PYTHON" - >"$directory/examples.c" <<'EOF'
import runpy
examples = runpy.run_path("tools/mkman")["EXAMPLES"]
print('#include "store/berth.h"\n#include <stdio.h>\n#define BLOCK 4096\n#define SIZE 100')
print("void compute(void *data, int i);\nvoid use(const void *data, uint64_t size);")
for i, text in enumerate(dict.fromkeys(examples.values())):
    rest = "" if "struct berth_key key[3]" in text else "struct berth_key *key, void **data"
    print(f"int example{i}(struct berth *b{', ' + rest if rest else ''});")
    print(f"int example{i}(struct berth *b{', ' + rest if rest else ''})\n{{\n{text}\n    return {'kept' if 'kept' in text else 0};\n}}")
EOF
"${CC:-cc}" -std=c17 -Wall -Wextra -Werror -Wno-misleading-indentation -Wno-unused-parameter -I. -fsyntax-only "$directory/examples.c"

"$PYTHON" tools/mkman store/berth.h "$directory/man3"
"$PYTHON" tools/mkman --tools "$BUILD/bin" "$directory"
status=0
for page in "$directory"/man[138]/*; do
    warnings=$(LC_ALL=C.UTF-8 groff -man -ww -Tutf8 -rLL=100n -P-cbou "$page" 2>&1 >"$directory/text")
    [ -z "$warnings" ] || { echo "$warnings"; status=1; }
    ! grep -nE '.{101}' "$directory/text" || { echo "${page##*/}: lines of more than 100 columns"; status=1; }
    ! grep -n 'see above' "$directory/text" || { echo "${page##*/}: a page has no above"; status=1; }
    ! sed -n '/^ERRORS/,/^[A-Z]/p' "$directory/text" | grep -F 'Any thread' || { echo "${page##*/}: no error"; status=1; }
done

# Nothing that the help texts name is lost on the way.
lacks() { # page, words
    echo "$1: '$2' is missing"
    status=1
}
for name in $("$BUILD/bin/berthd" --help | grep -oE '^  --[a-z-]+'); do
    grep -qF -- "${name//-/\\-}" "$directory/man8/berthd.8" || lacks berthd.8 "$name"
done
for name in $("$BUILD/bin/berth" --help | sed -n 's/^  \([a-z]*\) .*/\1/p') overhead; do
    grep -qw -- "$name" "$directory/man1/berth.1" || lacks berth.1 "$name"
done

# Every value of an enumeration and every field of a structure is in a page, as the compiler sees the header.
"${CC:-cc}" -E -P -x c store/berth.h >"$directory/berth.i"
"$PYTHON" - "$directory/berth.i" "$directory/man3" <<'EOF' || status=1
import pathlib, re, sys
source = pathlib.Path(sys.argv[1]).read_text()
pages = {p.stem: p.read_text() for p in pathlib.Path(sys.argv[2]).iterdir()}
count = bad = 0
for kind, name, body in re.findall(r"\b(struct|enum) (berth_\w+)\s*\{(.*?)\}", source, re.S):
    for part in re.split(r"[;,]", body):
        found = re.search(r"(\w+)\s*(?:\[[^]]*\])?\s*(?:=.*)?$", part.strip(), re.S)
        if found:
            count += 1
            page = pages.get(name, pages["berth"] if name == "berth_error_code" else "")
            if not re.search(rf"\b{found.group(1)}\b", page):
                bad += 1
                print(f"{kind} {name}: '{found.group(1)}' is in no page")
if count < 170:
    bad += 1
    print(f"only {count} values and fields were found")
# A page lists what its call can return: nothing that only a call which its text mentions has, and all that it borrows.
def errors(name):
    return set(re.findall(r"^\.B (?:\\-)?(\w+)$", pages[name].split(".SH ERRORS")[1].split(".SH ")[0], re.M))

only_writers = {"E2BIG", "BERTH_EUNPUBLISHED", "BERTH_EVERSION"}
readers = ("berth_get", "berth_get_many", "berth_get_into", "berth_get_range", "berth_prefix")
for name in readers:
    if errors(name) & only_writers:
        bad += 1
        print(f"{name} lists {errors(name) & only_writers}")
for name, more in (("berth_get_into", {"ENOSPC"}), ("berth_get_range", {"ERANGE", "EOPNOTSUPP"}), ("berth_get_many", {"BERTH_EGROUP"})):
    if errors(name) != errors("berth_get") | more:
        bad += 1
        print(f"{name}: {errors(name) ^ (errors('berth_get') | more)} is on one side")
if not only_writers <= errors("berth_put") or errors("berth_buffer_alloc") & {"EACCES", "EPERM", "EEXIST"}:
    bad += 1
    print("errors of berth_put or berth_buffer_alloc")
if "berth_flags" not in pages["berth_get"] or "berth_get" not in pages["berth_flags"]:
    bad += 1
    print("berth_get and berth_flags do not name each other")
sys.exit(bad > 0)
EOF
exit $status
