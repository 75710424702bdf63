#!/usr/bin/env bash
# What sampling the heap costs: rows of the full suite on Mallard, jemalloc and tcmalloc, with the
# heap profiler off and on, in one table.
#
#   scripts/sampling.sh                    the whole suite
#   scripts/sampling.sh larson redis       some rows
#   scripts/sampling.sh --quick larson     arguments go to `mallard bench --suite full`
#
# Takes Debian's jemalloc, whose profiler is compiled in, and its full libtcmalloc of gperftools.
# What is not installed does not take part: apt-get install libjemalloc2 libgoogle-perftools4.
# JEMALLOC and TCMALLOC name other files. Google's tcmalloc samples by default, every 2 MiB; the lab
# builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked --manifest-path crates/mallard-c/Cargo.toml \
  --target-dir target/mallard-c
folder=/usr/lib/$(uname -m)-linux-gnu
mallard=target/mallard-c/release/libmallard.so
jemalloc=${JEMALLOC:-$folder/libjemalloc.so.2}
tcmalloc=${TCMALLOC:-$folder/libtcmalloc.so.4}

# The distance of all samplers: jemalloc's default.
bytes=524288
names="mallard-off,mallard-on"
libraries=(
  --add "mallard-off=$mallard"
  --add "mallard-on=$mallard;MALLOC_CONF=prof:true"
)
if [ -e "$jemalloc" ]; then
  names=$names,jemalloc-off,jemalloc-on
  libraries+=(
    --add "jemalloc-off=$jemalloc"
    --add "jemalloc-on=$jemalloc;MALLOC_CONF=prof:true"
  )
else
  echo "skipped: no jemalloc at $jemalloc" >&2
fi
if [ -e "$tcmalloc" ]; then
  names=$names,gperftools-off,gperftools-on
  libraries+=(
    --add "gperftools-off=$tcmalloc"
    --add "gperftools-on=$tcmalloc;TCMALLOC_SAMPLE_PARAMETER=$bytes"
  )
else
  echo "skipped: no tcmalloc at $tcmalloc" >&2
fi

cargo run --release --locked -p mallard-cli -- bench --suite full "$@" \
  -a "$names,tcmalloc" "${libraries[@]}"
