#!/usr/bin/env bash
# A recorded hour of conversations, its first part, on two and three nodes that together have the room of one: they hit
# what one hits; and with nodes killed in mid-replay no byte is wrong.
. "$(dirname "$0")/lib.sh"

trace=${TRACE:-$(dirname "$0")/../../../shared/data/conversation_trace.jsonl}
if [[ ! -r $trace ]]; then
    echo "SKIP: no recorded trace beside the source tree"
    exit 77
fi
head -n 4000 "$trace" >"$scratch/trace"
load=("$scratch/trace" --block-size 4KiB --capacity-blocks 9140 --json)

good="d['bad_bytes'] == 0 and d['overdue'] == 0 and d['local_hits'] + d['remote_hits'] + d['misses'] == d['references']"
# LRU needs to know nothing of other nodes. pwl learns from what came before: it takes the whole trace.
for policy in lru pwl; do
    [[ $policy == lru ]] || load=("$trace" --block-size 4KiB --capacity-blocks 18279 --json)
    run 0 berth replay "${load[@]}" --policy $policy
    one=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["local_hits"])' <"$scratch/out")
    run 0 berth replay "${load[@]}" --nodes 2 --policy $policy
    json "$good and d['local_hits'] + d['remote_hits'] >= 0.97 * $one and d['lease_requests'] < d['remote_hits'] / 4"
done
load=("$scratch/trace" --block-size 4KiB --capacity-blocks 9140 --json)
run 0 berth replay "${load[@]}"
one=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["local_hits"])' <"$scratch/out")
run 0 berth replay "${load[@]}" --nodes 3 --clients 3 --kill 500
json "$good and d['kills'] == 7 and d['remote_hits'] > 0 and d['requests'] + d['requests_cut'] == 4000"
json "d['local_hits'] + d['remote_hits'] < 1.1 * $one"
finish
