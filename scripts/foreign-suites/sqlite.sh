# sqlite's tests in Tcl.
part="queries, transactions, full text, blobs, threads, memory"
quick="select1 select4 select9 insert insert2 index trans trans2 join where vacuum wal wal2 savepoint
  blob bigrow func json101 fts3rnd fts3ai fts4content thread001 thread002 thread1 thread003 memdb
  memsubsys1 softheap1 sort sort2 window1 window4 with1 rtree1 sqllimits1 zeroblob incrblob
  pager1 pcache pcache2 backup corrupt shared cursorhint alter trigger1 expr"
[ -z "$whole" ] || part=

build() {
  debian_source sqlite3
  cd source
  ./configure -q --with-tcl=/usr/lib/tcl8.6 CFLAGS=-O1
  make -s -j2 testfixture
}

run() {
  cd source
  local files=() name
  if [ -n "$whole" ]; then
    on ./testfixture test/veryquick.test || true
    return
  fi
  for name in $quick; do
    [ ! -f "test/$name.test" ] || on ./testfixture "test/$name.test" || echo "! $name-ended"
  done
}

verdicts() {
  sed -nE 's/^(\S+)\.\.\. Ok$/pass \1/p; s/^! (\S+) (expected|got).*/fail \1/p
    s/^! (\S+-ended)$/fail \1/p' |
    sed -E 's/ \.+/ /' # dots of threads, before the name
}
