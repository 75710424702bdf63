# jemalloc's integration tests, release 5.3.0 (Debian), linked with its own library: "glibc" is that
# library, "Mallard" the same programs preloaded. A test is a file.
peer=jemalloc

build() {
  debian_source jemalloc
  build_jemalloc
}

build_jemalloc() {
  cd source
  ./configure -q --enable-prof --enable-experimental-smallocx "$@"
  make -s -j2 tests_integration
}

run() {
  cd source
  local test conf
  for test in test/integration/*.c test/integration/cpp/*.cpp; do
    # A script beside a test sets its options.
    conf=$(MALLOC_CONF= enable_fill=1 enable_prof=1 enable_xmalloc=0
      [ ! -f "${test%.*}.sh" ] || . "./${test%.*}.sh"
      printf %s "$MALLOC_CONF")
    on env MALLOC_CONF="$conf" "./${test%.*}" && echo "verdict 0 $test" || echo "verdict $? $test"
  done
}

verdicts() {
  sed -nE 's/^verdict 0 /pass /p; s/^verdict 1 /skip /p; s/^verdict [0-9]+ /fail /p'
}
