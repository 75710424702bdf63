#!/usr/bin/env bash
# Tries the crates as crates.io would have them: packs all that are published, unpacks them into an
# empty folder with no checkout beside it, and uses them there, without a network.
#
#   scripts/packaged.sh          a program on the crate `mallard` runs, also with the oldest Rust;
#                                the lab is checked, for which its build scripts build what it carries
#   scripts/packaged.sh --run    the lab is also installed from its package, and runs
#
# With the oldest Rust it shares the folder of the CI's step of that name, so that only these crates
# are compiled.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# All crates at once, as they need one another: cargo packs so from 1.90 on.
if ! [[ $(cargo --version) =~ ^cargo\ 1\.([0-9]+) && ${BASH_REMATCH[1]} -ge 90 ]]; then
  echo "skipped: packaged.sh: only cargo 1.90 or newer packs several crates: $(cargo --version)"
  exit 0
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
say() { echo "packaged.sh: $*"; }

names=()
options=()
for manifest in $(grep -L '^publish = false' crates/*/Cargo.toml); do
  name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -1)
  names+=("$name")
  options+=(-p "$name")
done
say "packs ${#names[@]} crates"
cargo package --quiet --offline --locked --no-verify --allow-dirty "${options[@]}" \
  --target-dir "$place/packed" 2>"$place/said" || { cat "$place/said" >&2; exit 1; }

# Where they are taken from instead of crates.io.
patch="[patch.crates-io]"
for name in "${names[@]}"; do
  tar -xzf "$place/packed/package/$name-$version.crate" -C "$place"
  patch+=$'\n'"$name = { path = \"$place/$name-$version\" }"
done
rm -r "$place/packed"
links=$(find "$place" -type l)
[ -z "$links" ] || { say "links in the packages: $links" >&2; exit 1; }

mkdir -p "$place/program/src"
cat >"$place/program/Cargo.toml" <<END
[package]
name = "program"
version = "0.0.0"
edition = "2024"

[dependencies]
mallard = "$version"

[workspace]

$patch
END
cat >"$place/program/src/main.rs" <<'END'
#[global_allocator]
static ALLOCATOR: mallard::Mallard = mallard::Mallard;

fn main() {
    let sum = |n: usize| (0..n).map(|i| vec![i; i % 500].len()).sum::<usize>();
    let threads: Vec<_> = (1..5).map(|n| std::thread::spawn(move || sum(n * 10_000))).collect();
    let sums: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(sums.len(), 4);
    assert!(mallard::arena_of(sums.as_ptr().cast()).is_some());
    let page: usize = mallard::ctl::read("arenas.page").unwrap();
    assert!(page >= 4096);
    assert!(mallard::metrics().allocated() > 0);
    mallard::profile::start();
    let kept = vec![1u8; 10 << 20];
    mallard::profile::stop();
    mallard::profile::dump(Some(c"kept.heap")).unwrap();
    assert_eq!(kept.len(), 10 << 20);
    let profile = std::fs::read_to_string("kept.heap").unwrap();
    assert!(profile.starts_with("heap"), "{profile}");
    println!("the program runs on Mallard");
}
END
# The versions of all other crates are those of the repository's lock file, and their profiles too,
# so that what another step compiled serves.
{
  printf '[workspace]\nresolver = "3"\nmembers = ["%s"]\n\n' "mallard-cli-$version"
  sed -n '/^\[profile\.dev\]/,/^\[profile\.release\]/{/^\[profile\.release\]/d;p}' Cargo.toml
  echo "$patch"
} >"$place/Cargo.toml"
cp Cargo.lock "$place/"
cp Cargo.lock "$place/program/"

try() { # NAME CARGO...: the program, and the lab
  local folder=$1
  shift
  (cd "$place/program" && "$@" run --offline --quiet --target-dir "$folder")
  (cd "$place" && "$@" check --offline --quiet -p mallard-cli --target-dir "$folder")
}
if rustup run "$oldest" cargo --version >/dev/null 2>&1; then
  say "with Rust $oldest"
  try "$target/oldest" rustup run "$oldest" cargo
  (cd "$place/program" && cargo run --offline --quiet --target-dir "$target/packaged")
else
  say "without the oldest Rust: no toolchain $oldest"
  try "$target/packaged" cargo
fi
[ "${1-}" = --run ] || { say "all is there"; exit 0; }

say "installs the lab"
(cd "$place" && cargo install --offline --locked --debug --path "mallard-cli-$version" \
  --root "$place/installed" --target-dir "$target/packaged")
# What was compiled is all that is left of them.
rm -r "$place"/mallard-* "$place/program"
mallard=$place/installed/bin/mallard
cd "$place"
"$mallard" --version
"$mallard" run -- true
"$mallard" bench --help >/dev/null
"$mallard" bench pairs --quick -t 1 -a glibc,mallard
say "the lab runs"
