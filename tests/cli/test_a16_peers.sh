#!/usr/bin/env bash
# A16, the peers' port: a node with peers listens on its Unix socket and on the one address that it was told, on nothing
# wide. Whatever an admin, a client or a scraper could ask is refused there, from another namespace nothing is reached at
# all; refused calls change nothing and are logged.
. "$(dirname "$0")/lib.sh"
echo payload >"$scratch/in"

# A peer by hand, for what no client of this tree would say. Prints a line for each call: its name, and "closed" or the
# status of the answer.
cat >"$scratch/peer.py" <<'PYTHON'
import os, socket, struct, sys

port = int(sys.argv[1])
if sys.argv[3] == "nobody":
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

def connect():
    s = socket.socket()  # not create_connection: it loads a module, that another user may not be able to read
    s.settimeout(20)
    s.connect(("127.0.0.1", port))
    return s

def hear(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise ConnectionResetError
        got += more
    return got

def greet():
    control = connect()
    control.sendall(b"BERTHtc1" + bytes(24))
    token = hear(control, 32)[16:]
    bulk = connect()
    bulk.sendall(b"BERTHtc1\1" + bytes(7) + token)
    hear(bulk, 32)
    return control, bulk

def frame(message):
    return struct.pack("<BBHI6Q", 1, 0, 0, len(message), 0, 0, 0, 0, 0, 0) + message

def message(op, flags=0, ident=0, body=b"", count=0):
    return struct.pack("<IHHIIQQQ", 40 + len(body), op, flags, count, 0, ident, 0, 0) + body

def hello(client):
    cluster, node = b"berth", b"stranger"
    body = b"BERTHW1\0" + struct.pack("<HHIQ", 4, 4, 0, 0) + os.urandom(16)
    body += struct.pack("<QQQQQQQ", 1, 1, 0, 0 if client else 7, 0, 0, 0)
    body += struct.pack("<IBBH", 262144, len(cluster), len(node), 0) + cluster + node
    return message(1, 1 if client else 0, body=body)

def answer(s):
    """The status of the next message that is no PING; "closed"."""
    try:
        while True:
            head = hear(s, 56)
            if head[0] != 1:
                continue
            m = hear(s, struct.unpack_from("<I", head, 4)[0])
            op = struct.unpack_from("<H", m, 4)[0]
            if op == 4:
                s.sendall(frame(message(5, body=m[40:48])))
            elif op == 3:
                return "refused"
            else:
                return f"op {op} status {struct.unpack_from('<i', m, 40)[0] if op not in (2,) else 0}"
    except (ConnectionResetError, BrokenPipeError):
        return "closed"

def raw(name, data):
    s = connect()
    try:
        s.sendall(data + bytes(4096))
        heard = b""
        while True:
            more = s.recv(4096)
            if not more:
                break
            heard += more
    except (ConnectionResetError, BrokenPipeError):
        pass
    print(name, "closed" if not heard else f"answered {heard[:40]!r}")

def first(name, data):
    control, bulk = greet()
    control.sendall(frame(data))
    print(name, answer(control))

def as_client(name, data):
    control, bulk = greet()
    control.sendall(frame(hello(True)))
    welcome = answer(control)
    # What is one way is answered by nothing: a question behind it shows that it was taken in silence.
    control.sendall(frame(data) + frame(message(22, ident=9, body=struct.pack("<IIQ", 0, 0, 1))))
    print(name, welcome, "then", answer(control))

if sys.argv[2] == "raw":
    for line in ("GET /metrics HTTP/1.1", "GET /status HTTP/1.1", "POST /stop HTTP/1.1", "stats", "flush_all", "status",
                 "*1\r\n$8\r\nSHUTDOWN"):
        raw(line.split("\r")[0].replace(" ", "_"), line.encode() + b"\r\n\r\n")
    for op in range(1, 48):  # a client's requests, as they stand in a ring
        raw(f"ring_{op}", struct.pack("<IHHQqQ", 64, op, 0, 1, 0, 0) + bytes(32))
elif sys.argv[2] == "first":
    for op in [*range(0, 64), 255, 65535]:
        if op != 1:
            first(f"op_{op}", message(op, ident=1 if op in (16, 18, 22, 32, 34) else 0, body=bytes(8)))
    first("member", hello(False))
    control, bulk = greet()  # a READ of whatever lies at the pool's beginning
    control.sendall(struct.pack("<BBHI6Q", 2, 1, 0, 0, 513, 1, 1, 0, 4096, 4096))
    data = hear(bulk, 56)
    print("read", "status", -struct.unpack_from("<I", data, 4)[0] if data[0] == 6 and data[1] == 3 else "taken")
else:
    for op in (0, 7, 15, 25, 31, 48, 51, 60, 99, 255):
        as_client(f"op_{op}", message(op, body=bytes(8)))
    key = struct.pack("<IHH", 0, 1, 0) + b"k"
    for kind, entry in (("gone", 2), ("buried", 3)):  # a client says that others have lost what they have
        body = struct.pack("<6QII", 1, 1, 1, 1, 0, 1, 0, 0) + struct.pack("<BB6xQQQQQ", entry, 0, 1 << 60, 1, 0, 0, 0) + key
        as_client(f"publish_{kind}", message(34, ident=1, body=body, count=1))
    as_client("recall", message(21, body=struct.pack("<Q", 1), count=1))
    as_client("release", message(20, body=struct.pack("<QII", 0x1000001, 7, 0), count=1))
    as_client("corrupt", message(24, body=struct.pack("<QQQ", 1, 1, 1) + key))
PYTHON

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port)
other=$(free_port)
list=a=tcp://127.0.0.1:$port,b=tcp://127.0.0.1:$other
start_berthd b --name b --peers "$list" --lock off
node_b=$BERTH_NODE
start_berthd a --name a --peers "$list" --lock off
check "its Unix socket and one loopback port, nothing else" test "$(sockets "$pid" | sort)" = \
    "$(printf 'tcp 0100007F:%04X\nunix %s' "$port" "$node_dir/sock")"
run 0 berth put k "$scratch/in"
run 0 berth hold k --label mine

# The state that refused calls must not change.
state()
{
    berth status --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
s = d["results"][0] if "results" in d else d
s = s.get("status", s)
c = s["counters"]
names = ("puts", "put_bytes", "creates", "removed", "holds", "drops", "evicted", "freed", "aborts", "revoked")
print([(k, c[k]) for k in names if k in c], s["remote"]["leases"], s["home"]["entries"])'
    berth ls
    berth --node "$node_b" ls
}
up()
{
    berth status --json | grep -q '"state": "up"'
}
for _ in $(seq 100); do up && break; sleep 0.1; done
check "the peers are connected" up
run 0 state
cp "$scratch/out" "$scratch/before"

for kind in raw first client; do
    for as in us nobody; do
        if [[ $as = nobody && $(id -u) -ne 0 ]]; then
            echo "SKIP: needs root to become another user"
            continue
        fi
        run 0 python3 "$scratch/peer.py" "$port" "$kind" "$as"
        cp "$scratch/out" "$scratch/said-$kind-$as"
    done
done
said() # FILE PATTERN: every line has it
{
    check "$1: all of it is '$2'" test -z "$(grep -vE "$2" "$scratch/$1")" -a -s "$scratch/$1"
}
for as in us nobody; do
    [[ -e $scratch/said-raw-$as ]] || continue
    said "said-raw-$as" ' closed$'
    said "said-first-$as" ' (closed|refused)$|^read status -[0-9]+$'
    said "said-client-$as" '^(op_[0-9]+ op 2 status 0 then closed|publish_[a-z]+ op 2 status 0 then (closed|op 35 status -[0-9]+)|(recall|release|corrupt) op 2 status 0 then (closed|op 23 status -[0-9]+))$'
done
run 0 state
check "nothing has changed" cmp "$scratch/before" "$scratch/out"
check "the peers are still connected" up
run 0 berth get k
check "strangers are logged" grep -q "connection(s) to the peers' port were closed" "$node_dir/log"
check "who was not let in is logged" grep -q "a connection to the peers' port was not let in" "$node_dir/log"
check "the log is printable" test "$(LC_ALL=C tr -d '\n -~' <"$node_dir/log" | wc -c)" -eq 0

# From another network namespace, joined to this one by a pair of interfaces.
namespace=berth-a16p-$$
if [ "$(id -u)" = 0 ] && ip netns add "$namespace" 2>/dev/null; then
    ip link add "p16h$$" type veth peer name "p16n$$" && ip link set "p16n$$" netns "$namespace"
    ip addr add 198.18.17.1/30 dev "p16h$$" && ip link set "p16h$$" up
    ip -n "$namespace" addr add 198.18.17.2/30 dev "p16n$$" && ip -n "$namespace" link set "p16n$$" up
    ip -n "$namespace" link set lo up
    export -f reach
    export port
    check "reached from here" reach 127.0.0.1
    check "not from another namespace" ip netns exec "$namespace" bash -c '! reach 198.18.17.1 && ! reach 127.0.0.1'
    ip netns del "$namespace"
else
    echo "SKIP: needs root to make a network namespace"
fi

# Wide, or what others reach without their being trusted: refused, and nothing is left.
for address in 0.0.0.0:7400 '[::]:7400' '*:7400' 10.1.2.3:7400 '[::ffff:0.0.0.0]:7400'; do
    run 2 "$bin/berthd" --config /dev/null --region "$scratch/refused" --socket "$scratch/refused.sock" --pool 4MiB \
        --listen "tcp://$address"
    err_has listen
    check "nothing is left of '$address'" test ! -e "$scratch/refused" -a ! -e "$scratch/refused.sock"
done
stop_berthd
finish
