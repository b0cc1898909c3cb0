# The top level is fixed: these, and dot files. build/ and install/ are what people make.
set -euo pipefail
diff <(printf '%s\n' CMakeLists.txt CMakePresets.json README.md docs gpu index replication store tests tools) \
    <(LC_ALL=C ls | grep -vxE 'build|install') || { echo "the top level holds something else (>) or lacks something (<)"; exit 1; }
