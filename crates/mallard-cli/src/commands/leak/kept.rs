//! Which blocks are no leaks: those that libraries keep for themselves until the end, and those
//! whose call stacks the user leaves out.
//!
//! A library keeps what it asked for itself. What a callback or a constructor of other code asked
//! for is not its own, although the library lies in the call stack as well.

use mallard_profile::model::{LocationIndex, Profile};
use mallard_profile::view::stack::{Stacks, Step};

/// How the files of the C library, of the loader and of the library of C++ begin.
const LIBRARIES: [&str; 15] = [
    "libc.so",
    "libc-2.",
    "libc.musl-",
    "ld-linux",
    "ld-2.",
    "ld-musl-",
    "ld64.so",
    "libdl.so",
    "libdl-2.",
    "libpthread.so",
    "libpthread-2.",
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "libgcc_s.so",
];

/// What these keep until the end: buffers of stdio, what the loader knows of libraries,
/// thread-local storage, locales, time zones, lists of functions to run at the end, and the reserve
/// of C++ for exceptions.
const OF_LIBRARIES: [&str; 16] = [
    "_IO_*doallocate",
    "_IO_*doallocbuf",
    "_dl_*",
    "dl_*",
    "dlerror*",
    "allocate_dtv",
    "allocate_dtv_entry",
    "__new_exitfn",
    "__cxa_atexit",
    "__cxa_thread_atexit_impl",
    "setlocale",
    "_nl_*",
    "tzset*",
    "__tz*",
    "__gnu_cxx::__freeres",
    "*::pool::pool",
];

/// What the runtimes of C++ and Rust keep, wherever they are linked: the reserve for exceptions;
/// what is known of threads, the buffers of stdio, and the debug information that a backtrace read.
const OF_RUNTIMES: [&str; 8] = [
    "__gnu_cxx::__freeres",
    "_GLOBAL__sub_I_eh_alloc.cc",
    "_GLOBAL__sub_I__ZN9__gnu_cxx9__freeresEv",
    "std::thread::current::*",
    "std::sys::*::stack_overflow::*",
    "std::io::stdio::std*",
    "*OnceLock<*std::io::stdio::Std*Raw*",
    "*std::backtrace_rs::symbolize::gimli::*",
];

/// The function of Rust's runtime that calls `main`, and the last one before it.
const RUST_START: &str = "std::rt::lang_start_internal*";
const RUST_MAIN: &str = "*__rust_begin_short_backtrace*";

/// The profile without what libraries keep, and without stacks that have a function of one of these
/// patterns.
pub fn without(profile: &Profile, suppressed: &[String]) -> Profile {
    let is_static = !profile
        .mappings
        .iter()
        .any(|mapping| is_library(mapping.name()));
    let mut stacks = Stacks::new(profile);
    let mut rest = profile.clone();
    rest.samples.retain(|sample| {
        !is_suppressed(profile, &sample.stack, suppressed)
            && !is_kept(&stacks.steps(&sample.stack).all, is_static)
    });
    rest
}

fn is_suppressed(profile: &Profile, stack: &[LocationIndex], patterns: &[String]) -> bool {
    let locations = stack.iter().map(|&index| profile.location(index));
    let mut frames = locations.flat_map(|location| &location.frames);
    frames.any(|frame| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| fits(pattern, &frame.function))
    })
}

/// Whether a library or a runtime keeps the blocks of this stack, which is without the allocator.
fn is_kept(steps: &[Step<'_>], is_static: bool) -> bool {
    let has = |pattern: &str| steps.iter().any(|step| fits(pattern, &step.name));
    if OF_RUNTIMES.iter().any(|pattern| has(pattern)) {
        return true;
    }
    // Rust's own preparations have no `main` in their stacks.
    if has(RUST_START) && !has(RUST_MAIN) {
        return true;
    }
    let mut own = steps
        .iter()
        .take_while(|step| is_static || step.mapping.is_some_and(|it| is_library(it.name())));
    own.any(|step| {
        // glibc's name for calls from inside.
        let name = step.name.strip_prefix("__GI_").unwrap_or(&step.name);
        let mut patterns = OF_LIBRARIES.iter();
        patterns.any(|pattern| (!is_static || is_reserved(pattern)) && fits(pattern, name))
    })
}

fn is_library(file: &str) -> bool {
    LIBRARIES.iter().any(|start| file.starts_with(start))
}

/// Whether a pattern stands for names of the C library alone, even in a static program, which has
/// them in one file with its own: one function, or names that C leaves to its library.
fn is_reserved(pattern: &str) -> bool {
    pattern.starts_with('_') || !pattern.contains('*')
}

/// Whether a text fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mallard_profile::model::{Frame, Location, Mapping, MappingIndex, Sample, SampleType};

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, text, expected) in [
            ("main", "main", true),
            ("main", "mains", false),
            ("_dl_*", "_dl_map_object", true),
            ("*::pool::pool", "(anonymous namespace)::pool::pool", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// Whether blocks of a stack are left out. A frame is `FILE FUNCTION`, or `FILE` alone without
    /// a name; the innermost is first.
    fn is_left_out(stack: &[&str], suppressed: &[&str]) -> bool {
        let mut profile = Profile {
            types: vec![SampleType::new("inuse_space", "bytes")],
            ..Profile::default()
        };
        for (index, text) in (0..).zip(stack) {
            let (file, function) = text.split_once(' ').unwrap_or((text, ""));
            profile.mappings.push(Mapping {
                path: format!("/lib/{file}").into(),
                ..Mapping::default()
            });
            let frame = Frame {
                function: function.into(),
                ..Frame::default()
            };
            profile.locations.push(Location {
                address: index,
                mapping: Some(MappingIndex(index as u32)),
                frames: [frame]
                    .into_iter()
                    .filter(|_| !function.is_empty())
                    .collect(),
            });
        }
        profile.samples.push(Sample {
            stack: (0..stack.len() as u32).map(LocationIndex).collect(),
            values: vec![1],
            labels: Vec::new(),
        });
        let suppressed: Vec<String> = suppressed.iter().map(|&it| it.to_owned()).collect();
        without(&profile, &suppressed).samples.is_empty()
    }

    #[test]
    fn what_libraries_keep_is_left_out() {
        let main = ["app main", "libc.so.6 __libc_start_main", "app _start"];
        for inner in [
            &["libc.so.6 __GI__IO_file_doallocate", "libc.so.6 puts"][..],
            &["libc.so.6 allocate_dtv", "libc.so.6 __pthread_create_2_1"],
            &["libc-2.31.so tzset_internal", "libc-2.31.so __tz_convert"],
            &["ld-linux-x86-64.so.2 dl_open_worker", "libc.so.6 dlopen"],
            &["libstdc++.so.6 (anonymous namespace)::pool::pool"],
            &["libstdc++.so.6", "ld-linux-x86-64.so.2 _dl_init"],
            &["app _GLOBAL__sub_I_eh_alloc.cc"],
        ] {
            let stack = [&["libmallard.so malloc"], inner, &main].concat();
            assert!(is_left_out(&stack, &[]), "{stack:?}");
        }
    }

    #[test]
    fn functions_of_the_program_are_not_a_library_s_by_their_names() {
        let main = ["app main", "libc.so.6 __libc_start_main", "app _start"];
        for inner in [
            &["app dl_enqueue"][..],
            &["app _dl_mine"],
            &["app net::pool::pool"],
            &["app tzsetter", "libc.so.6 qsort"],
            // What constructors of other libraries hold is theirs.
            &["libmine.so prepare", "ld-linux-x86-64.so.2 _dl_init"],
            &[
                "app (anonymous namespace)::pool::pool",
                "libc.so.6 setlocale",
            ],
        ] {
            let stack = [&["libmallard.so malloc"], inner, &main].concat();
            assert!(!is_left_out(&stack, &[]), "{stack:?}");
            assert!(is_left_out(&stack, &["ma*n"]), "{stack:?}");
        }
    }

    #[test]
    fn a_static_program_has_the_names_of_its_c_library_in_its_own_file() {
        let of = |function: &str| is_left_out(&["app malloc", function, "app main"], &[]);
        for function in ["_dl_map_object", "setlocale", "_IO_file_doallocate"] {
            assert!(of(&format!("app {function}")), "{function}");
        }
        for function in ["dl_enqueue", "net::pool::pool", "tzsetter"] {
            assert!(!of(&format!("app {function}")), "{function}");
        }
    }

    #[test]
    fn rust_s_runtime_keeps_what_it_asked_for_outside_of_main() {
        let start = [
            "app std::rt::lang_start_internal",
            "app main",
            "libc.so.6 _",
        ];
        let main = [
            "app leaky::main",
            "app std::sys::backtrace::__rust_begin_short_backtrace",
            "app std::rt::lang_start::{{closure}}",
        ];
        let of = |inner: &str, is_in_main: bool| {
            let main = if is_in_main { &main[..] } else { &[] };
            let stack = [&["libmallard.so malloc", inner], main, &start].concat();
            is_left_out(&stack, &[])
        };
        assert!(of("app <std::thread::Thread>::new", false));
        assert!(of("app std::thread::current::init_current", true));
        assert!(of("app std::io::stdio::stdin", true));
        assert!(!of("app leaky::enqueue", true));
        assert!(!of("app <std::io::stdio::Stdin>::read_line", true));
    }
}
