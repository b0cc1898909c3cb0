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

# Whether it exists only the other one could say: it is named, to clients without a node too.
stop_berthd
run 4 berth get absent --peers --json -o "$scratch/none"
failed_as 4 BERTH_EUNSURE
err_has "member 'a'"
for command in "get absent -o $scratch/none" "get absent --range 0:1 -o $scratch/none" "stat absent" "exists absent"; do
    # shellcheck disable=SC2086
    run 4 berth -n "tcp://127.0.0.1:$port_b" --json $command
    failed_as 4 BERTH_EUNSURE
    err_has "member 'a'"
done
finish
