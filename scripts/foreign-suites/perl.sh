# perl's core tests, with an interpreter built from the same source. A test is a file.
part="op, re, io, uni, mro, lib"
quick="op/*.t re/*.t io/*.t uni/*.t mro/*.t lib/*.t"

build() {
  debian_source perl
  cd source
  ./Configure -des -Dusethreads -Doptimize=-O1 >/dev/null
  make -s -j2 test_prep
}

run() {
  cd source/t
  if [ -n "$whole" ]; then quick=; fi
  on ./perl TEST $quick || true
}

verdicts() {
  sed -nE 's/^(t\/)?(\S+[^. ]) ?\.{2,} ?(ok|skipped|FAILED).*/\3 \2/p' |
    sed 's/^ok/pass/; s/^skipped/skip/; s/^FAILED/fail/'
}
