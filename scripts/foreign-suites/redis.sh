# redis' runtest with a server that is built for the C library's allocator.
part="types, memory, persistence, replication"
quick="unit/type/string unit/type/list unit/type/hash unit/type/set unit/type/zset unit/type/stream
  unit/dump unit/expire unit/lazyfree unit/memefficiency unit/maxmemory unit/other unit/scripting
  unit/sort integration/aof integration/rdb integration/replication-psync"
[ -z "$whole" ] || part= quick=

build() {
  debian_source redis
  make -s -C source -j2 MALLOC=libc
}

run() {
  cd source
  local files=() file
  for file in $quick; do files+=(--single "$file"); done
  on tclsh tests/test_helper.tcl --clients 2 "${files[@]}" || true
}

# Without colours, times, and numbers that differ from run to run.
verdicts() {
  sed -E 's/\x1b\[[0-9;]*m//g' |
    sed -nE 's/^\[(ok|err|exception|ignore|skip)\]: (.*)/\1 \2/p' |
    sed -E 's/ \([0-9]+ ms\)$//; s/^ok /pass /; s/^(err|exception) /fail /; s/^ignore /skip /' |
    sed -E '/^fail /s/ in tests\/.*//; s/[0-9]{4,}/N/g'
}
