# lib.sh: what the tests of the command line share. Sourced: a scratch directory, a daemon of its own, checks.
# shellcheck shell=bash
set -u -o pipefail

: "${BERTH_BIN:?directory of berth and berthd}"
bin=$BERTH_BIN
[[ -x $bin/berth && -x $bin/berthd ]] || { echo "no berth and berthd in $bin"; exit 1; }
# The daemon refuses variables that it does not know, and a test sets its own.
for variable in $(compgen -e | grep '^BERTH_'); do unset "$variable"; done
unset XDG_RUNTIME_DIR NOTIFY_SOCKET

scratch=$(mktemp -d /dev/shm/berth-cli.XXXXXX)
daemons=()
starts=0
failures=0
checks=0
jsons=0
ran=
mkdir "$scratch/json"

cleanup()
{
    for pid in "${daemons[@]}"; do
        kill -CONT "$pid" 2>/dev/null
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    rm -rf "$scratch"
}
trap cleanup EXIT

# check NAME COMMAND...: counts a failure unless the command succeeds
check()
{
    local name=$1
    shift
    checks=$((checks + 1))
    if ! "$@"; then
        failures=$((failures + 1))
        [[ $failures -le 10 ]] || return 0
        echo "FAILED: $name: $*"
        [[ -s $scratch/out ]] && { echo "  stdout:"; head -c 600 "$scratch/out" | cat -v | sed 's/^/    /'; }
        [[ -s $scratch/err ]] && { echo "  stderr:"; head -c 600 "$scratch/err" | cat -v | sed 's/^/    /'; }
    fi
    return 0
}

# run WANTED_CODE COMMAND...: runs it with stdout and stderr in files; checks its exit code
run()
{
    local want=$1 got
    shift
    ran=$*
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    got=$?
    check "exit code $got, not $want, of: $*" test "$got" -eq "$want"
}

berth()
{
    "$bin/berth" "$@"
}

# The last run's stdout is one JSON document of this schema, d, for which a Python expression holds. All are evaluated by
# one interpreter, at the end.
json()
{
    checks=$((checks + 1))
    jsons=$((jsons + 1))
    cp "$scratch/out" "$scratch/json/$jsons.out"
    printf '%s' "$1" >"$scratch/json/$jsons.expression"
    printf 'line %s: %s' "${BASH_LINENO[*]}" "$ran" >"$scratch/json/$jsons.name"
}

# Of a document of berth bench: its figures divide to its ratio, and a rate is told once only.
# shellcheck disable=SC2034
divides="(lambda unit: abs(d['figure'] / d['baseline']['value'] / d['ratio'] - 1) < 1e-6
    and (unit is None or abs(d[unit] / d['figure'] - 1) < 1e-6))(next((field for end, field in (('_cpu_ns_per_second', None),
    ('_bytes_per_second', 'bytes_per_second'), ('_per_second', 'ops_per_second')) if d['baseline']['name'].endswith(end)), None))"

evaluate_json()
{
    python3 - "$scratch/json" "$jsons" <<'PYTHON'
import json, pathlib, sys

failed = 0
for i in range(1, int(sys.argv[2]) + 1):
    path = pathlib.Path(sys.argv[1]) / str(i)
    out, expression, name = (path.with_suffix(s).read_text() for s in (".out", ".expression", ".name"))
    try:
        d = json.loads(out)
        good = d["schema"] == 1 and eval(expression)
    except Exception as e:
        good, name = False, f"{name}: {e!r}"
    if not good:
        failed += 1
        print(f"FAILED: JSON: {name}: {expression}\n    {out[:600]}")
sys.exit(min(failed, 100))
PYTHON
    failures=$((failures + $?))
}

# The last run failed as code and name say, for people and for programs.
failed_as()
{
    json "d['exit'] == $1 and d['error']['name'] == '$2' and d['error']['code'] < 0 and d['error']['sentence']"
    err_is_message
    [[ $1 -eq 2 ]] || err_has "$2: " # of a wrong command line the sentence says all
}

err_has()
{
    check "stderr has '$1'" grep -qF -- "$1" "$scratch/err"
}

out_has()
{
    check "stdout has '$1'" grep -qF -- "$1" "$scratch/out"
}

# One line on stderr that begins with "berth: ", and nothing that a terminal would act on.
err_is_message()
{
    check "a message on stderr" grep -q '^berth: ' "$scratch/err"
    check "printable stderr" test "$(LC_ALL=C tr -d '\n -~' <"$scratch/err" | wc -c)" -eq 0
}

# start_berthd NAME [FLAGS...]: sets pid and BERTH_NODE; waits for the line that says ready. Pipe and log are new at each
# start: what reads the output of an earlier daemon of this name may still be at its end.
start_berthd()
{
    local name=$1
    shift
    node_dir=$scratch/$name
    starts=$((starts + 1))
    local ready=$node_dir/ready.$starts
    mkdir -p "$node_dir"
    rm -f "$node_dir/log"
    mkfifo "$ready"
    "$bin/berthd" --config /dev/null --region "$node_dir/region" --socket "$node_dir/sock" --pool "${pool:-16MiB}" "$@" \
        </dev/null >"$node_dir/stdout" 2> >(
            # tee writes the log before it passes a line on: who hears 'ready' finds all that was said until then.
            trap '' PIPE
            tee >({
                grep -m1 -E '[ "]ready: ' || echo gone
                cat >/dev/null
            } >"$ready") >"$node_dir/log"
        ) &
    pid=$!
    daemons+=("$pid")
    local line
    read -r -t 60 line <"$ready"
    case $line in
    *ready:*) ;;
    *)
        echo "FAILED: berthd did not start"
        cat "$node_dir/log"
        exit 1
        ;;
    esac
    export BERTH_NODE=unix:$node_dir/sock
}

# stop_berthd: clean stop of the last one
stop_berthd()
{
    kill -TERM "$pid"
    wait "$pid"
    check "clean stop" test $? -eq 0
}

# Another user can't reach a build below somebody's home directory: the program is started through a descriptor.
exec 9<"$bin/berth"
berth_as_nobody()
{
    setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 "$@"
}

# Listening sockets of a process, one "tcp ADDRESS" or "unix PATH" a line.
sockets()
{
    python3 - "$1" <<'PYTHON'
import os, sys
inodes = set()
for fd in os.listdir(f"/proc/{sys.argv[1]}/fd"):
    try:
        name = os.readlink(f"/proc/{sys.argv[1]}/fd/{fd}")
    except OSError:
        continue
    if name.startswith("socket:["):
        inodes.add(name[8:-1])
for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
    try:
        lines = open(f"/proc/{sys.argv[1]}/net/{kind}").read().splitlines()[1:]
    except OSError:
        continue
    for f in map(str.split, lines):
        if f[9] in inodes and (f[3] == "0A" or not kind.startswith("tcp")):
            print(kind, f[1])
for f in map(str.split, open(f"/proc/{sys.argv[1]}/net/unix").read().splitlines()[1:]):
    if f[6] in inodes and int(f[3], 16) & 0x10000:
        print("unix", f[7] if len(f) > 7 else "")
PYTHON
}

reach() # ADDRESS: 0 if a connection to $port there is made
{
    python3 -c 'import socket, sys
try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
except OSError: sys.exit(1)' "$1" "$port"
}
finish()
{
    evaluate_json
    echo "$checks checks, $failures failed"
    [[ $failures -eq 0 ]] || exit 1
    exit 0
}

# Two ports of 127.0.0.1 that are free and differ.
two_ports() {
    python3 -c '
import socket
both = [socket.socket() for _ in range(2)]
for s in both:
    s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in both])'
}
