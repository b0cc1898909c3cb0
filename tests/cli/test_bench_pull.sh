#!/usr/bin/env bash
# berth bench pull: every way to pull says what it must say, and leaves nothing behind. Figures are not judged here.
. "$(dirname "$0")/lib.sh"

fields="{'schema', 'bench', 'size', 'depth', 'ops', 'bytes_per_second', 'latency_ns', 'baseline', 'ratio', 'transport',
    'lease', 'verify', 'home', 'into', 'rows'} <= set(d) and d['transport'] == 'tcp' and d['ratio'] > 0
    and d['baseline']['value'] > 0 and $divides"
rows="([r['name'] for r in d['rows']] == ['pull', 'send/recv', 'sendfile']
    and all(r['bytes_per_second'] > 0 and 0 < r['latency_ns']['p50'] <= r['latency_ns']['p99']
        and r['owner_cpu_s_per_gib'] > 0 and r['reader_cpu_s_per_gib'] > 0 for r in d['rows'])
    and abs(d['bytes_per_second'] / d['rows'][0]['bytes_per_second'] - 1) < 1e-6 and 'iperf3_bytes_per_second' in d)"
bench() # CASE OPTIONS...: and a document in which everything is there
{
    run 0 berth bench "$@" --seconds 1 --json
    json "(d['bench'] == '$1' and $fields)"
}

bench pull --size 64KiB --depth 8 --objects 64
json "$rows and d['baseline']['name'] in ('send_recv_bytes_per_second', 'sendfile_bytes_per_second')"
json "d['lease'] == 'warm' and d['into'] == 'buffer' and d['home'] == 'owner' and d['requests']['pulls'] > 100"
json "d['requests']['verified'] == d['requests']['pulls']"
json "d['requests']['lease_requests'] + d['requests']['asks'] < d['requests']['pulls'] / 2"

# Nobody would refuse the baselines their memory.
run 5 berth bench pull --size 1GiB --objects 100000 --seconds 1
check "needs .. are there" grep -qE 'needs 3[0-9]{5}\.[0-9]+ GiB of memory, .* are there' "$scratch/err"

# One request more where the lease has to be fetched; two where the home is neither of both.
bench pull --size 4KiB --objects 512 --lease cold --transport tcp
json "$rows and d['baseline']['name'] == 'send_recv_p50_ns' and d['p99_ratio'] > 0 and d['lease'] == 'cold'"
json "0.9 * d['requests']['pulls'] <= d['requests']['asks'] <= 1.1 * d['requests']['pulls']"
json "d['requests']['lease_requests'] <= 0.1 * d['requests']['pulls']"
bench pull --size 4KiB --objects 512 --lease cold --home reader --verify lease
json "d['home'] == 'reader' and d['requests']['verified'] == 0 and d['verify'] == 'lease'"
json "0.9 * d['requests']['pulls'] <= d['requests']['lease_requests'] <= 1.1 * d['requests']['pulls']"
bench pull --size 4KiB --objects 512 --lease cold --home other --verify 1/4
json "d['home'] == 'other' and d['requests']['asks'] >= 0.9 * d['requests']['pulls'] and d['verify'] == '1/4'"
json "0.9 * d['requests']['pulls'] <= d['requests']['lease_requests'] <= 1.1 * d['requests']['pulls']"
json "0.2 * d['requests']['pulls'] <= d['requests']['verified'] <= 0.3 * d['requests']['pulls']"
bench pull --size 64KiB --depth 4 --objects 128 --replica
json "$rows and d['into'] == 'pool'"

# A batch of one owner is one request.
bench pull-batch --size 4KiB --depth 64 --objects 256 --home reader
json "$rows and d['requests']['lease_requests'] == d['requests']['pulls'] / 64 and d['unit'] == 'batch'"

bench pull-fair --size 8MiB
json "[r['name'] for r in d['rows']] == ['alone', 'during'] and d['large_bytes_per_second'] > 0"
json "d['baseline']['name'] == 'alone_p99_ns' and all(r['pulls'] > 10 for r in d['rows'])"

# For people.
run 0 berth bench pull --size 64KiB --depth 2 --objects 32 --seconds 1
for word in send/recv sendfile iperf3 "CPU a GiB" "of leases" verified baseline "ratio      " "more is better"; do out_has "$word"; done
run 0 berth bench pull-fair --size 4MiB --seconds 1
out_has "alone"
out_has "large"
run 0 berth help bench
out_has "pull-fair"
out_has "--lease warm|cold"

# With an iperf3 its figure stands beside.
mkdir "$scratch/path"
cat >"$scratch/path/iperf3" <<'FAKE'
#!/bin/sh
[ "$1" = -s ] && exec sleep 5
echo '{"end": {"sum_received": {"bits_per_second": 8e9}}}'
FAKE
chmod +x "$scratch/path/iperf3"
PATH=$scratch/path:$PATH run 0 berth bench pull --size 64KiB --depth 2 --objects 32 --seconds 1 --json
json "d['iperf3_bytes_per_second'] == 1e9"

run 2 berth bench pull --transport verbs
run 2 berth bench pull --lease hot
for bad in x 0 4 1/0 1/x; do
    run 2 berth bench pull --verify "$bad"
    check "one refusal" test "$(grep -c '^berth: ' "$scratch/err")" -eq 1
    err_has "none of always, 1/N, lease"
done
run 2 berth bench pull --home nowhere
run 2 berth bench pull --size 0
run 2 berth bench pull -n unix:/nowhere
run 2 berth bench pull --threads 2
run 2 berth bench pull-batch --depth 257
run 2 berth bench pull-batch --lease cold
run 2 berth bench pull-fair --depth 2
run 2 berth bench put --lease cold
finish
