# Sourced: the files that people write, by kind.
c_sources() {
    find store index replication gpu tools tests -name '*.[ch]' | LC_ALL=C sort
}
text_sources() {
    find store index replication gpu tools tests docs CMakeLists.txt CMakePresets.json README.md .ci .clang-format \
        .clang-tidy .editorconfig -type f ! -path '*/__pycache__/*' 2>/dev/null | LC_ALL=C sort
}
