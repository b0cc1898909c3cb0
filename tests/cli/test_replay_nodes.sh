#!/usr/bin/env bash
# berth replay --nodes: several nodes that read from each other, killed and started again; no wrong byte, no hang.
seed=${BERTH_SEED:-$((RANDOM + 1))}
. "$(dirname "$0")/lib.sh"

echo "BERTH_SEED=$seed"
load=(--generate chat --requests 400 --block-size 4KiB --seed "$seed")

# What holds whatever happens: of the whole and of each node.
sums="(all(x['local_hits'] + x['remote_hits'] + x['misses'] == x['references'] and x['bad_bytes'] == 0
    and x['overdue'] == 0 and x['wire_bytes'] >= 4096 * x['remote_hits'] for x in [d] + d['node'])
    and all(d[k] == sum(n[k] for n in d['node']) for k in ('requests', 'references', 'local_hits', 'remote_hits', 'misses',
    'wire_bytes', 'surplus_bytes', 'ask_requests', 'lease_requests', 'verified_bytes', 'kills'))
    and d['requests'] + d['requests_cut'] == 400 and len(d['node']) == d['nodes']
    and d['restarts_warm'] + d['restarts_cold'] == d['kills'])"

hits_of_last()
{
    python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["local_hits"] + d["remote_hits"])' <"$scratch/out"
}

# Room for all: what one node hits, several hit.
run 0 berth replay --embedded "${load[@]}" --capacity-blocks 4000 --json
one=$(hits_of_last)
for nodes in 2 3; do
    run 0 berth replay --nodes $nodes "${load[@]}" --capacity-blocks $((nodes * 4000)) --json
    json "$sums"
    json "(d['nodes'] == $nodes and d['kills'] == 0 and d['requests_cut'] == 0 and d['evictions'] == 0
        and 20 * sum(d['errors'].values()) <= d['references'])"
    json "all(n['requests'] in (400 // $nodes, 400 // $nodes + 1) and n['local_hits'] and n['remote_hits'] for n in d['node'])"
    json "d['verified_bytes'] == 4096 * d['local_hits'] + d['wire_bytes']"
    json "d['wire_bytes'] == 4096 * d['remote_hits'] + d['surplus_bytes']"
    # The keys of a request are asked for together: of each home, and of each owner.
    json "0 < d['lease_requests'] < d['remote_hits'] and 0 < d['ask_requests'] < 8 * 400"
    json "d['local_hits'] + d['remote_hits'] >= 0.97 * $one"
    if [[ $nodes = 2 ]]; then
        two=$(hits_of_last)
    fi
done

# Block by block. n1 finds 0 at n0 and nobody has 1, so that 2 and 3, which were read with it, do not count; n0 then
# finds 1 at n1 between those that it has.
at=0
for blocks in '[0]' '[5]' '[2, 3]' '[0, 1, 2, 3]' '[0, 1, 2, 3]'; do
    echo "{\"timestamp\": $at, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": $blocks}"
    at=$((at + 200))
done >"$scratch/five"
run 0 berth replay --nodes 2 "$scratch/five" --block-size 4KiB --capacity-blocks 100 --speed 1 --json
json "(d['local_hits'], d['remote_hits'], d['misses'], d['wire_bytes'], d['surplus_bytes']) == (3, 2, 7, 16384, 8192)"
json "[(n['local_hits'], n['remote_hits'], n['misses']) for n in d['node']] == [(3, 1, 3), (0, 1, 4)]"

# Nodes that are killed in mid-replay: fewer hits, and nothing else.
for nodes in 2 3; do
    run 0 berth replay --nodes $nodes --clients $nodes "${load[@]}" --capacity-blocks 1800 --kill 50 --json
    json "$sums"
    json "d['kills'] == 7 and set(d['errors']) <= {'BERTH_EUNSURE', 'BERTH_ENOTNOW', 'ETIMEDOUT'}"
    cp "$scratch/out" "$scratch/killed.$nodes"
done
# With room for all, warm nodes have what they had and cold ones have not.
run 0 berth replay --nodes 2 "${load[@]}" --capacity-blocks 8000 --kill 40 --restart warm --json
json "$sums"
json "d['kills'] == 9 and d['restarts_cold'] == 0 and d['remote_hits'] > 0 and d['local_hits'] + d['remote_hits'] < $two"
warm=$(hits_of_last)
run 0 berth replay --nodes 2 "${load[@]}" --capacity-blocks 8000 --kill 40 --restart cold --json
json "$sums"
json "d['kills'] == 9 and d['restarts_warm'] == 0 and d['local_hits'] + d['remote_hits'] < 0.9 * $warm"
# The seed decides who is killed, and how it comes back.
run 0 berth replay --nodes 3 --clients 3 "${load[@]}" --capacity-blocks 1800 --kill 50 --json
check "the same kills again" python3 -c '
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
what = lambda d: [d["restarts_warm"], d["restarts_cold"]] + [n["kills"] for n in d["node"]]
sys.exit(what(a) != what(b))' "$scratch/killed.3" "$scratch/out"

# A deadline that no read can keep is an error of the read, not of the replay.
run 0 berth replay --nodes 2 "${load[@]}" --capacity-blocks 2000 --deadline 1us --json
json "$sums"
json "d['remote_hits'] == 0 and d['errors'].get('ETIMEDOUT', 0) > 0 and d['deadline_ns'] == 1000"

run 0 berth replay --nodes 2 "${load[@]}" --kill 150
out_has "remote hits"
out_has "killed"
check "80 columns" test "$(wc -L <"$scratch/out")" -le 80

run 2 berth replay --nodes 1 "${load[@]}"
run 2 berth replay --nodes 9 "${load[@]}"
run 2 berth replay --nodes 2 --embedded "${load[@]}"
run 2 berth replay --nodes 2 -n unix:/nowhere "${load[@]}"
run 2 berth replay --nodes 2 --clients 3 "${load[@]}"
run 2 berth replay --kill 10 "${load[@]}"
err_has "give --nodes"
run 2 berth replay --nodes 2 --restart warm "${load[@]}"
run 2 berth replay --nodes 2 --kill 10 --restart soon "${load[@]}"
run 2 berth replay --nodes 2 --capacity-blocks 2 "${load[@]}"
err_has "at each node"

# Killed itself in the middle: its nodes end, and their regions go.
"$bin/berth" replay --nodes 2 "${load[@]}" --speed 1 --json >"$scratch/out" 2>"$scratch/err" &
replay=$!
region=
while [[ -z $region ]] && kill -0 "$replay" 2>/dev/null; do
    for child in $(pgrep -P "$replay"); do
        region=$(sed -n 's|.* \(/dev/shm/berth-run-[^/]*\)/n[0-9]/.*|\1|p' "/proc/$child/maps" 2>/dev/null | head -n 1)
        [[ -z $region ]] || break
    done
done
check "a directory of its own" test -d "$region"
children=$(pgrep -P "$replay")
kill -KILL "$replay"
wait "$replay" 2>/dev/null
for child in $children; do
    timeout 60 tail --pid="$child" -f /dev/null
    check "process $child has ended" test $? -eq 0
done
check "the regions are gone" test ! -e "$region"
finish
