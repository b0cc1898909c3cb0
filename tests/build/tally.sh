# tools/tally counts what passed, failed and was skipped, and lets no skip through without a listed reason.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
{
    echo 'cmake_minimum_required(VERSION 3.24)'
    echo 'project(tally NONE)'
    echo 'enable_testing()'
    while IFS='|' read -r name body; do
        echo "$body" >"$directory/$name.sh"
        echo "add_test(NAME $name COMMAND bash $directory/$name.sh)"
        echo "set_tests_properties($name PROPERTIES SKIP_RETURN_CODE 77)"
    done <<'TESTS'
passes|exit 0
fails|exit 1
partly|echo "SKIP: no device mlx5"; exit 0
wholly|echo "SKIP: no device rxe0"; echo "SKIP: no huge pages"; exit 77
silent|exit 77
cmocka|echo "[  SKIPPED ] some_test"; exit 0
unlisted|echo "SKIP: it is Monday"; exit 0
crashes|kill -SEGV $$
TESTS
    echo "add_test(NAME missing COMMAND $directory/no-such-program)"
} >"$directory/CMakeLists.txt"
printf '%s\n' '# reasons' 'no device [a-z0-9]+' 'no huge pages' >"$directory/skips"
"$CMAKE" -S "$directory" -B "$directory/b" >/dev/null
ctest --test-dir "$directory/b" --output-junit "$directory/results.xml" >/dev/null 2>&1 || true

"$PYTHON" tools/tally "$directory/results.xml" "$directory/skips" "$directory/counts" >"$directory/out"
[ "$(cat "$directory/counts")" = "2 6 4" ] || { echo "the counts are wrong: $(cat "$directory/counts")"; exit 1; }
for name in fails silent cmocka unlisted crashes missing; do
    grep -q "^FAILED $name:" "$directory/out" || { echo "'$name' is not named"; exit 1; }
done
