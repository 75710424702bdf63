# The same as jemalloc-5.3.0.sh, from the sources in a crate.
source "$root/scripts/foreign-suites/jemalloc-5.3.0.sh"

build() {
  crate tikv-jemalloc-sys
  rm -rf source && cp -r tikv-jemalloc-sys/jemalloc source
  cp tikv-jemalloc-sys/configure/* source/
  sed -i 's/.*+//' version
  build_jemalloc --with-version="$(cat version)"
}
