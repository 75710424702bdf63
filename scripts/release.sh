#!/usr/bin/env bash
# Makes the files of a release from this checkout: packages for Debian, Fedora and Alpine, archives,
# Python wheels, a list of the crates within, and SHA256SUMS. The same commit gives the same bytes
# in every folder, with the same compilers.
#
#   scripts/release.sh                         all targets, into target/packages
#   scripts/release.sh [OPTION...] TARGET...   only these targets
#
#   x86_64-linux-gnu  aarch64-linux-gnu        .deb, .rpm, .tar.zst, wheel for manylinux
#   x86_64-linux-musl aarch64-linux-musl       .apk, .tar.zst, wheel for musllinux
#
#   --out FOLDER         where the files go; what an earlier run made there goes away
#   --without-lab        the library alone
#   --library FOLDER     do not build the library: FOLDER has libmallard.so and libmallard.a
#   --command FILE       do not build the lab: this is it
#
# --library and --command take one target, and are for trying packages quickly; with --command,
# packages are compressed less. Without them, a library that demands a newer glibc than 2.17, or a
# lab that demands a newer one than 2.28, is an error. Two runs without them wait for each other.
#
# Needs Rust, a C and a C++ compiler, binutils, make, zstd, Python 3 and Go; what it needs of other
# systems it gets by scripts/setup-cross.sh. A file that cannot be made is named at the end, with
# the reason, and the exit code is 3. There is no lab for musl.
# shellcheck disable=SC2034 # the sourced files read these
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8 TZ=UTC
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
cd "$root"

out='' lab=1 given_library='' given_command=''
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(realpath -m "$2") && shift ;;
    --without-lab) lab= ;;
    --library) given_library=$(realpath "$2") && shift ;;
    --command) given_command=$(realpath "$2") && shift ;;
    x86_64-linux-gnu | aarch64-linux-gnu | x86_64-linux-musl | aarch64-linux-musl) targets+=("$1") ;;
    -h | --help) sed -n '2,/^# shellcheck/{/^# shellcheck/!s/^# \{0,1\}//p}' "$0" && exit ;;
    *) echo "release.sh: unknown option or target '$1'; see scripts/release.sh --help" >&2 && exit 2 ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] ||
  targets=(x86_64-linux-gnu aarch64-linux-gnu x86_64-linux-musl aarch64-linux-musl)
if [ -n "$given_library$given_command" ] && [ ${#targets[@]} != 1 ]; then
  echo "release.sh: --library and --command are of one target: name it" >&2
  exit 2
fi

base=$(realpath -m "${CARGO_TARGET_DIR:-target}")
build=$base/release-build
out=${out:-$base/packages}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' crates/mallard-c/Cargo.toml)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
[ -z "$(git status --porcelain)" ] ||
  echo "release.sh: the checkout has changes that are in no commit: a trial, not a release" >&2

# What could not be made, a line each.
missing=()
lacks() {
  missing+=("$1")
  echo "release.sh: $1" >&2
}

source scripts/release/floor.inc
source scripts/release/build.inc
source scripts/release/stage.inc
source scripts/release/pack.inc

if [ -e "$out/" ] && [ -n "$(ls -A "$out")" ] && [ ! -e "$out/SHA256SUMS" ]; then
  echo "release.sh: $out has files, and no SHA256SUMS of an earlier release: name another folder" >&2
  exit 2
fi
cross=$(scripts/setup-cross.sh packages)
mkdir -p "$build/stage"
if [ -n "$given_library$given_command" ]; then
  stages=$(mktemp -d "$build/stage/trial.XXXXXX")
  trap 'rm -rf "$stages"' EXIT
else
  stages=$build/stage
  exec {lock}>"$build/lock"
  flock -n "$lock" || { echo "release.sh: waiting for another run in $build" >&2 && flock "$lock"; }
fi
rm -rf "$out"
mkdir -p "$out"
# Empty until all is there, so that it is known whose folder this is.
: >"$out/SHA256SUMS"
for target in "${targets[@]}"; do
  echo "=== $target" >&2
  set_target
  # One target that fails does not take the others with it.
  if ! tools; then continue; fi
  stage=$stages/$target
  rm -rf "$stage"
  mkdir -p "$stage"
  build_library || continue
  has_lab=
  if [ -n "$lab" ]; then
    if build_lab; then has_lab=1; fi
  fi
  pack_all
done
sums=$(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -r sha256sum --)
echo "$sums" >"$out/SHA256SUMS"

echo "=== $out" >&2
(cd "$out" && wc -c -- * | head -n -1) >&2
if [ ${#missing[@]} -gt 0 ]; then
  printf 'not made: %s\n' "${missing[@]}" >&2
  exit 3
fi
