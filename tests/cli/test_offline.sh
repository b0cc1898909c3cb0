#!/usr/bin/env bash
# berth check --region: a region without a node, as it is, with every difference named and none made.
. "$(dirname "$0")/lib.sh"

echo payload >"$scratch/in"
start_berthd offline
for i in $(seq 50); do
    run 0 berth put "key-$i" "$scratch/in"
done
region=$node_dir/region
run 5 berth check --region "$region"
err_has "held by pid"
run 5 berth check --region "$region" --json
failed_as 5 EBUSY
stop_berthd

sums()
{
    sha256sum "$region"/slots "$region"/lookup "$region"/tails "$region"/pool-0
}
sums >"$scratch/before"
run 0 berth check --region "$region"
out_has "50 records, 50 ready slots, 50 lookup entries (0 keys in the index only): 0 differences"
run 0 berth check --region "$region" --json
json "d['records'] == 50 and d['differences'] == 0 and 'error' not in d"
check "nothing was changed" cmp "$scratch/before" <(sums)

# Without its lookup's entries.
cp "$region/lookup" "$scratch/lookup"
python3 - "$region/lookup" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(4096)
    rest = len(f.read())
    f.seek(4096)
    f.write(bytes(rest))
PYTHON
run 1 berth check --region "$region"
out_has "50 differences"
err_has "differ"
run 1 berth check --region "$region" --json
json "d['differences'] == 50 and d['exit'] == 1 and d['error']['sentence']"
cp "$scratch/lookup" "$region/lookup"

# A damaged index, other files, no region, another user's.
cp "$region/index/data.mdb" "$scratch/data.mdb"
dd if=/dev/urandom of="$region/index/data.mdb" bs=4096 seek=2 count=3 conv=notrunc status=none
run 1 berth check --region "$region"
err_is_message
cp "$scratch/data.mdb" "$region/index/data.mdb"
mkdir "$scratch/empty"
run 1 berth check --region "$scratch/empty"
err_has "is no region"
check "nothing is made there" test -z "$(ls -A "$scratch/empty")"
run 1 berth check --region "$scratch/missing"
err_is_message
run 2 berth check --region
run 2 berth check --region "$region" operand
cp "$region/slots" "$scratch/slots"
printf 'nonsense' | dd of="$region/slots" conv=notrunc status=none
run 1 berth check --region "$region"
err_has "another format"
cp "$scratch/slots" "$region/slots"
run 0 berth check --region "$region"

# The region is as good as before.
start_berthd offline
run 0 berth exists key-1 key-50
stop_berthd
finish
