//! The names of allocators and of programs' own pools, by the files that a process has loaded.

use std::path::Path;

use mallard_formats::variables::MALLARD_CONF;

/// An allocator family, by the object that serves malloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Glibc,
    Mallard,
    Jemalloc,
    Tcmalloc,
    Mimalloc,
    Other,
}

impl Family {
    /// By the name of the object that serves malloc.
    pub fn of_object(object: &str) -> Family {
        let name = Path::new(object)
            .file_name()
            .map(|name| name.to_string_lossy().to_lowercase());
        let name = name.unwrap_or_default();
        let has = |part: &str| name.contains(part);
        if name.starts_with("libc.so") || name.starts_with("libc-2") {
            Family::Glibc
        } else if has("mallard") {
            Family::Mallard
        } else if has("jemalloc") {
            Family::Jemalloc
        } else if has("tcmalloc") {
            Family::Tcmalloc
        } else if has("mimalloc") {
            Family::Mimalloc
        } else {
            Family::Other
        }
    }

    /// By texts that an allocator has in a program that is linked with it.
    pub fn of_program(content: &[u8]) -> Option<Family> {
        let has = |text: &[u8]| memory_contains(content, text);
        if has(b"<jemalloc>: ") || has(b"<mallard>: ") {
            Some(if has(b"<jemalloc>: ") {
                Family::Jemalloc
            } else {
                Family::Mallard
            })
        } else if has(b"mallard: ") && has(MALLARD_CONF.as_bytes()) {
            Some(Family::Mallard)
        } else if has(b"mimalloc: ") {
            Some(Family::Mimalloc)
        } else if has(b"tcmalloc: ") || has(b"TCMALLOC_") {
            Some(Family::Tcmalloc)
        } else if has(b"malloc_consolidate(): ") || has(b"malloc(): corrupted") {
            Some(Family::Glibc)
        } else {
            None
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Family::Glibc => "glibc",
            Family::Mallard => "mallard",
            Family::Jemalloc => "jemalloc",
            Family::Tcmalloc => "tcmalloc",
            Family::Mimalloc => "mimalloc",
            Family::Other => "another allocator",
        }
    }
}

fn memory_contains(content: &[u8], text: &[u8]) -> bool {
    // The first byte is searched for alone, which is fast.
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| *byte == text[0]) {
        if rest[at..].starts_with(text) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// A front allocator of a program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub name: &'static str,
    /// What it means for a change of malloc.
    pub advice: &'static str,
}

const POOLS: [(&[&str], Pool); 8] = [
    (
        &["python"],
        Pool {
            name: "pymalloc",
            advice: "python serves blocks up to 512 bytes from its own pymalloc, which no malloc \
                     replaces; try PYTHONMALLOC=malloc",
        },
    ),
    (
        &["postgres"],
        Pool {
            name: "palloc",
            advice: "postgres takes blocks from its own memory contexts (palloc), which ask malloc \
                     for whole chunks",
        },
    ),
    (
        &["nginx"],
        Pool {
            name: "nginx pools",
            advice: "nginx serves requests from its own pools, which ask malloc for whole chunks",
        },
    ),
    (
        &["node", "chrome", "chromium", "d8"],
        Pool {
            name: "V8's heap",
            advice: "V8 keeps JavaScript objects in a heap of its own, which no malloc replaces",
        },
    ),
    (
        &["java", "javac"],
        Pool {
            name: "the JVM's heap",
            advice: "the JVM keeps Java objects in a heap of its own, which no malloc replaces",
        },
    ),
    (
        &["php", "php-fpm"],
        Pool {
            name: "zend_mm",
            advice: "PHP serves blocks from its own zend_mm, which no malloc replaces; try \
                     USE_ZEND_ALLOC=0",
        },
    ),
    (
        &["ruby"],
        Pool {
            name: "Ruby's object heap",
            advice: "Ruby keeps objects in a heap of its own; only their bodies come from malloc",
        },
    ),
    (
        &["cc1", "cc1plus", "lto1"],
        Pool {
            name: "GCC's collector",
            advice: "GCC keeps its trees in a collected heap of its own (ggc) and in obstacks",
        },
    ),
];

/// The pool of a program, by the name of its file and the files that it has loaded. A program that
/// embeds Python loads `libpython`.
pub fn pool_of(program: &str, loaded: &[String]) -> Option<Pool> {
    let name = |path: &str| {
        let name = Path::new(path).file_name()?.to_string_lossy().into_owned();
        // python3.11, php8.2, node18
        Some(
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
                .to_owned(),
        )
    };
    let program = name(program)?;
    let by_name = POOLS
        .iter()
        .find(|(names, _)| names.contains(&program.as_str()));
    let by_library = || {
        let library = |part: &str| loaded.iter().any(|file| file.contains(part));
        POOLS.iter().find(|(names, _)| match names[0] {
            "python" => library("/libpython"),
            "java" => library("/libjvm.so"),
            "node" => library("/libnode.so") || library("/libv8"),
            _ => false,
        })
    };
    by_name.or_else(by_library).map(|(_, pool)| *pool)
}

/// Whether a program is one that the Go compiler made: its runtime has an allocator of its own.
pub fn is_go(content: &[u8]) -> bool {
    memory_contains(content, b"\xff Go buildinf:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_by_their_objects() {
        for (object, family) in [
            ("/lib/x86_64-linux-gnu/libc.so.6", Family::Glibc),
            ("/lib/libjemalloc.so.2", Family::Jemalloc),
            ("/usr/lib/libtcmalloc_minimal.so.4", Family::Tcmalloc),
            ("/cache/0123/libmallard.so", Family::Mallard),
            ("/x/libmimalloc.so.3", Family::Mimalloc),
            ("", Family::Other),
        ] {
            assert_eq!(Family::of_object(object), family, "{object}");
        }
    }

    #[test]
    fn pools_are_known_by_programs_and_libraries() {
        let pool = |program: &str, files: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| file.to_string()).collect();
            pool_of(program, &files).map(|pool| pool.name)
        };
        assert_eq!(pool("/usr/bin/python3.11", &[]), Some("pymalloc"));
        assert_eq!(
            pool("/opt/app", &["/usr/lib/libpython3.11.so.1.0"]),
            Some("pymalloc")
        );
        assert_eq!(pool("/usr/bin/node", &[]), Some("V8's heap"));
        assert_eq!(pool("/usr/bin/nginx-debug", &[]), None);
        assert_eq!(pool("/usr/bin/redis-server", &[]), None);
    }
}
