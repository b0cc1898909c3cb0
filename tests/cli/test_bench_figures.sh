#!/usr/bin/env bash
# tests/bench/figures marks what misses its goal, and only that. A program that says given figures stands in for berth.
. "$(dirname "$0")/lib.sh"
figures=$(dirname "$0")/../bench/figures

mkdir "$scratch/fake"
cat >"$scratch/fake/berth" <<'FAKE'
#!/usr/bin/env python3
import json, os, sys
d = {"ratio": 1.4, "figure": 14.0, "baseline": {"name": "x_ns", "value": 10.0}, "latency_ns": {"p50": 51.0, "p99": 60.0},
     "ops_per_second": 200000.0, "bytes_per_second": 2e9, "depth": 256, "objects": 7000000, "requests": {"lease_requests": 3,
     "pulls": 512}}
if sys.argv[2] == "scale":
    for row, goal, more in (("get", 1.4, {"ratio": 1.4}), ("put", 1.5, {"ratio": 1.4}), ("restart", 1000.0, {"restart_ns_per_object": 1000.4}),
                            ("metadata", 360.0, {"metadata_bytes_per_object": 345.0}),
                            ("attach", 1000.0, {"attach_per_second": 999.0})):
        print(json.dumps({**d, "row": row, "goal": goal, "goal_of": next(iter(more)), **more}))
else:
    print(json.dumps({**d, "ratio": 1.4 if "--key-size" in sys.argv else 1.401}))
FAKE
chmod +x "$scratch/fake/berth"

run 0 "$figures" --bin "$scratch/fake" --runs 1 local-get local-get-batch put-batch put-group pull-batch scale
for line in '10 K objects | `local-get --objects 10000` | **1.4**, missed | <= 1.4 | 51 ns | 60 ns | 14 for x_ns 10 |' \
    '--key-size 70` | **1.4** | <= 1.4 |' '--threads 2` | **1.4**, missed | >= 1.9 |' \
    '--depth 32` | **51**, missed | <= 50 |' '`put-batch --size 4KiB` | **200,000** | >= 200000 |' \
    '`put-group --size 64KiB --depth 64` | **1.4** |  |' '`pull-batch --home reader` | **1.5**, missed | 1 |' \
    '| get | **1.40 (14)** | <= 1.4 |' '| put | **1.40 (14)**, missed | >= 1.5 |' \
    '| restart | **1,000 ns an object**, missed | <= 1,000 |' '| attach | **999 a second**, missed | >= 1,000 |' \
    '| metadata | **345.0 bytes of 7,000,000 objects** | <= 360 |'; do
    out_has "$line"
done
run 0 "$figures" --help
out_has "prints its table in Markdown"
out_has "pull-fair, scale"
finish
