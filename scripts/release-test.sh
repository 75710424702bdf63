#!/usr/bin/env bash
# Tries the files of a release: installs them by the systems' own tools in roots of Debian, runs what
# was installed, removes it, and looks for what is left.
#
#   scripts/release-test.sh [FOLDER]    the files that scripts/release.sh made (target/packages), in
#                                       roots of all suites of Debian from bullseye to sid
#   scripts/release-test.sh --quick     packs what the tests have built, and tries that in one root
#   scripts/release-test.sh --twice     makes the release in two clones, and compares the sums
#
# Roots are made once, by debootstrap, in the folder of scripts/setup-cross.sh; a test works on a
# layer above and leaves them as they were. Needs root for that. What cannot be tried here is said
# to be skipped, with the reason.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$here/.."
base=$(realpath -m "${CARGO_TARGET_DIR:-target}")
arch=$(uname -m)
quick=''
suites=(bullseye bookworm trixie forky sid)

# Whatever ends the script, nothing stays behind.
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT

skips=0
skipped() {
  skips=$((skips + 1))
  echo "skipped: release-test.sh: $1"
}

# The release in two clones, in folders with names of different lengths.
twice() {
  local place=$scratch folder commit
  commit=$(git rev-parse HEAD)
  for folder in "$place/first" "$place/another-folder-of-another-length/deeper"; do
    git clone --quiet --no-hardlinks . "$folder"
    git -C "$folder" checkout --quiet --detach "$commit"
    env -u CARGO_TARGET_DIR "$folder/scripts/release.sh" "$@" || [ $? = 3 ]
    cp "$folder/target/packages/SHA256SUMS" "$place/$(basename "$folder").sums"
    rm -rf "$folder"
  done
  # Its code is checked by hand: a caller may have switched `set -e` off.
  diff "$place/first.sums" "$place/deeper.sums" || return 1
  echo "two clones gave the same $(wc -l <"$place/first.sums") files"
}

case ${1:-} in
  --twice) shift && twice "$@" && exit || exit ;;
  -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
esac

source scripts/release/floor.inc
source scripts/release/roots.inc
source scripts/release/try.inc
source scripts/release/image.inc

if ! cross=$(scripts/setup-cross.sh packages 2>"$scratch/said"); then
  skipped "all of it: $(tail -n 1 "$scratch/said")"
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
  skipped "all of it: making and entering roots takes the rights of root"
  exit 0
fi
if reason=$(no_layers); then
  skipped "all of it: no layers above roots: $(tail -n 1 <<<"$reason")"
  exit 0
fi
if [ "${1:-}" = --quick ]; then
  # shellcheck disable=SC2034 # for try.inc
  quick=1
  suites=(bookworm)
  echo "left to the whole test: other suites, the image, Alpine, AArch64"
  packages=$base/packages-quick
  library=$base/mallard-c/release
  if [ ! -e "$library/libmallard.a" ]; then
    cargo build --release --locked --quiet --manifest-path crates/mallard-c/Cargo.toml \
      --target-dir "$base/mallard-c"
  fi
  command=$base/debug/mallard
  [ -e "$command" ] || cargo build --locked --quiet -p mallard-cli
  scripts/release.sh --out "$packages" --library "$library" --command "$command" "$arch-linux-gnu"
else
  packages=$(realpath "${1:-$base/packages}")
fi

# there PART PATTERN: whether $packages has such a file; otherwise the part is skipped. What --quick
# does not make by design is no part of it.
there() {
  compgen -G "$packages/$2" >/dev/null && return
  [ -n "$quick" ] || skipped "$1: there is no $2 in $packages"
  return 1
}
own=$(dpkg --print-architecture)

echo "=== sums"
(cd "$packages" && sha256sum --quiet -c SHA256SUMS)
if [ -z "$quick" ]; then
  echo "=== C libraries that are demanded"
  try_floors
fi
if there deb "*_$own.deb"; then
  for suite in "${suites[@]}"; do
    if ! root "$suite"; then
      skipped "deb in $suite: no root: $(tail -n 1 "$cross/roots/$suite.log")"
      continue
    fi
    echo "=== deb in $suite"
    in_root "$suite" try_deb
  done
fi
if ! root bookworm; then
  skipped "rpm, archive, image: no root of bookworm: $(tail -n 1 "$cross/roots/bookworm.log")"
else
  if there rpm "*.$arch.rpm"; then
    echo "=== rpm"
    in_root bookworm try_rpm
  fi
  if there archive "mallard-[0-9]*-$arch-linux-gnu.tar.zst"; then
    echo "=== archive"
    in_root bookworm try_archive
  fi
  if [ -z "$quick" ] && there image "mallard_*_$own.deb"; then
    echo "=== image"
    in_root bookworm try_image
  fi
fi
if there apk "*.apk"; then
  echo "=== apk"
  try_apks
fi
if there wheels "*.whl"; then
  echo "=== wheels"
  try_wheels
fi
if [ "$skips" = 0 ]; then
  echo "the packages of $packages work"
else
  echo "the packages of $packages work, as far as tried; skipped parts: $skips"
fi
