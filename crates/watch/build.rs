//! Builds the probe, which this crate embeds.

use mallard_cargo::carried;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let library = carried::library("probe", &["formats"], "libmallard_probe.so");
    println!(
        "cargo::rustc-env=MALLARD_CARRIED_PROBE_LIBRARY={}",
        library.display()
    );
}
