#!/usr/bin/env bash
# A11: every subcommand with the daemon down, a wrong socket, no permission, a missing key, one held key among many, a bad
# argument: the documented exit code, a message on stderr, JSON with the error, each failed key.
. "$(dirname "$0")/lib.sh"
echo payload >"$scratch/in"

commands=('put k FILE' 'get k -o OUT' 'exists k' 'ls' 'stat k' 'rm k' 'hold k --label l' 'drop k --label l' 'pins' 'pins k'
    'pins --revoke k' 'status' 'check')

# each CODE NAME BERTH_OPTIONS...: every subcommand ends so
each()
{
    local code=$1 name=$2 command
    shift 2
    for command in "${commands[@]}"; do
        command=${command/FILE/$scratch/in}
        # shellcheck disable=SC2086
        run "$code" $program --json "$@" ${command/OUT/$scratch/got}
        failed_as "$code" "$name"
    done
}
program=berth

# Daemon down: no socket, and one that nobody listens on.
each 4 BERTH_ENODE -n "unix:$scratch/nobody" -t 2s
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])' "$scratch/dead"
each 4 BERTH_ENODE -n "unix:$scratch/dead" -t 2s
# A wrong socket: a file, and another service's.
each 4 BERTH_ENODE -n "unix:$scratch/in" -t 2s
mkfifo "$scratch/other.ready"
python3 -c '
import signal, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.bind(sys.argv[1])
s.listen(64)
with open(sys.argv[2], "w") as ready:
    ready.write("listening\n")
signal.pause()' "$scratch/other" "$scratch/other.ready" &
daemons+=($!)
read -r <"$scratch/other.ready"
each 4 BERTH_ENODE -n "unix:$scratch/other" -t 2s
each 2 EINVAL -n "nonsense:x"
each 2 EINVAL -n ""
BERTH_NODE='' each 2 EINVAL
err_has "\$BERTH_NODE is empty"

# A node that does not start ends both programs with the same code, whatever the cause.
both() # CODE SETTING=VALUE...
{
    local code=$1 flags=() url=pool=8MiB setting
    shift
    for setting in "$@"; do
        flags+=("--${setting%%=*}" "${setting#*=}")
        url+="&$setting"
    done
    run "$code" "$bin/berthd" --config /dev/null --socket "$scratch/both.sock" --pool 8MiB "${flags[@]}"
    err_is_line
    run "$code" berth --json -n "embedded:?$url" ls
    json "d['exit'] == $code and d['error']['sentence']"
}
err_is_line()
{
    check "a line that says why" test -s "$scratch/err"
}
mkdir "$scratch/files"
echo mine >"$scratch/files/notes"
read -r port _ < <(two_ports)
both 5 "region=$scratch/files"
both 2 "region=$scratch/none" "high=101%"
both 2 "region=$scratch/none" "listen=tcp://0.0.0.0:7400"
both 1 "region=/proc/none"
both 1 "region=$scratch/none/none"
both 5 "region=$scratch/none" "index-size=8TiB"
start_berthd taken --listen "tcp://127.0.0.1:$port"
both 5 "region=$node_dir/region"
both 5 "region=$scratch/none" "listen=tcp://127.0.0.1:$port"
stop_berthd
unset BERTH_NODE

start_berthd node --high 100% --low 99%
if [[ $(id -u) -eq 0 ]]; then
    chmod 711 "$scratch"
    chmod 711 "$node_dir"
    chmod 644 "$scratch/in"
    program=berth_as_nobody
    # The socket is there and says no: by its mode.
    each 5 EACCES
fi

# Commands and arguments that are none.
run 2 berth --json nonsense
failed_as 2 EINVAL
run 2 berth --json
failed_as 2 EINVAL
for bad in 'put' 'put a b c' 'get' 'get a b' 'get k' 'exists' 'ls a b' 'stat' 'rm' 'rm a b --version 1:2' 'rm a --version 1' \
    'rm a --version x:y' 'hold a' 'hold --label l' 'hold a --label l --ttl 5' 'hold a --label l --ttl 0s' 'drop a' \
    'pins a b' 'pins --revoke' 'status x' 'check x' 'put k --priority 256' 'put k --priority x' 'put k --ttl -1s' \
    'get --nonsense k' 'ls --limit 0' 'ls --limit' '-t 5 ls' '-t x ls' '-N bad/name ls' 'ls --long=1' 'help nonsense' 'ls --lim 5' 'ls --lim=5' '--jso ls' 'ls --name x'; do
    # shellcheck disable=SC2086
    run 2 berth --json $bad
    failed_as 2 EINVAL
done
run 2 berth hold a
err_has "--label"
run 0 berth hold --help
out_has "KEY.. --label LABEL"
run 2 berth --json hold a --label "$(printf '%064d' 0)"
failed_as 2 EINVAL

# A missing key, alone and among others.
for command in 'get nokey -o OUT' 'exists nokey' 'stat nokey' 'rm nokey' 'hold nokey --label l' 'drop nokey --label l' \
    'pins --revoke nokey'; do
    # shellcheck disable=SC2086
    run 3 berth --json ${command/OUT/$scratch/got}
    if [[ $command == exists* ]]; then # its answer stands on stdout alone
        json "d['exit'] == 3 and d['error']['name'] == 'ENOENT'"
        continue
    fi
    failed_as 3 ENOENT
    err_has nokey
done
check "get of a missing key makes no file" test ! -e "$scratch/got"
for key in a b c d; do run 0 berth put "$key" "$scratch/in"; done
run 3 berth --json stat a nokey b
json "[r['key'] for r in d['results'] if 'error' in r] == ['nokey'] and len(d['results']) == 3 and d['results'][0]['size'] == 8"
failed_as 3 ENOENT

# One of many is held: the others go, it stays, and it is named.
run 0 berth hold b --label keep
run 5 berth --json rm a b c nokey
json "[(r['key'], r['error']['name']) for r in d['results'] if 'error' in r] == [('b', 'BERTH_EHELD'), ('nokey', 'ENOENT')]"
failed_as 5 BERTH_EHELD
run 3 berth --json exists a b c d
json "[r['key'] for r in d['results'] if 'error' not in r] == ['b', 'd']"
run 5 berth rm b
err_has "berth: rm: BERTH_EHELD: 'b': "
check "text has no JSON" test ! -s "$scratch/out"
run 5 berth --json rm --version 1:1 d
failed_as 5 BERTH_EVERSION
version=$(berth stat --json d | python3 -c 'import json, sys; print(json.load(sys.stdin)["results"][0]["version"])')
run 0 berth --json rm --version "$version" d
run 3 berth --json drop b --label other
failed_as 3 ENOENT
run 0 berth drop b --label keep
run 0 berth rm b

# Full: everything is held, nothing may be evicted.
head -c 3M /dev/zero >"$scratch/big"
for i in 1 2 3 4 5 6; do
    berth put "big$i" "$scratch/big" >"$scratch/out" 2>"$scratch/err" || break
    berth hold "big$i" --label keep
done
run 5 berth --json put more "$scratch/big"
failed_as 5 BERTH_EFULL
run 6 berth --json put more "$scratch/big" --wait 50ms
failed_as 6 ETIMEDOUT
truncate -s 1025M "$scratch/huge"
run 5 berth --json put huge "$scratch/huge"
failed_as 5 E2BIG
truncate -s 1000M "$scratch/huge"
run 5 berth put huge "$scratch/huge"
err_has "an object of 1000 MiB: this node takes at most "
run 1 berth --json put k "$scratch/nofile"
json "d['exit'] == 1 and d['error']['name'] == 'ENOENT'"
run 1 berth --json put k "$scratch"
run 0 berth --json check
json "d['differences'] == 0"

# The daemon goes away and a stopped one does not answer: bounded, and told apart from a refusal.
kill -STOP "$pid"
run 4 berth --json -t 500ms put late "$scratch/in"
err_is_message
kill -CONT "$pid"
stop_berthd
run 4 berth --json -t 1s status
failed_as 4 BERTH_ENODE
finish
