//! Which functions of a program or library are the allocator's.

use crate::family::Family;

/// The functions of the C library by which a program allocates and frees.
const C_FUNCTIONS: [&str; 24] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "cfree",
    "free_sized",
    "free_aligned_sized",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "malloc_consolidate",
    "sysmalloc",
    "systrim",
];
/// What the names of an allocator's own functions begin with.
const FUNCTION_PREFIXES: [&str; 14] = [
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__libc_memalign",
    "_int_free_",
    "je_",
    "_rjem_",
    "mi_",
    "_mi_",
    "tc_",
    "sn_rust_",
    "rpmalloc",
    "mallard_",
];
/// What the names of C++'s operators begin with: new and delete, with and without `[]`.
const OPERATOR_PREFIXES: [&str; 4] = ["_Znw", "_Zna", "_Zdl", "_Zda"];

/// Whether a function of this name is the allocator's.
pub fn is_allocator(symbol: &str) -> bool {
    let name = symbol.split('@').next().unwrap_or(symbol);
    C_FUNCTIONS.contains(&name)
        || FUNCTION_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || OPERATOR_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Whether all code of a library is the allocator's.
pub fn is_allocator_library(path: &str) -> bool {
    !matches!(Family::of_object(path), Family::Glibc | Family::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_allocate_are_known_by_their_names() {
        for name in [
            "malloc",
            "malloc@@GLIBC_2.2.5",
            "__libc_malloc",
            "_rjem_sdallocx",
            "je_malloc",
            "mi_malloc_small",
            "_Znwm",
            "_ZdlPvm",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in [
            "malloc_printer",
            "main",
            "_ZN3foo6mallocEv",
            "freeaddrinfo",
            "mid_point",
        ] {
            assert!(!is_allocator(name), "{name}");
        }
    }

    #[test]
    fn a_library_that_is_an_allocator_is_one_with_all_its_code() {
        assert!(is_allocator_library(
            "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
        ));
        assert!(!is_allocator_library("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(!is_allocator_library("/usr/bin/python3.11"));
    }
}
