#!/usr/bin/env bash
# berth get --peers: what another node has is pulled from it, and nothing without the option.
. "$(dirname "$0")/lib.sh"
read -r port_a port_b < <(two_ports)
list="a=tcp://127.0.0.1:$port_a,b=tcp://127.0.0.1:$port_b"
start_berthd b --lock off --name b --listen "tcp://127.0.0.1:$port_b" --peers "$list"
node_b=$BERTH_NODE
start_berthd a --lock off --name a --listen "tcp://127.0.0.1:$port_a" --peers "$list"
head -c 300000 /dev/urandom >"$scratch/in"
run 0 berth put big "$scratch/in"

export BERTH_NODE=$node_b
run 3 berth get big -o "$scratch/got"
run 0 berth get big --peers --wait 20s -o "$scratch/got"
check "the object is whole" cmp -s "$scratch/in" "$scratch/got"
run 0 berth get big -o "$scratch/got" # it stays
run 0 berth get big -p --range 1000:10 -o "$scratch/got"
check "a range of it" cmp -s <(tail -c +1001 "$scratch/in" | head -c 10) "$scratch/got"
run 3 berth get absent --peers --json -o "$scratch/none"
failed_as 3 ENOENT

# The status has a line for this node as a home, and one for leases.
run 0 berth status
check "homes" grep -qE '^home +[0-9]+ keys known \([0-9]+ B of [0-9.]+ MiB\), 0 refused for room; [0-9]+ members still to tell it$' "$scratch/out"
check "publications" grep -qE '^ +of this node.s changes [0-9]+ wait for a home, [0-9] of 2 members know all$' "$scratch/out"
check "leases" grep -qE '^leases +0 given to peers keep 0 B' "$scratch/out"
unset BERTH_NODE
start_berthd alone --lock off
run 0 berth status
check "none without peers" test -z "$(grep -E '^(home|leases) ' "$scratch/out")"
finish
