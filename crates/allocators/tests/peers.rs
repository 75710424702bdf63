//! Every peer, built from scratch and preloaded into real programs. Takes minutes and needs a
//! network, so it runs only on request: cargo test --release -p mallard-allocators --test peers --
//! --ignored --nocapture

use std::process::Command;

use mallard_allocators::{Catalog, Kind, Settings, State, environment, probe, program};

/// Peers that are built from sources: only an error can make them unavailable.
const BUILT: [&str; 11] = [
    "jemalloc",
    "tcmalloc",
    "mimalloc",
    "mimalloc2",
    "snmalloc",
    "rpmalloc",
    "hardened_malloc",
    "hardened_malloc-light",
    "scudo",
    "snmalloc-checked",
    "mimalloc-secure",
];

#[test]
#[ignore = "builds every peer, which takes minutes and needs a network"]
fn every_peer_builds_from_scratch_and_serves_real_programs() {
    let cache = tempfile::tempdir().unwrap();
    let catalog = Catalog::new(Settings {
        cache: Some(cache.path().to_owned()),
        ..Settings::default()
    });
    let python = program::check("python3").ok();
    for name in catalog.names() {
        let mut built = false;
        let mut lines = 0;
        let outcome = catalog
            .prepare(name, &mut |progress| {
                built |= progress.state == State::Building;
                lines += 1;
                // Print only a sample: make alone prints hundreds of lines.
                if lines % 16 == 1 {
                    println!("{name:21} … {}", progress.line);
                }
            })
            .unwrap();
        let allocator = match outcome {
            Ok(allocator) => allocator,
            Err(unavailable) if BUILT.contains(&name) => panic!("{unavailable:?}"),
            Err(unavailable) => {
                println!("{name:21} unavailable: {}", unavailable.reason);
                continue;
            }
        };
        println!("{name:21} {:40} {:?}", allocator.version, allocator.file);
        assert_eq!(built, BUILT.contains(&name), "{name}");
        if allocator.kind == Kind::Peer {
            assert!(!allocator.version.is_empty(), "{name}");
        }
        if let Some(python) = &python {
            let served = probe::verify_in_target(python, &allocator).unwrap();
            println!("{:21} serves python3 from {}", "", served.display());
            let output = Command::new(&python.path)
                .args(["-c", "print(sum(len(str(i) * 9) for i in range(100000)))"])
                .env("PYTHONMALLOC", "malloc")
                .envs(environment(&allocator, None))
                .output()
                .unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout).trim(),
                "4400010",
                "{name}"
            );
        }
        if BUILT.contains(&name) {
            let again = catalog.prepare(name, &mut |progress| {
                assert_ne!(progress.state, State::Building, "{name} was built twice");
            });
            assert_eq!(again.unwrap(), Ok(allocator), "{name}");
        }
    }
}
