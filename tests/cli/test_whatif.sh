#!/usr/bin/env bash
# berth whatif: what it says without any load, wrong arguments, namespaces and lineages; and a recorded hour on a node
# with room for a tenth of its blocks, beside nodes that have two and four times as much.
. "$(dirname "$0")/lib.sh"

start_berthd node --high 8MiB --low 7MiB
run 0 berth whatif --json
json "(d['all']['references'] == 0 and d['all']['since_start'][1]['hit_ratio'] is None and d['namespaces'] == []
    and [c['capacity_bytes'] for c in d['all']['recent']] == [4 << 20, 8 << 20, 16 << 20, 32 << 20])"
run 0 berth whatif
out_has "as it is"
out_has "All trees of prefixes are simulated"
run 3 berth whatif -N nowhere
err_has "no reference to it was simulated"
run 3 berth whatif --lineage 5 --json
run 2 berth whatif -N a --lineage 5
run 2 berth whatif --lineage 0
run 2 berth whatif --lineage x
run 2 berth whatif -N "$(printf 'x%.0s' {1..64})"
run 2 berth whatif operand
for i in 1 2 3; do
    printf %s "$i" | berth put -N images "k$i" >"$scratch/out"
done
printf x | berth put --lineage 17 alone >"$scratch/out"
run 0 berth whatif --json
json "(sorted((n['namespace'], n['references']) for n in d['namespaces']) == [('', 1), ('images', 3)]
    and d['all']['since_start'][1]['hit_ratio'] == 0 and d['requests'] == 4 == d['requests_sampled'])"
run 0 berth whatif --namespace images --json
json "len(d['namespaces']) == 1 and d['lineages'] == [] and d['namespaces'][0]['since_start'][1]['hit_ratio'] == 0"
run 0 berth whatif -N '' --json
json "[(n['namespace'], n['references']) for n in d['namespaces']] == [('', 1)] and d['lineages'] == []"
run 0 berth whatif --lineage 17 --json
json "d['namespaces'] == [] and d['lineages'][0]['lineage'] == '17' and d['lineages'][0]['references'] == 1"
run 0 berth status --json
json "d['whatif']['sample_rate'] == 1 and 0 < d['whatif']['bytes'] <= d['whatif']['bytes_max']"
stop_berthd

# What comes back in turn hits nothing until all of it fits: twice the room says nothing of four times.
head -c 64K /dev/zero >"$scratch/in"
start_berthd turns --policy lru --high 2MiB --low 1984KiB
for round in 1 2 3 4; do
    for i in $(seq 96); do
        berth get "k$i" >"$scratch/got" 2>&1 || berth put "k$i" "$scratch/in" >"$scratch/got" 2>&1
    done
done
run 0 berth whatif --json
json "[c['hit_ratio'] for c in d['all']['since_start']] == [0, 0, 0, 0.75] and d['all']['references'] == 384"
stop_berthd

# Hit ratios of a load on a node of `blocks`, and at 2 and 4 times that: within half a point.
compare()
{
    local name=$1 blocks=$2
    shift 2
    # max-objects: the longest request's drafts and the blocks that wait for eviction, too
    pool=$((blocks * 4096 * 5 / 4 + (96 << 20))) start_berthd "$name" --high $((blocks * 4096)) \
        --low $(((blocks - blocks / 200) * 4096)) --draft-quota 64MiB --max-objects 65536
    run 0 berth -n "$BERTH_NODE" replay "$@" --block-size 4KiB --json
    run 0 berth whatif --json
    cp "$scratch/out" "$scratch/whatif.$name"
    stop_berthd
    for times in 2 4; do
        run 0 berth replay "$@" --block-size 4KiB --capacity-blocks $((times * blocks)) --json
        check "$name: $times times the capacity as it was said" python3 - "$scratch/whatif.$name" "$scratch/out" $times <<'PYTHON'
import json, sys
said, real = (json.load(open(f)) for f in sys.argv[1:3])
ratio = next(c["hit_ratio"] for c in said["all"]["since_start"] if c["scale"] == float(sys.argv[3]))
print(f"{sys.argv[3]} times: said {100 * ratio:.2f} %, is {100 * real['hit_ratio']:.2f} %")
sys.exit(abs(ratio - real["hit_ratio"]) > 0.005)
PYTHON
    done
}

compare chat 700 --generate chat --requests 2000
trace=${TRACE:-$(dirname "$0")/../../../shared/data/conversation_trace.jsonl}
if [[ ! -r $trace ]]; then
    evaluate_json
    [[ $failures == 0 ]] || exit 1
    echo "SKIP: no recorded trace beside the source tree"
    exit 77
fi
compare trace 18279 "$trace"
finish
