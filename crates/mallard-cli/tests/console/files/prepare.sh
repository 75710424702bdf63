#!/usr/bin/env bash
# Makes the files that the documentation's lines read, in the current folder, by Mallard itself.
set -eux
for name in your-program app test program job; do cp server "$name"; done
for name in children relay thumbnails; do
  cc -O1 -g -pthread -fno-builtin "$name.c" -o "$name"
done
cc -O1 -g names.c -o names
mkdir before after
cp server before/server
cp server after/server
mallard bench pairs -t 1 -a glibc,mallard -o before
mallard bench pairs -t 1 -a glibc,mallard -o after
mallard bench pairs -t 1 -a glibc,mallard
export MALLARD_TOML=services.toml
# A rehearsal needs 28 blocks.
for _ in 1 2 3 4; do
  mallard baseline save web --service web.toml -a mallard --anchor glibc --fail-if 'p99>+5%' --budget 8s
done
unset MALLARD_TOML
profile() {
  MALLARD_CONF=prof:true,prof_final:true,lg_prof_sample:12,prof_prefix:made,$1 \
    LD_PRELOAD=/usr/local/lib/libmallard.so ./app --self-test
}
profile prof_format:heap_v2
for name in before after app.4711.0.f; do cp made.*.heap "$name.heap"; done
rm made.*
profile prof_format:pprof
for name in before after app.4711.0.f; do cp made.*.pb.gz "$name.pb.gz"; done
rm made.*
mallard record -o server.mtrace -- ./server
if command -v gcore; then gcore -o core 4711 || true; fi
if command -v sqlite3; then sqlite3 data.db 'create table t(a); insert into t values (1)'; fi
