#!/usr/bin/env bash
# berth get --peers: what another node has is pulled from it, and nothing without the option.
. "$(dirname "$0")/lib.sh"
read -r port_a port_b < <(two_ports)
list="a=tcp://127.0.0.1:$port_a,b=tcp://127.0.0.1:$port_b"
start_berthd b --lock off --name b --listen "tcp://127.0.0.1:$port_b" --peers "$list"
node_b=$BERTH_NODE
start_berthd a --lock off --name a --listen "tcp://127.0.0.1:$port_a" --peers "$list"
head -c 300000 /dev/urandom >"$scratch/in"
run 0 berth put big "$scratch/in" --segment 64KiB --published

node_a=$BERTH_NODE
export BERTH_NODE=$node_b
run 3 berth get big -o "$scratch/got"
err_has "--peers"
run 6 berth get big --wait 20ms -o "$scratch/got"
err_has "within 20.0 ms"
err_has "--peers"
run 3 berth stat big
err_has "--peers"
run 3 berth exists big
for command in "rm big" "hold big --label l" "pins big" "pins --revoke big"; do # peers are not asked
    # shellcheck disable=SC2086
    run 3 berth $command
    err_has "a node that has a copy (-n)"
done
run 3 berth drop big --label l
err_has "at the node that has it"
run 0 berth exists big --peers
out_has $'yes\tbig'
run 3 berth exists big nowhere -p --json
json "[r.get('present') for r in d['results']] == [True, None]"
run 0 berth stat big --peers
out_has "size        300000"
run 3 berth stat big nowhere --peers --json
json "d['results'][0]['size'] == 300000 and d['results'][0]['slot_bytes'] == 0 and d['results'][0]['segment'] == 65536"
check "no word of what was asked already" bash -c "! grep -q -- --peers '$scratch/err'"
run 3 berth get big -o "$scratch/got" # a stat brings nothing
run 0 berth get big --peers --wait 20s -o "$scratch/got"
check "the object is whole" cmp -s "$scratch/in" "$scratch/got"
run 0 berth get big -o "$scratch/got" # it stays
run 0 berth get big -p --range 1000:10 -o "$scratch/got"
check "a range of it" cmp -s <(tail -c +1001 "$scratch/in" | head -c 10) "$scratch/got"
run 3 berth get absent --peers --json -o "$scratch/none"
failed_as 3 ENOENT

# The status has a line for this node as a home, and one for leases.
run 0 berth status
check "homes" grep -qE '^home +[0-9]+ keys? known \([0-9]+ B of [0-9.]+ MiB\), 0 refused for room; [0-9]+ members? still to tell it$' "$scratch/out"
check "publications" grep -qE '^ +of this node.s changes [0-9]+ wait for a home; [0-9] of 2 members know all (of them|but these)$' "$scratch/out"
check "no time that was not measured" bash -c "! grep -q 'rtt 0 ns' '$scratch/out'"
out_has "puts      0 (0 B)" # what was pulled nobody put here
out_has "copies    1 (293 KiB) of objects of other nodes were kept here"
check "leases" grep -qE '^leases +0 given to peers keep 0 B' "$scratch/out"
run 0 berth status --json
json "d['counters']['puts'] == 0 and d['counters']['copies'] == 1 and d['counters']['copy_bytes'] == 300000"

# A namespace that this node has not met: its objects may be a peer's.
BERTH_NODE=$node_a run 0 berth put -N met here "$scratch/in" --published
run 3 berth get -N met here -o "$scratch/none"
err_has "no such namespace"
run 0 berth exists -N met here --peers
BERTH_NODE=$node_a run 0 berth put -N again here "$scratch/in" --published
run 0 berth get -N again here --peers -o "$scratch/got"
check "the namespace's object" cmp -s "$scratch/in" "$scratch/got"
BERTH_NODE=$node_a run 0 berth put -N third here "$scratch/in" --published
run 0 berth stat -N third here --peers

# All homes know of what was put so, from a file or a pipe, when the command returns.
for i in {1..10}; do
    BERTH_NODE=$node_a run 0 berth put "file$i" "$scratch/in" --published
    run 0 berth exists "file$i" --peers
    "$bin/berth" -n "$node_a" put "pipe$i" --published --json < <(head -c 1000 "$scratch/in") >"$scratch/out" 2>"$scratch/err" ||
        check "a pipe is put" false
    json "d['size'] == 1000 and not d['kept']"
    run 0 berth stat "pipe$i" --peers
done

# Whether it exists only the other one could say: it is named, to clients without a node too.
stop_berthd
run 4 berth get absent --peers --json -o "$scratch/none"
failed_as 4 BERTH_EUNSURE
err_has "member 'a'"
for command in "stat absent --peers" "exists absent --peers"; do
    # shellcheck disable=SC2086
    run 4 berth --json $command
    failed_as 4 BERTH_EUNSURE
    err_has "member 'a'"
done
run 6 berth get absent --peers --wait 300ms -o "$scratch/none"
err_has "it did not come in time: member 'a'"
run 6 berth -n "tcp://127.0.0.1:$port_b" get absent --wait 300ms -o "$scratch/none"
err_has "it did not come in time: member 'a'"
run 6 berth get absent --wait 50ms -o "$scratch/none" # only here: no member matters
err_has "within 50.0 ms"
# Of many keys each has its answer: what is here, and who may have the others. The worst decides.
run 0 berth put here "$scratch/in"
for command in exists stat; do
    run 4 berth $command here absent here --peers --json
    json "[('error' in r and r['error']['name']) for r in d['results']] == [False, 'BERTH_EUNSURE', False] and d['exit'] == 4"
    json "\"member 'a'\" in d['results'][1]['error']['sentence'] and d['error']['name'] == 'BERTH_EUNSURE'"
done
run 4 berth exists absent here --peers
check "each on its line" diff <(printf 'unsure\tabsent\nyes\there\n') "$scratch/out"
err_has "'absent': member 'a'"
run 4 berth -n "tcp://127.0.0.1:$port_b" exists here absent --json
json "[r.get('present') for r in d['results']] == [True, None] and d['results'][1]['error']['name'] == 'BERTH_EUNSURE'"
run 6 berth put alone "$scratch/in" --published -t 300ms --json
failed_as 6 BERTH_EUNPUBLISHED
err_has "is not up: it is told when it is back"
run 0 berth status
check "who waits is not said to know" grep -qE '^ +of this node.s changes [1-9][0-9]* wait for a home; [0-9] of 2 members know all but these$' "$scratch/out"
for command in "get absent -o $scratch/none" "get absent --range 0:1 -o $scratch/none" "stat absent" "exists absent"; do
    # shellcheck disable=SC2086
    run 4 berth -n "tcp://127.0.0.1:$port_b" --json $command
    failed_as 4 BERTH_EUNSURE
    err_has "member 'a'"
done

# Lists that differ: a client without a node is told so, and of no pool.
read -r port_a port_b < <(two_ports)
list="c=tcp://127.0.0.1:$port_a,d=tcp://127.0.0.1:$port_b"
start_berthd c --lock off --name c --listen "tcp://127.0.0.1:$port_a" --peers "$list" --homes 2
start_berthd d --lock off --name d --listen "tcp://127.0.0.1:$port_b" --peers "$list" --homes 1
for i in {1..16}; do
    "$bin/berth" -n "tcp://127.0.0.1:$port_b" get "key$i" -o "$scratch/none" 2>>"$scratch/differ"
done
cp "$scratch/differ" "$scratch/err"
err_has "the nodes' lists of members differ"
check "no word of a pool" bash -c "! grep -q pool '$scratch/err'"

# More than the reader's pool takes: what to do instead is said.
read -r port_e port_f < <(two_ports)
list="e=tcp://127.0.0.1:$port_e,f=tcp://127.0.0.1:$port_f"
start_berthd f --lock off --name f --listen "tcp://127.0.0.1:$port_f" --peers "$list" --pool 16MiB
node_f=$BERTH_NODE
start_berthd e --lock off --name e --listen "tcp://127.0.0.1:$port_e" --peers "$list" --pool 48MiB
head -c 24M /dev/zero >"$scratch/large"
run 0 berth put large "$scratch/large" --published
BERTH_NODE=$node_f run 5 berth get large --peers -o "$scratch/none"
err_has "larger than this node's pool takes"

unset BERTH_NODE
start_berthd alone --lock off
run 0 berth status
check "none without peers" test -z "$(grep -E '^(home|leases) ' "$scratch/out")"
finish
