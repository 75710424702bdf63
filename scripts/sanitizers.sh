#!/usr/bin/env bash
# Runs the core's tests against models, with threads and without, and the stress program of the
# end-to-end tests, under a sanitizer. The allocator itself is instrumented.
#
#   scripts/sanitizers.sh address [stress]   AddressSanitizer, which is told of every free block and
#                                            page (feature `poison`): the allocator touches none
#   scripts/sanitizers.sh thread [stress]    ThreadSanitizer, also in the standard library: no data
#                                            race
#   scripts/sanitizers.sh --get              only get the nightly toolchain, where it is missing:
#                                            exit 1 with the reason if not
#
# With `stress`, runs the stress program alone.
# MALLARD_CASES is the number of histories for each test (40; the time is minutes), and
# MALLARD_STRESS_SECONDS the time of the stress program (10).
# Needs the nightly toolchain with the standard library's sources:
#   rustup toolchain install nightly --profile minimal --component rust-src
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/nightly.inc

has_nightly() {
  cargo +nightly --version >/dev/null 2>&1 &&
    [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]
}

if [ "${1:-}" = --get ]; then
  has_nightly || get_nightly rust-src
  exit
fi
if ! has_nightly; then
  echo "sanitizers.sh: the nightly toolchain or its sources are missing (see the head of this file)" >&2
  exit 1
fi

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
built="${CARGO_TARGET_DIR:-$PWD/target}"
export MALLARD_CASES="${MALLARD_CASES:-40}"
# Debug information is most of such a build.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only

# The stress program with the C face: both are instrumented, and so is nothing else. The sanitizer
# replaces the C library's functions, so the program calls those of the face by other names.
stress() {
  local sanitizer=$1 folder=$built/$2 face
  local cxx=${CXX:-c++} runtime
  runtime="$(rustc +nightly --print sysroot)/lib/rustlib/$host/lib/librustc-nightly_rt.$2.a"
  if ! command -v "$cxx" >/dev/null; then
    echo "skipped: the stress program under $sanitizer: no C++ compiler"
    return
  fi
  shift 2
  mkdir -p "$folder"
  cargo +nightly rustc --locked --target "$host" --target-dir "$folder" -p mallard-c \
    --manifest-path crates/mallard-c/Cargo.toml --crate-type staticlib "$@"
  face="$folder/$host/debug/libmallard.a"
  # Those that the C library has too, and the program calls.
  comm -12 <(nm -g --defined-only "$face" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u) \
    <(nm -D --defined-only "$("$cxx" -print-file-name=libc.so.6)" | awk '{ sub("@.*", "", $3); print $3 }' | sort -u) |
    sed 's/.*/& face_&/' >"$folder/names"
  "$cxx" -std=c++17 -O1 -g1 -fsanitize="$sanitizer" -w -c crates/e2e/programs/stress.cpp \
    -o "$folder/program.o"
  objcopy --redefine-syms="$folder/names" "$folder/program.o"
  objcopy --redefine-syms="$folder/names" "$face" "$folder/libface.a"
  # With the sanitizer's runtime that the compiler of the allocator has.
  "$cxx" "$folder/program.o" "$folder/libface.a" -Wl,--whole-archive "$runtime" \
    -Wl,--no-whole-archive -Wl,--export-dynamic -pthread -ldl -lrt -lm -lresolv -o "$folder/stress"
  "$folder/stress" 42 "${MALLARD_STRESS_SECONDS:-10}" 6 60
}

what=${2:-all}
case "${1:-}" in
  address)
    export RUSTFLAGS="-Zsanitizer=address"
    # The allocator's records are held by pointers in memory that the search for leaks does not know.
    export ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
    stress address asan --features mallard-core/poison
    [ "$what" = all ] || exit 0
    # Those that misuse the allocator are to meet it, not the sanitizer.
    exec cargo +nightly test --locked --target "$host" --target-dir "$built/asan" \
      -p mallard-core --features poison --test model --test flags --test histories \
      --test lying_hooks -- --skip options_that_take_other_paths --skip a_misuse
    ;;
  thread)
    export RUSTFLAGS="-Zsanitizer=thread"
    # The children of the stress program start threads.
    export TSAN_OPTIONS="history_size=7:second_deadlock_stack=1:die_after_fork=0:${TSAN_OPTIONS:-}"
    stress thread tsan -Zbuild-std=core
    [ "$what" = all ] || exit 0
    exec cargo +nightly test --locked -Zbuild-std --target "$host" --target-dir "$built/tsan" \
      -p mallard-core --test model --test flags -- \
      --test-threads=1 --skip options_that_take_other_paths
    ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
