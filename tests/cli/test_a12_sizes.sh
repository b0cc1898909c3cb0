#!/usr/bin/env bash
# A12: a size means the same as a flag, as a variable, in the file and as an argument of berth, and what is none is refused
# with the name of the option and the units.
. "$(dirname "$0")/lib.sh"

config() { "$bin/berthd" --config "${file:-/dev/null}" --print-config "$@"; }
value() { sed -n 's/^pool = \(.*[^ ]\) *; .*/\1/p' "$scratch/out"; }

# same SIZE BYTES: --pool, $BERTH_POOL and pool = come to the same, which is these bytes
same()
{
    local text=$1 bytes=$2 wanted
    run 0 config --pool "$bytes"
    wanted=$(value)
    check "a value" test -n "$wanted"
    run 0 config --pool "$text"
    check "flag '$text' is $bytes" test "$(value)" = "$wanted"
    check "origin of the flag" grep -q '^pool = .*; flag --pool' "$scratch/out"
    run 0 env "BERTH_POOL=$text" "$bin/berthd" --config /dev/null --print-config
    check "variable '$text' is $bytes" test "$(value)" = "$wanted"
    check "origin of the variable" grep -q '^pool = .*; environment \$BERTH_POOL' "$scratch/out"
    printf '[node]\npool = %s\n' "$text" >"$scratch/ini"
    file=$scratch/ini run 0 config
    check "file '$text' is $bytes" test "$(value)" = "$wanted"
    check "origin of the file" grep -qF "; file $scratch/ini:2" "$scratch/out"
}
same 64M 67108864
same 64MiB 67108864
same '64 MiB' 67108864
same 64MB 64000000
same 64mb 64000000
same 64mib 67108864
same 0.5G 536870912
same 1e9 1000000000
same 67108864 67108864
same 8388608B 8388608

# refused TEXT: by each of the three, with the option's name and the units
refused()
{
    local text=$1
    run 2 config --pool "$text"
    err_has pool
    err_has MiB
    run 2 env "BERTH_POOL=$text" "$bin/berthd" --config /dev/null --print-config
    err_has BERTH_POOL
    err_has MiB
    printf '[node]\npool = %s\n' "$text" >"$scratch/ini"
    file=$scratch/ini run 2 config
    err_has "$scratch/ini:2"
    err_has MiB
}
refused ''
refused MB
refused -1G
refused 10X
refused 1.5
refused 1e30
refused '64M iB'
refused 64MiBs
refused 64
err_has "without a unit it is bytes"
refused 65536

# A small number without a unit is no size of anything; the same number with one, or of bytes as such, is.
for setting in mr-size high low draft-quota lease-quota pin-quota index-size; do
    run 2 config --pool 16MiB "--$setting" 64
    err_has "'$setting' is '64': without a unit it is bytes"
done
run 0 config --pool 16MiB --pin-quota 64B
cp "$scratch/out" "$scratch/printed.ini"
file=$scratch/printed.ini run 0 config
check "bytes are printed with their unit" grep -q '^pin-quota = 64B ' "$scratch/out"
run 0 config --pool 16MiB --pin-quota 0

# Shares of namespaces: what is wrong with one is said.
run 2 config --share prod=120%
err_has "'share' is 'prod=120%': a share is above 0 and at most 100% of the pool"
run 2 config --share prod
err_has "NAME=PERCENT as chat=30%"
run 2 config --share prod=30
err_has "a percentage, as 30%"
run 2 config --share "$(seq -s, -f 'n%g=1%%' 64)"
err_has "63 namespaces can have a share"
printf '[node]\npool = 16MiB\n[namespace prod]\nshare = 120%%\n' >"$scratch/ini"
file=$scratch/ini run 2 config
err_has "'share' is '120%': write a size, or a percentage of the pool above 0 and at most 100%; all shares"
printf '[node]\npool = 16MiB\n[namespace prod]\nshare = 30\n' >"$scratch/ini"
file=$scratch/ini run 2 config
err_has "a percentage, as 30%"

# Later origins win, whatever the order in which they are read; earlier ones are still checked.
printf '[node]\npool = 16MiB\nhigh = 80%%\n' >"$scratch/ini"
run 0 env BERTH_POOL=32MiB "$bin/berthd" --print-config --pool 64MiB --config "$scratch/ini"
check "flag wins" grep -q '^pool = 64MiB .*; flag --pool' "$scratch/out"
check "file stands where nothing else is said" grep -q "^high = .*; file $scratch/ini:3" "$scratch/out"
check "default" grep -q '^policy = pwl .*; default$' "$scratch/out"
run 0 env BERTH_POOL=32MiB "$bin/berthd" --print-config --config "$scratch/ini"
check "variable wins over file" grep -q '^pool = 32MiB .*; environment' "$scratch/out"
run 2 env BERTH_POOL=nonsense "$bin/berthd" --print-config --pool 64MiB --config /dev/null

# What --print-config prints is a file that makes the same configuration.
printf '[node]\npool = 16MiB\nclass = 96KiB\n[namespace models]\nreplaceable = yes\nshare = 20%%\n' >"$scratch/ini"
file=$scratch/ini run 0 config --max-objects 1000
cp "$scratch/out" "$scratch/printed.ini"
file=$scratch/printed.ini run 0 config
check "the same again" diff <(sed 's/ *;.*//' "$scratch/printed.ini") <(sed 's/ *;.*//' "$scratch/out")

printf '[node]\npool = 100MiB\n[namespace a]\nshare = 60%%\n[namespace b]\nshare = 40MiB\n' >"$scratch/ini"
file=$scratch/ini run 2 config
err_has "the shares of namespaces are 100 MiB together"

# A setting that may stand twice says where, twice.
printf '[node]\npool = 16MiB\nclass = 96KiB\nclass = 68KiB\n' >"$scratch/ini"
file=$scratch/ini run 0 config
check "both lines" grep -qE "^class = .*; file $scratch/ini:3, $scratch/ini:4" "$scratch/out"

# An option is not known by its beginning.
run 2 config --pol 16MiB
err_has "unknown option '--pol'"
run 2 config --pol=16MiB
run 2 config --print
run 0 config --pool=16MiB
run 0 config --region --poo

# Unknown names, and lines that are none, are refused with their place.
bad_file()
{
    printf '%b' "$2" >"$scratch/ini"
    file=$scratch/ini run 2 config
    err_has "$scratch/ini:$1: "
}
bad_file 2 '[node]\nnonsense = 1\n'
bad_file 3 '[node]\n\n[nonsense]\npool = 1G\n'
bad_file 1 '[nonsense]\n'
bad_file 1 'pool = 1G\n'
bad_file 1 '[node\npool = 1G\n'
bad_file 3 '[node]\npool = 1G\nnonsense\n'
bad_file 3 '[node]\npool = 1G\n  high\n'
bad_file 2 '[namespace x]\nnonsense = 1\n'
bad_file 2 '[namespace x]\nreplaceable = perhaps\n'
bad_file 2 '[namespace x]\nshare = 101%%\n'
bad_file 2 '[namespace a/b]\nreplaceable = yes\n'
bad_file 2 "[node]\npool = $(printf '%02000d' 1)\n"
bad_file 2 '[node]\npool = \0331G\n'
check "no escape byte on stderr" test "$(LC_ALL=C tr -d '\n -~' <"$scratch/err" | wc -c)" -eq 0
run 2 "$bin/berthd" --config "$scratch/nofile" --print-config
err_has "$scratch/nofile"
run 2 env BERTH_NONSENSE=1 "$bin/berthd" --config /dev/null --print-config
err_has BERTH_NONSENSE
for foreign in NODE=unix:/x SEED=3 SERVICE_HOST=10.0.0.1 SERVICE_PORT=7400 SERVICE_PORT_READ=7400 PORT=tcp://10.0.0.1:7400 \
    PORT_7400_TCP=tcp://10.0.0.1:7400 PORT_7400_TCP_ADDR=10.0.0.1; do
    run 0 env "BERTH_$foreign" "$bin/berthd" --config /dev/null --print-config
done
for wrong in PORTS=1 SERVICE=1 SERVICE_HOSTS=1 SERVICE_POOL=1; do
    run 2 env "BERTH_$wrong" "$bin/berthd" --config /dev/null --print-config
done
run 2 "$bin/berthd" --nonsense
err_has --nonsense
run 2 "$bin/berthd" nonsense
run 2 "$bin/berthd" --pool
# Every setting has its line of help.
run 0 config
names=$(sed -n 's/^\([a-z-]*\) = .*/\1/p' "$scratch/out")
run 0 "$bin/berthd" --help
check "there are settings" test "$(wc -w <<<"$names")" -gt 10
for name in $names; do out_has "--$name "; done
run 0 "$bin/berthd" --version

# The same sizes as arguments of berth's own options; units of time.
run 2 berth --json put k --ttl 5
failed_as 2 EINVAL
err_has 500ms
for wrong in 0s 100ms 1500ms 1.5s 1us; do
    run 2 berth --json put k --ttl "$wrong"
    failed_as 2 EINVAL
done
err_has "is no whole number of seconds: use 1s or more, as 90s or 5m"
run 2 berth put k --ttl 0s
err_has "--ttl: '0s' is no time at all: leave it out for no end"
run 2 berth put k --ttl 4294967296s
err_has "is too long: use at most 4294967295s"
# Shares are shown as they were said, with their bytes behind.
run 0 "$bin/berthd" --config /dev/null --print-config --high 80%
out_has 'high = 80% '
out_has 'flag --high, 858993459 bytes'
run 2 "$bin/berthd" --config /dev/null --print-config --high 80% --low 85%
err_has "'low' is 85%, 'high' 80% of a pool of 1.00 GiB"

# What is not locked is said in units of its own size.
if [[ $(id -u) -eq 0 ]]; then
    exec 8<"$bin/berthd"
    chmod 711 "$scratch"
    mkdir "$scratch/unlocked"
    chown 65534 "$scratch/unlocked"
    run 1 bash -c 'ulimit -l 64
        exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/8 --config /dev/null --region "$1/region" \
            --socket "$1/sock" --pool 8MiB --metrics "unix:$1/none/metrics"' - "$scratch/unlocked"
    if ! grep -q -a -e __asan_init -e __tsan_init "$bin/berthd"; then # sanitizers make mlock do nothing and succeed
        err_has "warning the pool's 8.0 MiB are not locked, the memlock limit is 64 KiB"
    fi
    check "a start that failed left nothing" test -z "$(ls -A "$scratch/unlocked")"
fi

finish
