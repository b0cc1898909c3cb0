#!/usr/bin/env bash
# The work of tests/bench/peers: every case is there, and a get's bytes are compared. Figures are not judged here.
. "$(dirname "$0")/lib.sh"
programs=$bin/../tests/bench

cases() # WANTED..: the cases of the last run's lines, in order
{
    check "the cases of: $ran" test "$(grep -o '"case":"[^"]*","size":[0-9]*' "$scratch/out" | tr '\n' ' ' |
        sed 's/"case":"//g; s/","size":/ /g')" = "$* "
}

pool=64MiB start_berthd one
run 0 "$programs/same-berth" write "$BERTH_NODE" 0.01 4096:32 2097152:2
cases put 4096 put-batch 4096 put 2097152 put-batch 2097152
run 0 "$programs/same-berth" read "$BERTH_NODE" 0.01 4096:32 2097152:2
cases get 4096 get+read 4096 get-batch 4096 get 2097152 get+read 2097152 get-batch 2097152
run 1 "$programs/same-berth" read "$BERTH_NODE" 0.01 65536:32
err_has ENOENT
run 1 "$programs/same-berth" write "$BERTH_NODE" 0.01 4096:32
err_has 'the key is there'

run 0 "$programs/same-memcpy" write "$scratch/file" 0.01 65536:32
run 0 "$programs/same-memcpy" read "$scratch/file" 0.01 65536:32
printf '\x55\xaa' | dd of="$scratch/file" bs=1 seek=$((8388608 + 65536 * 3 + 65534)) conv=notrunc 2>/dev/null
run 1 "$programs/same-memcpy" read "$scratch/file" 0.01 65536:32
err_has 'the bytes of 0065536-000000000003 differ'

for bad in 4096 4096:0 4096:33 5000:1 4194304:1 x; do
    run 1 "$programs/same-memcpy" read "$scratch/file" 0.01 $bad
    err_has 'is no SIZE:BATCH'
done
finish
