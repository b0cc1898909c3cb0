#!/usr/bin/env bash
# berth top: views of one of two nodes as lines, as JSON and on a terminal; arguments that are none; a node that goes.
. "$(dirname "$0")/lib.sh"
read -r port_a port_b < <(two_ports)
list="a=tcp://127.0.0.1:$port_a,b=tcp://127.0.0.1:$port_b"
start_berthd b --lock off --name b --listen "tcp://127.0.0.1:$port_b" --peers "$list"
pid_b=$pid
start_berthd a --lock off --name a --listen "tcp://127.0.0.1:$port_a" --peers "$list"
head -c 100000 /dev/urandom >"$scratch/in"

# Arguments.
for bad in '-i 0' '-i 9ms' '-i -1s' '-i 2h' '-i nan' '-i 1' '-i' '-c 0' '-c -1' '-c 1e3' '-c 4294967296' '-c' 'x' '--nonsense' \
    "-i 99999999999999999999s" "-c 99999999999999999999"; do
    # shellcheck disable=SC2086
    run 2 berth --json top $bad
    failed_as 2 EINVAL
done
run 0 berth top --help
out_has "--interval DURATION"
out_has "Each view is the difference"
run 0 berth help top --json
json "{o['name'] for o in d['commands'][0]['options']} == {'interval', 'count'}"

# Two views, a JSON document a line; the schema's parts, and sums that are consistent.
run 0 berth top --json --interval 20ms --count 2
check "two lines" test "$(wc -l <"$scratch/out")" -eq 2
check "documents" python3 - "$scratch/out" <<'PYTHON'
import json, sys
def amounts(d):
    for k, v in d.items():
        if isinstance(v, dict):
            yield from amounts(v)
        elif isinstance(v, (int, float)) and not isinstance(v, bool):
            yield k, v
for line in open(sys.argv[1]):
    d = json.loads(line)
    assert d["schema"] == 1 and d["command"] == "top" and not d["restarted"]
    assert 0 < d["seconds"] < 60
    assert set(d["phases"]) == {"request", "pull", "service"}
    assert {"home", "admit", "queue", "transfer", "complete", "verify", "publish"} < set(d["phases"]["pull"])
    assert set(d["bytes"]["by"]) == {"b", ""}
    assert all(v >= 0 for _, v in amounts(d)), list(amounts(d))
    for way in ("in", "out", "copied"):
        assert d["bytes"][way]["count"] == sum(p[way]["count"] for p in d["bytes"]["by"].values())
    shares = sum(p.get("share", 0) for p in d["phases"]["request"].values())
    assert abs(shares - 1) < 1e-6 or shares == 0
    assert all(p["p50_ns"] <= p["p99_ns"] for p in d["phases"]["request"].values())
PYTHON

# What happens between two reads is in some view, once: the first line says that the first read has been.
mkfifo "$scratch/views"
"$bin/berth" top --json --interval 50ms >"$scratch/views" 2>"$scratch/top.err" &
top=$!
daemons+=("$top")
exec 8<"$scratch/views"
read -r -t 20 first <&8
for i in 1 2 3; do
    run 0 berth put "k$i" "$scratch/in"
    run 0 berth get "k$i"
done
run 3 berth get none
run 0 berth rm k3
run 0 berth ls
check "each once" timeout 30 python3 - "$first" 3<&8 <<'PYTHON'
import collections, json, os, sys
total = collections.Counter()
want = {"hits": 3, "misses": 1, "puts": 3, "removed": 1}
for line in os.fdopen(3):
    d = json.loads(line)
    for name, rate in d["operations"].items():
        total[name] += rate["count"]
        assert abs(rate["per_second"] - rate["count"] / d["seconds"]) < 1e-6 * (1 + rate["per_second"])
    total["read"] += d["bytes"]["local_read"]["count"]
    if all(total[k] >= n for k, n in want.items()):
        break
assert all(total[k] == n for k, n in want.items()) and total["read"] == 300000, total
PYTHON
kill -INT "$top"
wait "$top"
check "ended by a signal" test $? -eq 0
exec 8<&-
check "without a word" test ! -s "$scratch/top.err"

# Lines, where nobody looks at a terminal: no byte that one would act on.
run 0 berth top -i 20ms -c 2
out_has "per second"
out_has "request phases"
out_has "  b (tcp)"
check "two blocks" test "$(grep -c '^node ' "$scratch/out")" -eq 2
check "plain text" test "$(LC_ALL=C tr -d '\n -~' <"$scratch/out" | wc -c)" -eq 0
check "narrow" test "$(wc -L <"$scratch/out")" -le 100
run 0 bash -c '"$0" top -i 20ms | head -n 1' "$bin/berth"
check "who reads may go" test "$(wc -l <"$scratch/out")" -eq 1

# A terminal: drawn in place, q ends it, and so does Ctrl-C; the terminal is as it was.
for key in q '\x03'; do
    check "on a terminal, $key" timeout 60 python3 - "$bin/berth" "$key" <<'PYTHON'
import os, pty, sys, termios
berth, key = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode()
master, slave = pty.openpty()
before = termios.tcgetattr(slave)
child = os.fork()
if child == 0:
    os.setsid()
    [os.dup2(slave, i) for i in range(3)]
    import fcntl
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execv(berth, [berth, "top", "-i", "50ms"])
out = b""
while out.count(b"\x1b[H") < 2:
    out += os.read(master, 65536)
assert b"per second" in out and b"\x1b[K\r\n" in out, out # from here on nobody reads: keys are seen all the same
now = termios.tcgetattr(slave)
assert not now[3] & termios.ICANON and not now[3] & termios.ECHO
os.write(master, b"x")
os.write(master, key)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert termios.tcgetattr(slave) == before
PYTHON
done

# The node goes in the middle of it: what was seen stands, then one error, and its exit code.
mkfifo "$scratch/going"
"$bin/berth" top --json -i 20ms -t 1s >"$scratch/going" 2>"$scratch/err" &
top=$!
daemons+=("$top")
exec 8<"$scratch/going"
read -r -t 20 first <&8
kill -KILL "$pid"
wait "$pid" 2>/dev/null
check "the last line is the error" timeout 30 python3 - "$first" 3<&8 <<'PYTHON'
import json, os, sys
lines = [json.loads(sys.argv[1])] + [json.loads(l) for l in os.fdopen(3)]
assert all("operations" in d for d in lines[:-1])
assert lines[-1]["exit"] == 4 and lines[-1]["error"]["name"] == "BERTH_ENODE", lines[-1]
PYTHON
wait "$top"
check "exit code of a node that is gone" test $? -eq 4
err_is_message
exec 8<&-

# A node that is started again in between: counted from 0, and said.
start_berthd a --lock off --name a --listen "tcp://127.0.0.1:$port_a" --peers "$list"
run 0 berth put before "$scratch/in"
mkfifo "$scratch/again"
"$bin/berth" top --json -i 20ms -t 30s >"$scratch/again" 2>"$scratch/err" &
top=$!
daemons+=("$top")
exec 8<"$scratch/again"
read -r -t 20 first <&8
kill -KILL "$pid"
wait "$pid" 2>/dev/null
start_berthd a --lock off --name a --listen "tcp://127.0.0.1:$port_a" --peers "$list"
check "started again" timeout 60 python3 - 3<&8 <<'PYTHON'
import json, os
for line in os.fdopen(3):
    d = json.loads(line)
    assert all(0 <= r["count"] < 1000 for r in d["operations"].values())
    if d["restarted"]:
        break
else:
    raise SystemExit("it was not said")
PYTHON
kill -INT "$top"
wait "$top"
check "ended" test $? -eq 0
exec 8<&-

# Ctrl-C while nobody takes what it writes.
check "ended in the middle of a line" timeout 60 python3 - "$bin/berth" <<'PYTHON'
import array, fcntl, os, signal, subprocess, sys, termios
ours, its = os.pipe()
fcntl.fcntl(its, fcntl.F_SETPIPE_SZ, 4096)
top = subprocess.Popen([sys.argv[1], "top", "--json", "-i", "10ms"], stdout=its, stderr=subprocess.PIPE)
os.close(its)
there = array.array("i", [0])
while there[0] == 0: # a view is larger than the pipe
    fcntl.ioctl(ours, termios.FIONREAD, there)
    assert top.poll() is None
top.send_signal(signal.SIGINT)
assert top.wait() == 0 and top.stderr.read() == b"", top.returncode
PYTHON
stop_berthd
pid=$pid_b
stop_berthd
finish
