name=serde_json
source "$root/scripts/foreign-suites/crate.inc"
