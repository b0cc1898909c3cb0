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
must_find "BERTH_EHELD: no comment says" 's/^( \* .*)BERTH_EHELD, /\1/'

"$PYTHON" tools/mkman store/berth.h "$directory/man3"
status=0
for page in "$directory"/man3/*.3; do
    warnings=$(LC_ALL=C.UTF-8 groff -man -ww -Tutf8 -rLL=120n "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || { echo "$warnings"; status=1; }
done
exit $status
