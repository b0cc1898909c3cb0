#!/usr/bin/env bash
# Files, pipes, terminals, help, completion.
. "$(dirname "$0")/lib.sh"
pool=64MiB # nothing is evicted
start_berthd node --share kv=4MiB
head -c 3000000 /dev/urandom >"$scratch/in"

# A file, a redirected file, a pipe, an empty one, from the middle of a file.
run 0 berth put file "$scratch/in"
"$bin/berth" put redirected <"$scratch/in" || check "redirected" false
cat "$scratch/in" | "$bin/berth" put pipe - || check "pipe" false
head -c 1000 "$scratch/in" | "$bin/berth" put short || check "short pipe" false
{
    head -c 4096 >/dev/null
    "$bin/berth" put tail
} < <(cat "$scratch/in") || check "tail of a pipe" false
: >"$scratch/empty"
run 0 berth put empty "$scratch/empty"
"$bin/berth" put empty2 </dev/null || check "empty pipe" false
run 0 berth put proc /proc/version
for key in file redirected pipe; do
    run 0 berth get "$key" -o "$scratch/got"
    check "$key came back" cmp -s "$scratch/in" "$scratch/got"
    "$bin/berth" get "$key" --verify | cmp -s - "$scratch/in" || check "$key through a pipe" false
done
"$bin/berth" get short | cmp -s - <(head -c 1000 "$scratch/in") || check "short" false
"$bin/berth" get proc | cmp -s - /proc/version || check "proc" false
run 0 berth get empty2
check "empty" test ! -s "$scratch/out"
run 0 berth put file "$scratch/empty"
err_has kept
run 0 berth put file "$scratch/empty" --json
json "d['kept'] is True"
run 1 berth put none "$scratch/none"
err_has "cannot open the file"
check "no message in the pipe" test "$("$bin/berth" get file 2>&1 | wc -c)" -eq 3000000

# Namespaces do not share keys.
run 0 berth -N other put file "$scratch/empty"
run 0 berth ls -N other --json
json "[e['key'] for e in d['entries']] == ['file'] and d['entries'][0]['size'] == 0"
run 3 berth ls -N typo --json
failed_as 3 ENOENT
run 0 berth ls --limit 2
check "limit" test "$(wc -l <"$scratch/out")" -eq 2
run 0 berth ls -l file
check "long, with a zone and without a header in a pipe" grep -qE '^ *3000000 +0  [0-9-]{10} [0-9:]{8} UTC .* file$' "$scratch/out"
check "no header in a pipe" test "$(wc -l <"$scratch/out")" -eq 1
run 0 berth put tagged "$scratch/empty" --lineage 0x1f
run 0 berth stat tagged
out_has "lineage     0x000000000000001f"
check "created has a zone" grep -qE 'created .* UTC$' "$scratch/out"
run 0 berth stat tagged --json
json "d['results'][0]['lineage'] == '0x000000000000001f'"
run 0 berth rm tagged
for command in get stat rm pins 'hold --label a' 'drop --label a'; do
    run 3 berth ${command%% *} none ${command#"${command%% *}"}
    check "one wording" grep -qE "'none': no such key(, or no hold of that label)?\$" "$scratch/err"
done
run 3 berth exists none file # an answer, said once
check "nothing on stderr" test ! -s "$scratch/err"
check "two answers" test "$(cat "$scratch/out")" = "$(printf 'no\tnone\nyes\tfile')"
run 3 berth exists none --json
json "d['results'][0]['error']['name'] == 'ENOENT' and d['exit'] == 3"
run 0 berth ls nothing --json
json "d['entries'] == []"
run 0 berth hold file --label a --ttl 1h
run 0 berth stat file
out_has "hold        a, "
run 0 berth put lasting - --ttl 1h
run 0 berth stat lasting
check "what is left" grep -qE '  ttl         3600 s, (3600|35[0-9]{2}) s left; then it may be evicted before others' "$scratch/out"
run 0 berth stat lasting --json
json "d['results'][0]['ttl_s'] == 3600 and 3000 < d['results'][0]['ttl_left_s'] <= 3600"
run 0 berth put brief - --ttl 1s
until berth stat brief | grep -qF "1 s, passed: it may be evicted before others"; do
    [[ $SECONDS -lt 60 ]] || { check "a ttl of a second passes" false; break; }
done
run 0 berth stat brief --json
json "d['results'][0]['ttl_left_s'] == 0"
run 0 berth stat file --json
json "'ttl_left_s' not in d['results'][0]"
run 0 berth pins file
run 0 berth pins --json
json "True"
run 0 berth stat file --json
version=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["results"][0]["version"])' <"$scratch/out")
run 0 berth pins file --json
json "d['holds'][0]['version'] == '$version'"
run 0 berth status
out_has " sessions beside this one"
out_has "kv: 0 B used of 4.0 MiB"
check "no nanoseconds of phases" test "$(sed -n '/^phase/,$p' "$scratch/out" | grep -c ' ns')" -eq 0
check "a compact screen" test "$(wc -l <"$scratch/out")" -le 24 -a "$(wc -L <"$scratch/out")" -le 100
run 0 berth status --json
json "d['command'] == 'status' and d['pool']"
run 0 berth check
run 0 berth drop file --label a

# Binary never goes to a terminal unasked; text does; nor is a terminal read for an object.
tty() { script -qec "$(printf '%q ' "$@")" /dev/null </dev/null >"$scratch/out" 2>"$scratch/err"; }
run_tty() { local want=$1; shift; tty "$@"; local got=$?; check "exit code $got on a terminal of: $*" test "$got" -eq "$want"; }
run_tty 2 "$bin/berth" get short
out_has binary
run_tty 0 "$bin/berth" get short --force
check "forced" test "$(wc -c <"$scratch/out")" -ge 1000
run_tty 0 "$bin/berth" get proc
out_has Linux
run_tty 2 "$bin/berth" put terminal
run_tty 0 "$bin/berth" ls -l file
check "a header on a terminal" grep -qE '^ +size +holds +created +version +key' "$scratch/out"
# No progress where nobody looks.
"$bin/berth" get file 2>"$scratch/err" >/dev/null
check "a quiet pipe" test ! -s "$scratch/err"

# A reader that has gone: quiet, and the shell sees why.
"$bin/berth" get file 2>"$scratch/err" | head -c 10 >/dev/null
check "SIGPIPE" test "${PIPESTATUS[0]}" -eq 141
check "quietly" test ! -s "$scratch/err"
"$bin/berth" ls >/dev/full 2>"$scratch/err"
check "a full disk is an error" test $? -eq 1
err_has 'No space left'
"$bin/berth" replay --requests 20 --capacity-blocks 64 --block-size 4KiB --embedded >/dev/full 2>"$scratch/err"
check "also where a command shows what it has before its end" test $? -eq 1
err_has 'No space left'
"$bin/berth" replay --requests 20 --capacity-blocks 64 --block-size 4KiB --embedded 2>"$scratch/err" >&-
check "and so is a closed output" test $? -eq 1
err_has 'Bad file descriptor'

# Help, completion, JSON from one table.
run 0 berth --help
for command in put get exists ls stat rm hold drop pins status check bench replay; do
    out_has "  $command"
    run 0 berth "$command" --help
    out_has "berth $command"
    run 0 berth help "$command" --json
    json "d['commands'][0]['name'] == '$command' and isinstance(d['commands'][0]['options'], list)"
    run 0 berth --help
done
run 0 berth ls --help
out_has '\xNN'
run 0 berth bench --help
out_has '  put-group '
out_has '$BERTH_NODE'
run 0 berth replay --help
out_has 'berth replay [TRACE]'
out_has '$BERTH_NODE'
run 0 berth help --json
json "len(d['commands']) >= 13 and len(d['exit_codes']) == 7"
run 0 berth --version --json
json "d['version']"
complete() # WORDS...: what completion offers for the last
{
    bash -c 'eval "$("$0" completion)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _berth; printf "%s\n" "${COMPREPLY[@]}"' \
        "$bin/berth" "$@" >"$scratch/out"
}
complete berth st
check "commands complete" test "$(tr '\n' ' ' <"$scratch/out")" = 'stat status '
complete berth bench over
check "cases complete" test "$(cat "$scratch/out")" = overhead
complete berth -n unix:/x hold --la
check "options complete" test "$(cat "$scratch/out")" = --label

# Clean stop by either signal; a region in use is refused with the code for it.
run 5 "$bin/berthd" --config /dev/null --region "$node_dir/region" --socket "$scratch/second" --pool 16MiB
check "one that runs is named" grep -qE 'pid|use' "$scratch/err"
run 0 berth exists file
kill -INT "$pid"
kill -TERM "$pid" 2>/dev/null
kill -TERM "$pid" 2>/dev/null
wait "$pid"
check "clean stop" test $? -eq 0
start_berthd node
run 0 berth get file -o "$scratch/got"
check "nothing was lost" cmp -s "$scratch/in" "$scratch/got"
stop_berthd

# SIGTERM while berthd starts, here while it waits for an earlier holder that has not ended: a stop, and nothing half made.
mkdir -m 700 "$scratch/early"
sleep 60 &
holder=$!
printf 'berth-lock %d %s %s kept\n' "$holder" "$(awk '{ print $22 }' "/proc/$holder/stat")" "$(stat -Lc %i /proc/self/ns/pid)" \
    >"$scratch/early/lock"
"$bin/berthd" --config /dev/null --region "$scratch/early" --socket "$scratch/early.sock" --pool 2MiB 2>"$scratch/early.log" &
early=$!
daemons+=("$early")
caught() # PID: whether it is berthd, no shell that is about to become it, and has a handler for SIGTERM
{
    local set
    [ "$(readlink "/proc/$1/exe")" = "$(readlink -f "$bin/berthd")" ] || return
    set=$(awk '/^SigCgt:/ { print $2 }' "/proc/$1/status")
    (((0x${set:-0} >> 14) & 1))
}
for ((i = 0; i < 1000; i++)); do
    caught "$early" && break
    read -r -t 0.01 <> <(:)
done
kill -TERM "$early"
wait "$early"
check "a stop during a start" test $? -eq 0
check "is said" grep -q 'stopped before it was ready' "$scratch/early.log"
check "nothing is half made" test ! -e "$scratch/early/pool-0" -a ! -e "$scratch/early.sock"
kill "$holder"
# What a region that goes with the process keeps: nothing. The command says so.
run 0 berth -n 'embedded:?pool=8MiB&lock=off' put x "$scratch/empty"
check "one line" test "$(wc -l <"$scratch/err")" -eq 1
err_has "'x' ends with this command"
run 0 berth -n "embedded:?pool=8MiB&lock=off&region=$scratch/stays" put x "$scratch/empty"
check "nothing on stderr" test ! -s "$scratch/err"
run 0 berth -n "embedded:?pool=8MiB&lock=off&region=$scratch/stays" get x
# The soak has an end.
for wrong in '--minutes nan' '--minutes inf' '--minutes 0.4' '--minutes 1 --pause nan'; do
    # shellcheck disable=SC2086
    run 2 timeout 20 "$(dirname "$0")/../soak/run" $wrong
    err_has "at least half a minute"
done
finish
