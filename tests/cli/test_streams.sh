#!/usr/bin/env bash
# Standard streams that are closed: no file of the node or the library gets their numbers. Connections to the metrics
# that say half a request: the others are answered.
. "$(dirname "$0")/lib.sh"
region=$scratch/closed
mkdir "$region"
head -c 600000 /dev/urandom >"$scratch/in"

# A daemon whose stderr, then whose every stream is closed: it serves, stops cleanly, and its files hold no log line.
daemon_without()
{
    "$bin/berthd" --config /dev/null --region "$region/node" --socket "$region/sock" --pool 4MiB --lock off \
        --log-level debug "$@" &
    pid=$!
    daemons+=("$pid")
}

# Bounded by time: the socket is there when it serves.
await_socket()
{
    local i
    for ((i = 0; i < 100; i++)); do
        "$bin/berth" -n "unix:$region/sock" exists none >/dev/null 2>&1
        [[ $? -eq 3 ]] && return 0
        read -r -t 0.1 <> <(:)
    done
    return 1
}

for streams in 2 12 012; do
    case $streams in
    2) daemon_without 2>&- ;;
    12) daemon_without >&- 2>&- ;;
    012) daemon_without <&- >&- 2>&- ;;
    esac
    check "serves without $streams" await_socket
    run 0 berth -n "unix:$region/sock" put "k$streams" "$scratch/in"
    run 0 berth -n "unix:$region/sock" get "k$streams" -o "$scratch/got"
    check "the object without $streams" cmp -s "$scratch/in" "$scratch/got"
    kill -TERM "$pid"
    wait "$pid"
    check "clean stop without $streams" test $? -eq 0
    check "no log line in a file" test -z "$(grep -rlaE 'session [0-9]+ \(|ready: socket' "$region/node")"
done

# The tool, over a node of its own: what it would have written into or read from a file of the node is an error.
own="embedded:?pool=8MiB&lock=off&region=$region/own"
run 0 berth -n "$own" put k "$scratch/in"
"$bin/berth" -n "$own" get k >&- 2>"$scratch/err"
check "get without stdout fails" test $? -eq 1
err_is_message
"$bin/berth" -n "$own" put k2 - <&- >"$scratch/out" 2>"$scratch/err"
check "put without stdin fails" test $? -eq 1
err_is_message
"$bin/berth" -n "$own" get none 2>&-
check "an error without stderr" test $? -ne 0
run 0 berth -n "$own" get k -o "$scratch/got"
check "the object is whole" cmp -s "$scratch/in" "$scratch/got"
run 0 berth -n "$own" check
run 0 berth -n "$own" ls --json
json "[k['key'] for k in d['entries']] == ['k']"

# 60 halves of a request and a whole one.
start_berthd slow --metrics 127.0.0.1:0
port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\)/metrics.*|\1|p' "$node_dir/log")
python3 - "$port" >"$scratch/out" 2>"$scratch/err" <<'PYTHON'
import socket, sys, time

def connect():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 3)
    return s

slow = [connect() for _ in range(60)]
for s in slow:
    s.sendall(b"GET /met")
for path in (b"/healthz", b"/metrics"):
    start = time.monotonic()
    s = connect()
    s.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert s.recv(100).startswith(b"HTTP/1.1 200"), path
    assert time.monotonic() - start < 3, path
# Those that say nothing more are let go.
for s in slow:
    s.settimeout(10)
    while s.recv(1000):
        pass
PYTHON
check "answers beside slow connections" test $? -eq 0
stop_berthd
finish
