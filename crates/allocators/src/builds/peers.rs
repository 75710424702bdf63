//! The peers: for each, the crate that it is built from, and its library in a system package.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is known about a peer before it is built.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Its build in `bench/peers`.
    pub(crate) member: Member,
    /// Whether it takes part only if it is named: a hardened build, which is no rival in speed.
    pub(crate) optional: bool,
    /// The crate with its sources; none for a peer that only exists as a system package.
    pub(crate) sources: Option<&'static str>,
    /// The library's name in a system package.
    pub(crate) system_library: Option<&'static str>,
    /// The package's name in Debian and its derivatives.
    pub(crate) package: Option<&'static str>,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    pub(crate) conf_variable: Option<&'static str>,
    /// Roughly how many seconds of CPU its build takes.
    pub(crate) build_cpu_seconds: u32,
}

/// A member of the workspace `bench/peers`, and the feature with which it builds a variant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) feature: Option<&'static str>,
}

const fn plain(name: &'static str) -> Member {
    Member {
        name,
        feature: None,
    }
}

const fn with(name: &'static str, feature: &'static str) -> Member {
    Member {
        name,
        feature: Some(feature),
    }
}

/// In table order.
pub(crate) const PEERS: [Peer; 12] = [
    Peer {
        name: "jemalloc",
        member: plain("jemalloc"),
        optional: false,
        sources: Some("tikv-jemalloc-sys"),
        system_library: Some("libjemalloc.so.2"),
        package: Some("libjemalloc2"),
        environment: &[],
        conf_variable: Some("MALLOC_CONF"),
        build_cpu_seconds: 70,
    },
    Peer {
        name: "tcmalloc",
        member: plain("tcmalloc"),
        optional: false,
        sources: Some("libtcmalloc-sys"),
        system_library: None,
        package: None,
        // Its per-CPU caches need the restartable sequences, which glibc would otherwise register.
        environment: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
        conf_variable: None,
        build_cpu_seconds: 420,
    },
    Peer {
        name: "gperftools",
        member: plain("gperftools"),
        optional: false,
        sources: None,
        system_library: Some("libtcmalloc_minimal.so.4"),
        package: Some("libtcmalloc-minimal4"),
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 0,
    },
    Peer {
        name: "mimalloc",
        member: plain("mimalloc"),
        optional: false,
        sources: Some("libmimalloc-sys2"),
        system_library: Some("libmimalloc.so.3"),
        package: Some("libmimalloc3"),
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 15,
    },
    Peer {
        name: "mimalloc2",
        member: plain("mimalloc2"),
        optional: false,
        sources: Some("libmimalloc-sys2"),
        system_library: Some("libmimalloc.so.2"),
        package: Some("libmimalloc2.0"),
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 15,
    },
    Peer {
        name: "snmalloc",
        member: plain("snmalloc"),
        optional: false,
        sources: Some("snmalloc-sys"),
        system_library: Some("libsnmallocshim.so"),
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 40,
    },
    Peer {
        name: "rpmalloc",
        member: plain("rpmalloc"),
        optional: false,
        sources: Some("rpmalloc-sys"),
        system_library: Some("librpmallocwrap.so"),
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 10,
    },
    Peer {
        name: "hardened_malloc",
        member: plain("hardened_malloc"),
        optional: true,
        sources: Some("hardened-malloc-sys"),
        system_library: None,
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 10,
    },
    Peer {
        name: "hardened_malloc-light",
        member: with("hardened_malloc", "light"),
        optional: true,
        sources: Some("hardened-malloc-sys"),
        system_library: None,
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 10,
    },
    Peer {
        name: "scudo",
        member: plain("scudo"),
        optional: true,
        sources: Some("scudo-sys"),
        system_library: None,
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 15,
    },
    Peer {
        name: "snmalloc-checked",
        member: with("snmalloc", "checked"),
        optional: true,
        sources: Some("snmalloc-sys"),
        system_library: None,
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 50,
    },
    Peer {
        name: "mimalloc-secure",
        member: with("mimalloc", "secure"),
        optional: true,
        sources: Some("libmimalloc-sys2"),
        system_library: None,
        package: None,
        environment: &[],
        conf_variable: None,
        build_cpu_seconds: 15,
    },
];

impl Member {
    /// The file name of the library that its build makes.
    pub(crate) fn file_name(&self) -> String {
        format!("lib{}.so", self.name)
    }
}

impl Peer {
    /// The file name of its library.
    pub(crate) fn file_name(&self) -> String {
        format!("lib{}.so", self.name)
    }

    /// How a user can get it.
    pub(crate) fn advice(&self) -> String {
        let package = self
            .package
            .map(|package| format!("install the package {package}"));
        let sources = self.sources.map(|_| {
            "run the lab from a checkout of the repository, or set MALLARD_PEERS to its folder \
             bench/peers; building needs a network, a C and C++ compiler and make"
                .to_owned()
        });
        [package, sources]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; or ")
    }

    /// The system's library, if there is one.
    pub(crate) fn find_in_system(&self) -> Option<PathBuf> {
        system_library(self.system_library?)
    }
}

/// Finds a system library by name: in the loader's cache, or else in the usual folders.
fn system_library(name: &str) -> Option<PathBuf> {
    let from_cache = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
        .iter()
        .find_map(|ldconfig| Command::new(ldconfig).arg("-p").output().ok())
        .and_then(|output| in_loader_cache(&String::from_utf8_lossy(&output.stdout), name));
    from_cache.or_else(|| {
        let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        [
            &multiarch,
            "/usr/lib64",
            "/usr/lib",
            "/usr/local/lib",
            "/lib",
        ]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
    })
}

/// Reads `libx.so.1 (libc6,x86-64) => /usr/lib/libx.so.1` from `ldconfig -p`. The later check of
/// the file rejects entries of another word size.
fn in_loader_cache(listing: &str, name: &str) -> Option<PathBuf> {
    listing.lines().find_map(|line| {
        let (library, path) = line.split_once(" => ")?;
        let (library, flags) = library.trim().split_once(' ')?;
        let ours = flags.contains("64") || !cfg!(target_arch = "x86_64");
        (library == name && ours).then(|| PathBuf::from(path.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_peers_are_distinct() {
        for (index, peer) in PEERS.iter().enumerate() {
            assert!(
                PEERS[..index].iter().all(|other| other.name != peer.name),
                "{}",
                peer.name
            );
        }
    }

    #[test]
    fn every_peer_has_a_source_and_advice() {
        for peer in &PEERS {
            assert!(
                peer.sources.is_some() || peer.system_library.is_some(),
                "{}",
                peer.name
            );
            assert!(!peer.advice().is_empty(), "{}", peer.name);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_loader_s_cache_is_searched_for_the_exact_name_and_word_size() {
        let listing = "2 libs found in cache\n\
            \tliba.so.2 (libc6) => /lib32/liba.so.2\n\
            \tliba.so.2 (libc6,x86-64) => /lib/liba.so.2\n\
            \tliba.so (libc6,x86-64) => /lib/liba.so\n";
        assert_eq!(
            in_loader_cache(listing, "liba.so.2"),
            Some(PathBuf::from("/lib/liba.so.2"))
        );
        assert_eq!(in_loader_cache(listing, "lib"), None);
    }
}
