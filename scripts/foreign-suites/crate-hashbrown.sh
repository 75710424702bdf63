name=hashbrown
arguments="--features rayon,serde"
source "$root/scripts/foreign-suites/crate.inc"
