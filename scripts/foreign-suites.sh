#!/usr/bin/env bash
# Runs test suites of other projects on Mallard, each beside the C library's allocator, and prints
# one table. Not part of `cargo test`: it fetches and builds the suites.
#
#   scripts/foreign-suites.sh [--whole] [--only NAME,…] [--folder DIR] [LIBRARY]
#
#   LIBRARY    the libmallard.so to preload (default: built here)
#   --whole    whole suites; by default a part of each that allocates much and takes minutes
#   --only     these suites alone; their names are those of the files in scripts/foreign-suites
#   --folder   where sources, builds and results stay (default: /tmp/mallard-foreign)
#
# Sources are Debian's source packages and crates, fetched with apt-get and cargo. apt gets a list of
# sources of its own, so that the system's stays as it is. The suites need a C and C++ compiler,
# make, python3, perl, ruby, tclsh with its headers (tcl-dev), cargo, and a user `nobody`. A suite
# that cannot be fetched or built is a row "skipped" with the reason.
#
# Results are in DIR/results: SUITE.glibc and SUITE.mallard have a line "pass NAME", "fail NAME" or
# "skip NAME" for each test, SUITE.log what the suite printed. Exit status: 1 if a test passes on
# the C library's allocator alone.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=/tmp/mallard-foreign
whole=
only=
library=
while [ $# -gt 0 ]; do
  case $1 in
    --whole) whole=yes ;;
    --only) only=$2 && shift ;;
    --folder) folder=$2 && shift ;;
    -*) echo "foreign-suites: unknown option '$1'" >&2 && exit 2 ;;
    *) library=$(realpath "$1") ;;
  esac
  shift
done
if [ -z "$library" ]; then
  target=${CARGO_TARGET_DIR:-$root/target}/mallard-c
  cargo build -q --release --locked --manifest-path "$root/crates/mallard-c/Cargo.toml" \
    --target-dir "$target"
  library=$target/release/libmallard.so
fi
mkdir -p "$folder/results"
folder=$(realpath "$folder")
# A copy that other users can read, and that a new build does not change under a running suite.
install -m 755 "$library" "$folder/libmallard.so"

# Seconds for one run of one suite.
limit=1200
[ -z "$whole" ] || limit=14400

# apt-get with lists of its own.
apt() {
  local at=$folder/apt suite
  if [ ! -f "$at/conf" ]; then
    mkdir -p "$at/lists/partial" "$at/cache/archives/partial"
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
    local signed=/usr/share/keyrings/debian-archive-keyring.gpg
    printf 'deb%s [signed-by=%s] http://deb.debian.org/debian %s main\n' \
      "" "$signed" "$suite" "-src" "$signed" "$suite" >"$at/sources.list"
    printf '%s "%s";\n' Dir::Etc::sourcelist "$at/sources.list" Dir::Etc::sourceparts /dev/null \
      Dir::State::lists "$at/lists" Dir::Cache "$at/cache" APT::Sandbox::User root >"$at/unfinished"
    APT_CONFIG=$at/unfinished apt-get -qq update || return
    mv "$at/unfinished" "$at/conf"
  fi
  APT_CONFIG=$at/conf "apt-$1" "${@:2}"
}

# debian_source PACKAGE: unpacks its source, patched as Debian builds it, into ./source.
debian_source() {
  apt get -qq source --download-only "$1"
  rm -rf source && dpkg-source --no-check -x ./*.dsc source
  sed -n 's/^Version: //p' ./*.dsc | head -1 >version
}

# debian_files PACKAGE…: unpacks the files of binary packages into ./files, and installs nothing.
debian_files() {
  apt get -qq download "$@"
  local package
  for package in ./*.deb; do dpkg-deb -x "$package" files; done
}

# crate NAME: unpacks its newest release into ./NAME.
crate() {
  mkdir -p fetch/src && : >fetch/src/lib.rs
  printf '[package]\nname = "fetch"\nedition = "2021"\n[workspace]\n[dependencies]\n%s = "*"\n' \
    "$1" >fetch/Cargo.toml
  cargo vendor -q --manifest-path fetch/Cargo.toml vendor >/dev/null
  rm -rf "$1" && cp -r "vendor/$1" "$1" && rm -f "$1/.cargo-checksum.json"
  sed -n 's/^version = "\(.*\)"/\1/p' "$1/Cargo.toml" | head -1 >version
}

# Runs a command on the allocator of this run.
on() {
  local seconds=$((deadline - SECONDS))
  [ "$seconds" -gt 0 ] || return 124
  timeout -k 10 "$seconds" env ${preload:+LD_PRELOAD="$preload"} "$@" </dev/null
}

# For suites that refuse to run as root.
as_nobody() {
  if [ "$(id -u)" -eq 0 ]; then
    setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/nonexistent "$@"
  else
    "$@"
  fi
}

skipped() {
  printf '| %s | | | | | skipped: %s | |\n' "$1" "$2"
}

# Prints a suite's row, and nothing else on standard output.
row() {
  local suite=$1 log=$folder/results/$1.log at=$folder/$1
  local peer=glibc part='' took=()
  mkdir -p "$at" && cd "$at"
  source "$root/scripts/foreign-suites/$suite.sh"
  if [ ! -f built ]; then
    # In a process of its own, because `set -e` has no effect within a condition.
    (build) >"$at/build.log" 2>&1 &
    if ! wait $!; then
      skipped "$suite" "not built: $(tail -1 "$at/build.log" | tr '|' ' ')"
      return
    fi
    touch built
  fi
  local allocator preload deadline from
  : >"$log"
  for allocator in "$peer" mallard; do
    preload=
    [ "$allocator" != mallard ] || preload=$folder/libmallard.so
    from=$SECONDS deadline=$((SECONDS + limit))
    echo "=== $suite on $allocator" >>"$log"
    run 2>>"$log" | tee -a "$log" | verdicts | sort -u >"$folder/results/$suite.$allocator" || true
    took+=($((SECONDS - from)))
  done
  table_row "$suite" "$(head -1 version)" "$peer" "${took[0]} s, ${took[1]} s"
}

table_row() {
  local suite=$1 version=$2 peer=$3 time=$4 results=$folder/results/$1
  local tests theirs ours differing
  tests=$(cut -d' ' -f2- "$results.$peer" "$results.mallard" | sort -u | wc -l)
  if [ "$tests" -eq 0 ]; then
    skipped "$suite" "it named no test: $(tail -1 "$results.log" | tr '|' ' ')"
    return
  fi
  theirs=$(grep -c '^pass' "$results.$peer" || true)
  ours=$(grep -c '^pass' "$results.mallard" || true)
  differing=$(join -t$'\t' -a1 -a2 -e none -o 0,1.2,2.2 \
    <(sed -E 's/^(\w+) (.*)/\2\t\1/' "$results.$peer" | sort -t$'\t' -k1,1 -u) \
    <(sed -E 's/^(\w+) (.*)/\2\t\1/' "$results.mallard" | sort -t$'\t' -k1,1 -u) |
    awk -F'\t' '$2 != $3 { print $1 " (" $2 ", " $3 ")" }' | tee "$results.differing" |
    head -8 | paste -sd';' | sed 's/;/; /g; s/|/ /g')
  if grep -q '(pass, ' "$results.differing"; then touch "$folder/results/failed"; fi
  local more=$(($(wc -l <"$results.differing") - 8))
  [ "$more" -le 0 ] || differing+="; $more more"
  [ "$peer" = glibc ] || theirs+=" ($peer)"
  printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$suite${part:+: $part}" "$version" "$tests" \
    "$theirs" "$ours" "${differing:-none}" "$time"
}

rm -f "$folder/results/failed"
echo "| suite | version | tests | passed on glibc | on Mallard | differing (glibc, Mallard) | time |"
echo "|---|---|---|---|---|---|---|"
for file in "$root"/scripts/foreign-suites/*.sh; do
  suite=$(basename "$file" .sh)
  [ -z "$only" ] || [[ ,$only, == *",$suite,"* ]] || continue
  (row "$suite")
done
[ -n "$only" ] || skipped "LTP, musl's libc-test" "not among the packages of Debian"
[ ! -f "$folder/results/failed" ]
