#!/usr/bin/env bash
# A7: a key of the maximum length, of one byte more, and of bytes that grow when they are written: put, get, list, stat,
# hold, remove. The maximum works in every layer; one more is refused before anything is asked of the node.
. "$(dirname "$0")/lib.sh"
start_berthd node

repeat() { printf "%.0s$1" $(seq "$2"); }
plain=$(repeat k 480)
grown=$(repeat '\\xff' 480) # 1,920 characters on the command line
slashes=$(repeat '\\\\' 480)
mixed='a\x00b\n\t\r\\ c\x7f'"'"'"$`'

for key in "$plain" "$grown" "$slashes" "$mixed" -- k '\x20' -minus; do
    printf 'payload of %s' "${#key}" >"$scratch/in"
    run 0 berth put -- "$key" "$scratch/in"
    run 0 berth get -- "$key"
    check "the same bytes" cmp -s "$scratch/in" "$scratch/out"
    run 0 berth exists -- "$key"
    run 0 berth ls --json -- "$key"
    json "len(d['entries']) >= 1"
    # What a listing prints is accepted back.
    printed=$(berth ls -- "$key" | head -n 1)
    run 0 berth get -- "$printed"
    run 0 berth stat --json -- "$printed"
    json "d['results'][0]['key'] == r'''$printed'''"
    run 0 berth hold --label x -- "$printed"
    run 0 berth pins --json -- "$printed"
    json "True"
    run 0 berth drop --label x -- "$printed"
done
run 0 berth ls
check "every key is listed" test "$(wc -l <"$scratch/out")" -eq 8
check "listings are printable" test "$(LC_ALL=C tr -d '\n -~' <"$scratch/out" | wc -c)" -eq 0
berth ls | while IFS= read -r printed; do
    berth rm -- "$printed" || echo "not removed: $printed"
done >"$scratch/left"
check "all removed by what ls printed" test ! -s "$scratch/left"

before=$(berth status --json)
for key in "${plain}k" "$grown\\xff" "$slashes\\\\" ''; do
    echo x >"$scratch/in"
    for command in put get exists stat rm 'hold --label x' 'drop --label x' pins; do
        # shellcheck disable=SC2086
        run 2 berth $command --json -- "$key"
        failed_as 2 EINVAL
    done
    # Refused at entry: with no node to ask it is the same error.
    run 2 berth -n "unix:$scratch/nobody" put -- "$key" "$scratch/in"
done
run 2 berth ls --json "${plain}k"
failed_as 2 EINVAL
for bad in '\q' '\x' '\x1' '\xzz' 'end\'; do
    run 2 berth get --json -- "$bad"
    failed_as 2 EINVAL
done
run 0 berth ls
check "nothing was put" test ! -s "$scratch/out"
after=$(berth status --json)
check "no space was taken" python3 - "$before" "$after" <<'PYTHON'
import json, sys
a, b = (json.loads(t) for t in sys.argv[1:])
sys.exit(0 if a["pool"]["used_bytes"] == b["pool"]["used_bytes"] else 1)
PYTHON
stop_berthd
finish
