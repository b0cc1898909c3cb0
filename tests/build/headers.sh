# Every public header compiles alone, in C and C++, under the strictest warnings.
set -euo pipefail
warnings="-Wall -Wextra -Werror -pedantic -fsyntax-only"
for header in store/berth.h; do
    for standard in c11 gnu17; do
        echo "$CC -std=$standard $header"
        printf '#include "%s"\n' "$header" | "$CC" -x c -std=$standard $warnings -I. -
    done
    for standard in c++11 c++17; do
        echo "c++ -std=$standard $header"
        printf '#include "%s"\n' "$header" | "${CXX:-c++}" -x c++ -std=$standard $warnings -I. -
    done
done
