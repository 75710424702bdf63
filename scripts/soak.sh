#!/usr/bin/env bash
# A soak of the heap profiler: eight threads load and unload a library, throw, fork, end, take
# signals and change stacks while a few of their allocations are sampled, and one switches
# sampling, resets it and writes profiles. A deadlock, a fault or a damaged profile is a failure.
# `cargo test` does 20 seconds of it.
#
#   scripts/soak.sh             ten minutes: half on the build that users get, half on the one with all
#                               internal checks
#   scripts/soak.sh SECONDS     another length, up to 1,100
#
# Needs a C++ compiler; scripts/setup-tests.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
case $seconds in
  '' | *[!0-9]*) echo "not a number of seconds: $seconds" >&2; exit 2 ;;
esac
if [ "$seconds" -lt 2 ] || [ "$seconds" -gt 1100 ]; then
  echo "the length must be from 2 to 1100 seconds: $seconds" >&2
  exit 2
fi
export MALLARD_REQUIRE_PROGRAMS=1 MALLARD_PROFILED_SECONDS=$seconds
exec cargo test --locked -p mallard-e2e --test profiles -- threads_live_through_being_sampled
