# No tabs, no blanks at the end of a line, a newline at the end of a file; C lines of 120 columns at most; no place to be
# filled in the docs.
set -euo pipefail
. tests/build/sources.sh
status=0
report() {
    echo "$1"
    status=1
}
mapfile -t texts < <(text_sources | xargs grep -Il .)
mapfile -t c < <(c_sources)
! grep -nH "$(printf '\t')" "${texts[@]}" || report "these lines have tabs"
! grep -nHE ' +$' "${texts[@]}" || report "these lines have blanks at their end"
for file in "${texts[@]}"; do
    [ -z "$(tail -c 1 "$file")" ] || report "$file: does not end with a newline"
done
! grep -nHE '.{121}' "${c[@]}" || report "these lines have more than 120 columns"
! grep -nH '^@' README.md docs/*.md || report "these lines wait to be filled"
! grep -nHEw 'TODO|FIXME|XXX' "${c[@]}" || report "unfinished work is marked in the code"
exit $status
