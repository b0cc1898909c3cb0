# What the libraries export is what berth.h declares, neither more nor less; the shared one gives each symbol a version.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
grep -v '^#' store/berth.h | tr '\n' ' ' | grep -oE 'BERTH_API [^;(]*\(' | sed -E 's/.*[ *](berth_[a-z_]+)\($/\1/' |
    sort >"$directory/declared"
[ "$(wc -l <"$directory/declared")" -ge 20 ] || { echo "only these were understood:"; cat "$directory/declared"; exit 1; }

sed 's/$/@@BERTH_0/' "$directory/declared" >"$directory/versioned"
nm -D --defined-only --with-symbol-versions "$BUILD/lib/libberth.so" | awk '$2 != "A" { print $3 }' | sort >"$directory/shared"
diff "$directory/versioned" "$directory/shared" || { echo "libberth.so (>) differs from berth.h (<)"; exit 1; }

nm -g --defined-only "$BUILD/lib/libberth.a" | awk 'NF == 3 { print $3 }' | sort >"$directory/static"
diff "$directory/declared" "$directory/static" || { echo "libberth.a (>) differs from berth.h (<)"; exit 1; }

readelf -d "$BUILD/lib/libberth.so" | grep -F 'Library soname: [libberth.so.0]'
