#!/usr/bin/env bash
# berth bench scale: each row says what it must say, and nothing is left behind. Figures are not judged here.
. "$(dirname "$0")/lib.sh"

# scale NAME OPTIONS...: a document a row, in $scratch/NAME.ROW
scale()
{
    local name=$1
    shift
    run 0 berth bench scale "$@" --seconds 1 --json
    for row in metadata get put restart; do
        grep "\"row\": \"$row\"" "$scratch/out" >"$scratch/$name.$row"
        check "one row '$row'" test "$(wc -l <"$scratch/$name.$row")" -eq 1
    done
}
row() # NAME ROW EXPRESSION
{
    cp "$scratch/$1.$2" "$scratch/out"
    json "(d['bench'] == 'scale' and d['row'] == '$2' and d['ratio'] > 0 and d['baseline']['value'] > 0 and d['goal'] > 0
        and d[d['goal_of']] > 0
        and $divides and ($3))"
}

scale empty --objects 20000
row empty metadata "d['objects'] == 20000 and d['size'] == 0 and d['metadata_bytes_per_object'] >= 128
    and d['metadata_bytes_per_object'] == sum(d['counted'].values())
    and d['measured_bytes_per_object'] == sum(d['measured'].values()) and d['pool_allocated_bytes'] == 0"
row empty get "d['ops'] > 0 and d['baseline_objects'] == 2000 and d['latency_ns']['p50'] > 0"
row empty put "d['ops'] > 0 and d['ops_per_second'] > 0 and d['baseline_objects'] == 10000 and d['fill_per_second'] > 0"
row empty restart "d['restart_ns_per_object'] > 0 and d['restarts'] > 0"

# Payload that nobody writes: 8 GiB of it, of which no page is ever taken.
scale large --size 2MiB --pool 8GiB
row large metadata "d['objects'] > 2000 and d['objects'] * d['size'] > 4 << 30 and d['pool_allocated_bytes'] == 0"
row large restart "d['restart_ns_per_object'] > 0"

run 0 berth bench scale --objects 2000 --seconds 1 --key-size 70
out_has "bytes an object"
out_has " a second of the first 2000"
for row in metadata get put restart; do out_has "scale, row $row: "; done

# Beside many clients: a row a way, and one of those that come and go.
run 0 berth bench scale --clients 6 --pins 500 --objects 2000 --seconds 1 --json
cp "$scratch/out" "$scratch/clients"
check "a row a way" test "$(grep -c '"row": "retire"' "$scratch/clients")" -eq 4
grep '"way": "remove, one by one"' "$scratch/clients" >"$scratch/out"
json "($divides) and d['clients'] == 6 and d['pins_of_each'] == 500 and d['ratio'] > 0 and d['baseline']['value'] > 0"
json "d['retire_ns_per_object'] > 0 and d['node_cpu_ns_per_object'] > 0 and d['one_client_ns_per_object'] > 0"
grep '"row": "attach"' "$scratch/clients" >"$scratch/out"
json "($divides) and d['goal_of'] == 'attach_per_second' and d['attach_per_second'] > 0 and d['vanished'] == 200 and d['all_cleaned_up_after_ns'] > 0"
run 0 berth bench scale --clients 2 --pins 10 --objects 200 --seconds 1
out_has "scale, row retire (evict, by puts): "
out_has "scale, row attach: "
out_has "vanished   200 clients that were killed: all cleaned up "
run 2 berth bench put --clients 3
run 2 berth bench scale --pins 3

# A pool that is not populated is one that is not locked.
run 2 "$bin/berthd" --config /dev/null --region "$scratch/region" --socket "$scratch/socket" --populate off --lock required
err_has "'populate' is off and 'lock' required"
run 5 berth bench scale --objects 20000 --pool 8MiB --json
failed_as 5 ENOSPC
err_has "make --pool larger"
run 5 berth bench scale --pool 99999TiB
most=$(sed -n 's/.*give --pool \([0-9]*\)GiB or less.*/\1/p' "$scratch/err")
check "the largest pool is named" test "${most:-0}" -gt 1000
run 2 berth bench scale -n unix:/nowhere
run 2 berth bench put --pool 1GiB
finish
