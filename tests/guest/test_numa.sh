# A pool on two NUMA nodes, in a guest that has them: pages where asked, threads where pages are, slots near the client,
# spill counted, strict mode, a restart with other nodes. Where pages lie is asked by guest-pages, which is not Berth's.
# shellcheck shell=bash
set -u -o pipefail

here=$(dirname "$(readlink -f "$0")")
if [[ ${1-} != inside ]]; then
    why=$("$here/run" --missing)
    [[ $why != "no kernel for a guest" ]] || { "$here/run" --prepare 2>/dev/null && why=''; }
    [[ -z $why ]] || { echo "SKIP: $why"; exit 77; }
    exec "$here/run" --numa --no-rdma -m 448M -t 280 -- env BERTH_BIN="$BERTH_BIN" BERTH_TESTS="$BERTH_TESTS" \
        bash "$here/test_numa.sh" inside
fi

bin=$BERTH_BIN tests=$BERTH_TESTS
unset BERTH_BIN BERTH_TESTS
runner=() region=/dev/shm/region socket=/run/w/berth.sock log=/run/w/log
pid='' failures=0 checks=0

check() { # NAME COMMAND..
    checks=$((checks + 1))
    "${@:2}" && return
    failures=$((failures + 1))
    echo "FAILED: $1: ${*:2}"
    tail -n 5 "$log"
}

start() { # arguments of berthd; 0 when it is ready, else its exit code
    : >"$log"
    "${runner[@]}" "$bin/berthd" --region "$region" --socket "$socket" --lock off "$@" 2>"$log" &
    pid=$!
    while ! grep -q ' ready: ' "$log"; do
        kill -0 "$pid" 2>/dev/null || { wait "$pid"; return; }
        sleep 0.05
    done
}

stop() {
    kill "$pid"
    wait "$pid"
}

status() { # a filter of jq
    "$bin/berth" status -n "unix:$socket" --json | jq -r "$1"
}

pages() {
    "$tests/guest/guest-pages" "$region/pool-0" "$@" | sed 's/ *$//'
}

is() { # found, wanted
    [[ $1 == "$2" ]] || { echo "it is '$1', not '$2'"; false; }
}

payload() { # key, pages (a power of two): each page begins with the key and a dot
    local n text
    printf -v text '%-4096s' "$1."
    for ((n = 1; n < $2; n *= 2)); do text+=$text; done
    printf %s "$text" >/run/w/payload
}

put() { # CPU, key, pages
    payload "$2" "$3"
    taskset -c "$1" "$bin/berth" put -n "unix:$socket" "$2" /run/w/payload 2>/dev/null
}

same() { # key, pages: it has what was put
    payload "$1" "$2"
    "$bin/berth" get -n "unix:$socket" "$1" 2>/dev/null | cmp - /run/w/payload
}

warnings() {
    grep -c ' warning .*NUMA' "$log"
}

mib=1048576
mount -o remount,size=90% /dev/shm

echo "pages where asked, threads where pages are"
LD_PRELOAD=$tests/preload/where_populated.so TEST_WHERE_POPULATED=/run/w/populated start --pool 64MiB --threads 2
check "it starts" test -n "$pid"
check "the lower half is on node 0" is "$(pages --to $((32 * mib)))" 0:8192
check "the upper half is on node 1" is "$(pages --from $((32 * mib)))" 1:8192
check "the status has the same" is "$(status '.numa | "\(.found_bytes."0") \(.found_bytes."1") \(.as_asked) \(.verified)"')" \
    "$((32 * mib)) $((32 * mib)) true true"
check "no warning" is "$(warnings)" 0
# Two chunks of 32 MiB; the lower one by CPU 0, which is node 0's.
check "each chunk by a CPU of its node" is "$(sort -k 2 -n /run/w/populated | awk '$3 == 33554432 {print $1}' | tr '\n' ' ')" "0 1 "

echo "slots near the client, and spill"
put 1 near-one 256
put 0 near-zero 256
check "of a client on CPU 1: node 1" is "$(pages --find near-one.)" 1:256
check "of a client on CPU 0: node 0" is "$(pages --find near-zero.)" 0:256
check "nothing spilled" is "$(status .numa.spilled)" 0
for i in 0 1 2 3 4; do put 0 "spill-$i" 2048; done # 40 MiB into 32, of which 1 is in use
found=$(pages --find spill-)
read -r zero one < <(sed -E 's/^0:([0-9]+) 1:([0-9]+)$/\1 \2/' <<<"$found")
check "they are on both nodes: $found" test "$((zero + one))" = 10240
check "node 0 is as full as it gets: $found" test "$zero" = $((3 * 2048))
check "spill is counted" is "$(status .numa.spilled)" $((one / 2048))

echo "a restart with other nodes moves the pages"
stop
exec 3< <(exec "$tests/guest/guest-pages" "$region/pool-0" --hold yes)
holder=$!
read -r -u 3
start --pool 64MiB --numa 1 --numa-strict yes
check "strict: not with pages that another process maps" is "$? $(grep -c "numa-strict: .*can't be moved" "$log")" "5 1"
kill "$holder"
while kill -0 "$holder" 2>/dev/null; do sleep 0.05; done
start --pool 64MiB --numa 1 --numa-strict yes
check "all is on node 1" is "$(pages)" 1:16384
check "the status says that pages were moved" is "$(status '.numa | "\(.moved) \(.as_asked)"')" "true true"
check "an object that was moved" same spill-0 2048
check "an object that was there" same near-one 256
stop
check "the objects are still there" start --pool 64MiB
check "and again" is "$(pages)" "0:8192 1:8192"
check "an object" same spill-4 2048
stop
rm -rf "$region"

echo "a node that is too small"
free=$(($(awk '/MemFree/ {print $4}' /sys/devices/system/node/node1/meminfo) / 1024))
pool=$((free + 24))
start --pool ${pool}MiB --numa 1 --numa-strict yes
check "strict: it refuses" is "$? $(grep -c 'numa-strict: NUMA node 1: .* are elsewhere' "$log")" "5 1"
check "strict: nothing is left" test ! -e "$region"
start --pool ${pool}MiB --numa 1
check "one warning" is "$(warnings)" 1
check "the status has what guest-pages finds" is "$(status '.numa.found_bytes | "0:\(."0" / 4096) 1:\(."1" / 4096)"')" "$(pages)"
check "and that is not all as asked" is "$(status .numa.as_asked)" false
stop

rm -rf "$region"

echo "a daemon that may use CPU 0 only"
runner=(taskset -c 0)
start --pool 64MiB --numa-strict yes
check "pages are where they were asked" is "$(pages)" "0:8192 1:8192"
check "threads are where they may be" is "$(status '.numa.parts | map("\(.threads_there) \(.threads_elsewhere)") | join(" ")')" \
    "1 0 0 1"
put 0 resized 512
stop
runner=()

echo "a pool of another size is cut anew"
start --pool 96MiB --numa-strict yes
check "it has grown" is "$(pages)" "0:12288 1:12288"
check "the object" same resized 512
stop

echo "$checks checks, $failures failed"
[[ $failures == 0 ]]
