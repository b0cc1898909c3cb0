# tools/setup: silent when all is there; otherwise, without root, the exact command and 1.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
fake() { # name, body
    printf '#!/bin/sh\n%s\n' "$2" >"$directory/$1"
    chmod +x "$directory/$1"
}
run() { # arguments of setup
    status=0
    PATH=$directory:$PATH tools/setup "$@" >"$directory/out" 2>&1 || status=$?
}
fail() {
    cat "$directory/out"
    echo "$1"
    exit 1
}

fake dpkg-query 'shift 2; for p; do echo "$p ii "; done'
run build
[ $status = 0 ] && [ ! -s "$directory/out" ] || fail "all is there: it should be silent"

# liblmdb-dev is missing, the user is nobody, and sudo would ask for a password.
fake dpkg-query 'shift 2; for p; do [ "$p" = liblmdb-dev ] || echo "$p ii "; done; exit 1'
fake id 'echo 1000'
fake sudo 'exit 1'
fake apt-get 'echo "apt-get was run: $*"'
run build
[ $status = 1 ] || fail "it should have ended with 1, not $status"
grep -qF 'apt-get install -y --no-install-recommends liblmdb-dev' "$directory/out" || fail "the command is not shown"
! grep -qF 'was run' "$directory/out" || fail "apt-get was run without permission"

# As root it installs, and refreshes the lists only when the first try fails.
fake id 'echo 0'
run build
grep -qF 'apt-get was run: install -y --no-install-recommends liblmdb-dev' "$directory/out" || fail "nothing was installed"
! grep -qF 'was run: update' "$directory/out" || fail "the lists were refreshed without need"
