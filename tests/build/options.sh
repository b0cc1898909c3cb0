# RDMA and CUDA take AUTO, ON and OFF: this version has neither and says so; other words are refused.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
refused() { # setting, sentence
    rm -rf "$directory/b"
    if "$CMAKE" -S . -B "$directory/b" -DCMAKE_C_COMPILER="$CC" "$1" >"$directory/log" 2>&1; then
        echo "$1 was accepted"
        exit 1
    fi
    tr -s '\n ' ' ' <"$directory/log" | grep -qF "$2" || { cat "$directory/log"; echo "$1: no '$2'"; exit 1; }
}
for option in RDMA CUDA; do
    refused "-D$option=ON" "has no $option code: use AUTO or OFF"
    refused "-D$option=MAYBE" "$option is 'MAYBE': it must be AUTO, ON or OFF"
done
"$CMAKE" -S . -B "$directory/c" -DCMAKE_C_COMPILER="$CC" -DRDMA=OFF -DCUDA=AUTO -DBUILD_TESTING=OFF >/dev/null
