name=tokio
arguments="--features full"
source "$root/scripts/foreign-suites/crate.inc"
