# A program builds and runs against the installed copy: by pkg-config and by find_package, shared and static.
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$CMAKE" --install "$BUILD" --prefix "$prefix/usr" >"$prefix/log" || { cat "$prefix/log"; exit 1; }

for file in bin/berth bin/berthd include/berth/berth.h share/man/man3/berth.3 share/man/man3/berth_open.3 \
    share/man/man1/berth.1 share/man/man8/berthd.8; do
    [ -f "$prefix/usr/$file" ] || { echo "'$file' was not installed"; exit 1; }
done
pc=$(find "$prefix/usr" -name berth.pc -printf '%h\n')
libdir=${pc%/pkgconfig}
export PKG_CONFIG_PATH=$pc

echo "pkg-config, shared"
"$CC" -Wall -Werror tests/build/consumer/consumer.c $(pkg-config --cflags --libs berth) -o "$prefix/shared"
LD_LIBRARY_PATH=$libdir "$prefix/shared"
readelf -d "$prefix/shared" | grep -q 'NEEDED.*\[libberth.so.0\]'

# -lberth means the .so where there is one: the archive goes before it by its path, and the .so is then not needed.
echo "pkg-config, static"
"$CC" -Wall -Werror tests/build/consumer/consumer.c "$libdir/libberth.a" -Wl,--as-needed \
    $(pkg-config --cflags --static --libs berth) -o "$prefix/static"
"$prefix/static"
if readelf -d "$prefix/static" | grep -E 'NEEDED.*libberth'; then
    echo "the static program needs the shared library"
    exit 1
fi

if pkg-config --static --libs berth | grep -E 'microhttpd|inih'; then
    echo "the library names what only the tools use"
    exit 1
fi

echo "find_package, both"
"$CMAKE" -S tests/build/consumer -B "$prefix/consumer" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix/usr" \
    >"$prefix/log" || { cat "$prefix/log"; exit 1; }
"$CMAKE" --build "$prefix/consumer" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
"$prefix/consumer/shared"
"$prefix/consumer/static"
