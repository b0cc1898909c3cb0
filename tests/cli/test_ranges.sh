#!/usr/bin/env bash
# berth put --segment, berth get --range and --wait.
. "$(dirname "$0")/lib.sh"
start_berthd one
head -c 1000000 /dev/urandom >"$scratch/in"

run 0 berth put parts "$scratch/in" --segment 64KiB
run 0 berth stat parts
out_has 'segments    16 of 64.0 KiB'
run 0 berth stat parts --json
json "d['results'][0]['segment'] == 65536"
run 0 berth put pipe - --segment 64KiB <"$scratch/in" # stdin of run is empty: an object of no bytes
run 0 berth stat pipe --json
json "d['results'][0]['size'] == 0 and d['results'][0]['segment'] == 65536"
"$bin/berth" put piped --segment 4K < <(cat "$scratch/in")
run 0 berth get piped --verify -o "$scratch/got"
check "the object is whole" cmp -s "$scratch/in" "$scratch/got"
run 0 berth put plain "$scratch/in"
run 0 berth stat plain --json
json "d['results'][0]['segment'] == 0"

for key in parts plain; do
    run 0 berth get "$key" --verify --range 0:10 --range 64KiB:1KiB --range 999999:1 --range 1000000:0 -o "$scratch/got"
    { head -c 10 "$scratch/in"; tail -c +65537 "$scratch/in" | head -c 1024; tail -c 1 "$scratch/in"; } >"$scratch/want"
    check "ranges of $key" cmp -s "$scratch/want" "$scratch/got"
done
run 2 berth get parts --range 0:1000001 --json -o "$scratch/none"
failed_as 2 ERANGE
check "no file of a range that is none" test ! -e "$scratch/none"
run 0 berth get parts -r 0:1000000 --json -o "$scratch/got"
json "d['size'] == 1000000 and 'version' not in d"
check "all of it as a range" cmp -s "$scratch/in" "$scratch/got"
for bad in 5 :5 5: a:b 0:2GiB -1:1 1:2:3; do
    run 2 berth get parts --range "$bad"
    err_is_message 2>/dev/null
done
run 2 berth get parts --range 5:18446744073709551615
err_has "is longer than any object can be"
check "no other cause" bash -c "! grep -q 'too many' '$scratch/err'"
for bad in 5000 2KiB 2GiB x; do
    run 2 berth put none "$scratch/in" --segment "$bad"
done
run 2 berth put none --segment 4KiB <(head -c 5000000 /dev/zero)
run 6 berth get absent --wait 50ms --json -o "$scratch/none"
failed_as 6 ETIMEDOUT
"$bin/berth" get later --wait 60s -o "$scratch/late" &
late=$!
run 0 berth put later "$scratch/in"
wait "$late"
check "a key that came later" test $? -eq 0
check "and its bytes" cmp -s "$scratch/in" "$scratch/late"
run 0 berth check
finish
