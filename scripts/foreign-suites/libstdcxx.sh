# libstdc++'s tests of `new`, of memory resources and of its allocators. A test is a file that runs
# to its end; those that must only compile are left out.
build() {
  apt get -qq source --download-only gcc-12
  tar -xOf gcc-12_*.orig.tar.gz --wildcards '*/gcc-12*-dfsg.tar.xz' |
    tar -xJ --wildcards '*/libstdc++-v3/testsuite/*'
  rm -rf testsuite && mv gcc-12*/libstdc++-v3/testsuite .
  sed -n 's/^Version: //p' gcc-12*.dsc | head -1 >version
  mkdir -p bin util
  local file name standard
  for file in hooks allocator character; do
    g++ -c -O1 -DLOCALEDIR='"."' -Itestsuite/util testsuite/util/testsuite_$file.cc \
      -o util/$file.o
  done
  for file in $(find testsuite/18_support/new* testsuite/20_util/*allocator* \
    testsuite/20_util/*resource* testsuite/ext/*alloc* -name '*.cc' | sort); do
    if grep -qE 'dg-do (compile|link|preprocess)|dg-error|xfail' "$file"; then continue; fi
    name=$(echo "${file#testsuite/}" | tr / .)
    standard=$(grep -oE -- '-std=\S+[0-9]' "$file" | head -1 || true)
    g++ -O1 "${standard:--std=gnu++20}" -DLOCALEDIR='"."' -Itestsuite/util "$file" util/*.o \
      -o "bin/$name" -pthread || echo "not built: $file"
  done
}

run() {
  local test
  for test in bin/*; do
    on "$test" && echo "pass $(basename "$test")" || echo "fail $(basename "$test")"
  done
}

verdicts() {
  grep -E '^(pass|fail) '
}
