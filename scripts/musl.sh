#!/usr/bin/env bash
# Runs the tests for musl that a change must pass: the end-to-end tests in C, C++, Rust and Go on the
# library for x86_64-unknown-linux-musl, under musl's own loader, and some of those in C and C++ for
# AArch64, under qemu. `scripts/setup-cross.sh musl` has to run first, which gets qemu as well.
#
#   scripts/musl.sh            five minutes on two cores
set -euo pipefail
cd "$(dirname "$0")/.."

export MALLARD_TARGET=x86_64-unknown-linux-musl
# Each of these is a matter of seconds; the machine's own tests run for longer.
export MALLARD_STRESS_SECONDS=3 MALLARD_FORKS_SECONDS=1
export MALLARD_TORTURE_FORKS=100 MALLARD_TORTURE_SECONDS=1 MALLARD_TORTURE_ROUNDS=2
tests=(c_face extended arenas caches lifecycle mallctl mappings metrics misuse names options report
  stack stress forks torture background targets walked)
# Left out is what takes longest and depends least on the C library.
skip=(--skip a_turnover_of_5_gib)
cargo test-all --locked --quiet --no-fail-fast "${tests[@]/#/--test=}" -- "${skip[@]}"

# What depends on the architecture and on musl at once. Left out is what takes an emulator a minute.
skip+=(--skip aligned_forms_reach_a_gibibyte --skip calloc_clears_all_that_may_be_used)
MALLARD_TARGET=aarch64-unknown-linux-musl cargo test-all --locked --quiet --no-fail-fast --test=c_face -- "${skip[@]}"
