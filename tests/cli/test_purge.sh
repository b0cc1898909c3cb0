#!/usr/bin/env bash
# berth purge and berth why: what goes, what stays, what is said of it, and what a wrong command line does not do.
. "$(dirname "$0")/lib.sh"
echo payload >"$scratch/in"
start_berthd node

put_all()
{
    for key in a/1 a/2 b; do
        run 0 berth put --lineage 0x77 "$key" "$scratch/in"
        run 0 berth put -N other "$key" "$scratch/in"
    done
    run 0 berth put --lineage 0x78 a/3 "$scratch/in"
}
keys() { berth ls "$@" | tr '\n' ' '; }

# One of a kind is said as one.
run 0 berth put one "$scratch/in"
run 0 berth check
out_has "1 record, 1 ready slot, 1 lookup entry (0 keys in the index only): 0 differences"
run 0 berth status
out_has "index     1 record, "
out_has "% waste; 0 learned"
check "nothing was purged, no line" test "$(grep -c '^purged' "$scratch/out")" -eq 0
cp "$scratch/out" "$scratch/screen"
run 0 berth status --json
known=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["region"]["pages"]["pool"]["known"])' <"$scratch/out")
check "pages: $known" test "$(grep -c '^pages     on 2 MiB: pool .* of 16.0 MiB' "$scratch/screen")" -eq "$([[ $known == True ]]; echo $((! $?)))"
run 0 berth rm one

put_all
run 0 berth purge --lineage 0x77 --json
json "d['removed'] == 3 and d['bytes'] == 24 and d['held'] == 0 and d['drafts'] == 0 and d['untold'] == 0"
check "others stay" test "$(keys) $(keys -N other)" = "a/3  a/1 a/2 b "
run 0 berth purge -N other --prefix a/
out_has "2 removed (16 B)"
check "others stay" test "$(keys) $(keys -N other)" = "a/3  b "
run 0 berth hold --label keep -N other b
run 0 berth purge -N other --all
out_has "1 held, and passed over"
run 0 berth drop --label keep -N other b
run 0 berth purge -N other --all --json
json "d['removed'] == 1 and d['held'] == 0"
run 0 berth purge -N '' --all
out_has "1 removed"
check "nothing is left" test -z "$(keys)$(keys -N other)"
run 0 berth purge --prefix 'never\x00'
out_has "0 removed (0 B)"

# Nothing that is left out makes it more.
put_all
before="$(keys)$(keys -N other)"
run 2 berth purge
err_has "say what goes: --lineage TAG, --prefix PREFIX"
run 2 berth purge -N other
err_has "say what goes"
run 2 berth purge --all
err_has "name it with -N NAME"
run 2 berth purge --lineage 0
run 2 berth purge --lineage x
run 2 berth purge --prefix ''
run 2 berth purge -N other --all --prefix a
err_has "--lineage, --prefix and --all can't be combined"
run 2 berth purge -N other --lineage 0x77 --all
run 2 berth purge --lineage 0x77 -N other
err_has "leave -N out"
run 2 berth purge --lineage 0x77 -N ''
run 2 berth purge -N other --all a/1
run 2 berth purge --ns other
err_has "unknown option '--ns'"
run 2 berth purge --lineage
run 2 berth purge --lineage 0x77 --lineage 0x78
run 3 berth purge -N missing --all
err_has "no such namespace"
run 3 berth purge -N missing --all --json
failed_as 3 ENOENT
run 3 berth purge -N missing --prefix a
check "nothing went" test "$(keys)$(keys -N other)" = "$before"
run 3 berth ls -N missing # it was not made

# Why.
run 0 berth why a/1
out_has "it is here: 8 B"
run 0 berth why a/1 --json
json "d['results'][0]['state'] == 'here' and d['results'][0]['here']['bytes'] == 8"
json "d['results'][0]['last']['what'] == 'purged' and d['results'][0]['last']['when_us'] > 1"
run 0 berth rm a/1
run 0 berth why a/1 a/2
out_has "it was removed, 20"
out_has "before: a purge removed it"
run 3 berth why never
out_has "nothing is remembered of it since the node's start"
run 3 berth why never a/1 --json
json "d['results'][0]['error']['name'] == 'ENOENT' and d['results'][1]['last']['what'] == 'removed'"
run 3 berth why a/1 -N other2
run 2 berth why
run 2 berth why --odd k
head -c 4M /dev/zero >"$scratch/large"
for i in $(seq 8); do
    run 0 berth put "large$i" "$scratch/large"
done
run 0 berth why large1 --json
json "d['results'][0]['state'] == 'gone' and d['results'][0]['last']['what'] == 'evicted'"
json "d['results'][0]['last']['need'] in ('high_watermark', 'same_size', 'other_size')"
run 0 berth why large1
out_has "it was evicted: "
head -c 17M /dev/zero >"$scratch/huge"
for i in $(seq 5 8); do berth hold --label x "large$i" 2>/dev/null; done
for i in $(seq 9 12); do berth put "large$i" "$scratch/large" 2>/dev/null && berth hold --label x "large$i"; done
run 5 berth put full "$scratch/large"
run 0 berth why full
out_has "a put of it failed, 20"
out_has "the pool has no room"
run 0 berth why full --json
json "d['results'][0]['last']['error']['name'] == 'BERTH_EFULL' and d['results'][0]['last']['error']['code'] == -4097"

# Status, and a restart, after which nothing is remembered.
run 0 berth status --json
json "d['counters']['purges'] == 6 and d['counters']['purged'] == 7 and d['purges'] == 0"
json "d['remembered']['keys'] >= 5 and d['remembered']['max_keys'] == 65536 and d['remembered']['bytes'] == 2 << 20"
run 0 berth status
out_has "purged    7 objects; 6 purges begun, 0 under way"
run 0 berth check
stop_berthd
start_berthd node
run 3 berth why full
run 0 berth status
check "nothing purged, no line" test "$(grep -c '^purged' "$scratch/out")" -eq 0
run 0 berth purge --prefix large --json
json "d['held'] >= 3 and d['removed'] == 0"
stop_berthd

# What a start with a smaller pool drops is remembered as that.
pool=32MiB start_berthd small
for i in $(seq 6); do
    run 0 berth put "large$i" "$scratch/large"
done
stop_berthd
pool=10MiB start_berthd small --shrink drop
kept=$(berth ls | grep -c large)
gone=0
for i in $(seq 6); do
    if ! berth exists "large$i" >"$scratch/out" 2>&1; then
        gone=$((gone + 1))
        run 0 berth why "large$i"
        out_has "the start with a smaller pool dropped it"
        run 0 berth why "large$i" --json
        json "d['results'][0]['state'] == 'gone' and d['results'][0]['last']['what'] == 'shrunk'"
    fi
done
check "$kept of six were kept, $gone dropped" test "$((kept + gone))" -eq 6 -a "$gone" -gt 2 -a "$kept" -gt 0
check "the log says so" grep -qE "warm restart with $kept objects?: .* $gone objects with .* that lay beyond its end are" \
    "$node_dir/log"
finish
