# No tabs, no blanks at the end of a line, a newline at the end of a file; C lines of 120 columns at most.
set -euo pipefail
. tests/build/sources.sh
status=0
report() {
    echo "$1"
    status=1
}
while read -r file; do
    grep -Iq . "$file" || continue
    ! grep -nH "$(printf '\t')" "$file" || report "$file: has tabs"
    ! grep -nHE ' +$' "$file" || report "$file: has blanks at the end of a line"
    [ -z "$(tail -c 1 "$file")" ] || report "$file: does not end with a newline"
done < <(text_sources)
while read -r file; do
    ! grep -nHE '.{121}' "$file" || report "$file: has lines of more than 120 columns"
done < <(c_sources)
! grep -nEw 'TODO|FIXME|XXX' $(c_sources) || report "unfinished work is marked in the code"
exit $status
