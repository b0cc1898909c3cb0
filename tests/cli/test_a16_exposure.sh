#!/usr/bin/env bash
# A16: what a default start opens is one Unix socket, for its own user. Metrics go to loopback or a Unix socket only; refused
# calls change nothing and are logged.
. "$(dirname "$0")/lib.sh"
echo payload >"$scratch/in"

http() # METHOD PATH: status code and body, from $port or the Unix socket $http_socket
{
    python3 - "$1" "$2" "${port-}" "${http_socket-}" <<'PYTHON'
import http.client, socket, sys
method, path, port, unix = sys.argv[1:]
c = http.client.HTTPConnection("127.0.0.1", int(port or 1), timeout=20)
if unix:
    c.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    c.sock.settimeout(20)
    c.sock.connect(unix)
c.request(method, path, body=b"x" * 100 if method == "POST" else None)
r = c.getresponse()
print(r.status, r.getheader("Content-Type"))
print(r.read().decode())
PYTHON
}

start_berthd plain
check "one listening socket, the Unix one" test "$(sockets "$pid")" = "unix $node_dir/sock"
check "its mode" test "$(stat -c %a "$node_dir/sock")" = 600
check "modes in the region" test -z "$(find "$node_dir/region" -perm /077)"
run 0 berth put k "$scratch/in"
if [[ $(id -u) -eq 0 ]]; then
    chmod 711 "$scratch" "$node_dir"
    for command in 'ls' 'get k' 'rm k' 'hold k --label x' 'pins' 'pins --revoke k' 'status' 'check' "put other $scratch/in"; do
        # shellcheck disable=SC2086
        run 5 berth_as_nobody $command
        err_is_message
    done
    run 0 berth ls
    check "nothing has changed" test "$(cat "$scratch/out")" = k
    run 0 berth stat --json k
    json "d['results'][0]['n_holds'] == 0"
fi
stop_berthd

# Anything that other hosts could reach is refused at start, and what is no address.
for address in 0.0.0.0:0 '[::]:0' 10.0.0.1:9000 192.168.1.1:80 example.org:80 :9000 9000 '*:9000' '[::ffff:127.0.0.1]:0' \
    127.0.0.1 127.0.0.1:65536 127.0.0.1:x 127.0.0.1: unix: nonsense "unix:$scratch/$(printf '%0120d' 0)"; do
    run 2 "$bin/berthd" --config /dev/null --region "$scratch/refused" --socket "$scratch/refused.sock" --pool 4MiB \
        --metrics "$address"
    err_has metrics
    check "nothing is left of '$address'" test ! -e "$scratch/refused" -a ! -e "$scratch/refused.sock"
done

start_berthd tcp --metrics 127.0.0.1:0
port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\)/metrics.*|\1|p' "$node_dir/log")
check "a loopback port" grep -qiE "^tcp 0100007F:$(printf '%04X' "${port:-0}")\$" <(sockets "$pid")
check "and nothing else" test "$(sockets "$pid" | wc -l)" -eq 2

# From another network namespace, joined to this one by a pair of interfaces: neither its loopback nor our side answers.
namespace=berth-a16-$$
if [ "$(id -u)" = 0 ] && ip netns add "$namespace" 2>/dev/null; then
    ip link add "a16h$$" type veth peer name "a16n$$" && ip link set "a16n$$" netns "$namespace"
    ip addr add 198.18.16.1/30 dev "a16h$$" && ip link set "a16h$$" up
    ip -n "$namespace" addr add 198.18.16.2/30 dev "a16n$$" && ip -n "$namespace" link set "a16n$$" up
    ip -n "$namespace" link set lo up
    export -f reach
    export port
    check "reached from here" reach 127.0.0.1
    check "not from another namespace" ip netns exec "$namespace" bash -c '! reach 198.18.16.1 && ! reach 127.0.0.1'
    ip netns del "$namespace"
else
    echo "SKIP: needs root to make a network namespace"
fi
run 0 berth put k "$scratch/in"
run 0 http GET /healthz
check "healthy" grep -qx '200 .*' "$scratch/out"
out_has ok
run 0 http GET /metrics
check "Prometheus text" grep -qE '^200 text/plain; version=0.0.4' "$scratch/out"
check "a counter" grep -qE '^berth_[a-z_]+(\{.*\})? [0-9.e+]+$' "$scratch/out"
check "samples and comments only" test -z "$(sed '1d;/^$/d' "$scratch/out" | grep -vE '^(# (HELP|TYPE) |[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^}]*\})? [^ ]+$)')"
run 0 http HEAD /metrics
check "a probe" grep -qE '^200 text/plain; version=0.0.4' "$scratch/out"
check "without a body" test "$(sed '1d;/^$/d' "$scratch/out" | wc -l)" -eq 0
run 0 http HEAD /healthz
check "a probe" grep -qE '^200 ' "$scratch/out"
check "probes are no matter for the log" test "$(grep -c refused "$node_dir/log")" -eq 0
for call in 'GET /' 'GET /admin' 'GET /metrics/' 'GET /healthz/../metrics' 'DELETE /metrics' 'POST /metrics' 'PUT /k' \
    'GET /%1b%5b31m' 'OPTIONS /' 'HEAD /admin'; do
    # shellcheck disable=SC2086
    run 0 http $call
    check "$call is refused" grep -qE '^40[45] ' "$scratch/out"
    check "$call is logged" grep -q "refused ${call%% *} " "$node_dir/log"
done
check "the log is printable" test "$(LC_ALL=C tr -d '\n -~' <"$node_dir/log" | wc -c)" -eq 0
run 0 berth exists k
# Many clients that say nothing do not keep the others out for good, nor the node from its work.
exec {idle}<>"/dev/tcp/127.0.0.1/$port"
printf 'GARBAGE\r\n\r\n' >&"$idle"
run 0 berth get k
run 0 http GET /healthz
exec {idle}>&-
stop_berthd
unset port

http_socket=$scratch/unix/http
start_berthd unix --metrics "unix:$http_socket"
check "two Unix sockets" test "$(sockets "$pid" | sort)" = "$(printf 'unix %s\nunix %s' "$http_socket" "$node_dir/sock" | sort)"
check "its mode" test "$(stat -c %a "$http_socket")" = 600
run 0 http GET /metrics
check "served" grep -q '^200 ' "$scratch/out"
if [[ $(id -u) -eq 0 ]]; then
    chmod 711 "$node_dir"
    run 1 python3 -c '
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except PermissionError:
    sys.exit(1)' "$http_socket"
fi
stop_berthd
# A group that may read the node may read its metrics.
start_berthd unix --metrics "unix:$http_socket" --mode 0640
check "its mode" test "$(stat -c %a "$http_socket")" = 660
check "as the node's" test "$(stat -c %a "$node_dir/sock")" = 660
if [[ $(id -u) -eq 0 ]]; then
    run 0 python3 -c '
import os, socket, sys
os.setgroups([])
os.setuid(65534)
socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$http_socket"
fi
# A killed daemon's socket file is in nobody's way.
kill -KILL "$pid"
wait "$pid" 2>/dev/null
start_berthd unix --metrics "unix:$http_socket"
run 0 http GET /healthz
check "served again" grep -q '^200 ' "$scratch/out"
# A file that is no socket is left alone.
echo mine >"$scratch/file"
run 5 "$bin/berthd" --config /dev/null --region "$scratch/r2" --socket "$scratch/r2.sock" --pool 4MiB --metrics "unix:$scratch/file"
check "untouched" test "$(cat "$scratch/file")" = mine
stop_berthd
check "the socket is gone" test ! -e "$http_socket"
finish
