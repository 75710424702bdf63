# ruby's test-all with the system's interpreter.
part="core classes, GC, threads, JSON, Marshal"
quick="test_array test_bignum test_enumerator test_exception test_fiber test_gc test_gc_compact
  test_hash test_io test_m17n test_marshal test_objectspace test_pack test_process test_proc
  test_regexp test_set test_string test_struct test_symbol test_thread test_thread_queue
  test_weakmap test_weakkeyhash test_ractor"

build() {
  debian_source ruby3.1
  ruby -e 'puts RUBY_VERSION' >version
}

run() {
  cd source
  local files=test/ruby name
  [ -n "$whole" ] || files=$(for name in $quick; do ls "test/ruby/$name.rb" || true; done 2>/dev/null)
  on ruby test/runner.rb --ruby=ruby -v --tty=no --timeout-scale=3 $files || true
}

# Every test has a line with its time; those that did not pass are named again at the end.
verdicts() {
  awk '/^\[ *[0-9]+\/[0-9]+\] .* = [0-9.]+ s/ { sub(/^\[[^]]*\] /, ""); verdict[$1] = "pass" }
    /^ +[0-9]+\) (Failure|Error|Skipped):/ { bad = $2 == "Skipped:" ? "skip" : "fail"; next }
    bad { sub(/:$/, "", $1); verdict[$1] = bad; bad = "" }
    END { for (test in verdict) print verdict[test], test }'
}
