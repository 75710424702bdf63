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

verdicts() {
  sed -nE 's/.*\b(Test\w+#\S+).* = [0-9.]+ s = ([.FES]).*/\2 \1/p' |
    sed 's/^\./pass/; s/^[FE]/fail/; s/^S/skip/'
}
