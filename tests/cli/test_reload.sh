#!/usr/bin/env bash
# What of the configuration changes while the node runs, by SIGHUP; what can't, and that nothing is half done. Logs as JSON.
. "$(dirname "$0")/lib.sh"

config=$scratch/berthd.ini
write_config() # LINES...
{
    {
        echo "[node]"
        printf '%s\n' "pool = 16MiB" "$@"
    } >"$config"
}

# A SIGHUP is answered by one line in the log, right or wrong: waits until there is one more than before.
hangup()
{
    local before lines deadline=$((SECONDS + 30))
    before=$(grep -c 'configuration ' "$node_dir/log")
    kill -HUP "$pid"
    while lines=$(grep -c 'configuration ' "$node_dir/log"); [[ $lines -eq $before && $SECONDS -lt $deadline ]]; do
        run 0 berth status
    done
    check "the signal was answered" test "$lines" -eq $((before + 1))
}

setting() # NAME EXPRESSION: of the status that the node gives now
{
    run 0 berth status --json
    json "d['settings']['$1']$2"
}

write_config "log-format = json"
start_berthd reload --config "$config" --name a
echo payload >"$scratch/in"
run 0 berth put k "$scratch/in"
check "every line is one JSON object" python3 - "$node_dir/log" <<'PYTHON'
import json, re, sys
for line in open(sys.argv[1]):
    d = json.loads(line)
    assert set(d) == {"time", "level", "message"} and d["level"] in ("error", "warning", "info", "debug"), d
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", d["time"]), d
PYTHON
write_config "log-format = json" "high = 8MiB" "low = 4MiB" "pin-quota = 1MiB" "draft-quota = 2MiB" "quarantine = 2s" "spin-us = 0" \
    "log-level = debug"
hangup
check "what changed is said" grep -q 'high is 8MiB from now on, it was 95%' "$node_dir/log"
setting high "['bytes'] == 8 << 20"
setting low "['bytes'] == 4 << 20"
setting draft-quota "['bytes'] == 2 << 20"
head -c 1048576 /dev/zero >"$scratch/one"
for i in $(seq 12); do
    run 0 berth put "m$i" "$scratch/one"
done
run 0 berth status --json
json "d['pool']['sealed_bytes'] <= 8 << 20 and d['counters']['evicted'] > 0"

# What can't change, what is wrong, and what is missing: logged, and all stays as it was.
for wrong in "mr-size = 64MiB" "max-objects = 17000" "high = 200%" "nonsense = 1" "low = 12MiB" "class = 12KiB"; do
    write_config "log-format = json" "high = 9MiB" "low = 4MiB" "$wrong"
    hangup
    check "$wrong: refused" grep -q 'not reloaded, nothing has changed: .' <(grep 'configuration ' "$node_dir/log" | tail -n 1)
    setting high "['bytes'] == 8 << 20"
done
check "what a region keeps" grep -q "max-objects can't change from .* to .* in a region that is there, not by a restart either" "$node_dir/log"

# What is said is what changed, and not what follows from it.
write_config "log-format = json" "high = 9MiB" "[peers]" "a = tcp://127.0.0.1:1"
hangup
check "the peers, not where it would listen" grep -q "peers can't change" <(grep 'configuration ' "$node_dir/log" | tail -n 1)
setting high "['bytes'] == 8 << 20"
rm "$config"
hangup
check "a file that is gone" grep -q 'not reloaded' <(grep 'configuration ' "$node_dir/log" | tail -n 1)
setting high "['bytes'] == 8 << 20"
write_config "log-format = text" "[namespace later]" "replaceable = yes"
hangup
check "a namespace" grep -q 'namespaces can.t change' "$node_dir/log"
write_config
hangup
setting high "['bytes'] == (16 << 20) * 95 // 100"
check "text again" grep -qE '^[0-9TZ:.-]+ info configuration reloaded' <(grep 'configuration ' "$node_dir/log" | tail -n 1)
run 0 berth get m12
check "the store goes on" cmp "$scratch/one" "$scratch/out"
stop_berthd
finish
