#!/usr/bin/env bash
# Runs the unit tests that need neither the system nor assembly in Miri, which finds undefined
# behaviour: wrong pointers, uninitialised memory, races between the threads of a test.
#
#   scripts/miri.sh              run them (two minutes)
#   scripts/miri.sh FILTER ...   run the tests with these names instead
#   scripts/miri.sh --get        only get Miri, where it is missing: exit 1 with the reason if not
#
# Needs the nightly toolchain with Miri: rustup component add --toolchain nightly miri rust-src
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/nightly.inc

has_miri() {
  cargo +nightly miri --version >/dev/null 2>&1
}

get_miri() {
  get_nightly miri rust-src || return
  has_miri || {
    echo "rustup installed it, but \`cargo +nightly miri\` does not run"
    return 1
  }
}

if [ "${1:-}" = --get ]; then
  has_miri || get_miri
  exit
fi
if ! has_miri; then
  echo "miri.sh: Miri is missing: rustup component add --toolchain nightly miri rust-src" >&2
  exit 1
fi
tests=(
  cache::stack::
  class::tests::
  space::meta::tests::a_size_fits
  space::meta::tests::the_size_of
  space::segment::tests::a_page_record
  space::segment::tests::a_set_of_chunks
  sys::bits::
  sys::sync::helper::
  sys::label::
  sys::sync::published::
)
if [ $# -gt 0 ]; then
  tests=("$@")
fi
# Maps and stacks hold addresses as numbers, so pointers are made from exposed addresses.
export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation ${MIRIFLAGS:-}"
# Miri interprets: a few random cases take as long as thousands otherwise.
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
exec cargo +nightly miri test --locked -p mallard-core --lib --target-dir target/miri -- "${tests[@]}"
