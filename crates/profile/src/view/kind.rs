//! Which functions are part of the allocator or of a container, by their names.

/// What a frame is in a search for the code that allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A function of an allocator, or one that stands directly before it.
    Allocator,
    /// Inside a container, a string or a smart pointer, or a function that only passes a request
    /// on.
    Wrapper,
    /// Code before `main` or before a thread's function.
    Start,
    Other,
}

const ALLOCATOR: [&str; 33] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "reallocarray",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "mallocx",
    "rallocx",
    "xallocx",
    "smallocx",
    "operator new",
    "operator new[]",
    "operator delete",
    "operator delete[]",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
    "__rg_alloc",
    "__rg_alloc_zeroed",
    "__rg_realloc",
    "je_malloc",
    "runtime.mallocgc",
];

/// Namespaces of allocators' own functions.
const ALLOCATOR_STARTS: [&str; 13] = [
    "mallard::",
    "mallard_core::",
    "mallard_c::",
    "<mallard::",
    "<mallard_core::",
    "__rustc::__rust_",
    "__rustc::__rdl_",
    "__rustc::__rg_",
    "__rustc[",
    "tcmalloc::",
    "je_",
    "prof_backtrace",
    "runtime.malloc",
];

/// Files of allocators, for their frames without names.
const ALLOCATOR_FILES: [&str; 5] = [
    "libmallard",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
];

/// Files of the standard libraries.
const LIBRARY_FILES: [&str; 5] = ["libc.so", "libc-", "ld-linux", "libstdc++", "libc++"];

const WRAPPERS: [&str; 22] = [
    "strdup",
    "__strdup",
    "strndup",
    "__strndup",
    "asprintf",
    "vasprintf",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xzalloc",
    "xstrdup",
    "xmemdup",
    "xnmalloc",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_strdup",
    "g_slice_alloc",
    "make_unique",
    "make_shared",
];

/// Standard libraries. Their callers are the sites.
const WRAPPER_STARTS: [&str; 16] = [
    "std::",
    "__gnu_cxx::",
    "__gnu_debug::",
    "alloc::",
    "core::",
    "hashbrown::",
    "<std::",
    "<alloc::",
    "<core::",
    "<hashbrown::",
    "<&",
    "<[",
    "<T as alloc::",
    "<T as core::",
    "<I as core::",
    "runtime.",
];

const STARTS: [&str; 19] = [
    "call_init",
    "_dl_init",
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_main@@GLIBC_2.34",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
    "__GI___clone3",
    "thread_start",
    "_dl_start_user",
    "runtime.main",
    "runtime.goexit",
    "__rust_begin_short_backtrace",
    "lang_start",
    "execute_native_thread_routine",
];

/// Folders of the standard libraries' sources. Functions without a namespace in their name, as
/// inlined ones of C++ often are, are known by these.
const LIBRARY_FOLDERS: [&str; 5] = [
    "/include/c++/",
    "/library/alloc/src/",
    "/library/core/src/",
    "/library/std/src/",
    "/hashbrown-",
];

/// The kind of a function with this name, from a source file.
pub fn of_function(name: &str, file: &str) -> Kind {
    match of_name(name) {
        Kind::Other if LIBRARY_FOLDERS.iter().any(|folder| file.contains(folder)) => Kind::Wrapper,
        kind => kind,
    }
}

fn of_name(name: &str) -> Kind {
    if ALLOCATOR.contains(&name) || ALLOCATOR_STARTS.iter().any(|start| name.starts_with(start)) {
        Kind::Allocator
    } else if STARTS.contains(&name) || name.starts_with("std::rt::lang_start") {
        Kind::Start
    } else if WRAPPERS.contains(&name) || WRAPPER_STARTS.iter().any(|start| name.starts_with(start))
    {
        Kind::Wrapper
    } else {
        Kind::Other
    }
}

/// The kind of a frame without a name, in a file of this name.
pub fn of_file(file: &str) -> Kind {
    let is_one_of = |files: &[&str]| files.iter().any(|start| file.starts_with(start));
    if is_one_of(&ALLOCATOR_FILES) {
        Kind::Allocator
    } else if is_one_of(&LIBRARY_FILES) {
        Kind::Wrapper
    } else {
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_and_containers_are_told_from_a_program_s_own_code() {
        for name in [
            "malloc",
            "operator new[]",
            "__rust_alloc",
            "__rustc::__rdl_alloc",
            "je_malloc_default",
        ] {
            assert_eq!(of_name(name), Kind::Allocator, "{name}");
        }
        for name in [
            "std::vector<int>::push_back",
            "std::string::_M_mutate",
            "__gnu_cxx::new_allocator<int>::allocate",
            "alloc::raw_vec::RawVecInner<A>::grow_amortized",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "xmalloc",
        ] {
            assert_eq!(of_name(name), Kind::Wrapper, "{name}");
        }
        for name in [
            "main",
            "cache::Entry::new",
            "<shop::Shelf as core::clone::Clone>::clone",
            "allocate",
            "stdlib::f",
            "Foo::operator new",
        ] {
            assert_eq!(of_name(name), Kind::Other, "{name}");
        }
        let inlined = of_function("__invoke", "/usr/include/c++/12/bits/invoke.h");
        assert_eq!(inlined, Kind::Wrapper);
        assert_eq!(of_function("work", "/home/me/work.cpp"), Kind::Other);
        assert_eq!(of_file("libjemalloc.so.2"), Kind::Allocator);
        assert_eq!(of_file("libc.so.6"), Kind::Wrapper);
        assert_eq!(of_file("libcurl.so.4"), Kind::Other);
    }
}
