#!/usr/bin/env bash
# Gets what building and testing for other systems needs, once, into a folder of its own. Neither
# the machine's packages nor its sources of packages change; only Rust's own targets are added to
# the toolchain, by rustup.
#
#   scripts/setup-cross.sh [PART...]   get these parts (all by default); prints the folder
#
#   aarch64   Rust's targets, gcc and g++ for aarch64, and qemu to run what they build
#   musl      Rust's targets, and gcc that links with musl, for x86_64 and aarch64
#   glibc     the C library of the oldest promised systems to link with, for x86_64 and aarch64
#   roots     the root of Debian 11, the oldest system that tests run on
#   packages  nfpm, rpm and debootstrap, for scripts/release.sh and its test
#
# MALLARD_CROSS is the folder (~/.cache/mallard/cross). Needs a Debian system for the packages.
# Each part is a file of scripts/cross; one that is there already is not fetched again. The commands
# are in FOLDER/bin. Where something cannot be had, the script says which part and why, and ends
# with 1.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
folder=$(realpath -m "${MALLARD_CROSS:-${XDG_CACHE_HOME:-$HOME/.cache}/mallard/cross}")
all=(aarch64 musl glibc packages roots)

mkdir -p "$folder/bin"
export here folder MALLARD_CROSS=$folder
for part in "${@:-${all[@]}}"; do
  recipe=$here/cross/$part.inc
  if [ ! -f "$recipe" ]; then
    echo "setup-cross.sh: there is no part '$part'; the parts are: ${all[*]}" >&2
    exit 2
  fi
  # Another run may be getting it.
  exec {lock}>"$folder/$part.lock"
  flock -n "$lock" || { echo "setup-cross.sh: waiting for $part" >&2 && flock "$lock"; }
  # A part is there if the same recipe made it, and the files that the recipe uses are the same.
  # shellcheck disable=SC2046 # patterns
  made=$(cd "$here" && cat "$recipe" cross/fetch.inc $(sed -n 's/^# Uses: //p' "$recipe") | sha256sum)
  if [ "$(cat "$folder/$part.made" 2>/dev/null)" != "$made" ]; then
    echo "setup-cross.sh: getting $part" >&2
    # In a shell of its own: `set -e` is off in one that a condition waits for.
    if ! bash -euo pipefail -c 'source "$0" && source "$1"' "$here/cross/fetch.inc" "$recipe" \
      >"$folder/$part.log" 2>&1; then
      echo "setup-cross.sh: cannot get $part: $(tail -n 1 "$folder/$part.log"); all of it is in $folder/$part.log" >&2
      exit 1
    fi
    echo "$made" >"$folder/$part.made"
  fi
  exec {lock}>&-
done
echo "$folder"
