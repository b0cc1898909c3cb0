#!/usr/bin/env bash
# berth replay: counts as a model counts, verifies, refuses bad traces, leaves nothing behind.
. "$(dirname "$0")/lib.sh"

# A trace of conversations over 600 blocks, and what LRU, deepest first, hits with room for 200 of them.
python3 - "$scratch" <<'EOF'
import json, random, sys
from collections import OrderedDict
print("seed 7")
random.seed(7)
lines, chats, fresh = [], [], 0
while fresh < 600:
    if chats and random.random() < 0.7:
        chat = chats[random.randrange(len(chats))]
    else:
        chat = list(random.choice(chats)[:3]) if chats and random.random() < 0.5 else []
        chats.append(chat)
    new = random.randrange(1, 6)
    chat += range(fresh, fresh + new)
    fresh += new
    lines.append(list(chat))
    if len(chat) > 30:
        chats.remove(chat)
cache, hits, references, room = OrderedDict(), 0, 0, 200
for blocks in lines:
    run = 0
    while run < len(blocks) and blocks[run] in cache:
        run += 1
    hits += run
    references += len(blocks)
    for b in blocks[:run][::-1]:
        cache.move_to_end(b)
    for b in blocks[run:][::-1]:
        if b not in cache:
            cache[b] = True
    if len(cache) > room:
        while len(cache) > room - room // 200:
            cache.popitem(last=False)
with open(sys.argv[1] + "/trace", "w") as f:
    for i, blocks in enumerate(lines):
        f.write(json.dumps({"timestamp": i, "input_length": 512 * len(blocks), "output_length": 1, "hash_ids": blocks}) + "\n")
json.dump({"requests": len(lines), "references": references, "hits": hits}, open(sys.argv[1] + "/model", "w"))
EOF

same="d['references'] == m['references'] and d['requests'] == m['requests'] and d['remote_hits'] == 0
    and d['local_hits'] + d['misses'] == d['references'] and d['bad_bytes'] == 0
    and d['verified_bytes'] == d['local_hits'] * 4096 and abs(d['hit_ratio'] - d['local_hits'] / d['references']) < 1e-9"
as_model() # the last run's document and the model's figures, for an expression of d and m
{
    check "JSON: $1" python3 -c '
import json, sys
d, m = json.load(open(sys.argv[1] + "/out")), json.load(open(sys.argv[1] + "/model"))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$scratch" "$1"
}

# What an error says to do can be done, and is another command than the one that failed.
run 1 berth replay chat
err_has "--generate chat"
run 5 berth replay "$scratch/trace" --capacity-blocks 100000000 --json
err_has "give less of either"
run 2 berth replay --clients 0
err_has "--clients: '0'"
run 0 berth replay --generate chat --requests 300 --nodes 2 --kill 100
out_has "none is killed"
check "no command that was just run" bash -c "! grep -q -- '--kill' '$scratch/out'"

run 0 berth replay "$scratch/trace" --capacity-blocks 200 --block-size 4KiB --policy lru --json
as_model "$same"
# With room for few requests it waits for eviction after each, and hits to the block what the model hits; so does another
# run, and an embedded node.
as_model "d['local_hits'] == m['hits'] and d['evictions'] > 100 and d['phase_ns']['settle'] > 0"
run 0 berth replay "$scratch/trace" --capacity-blocks 200 --block-size 4KiB --policy lru --json --embedded
as_model "d['local_hits'] == m['hits'] and d['evictions'] > 100"
# The policy that is used unless another is asked for, and what none can pass.
run 0 berth replay "$scratch/trace" --capacity-blocks 200 --block-size 4KiB --json --embedded --bound
as_model "$same"
json "d['policy'] == 'pwl' and d['evictions'] > 100 and d['local_hits'] < d['bound_hits'] < d['references']"
json "abs(d['bound_hit_ratio'] - d['bound_hits'] / d['references']) < 1e-9"
run 0 berth replay "$scratch/trace" --capacity-blocks 200 --block-size 4KiB --embedded --bound
out_has "offline bound"
run 2 berth replay "$scratch/trace" -n unix:/nowhere --bound
run 2 berth replay "$scratch/trace" --capacity-blocks 200 --policy fifo --embedded
run 2 berth replay "$scratch/trace" --capacity-blocks 200 --policy fifo
err_has "--policy 'fifo': there is no such policy: write pwl or lru"
# The smallest room that there can be.
for blocks in '[0, 1]' '[2, 3]' '[0, 1]'; do
    echo "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": $blocks}"
done >"$scratch/three"
for how in '' --embedded; do
    run 0 berth replay "$scratch/three" --capacity-blocks 2 --block-size 4KiB --json $how
    json "d['local_hits'] == 0 and d['evictions'] == 4"
    run 0 berth replay "$scratch/three" --capacity-blocks 4 --block-size 4KiB --json $how
    json "d['local_hits'] == 2 and d['evictions'] == 0"
done
run 2 berth replay "$scratch/three" --capacity-blocks 1
err_has "give 2 or more"
run 2 berth replay "$scratch/three" --capacity-blocks 5 --clients 3
err_has "give 6 or more"

run 0 berth replay "$scratch/trace" --capacity-blocks 1000 --block-size 4KiB --clients 4 --json
as_model "$same"
as_model "d['evictions'] == 0 and d['clients'] == 4"

cd "$bin" || exit 1
run 0 ./berth replay --embedded --generate chat --requests 200 --block-size 4KiB
out_has "hit ratio"
out_has "where the time went"
out_has "three things to try next"
check "the same load, twice" test "$(tr -d "\\\\\n" <"$scratch/out" | grep -o -- "--requests 200 *--block-size 4096" | wc -l)" -eq 2
check "80 columns" test "$(wc -L <"$scratch/out")" -le 80

# On a node that is named; the second time all is there.
start_berthd node --pool 64MiB
run 0 berth replay "$scratch/trace" -n "$BERTH_NODE" --block-size 4KiB --json
as_model "$same"
"$bin/berth" replay - -n "$BERTH_NODE" --block-size 4KiB --json <"$scratch/trace" >"$scratch/out" 2>"$scratch/err"
as_model "$same"
as_model "d['hit_ratio'] == 1"
# A block that holds other bytes than it must is found.
key=$("$bin/berth" ls --json --limit 1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["entries"][0]["key"])')
run 0 berth rm -- "$key"
head -c 4096 /dev/zero | "$bin/berth" put -- "$key" || check "put other bytes" false
run 1 berth replay "$scratch/trace" -n "$BERTH_NODE" --block-size 4KiB --json
json "d['bad_bytes'] > 4000 and d['hit_ratio'] == 1"
err_has "are not what was put"
stop_berthd
unset BERTH_NODE

# Bad traces and wrong options.
head -n 2 "$scratch/trace" >"$scratch/bad"
echo '{"timestamp": 1}' >>"$scratch/bad"
"$bin/berth" replay "$scratch/bad" >"$scratch/out" 2>"$scratch/err" && check "a bad trace fails" false
err_is_message
err_has "line 3"
run 1 berth replay "$scratch/none"
err_has "none': cannot open the file"
run 2 berth replay "$scratch/trace" --generate chat
run 2 berth replay --generate talk
run 2 berth replay "$scratch/trace" --block-size 1000
run 2 berth replay "$scratch/trace" --embedded --clients 2
run 2 berth replay "$scratch/trace" --speed nan
run 2 berth replay "$scratch/trace" -n unix:/nowhere --capacity-blocks 5

# Killed in the middle: berthd stops and its region goes.
tail -n 1 "$scratch/trace" | sed 's/"timestamp": [0-9]*/"timestamp": 1000000000/' >>"$scratch/trace"
"$bin/berth" replay "$scratch/trace" --speed 1 --json >"$scratch/out" 2>"$scratch/err" &
replay=$!
region=
while [[ -z $region ]] && kill -0 "$replay" 2>/dev/null; do
    for child in $(pgrep -P "$replay"); do
        for daemon in $(pgrep -P "$child" -x berthd); do
            region=$(tr '\0' '\n' <"/proc/$daemon/cmdline" | sed -n '/^--region$/{n;p}')
            keeper=$child
        done
    done
done
check "a region of its own" test -n "$region"
kill -KILL "$replay"
wait "$replay" 2>/dev/null
timeout 60 tail --pid="$keeper" -f /dev/null
check "the keeper has ended" test $? -eq 0
check "the region is gone" test ! -e "$(dirname "$region")"
# No room for the node: refused, whoever starts it.
for how in "" --embedded "--nodes 2"; do
    # shellcheck disable=SC2086
    run 5 berth replay --capacity-blocks 60000000 --block-size 64KiB --requests 10 $how --json
    failed_as 5 ENOSPC
done
finish
