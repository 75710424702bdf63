#!/usr/bin/env bash
# Runs the tests for AArch64 that a change must pass, under qemu: unit tests and properties of the
# core, the end-to-end tests in C and C++, and some of them again with pages of 16 and 64 KiB.
# `scripts/setup-cross.sh aarch64` has to run first. An emulator runs under this machine's order of
# memory: only the models (docs/design/memory-model.md) and real hardware test that.
#
#   scripts/aarch64.sh         about nine minutes on two cores
set -euo pipefail
cd "$(dirname "$0")/.."

export MALLARD_TARGET=aarch64-unknown-linux-gnu
# Enough for each on an emulator, which runs some ten times slower.
export MALLARD_FORKS_SECONDS=1
export MALLARD_STRESS_SECONDS="${MALLARD_STRESS_SECONDS:-10}"

cross=$(scripts/setup-cross.sh aarch64)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$cross/bin/aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$cross/bin/qemu-aarch64
export CXX=$cross/bin/aarch64-linux-gnu-g++

# Left out is what takes an emulator minutes and depends least on the processor.
skip=(--skip every_combination_of_flags --skip zeroed_blocks_that_grow)

# Their names are those of no other tests. With the features of the whole workspace, what the
# machine's own tests were built from serves.
e2e() {
  cargo test-all --locked --quiet --no-fail-fast "${@/#/--test=}" -- "${skip[@]}"
}
# Tests that an emulator cannot run say so.
e2e c_face extended arenas lifecycle mallctl mappings metrics misuse names options stress forks \
  fall_through walked
for page in 16384 65536; do
  MALLARD_TARGET_PAGE=$page e2e walked
done
# One of them reads the library that was built for those above.
cargo test --locked --quiet -p mallard-core --lib --target "$MALLARD_TARGET" --no-fail-fast -- \
  sys:: class:: cache:: conf:: space:: prof::unwind::
