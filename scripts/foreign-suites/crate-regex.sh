name=regex
source "$root/scripts/foreign-suites/crate.inc"

prepare() {
  sed -i '/^mod fuzz;/d' regex/tests/lib.rs
}
