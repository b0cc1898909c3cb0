#!/usr/bin/env bash
# berth -n tcp://HOST:PORT: get, exists and stat from a host without a node; everything else says what to do.
. "$(dirname "$0")/lib.sh"
start_berthd one --listen tcp://127.0.0.1:0
head -c 1000000 /dev/urandom >"$scratch/in"
local_node=$BERTH_NODE
run 0 berth status --json
json "d['peers'][0]['address'].startswith('tcp://127.0.0.1:')"
address=$(python3 -c 'import json,sys; print(json.load(sys.stdin)["peers"][0]["address"])' <"$scratch/out")
run 0 berth put big "$scratch/in"
echo world >"$scratch/small"
run 0 berth put hello "$scratch/small"
run 0 berth put empty /dev/null
run 0 berth put spaced -N other "$scratch/small"

export BERTH_NODE=$address
run 0 berth get hello
out_has world
run 0 berth get big -o "$scratch/got" --json
json "d['size'] == 1000000 and d['output']"
check "the object is whole" cmp -s "$scratch/in" "$scratch/got"
run 0 berth get big --verify -o "$scratch/got"
check "and verified" cmp -s "$scratch/in" "$scratch/got"
run 0 berth get empty -o "$scratch/got"
check "nothing of nothing" test ! -s "$scratch/got"
run 0 berth get spaced -N other
out_has world
run 3 berth get spaced
run 3 berth get absent --json -o "$scratch/none"
failed_as 3 ENOENT
for verify in "" --verify; do
    run 0 berth get big $verify --range 5:10 --range 999999:1 -o "$scratch/got"
    { tail -c +6 "$scratch/in" | head -c 10; tail -c 1 "$scratch/in"; } >"$scratch/want"
    check "ranges" cmp -s "$scratch/want" "$scratch/got"
done
run 2 berth get big --range 0:1000001 --json -o "$scratch/none"
failed_as 2 ERANGE
run 6 berth get absent --wait 50ms --json -o "$scratch/none"
failed_as 6 ETIMEDOUT
run 0 berth exists hello big empty
run 3 berth exists hello absent
out_has $'no\tabsent'
run 0 berth stat big --json
json "d['results'][0]['size'] == 1000000 and int(d['results'][0]['checksum'], 16) != 0"
run 0 berth stat hello
out_has 'size        6'
run 3 berth stat absent

# Who pins a removed object is found by its key, also while a lease keeps it: the get below waits for who reads its pipe.
mkfifo "$scratch/pipe"
run 0 berth -n "$local_node" put leased "$scratch/in"
run 0 berth get leased -o "$scratch/got"
"$bin/berth" -n "$local_node" get leased >"$scratch/pipe" &
reader=$!
exec 8<"$scratch/pipe"
pins_it() { berth -n "$local_node" pins leased | grep -q '^pin '; }
for _ in {1..2000}; do pins_it && break; done
run 0 berth -n "$local_node" rm leased
run 0 berth -n "$local_node" pins leased
check "removed and leased" grep -qE '^lease .*removed, waits for this lease' "$scratch/out"
check "removed and pinned" grep -qE '^pin .*removed, waits for this pin' "$scratch/out"
run 0 berth -n "$local_node" pins --revoke leased
out_has "1 process signalled"
wait "$reader" 2>/dev/null
check "it was killed" test $? -eq 137
exec 8<&-

# A name that is none: what was meant.
for pair in "${address#tcp://} tcp://${address#tcp://}" "tcp:${address#tcp://} tcp://${address#tcp://}" \
    "/tmp/a.sock unix:/tmp/a.sock" "node tcp://"; do
    run 2 berth -n "${pair% *}" get hello
    err_has "${pair#* }"
done
run 4 berth -n tcp://127.0.0.1:1 get hello
check "the address is said once" test "$(grep -o '127.0.0.1:1' "$scratch/err" | wc -l)" -eq 1

# What needs a node of this host.
for command in "ls" "status" "check" "pins" "rm hello" "hold hello -l x" "drop hello -l x" "put more $scratch/small"; do
    # shellcheck disable=SC2086
    run 2 berth $command --json
    failed_as 2 EOPNOTSUPP
    err_has "unix:"
done

run 5 berth -n "$address?cluster=another" get hello --json -o "$scratch/none"
failed_as 5 EACCES
err_has "of the cluster 'berth', client 'berth' was told 'another'"
# Clients that come and go have one line for many.
for i in {1..20}; do run 0 berth -n "$address" exists hello; done
check "the log has few lines about clients" test "$(grep -c 'client' "$node_dir/log")" -le 12
run 2 berth -n "$address?pool=1GiB" get hello
err_has "no setting"
for twice in cluster=berth verify=always peer-trust=host; do
    run 2 berth -n "$address?$twice&$twice" get hello --json -o "$scratch/none"
    failed_as 2 EINVAL
    err_has "twice"
done
run 2 berth -n "embedded:?pool=16MiB&lock=off&pool=16MiB" ls
err_has "'pool' stands twice"
run 4 berth -n tcp://127.0.0.1:1 get hello --json -o "$scratch/none"
failed_as 4 BERTH_ENODE
run 5 berth -n tcp://192.0.2.1:7400 get hello
err_has "peer-trust=network"
run 4 berth -n tcp://no.such.host.invalid:7400 get hello
err_has "no.such.host.invalid"

export BERTH_NODE=$local_node
run 0 berth check
stop_berthd
run 4 berth -n "$address" get hello --json -o "$scratch/none"
failed_as 4 BERTH_ENODE
run 4 berth -n tcp://nohost.invalid:7400 get k
check "the address is said once" test "$(grep -o "tcp://nohost.invalid" "$scratch/err" | wc -l)" -eq 1
read -r port _ < <(two_ports)
run 4 berth -n "tcp://127.0.0.1:$port" get k
err_has ": start a node there, or name another member's listen address"
finish
