#!/usr/bin/env bash
# Runs targets of the fuzzer (fuzz/README.md) one after the other, each for some time, from the
# inputs in fuzz/corpus. Needs neither cargo-fuzz nor a nightly compiler.
#
#   scripts/fuzz.sh SECONDS [TARGET ...]    heap, abi, misuse and hooks if none is named
#   scripts/fuzz.sh --keep [TARGET ...]     reduce fuzz/corpus to what reaches the same code
#
# Inputs that reach new code are kept in target/fuzz/TARGET, which the next run goes on from; an
# input that breaks a rule, in target/fuzz/TARGET-crash-….
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 1 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
seconds=$1
shift
targets=("$@")
if [ $# -eq 0 ]; then
  targets=(heap abi misuse hooks)
fi

built="${CARGO_TARGET_DIR:-$PWD/target}"
host=$(rustc -vV | sed -n 's/^host: //p')
flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table)
features=(--no-default-features)
for target in "${targets[@]}"; do
  case $target in profiles | cores | recordings) features=() ;; esac
done
RUSTFLAGS="${flags[*]}" cargo build "${features[@]}" --quiet --release --locked --manifest-path fuzz/Cargo.toml \
  --target "$host" --target-dir "$built/fuzz-build" "${targets[@]/#/--bin=}"
for target in "${targets[@]}"; do
  if [ "$target" = abi ] && [ -z "${MALLARD_LIBRARY:-}" ]; then
    cargo build --quiet --release --locked --manifest-path crates/mallard-c/Cargo.toml \
      --target-dir "$built/mallard-c"
    export MALLARD_LIBRARY=$built/mallard-c/release/libmallard.so
  fi
done

for target in "${targets[@]}"; do
  program=$built/fuzz-build/$host/release/$target
  corpus=fuzz/corpus/$target
  grown=$built/fuzz/$target
  mkdir -p "$grown" "$corpus"
  # What the core maps counts as resident, and none of these programs uses more.
  options=(-max_len=1200 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1
    "-artifact_prefix=$built/fuzz/$target-")
  if [ -f "fuzz/$target.dict" ]; then
    options+=("-dict=fuzz/$target.dict")
  fi
  echo "=== $target"
  if [ "$seconds" = --keep ]; then
    kept=$(mktemp -d)
    "$program" -merge=1 -max_len=400 "${options[@]:1}" "$kept" "$corpus" "$grown"
    rm -rf "$corpus"
    mv "$kept" "$corpus"
    chmod 755 "$corpus"
  else
    "$program" "-max_total_time=$seconds" "${options[@]}" "$grown" "$corpus"
  fi
done
