# Forbidden includes: what keeps the core free of system interfaces, and index and gpu ignorant of each other.
set -euo pipefail
status=0
forbid() { # what is said, pattern of the included name, files
    local said=$1 pattern=$2
    shift 2
    if grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" "$@" /dev/null; then
        echo "$said"
        status=1
    fi
}
shopt -s nullglob
forbid "store/ includes no verbs, LMDB, CUDA or libuv header" 'infiniband/|rdma/|lmdb\.h|cuda|uv\.h|uv/' store/*.[ch]
forbid "store/shell/ reaches LMDB through index/ only" 'infiniband/|rdma/|lmdb\.h|cuda' store/shell/*.[ch]
forbid "index/ includes no verbs, CUDA or libuv header" 'infiniband/|rdma/|cuda|uv\.h|uv/' index/*.[ch]
forbid "index/ knows nothing of gpu/" 'gpu/' index/*.[ch]
forbid "gpu/ knows nothing of index/" 'index/|lmdb\.h' gpu/*.[ch]
forbid "the core does not know its shell" 'store/shell/' store/*.h index/*.[ch]
forbid "tests and tools are not part of the library" 'tests/|tools/' store/*.[ch] store/shell/*.[ch] index/*.[ch] \
    replication/*.[ch] gpu/*.[ch]
forbid "the public header stands alone" '(store|index|gpu|replication)/' store/berth.h
exit $status
