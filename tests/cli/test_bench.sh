#!/usr/bin/env bash
# berth bench: every case runs, says what it must say, and leaves nothing behind. Figures are not judged here.
. "$(dirname "$0")/lib.sh"

fields="{'schema', 'bench', 'size', 'depth', 'threads', 'objects', 'ops', 'seconds', 'bytes_per_second', 'latency_ns',
    'baseline', 'ratio'} <= set(d) and {'mean', 'p50', 'p99', 'p999'} <= set(d['latency_ns'])
    and {'name', 'value'} <= set(d['baseline']) and d['ratio'] > 0 and d['baseline']['value'] > 0
    and $divides"
bench() # CASE OPTIONS...: and a document in which everything is there
{
    run 0 berth bench "$@" --seconds 1 --json
    json "(d['bench'] == '$1' and $fields)"
}
timed="d['ops'] > 100 and 0 < d['latency_ns']['p50'] <= d['latency_ns']['p99'] <= d['latency_ns']['p999']"

bench local-get --objects 2000
json "$timed and d['baseline']['name'] == 'unpinned_read_ns' and d['threads'] == 1 and d['objects'] == 2000"
bench local-get --objects 2000 --threads 2 --key-size 70
json "$timed and d['threads'] == 2 and d['baseline']['name'] == 'one_thread_keys_per_second'"
bench local-get-batch --objects 2000 --depth 16
json "$timed and d['depth'] == 16"
bench exists --objects 2000
json "$timed and d['depth'] == 128"
bench prefix --objects 2000
json "$timed and d['depth'] == 256"
bench put --size 4KiB --objects 500
json "$timed and d['baseline']['name'] == 'socket_round_trip_p50_ns' and d['bytes_per_second'] > 0"
bench put --size 256KiB --objects 64 --depth 4
json "d['ops'] > 0 and d['baseline']['name'] == 'memcpy_bytes_per_second'"
bench put-batch --objects 1000
json "$timed and d['evict'] is False"
bench put-batch --objects 1000 --evict
json "$timed and d['evict'] is True"
bench put-group --size 4KiB --objects 256 --depth 16
json "d['ops'] > 0"
bench idle --objects 10
json "d['ratio'] < 1"
run 0 berth bench idle --objects 10 --seconds 1
out_has "ms a second"
out_has "% of a core"
bench prefault --size 8MiB --threads 2
json "(d['threads'] == 2 and d['baseline']['name'] == 'plain_bytes_per_second' and d['bytes_per_second'] > 0
    and set(d['prefault']) == {'node', 'plain', 'node_small_pages', 'plain_advised', 'plain_collapsed', 'rounds',
    'small_pages_ratio'}
    and d['prefault']['rounds'] >= 5 and d['prefault']['small_pages_ratio'] > 0
    and d['prefault']['node_small_pages']['huge_share'] == 0)"
run 2 berth bench prefault --size 4KiB
run 0 berth bench prefault --size 2MiB --seconds 1
out_has "on pages of 2 MiB"
bench overhead --objects 2000
json "$timed"

# A named node keeps nothing of it.
start_berthd node --pool 64MiB
run 0 berth bench local-get --objects 1000 --seconds 1 -n "$BERTH_NODE"
out_has "baseline"
out_has "unpinned read: "
run 0 berth bench put --size 4KiB --objects 300 --seconds 1 -n "$BERTH_NODE"
run 0 berth ls --json
json "d['entries'] == []"
# Each case fits, with its defaults, into a small node, and pushes nothing out of it.
head -c 1000000 /dev/urandom >"$scratch/megabyte"
for i in $(seq 20); do "$bin/berth" put "mine$i" "$scratch/megabyte" || check "put" false; done
for case in put put-batch put-group local-get local-get-batch exists prefix overhead; do
    run 0 berth bench "$case" --seconds 1 --json -n "$BERTH_NODE"
    json "d['bench'] == '$case' and d['objects'] > 0"
done
run 0 berth bench put --size 4KiB --seconds 1 -n "$BERTH_NODE"
run 5 berth bench local-get --objects 10000000 --seconds 1 --json -n "$BERTH_NODE"
json "d['error']['name'] == 'BERTH_EFULL' and '--may-evict' in d['error']['sentence']"
run 5 berth bench put --size 60MiB --seconds 1 -n "$BERTH_NODE"
err_has "before it evicts"
run 0 berth ls --json
json "len(d['entries']) == 20"
run 0 berth bench put --size 4KiB --objects 16000 --seconds 1 --may-evict -n "$BERTH_NODE"
run 2 berth bench local-get --may-evict
# A refusal has figures.
run 5 berth bench put --size 12MiB --objects 2 --seconds 1 --may-evict --json -n "$BERTH_NODE"
json "d['error']['name'] == 'BERTH_EQUOTA' and d['error']['figures'][0] == 12 << 20 and 'draft-quota' in d['error']['sentence']"
stop_berthd
unset BERTH_NODE

run 2 berth bench
run 2 berth bench nothing
run 2 berth bench put --threads 2
run 2 berth bench exists --evict
run 2 berth bench local-get --depth 4
finish
