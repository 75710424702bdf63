//! The system's sources of options.

extern crate std;

use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::{env, format, fs, process};

use crate::conf::system::{EarlyEnvironment, KeptErrno, read_link, variable};

/// Looks `name` up in an environment made of `entries`.
fn look_up<'a>(entries: &[&'a CStr], name: &[u8]) -> Option<&'a [u8]> {
    let mut array: std::vec::Vec<*const c_char> = entries.iter().map(|e| e.as_ptr()).collect();
    array.push(core::ptr::null());
    // SAFETY: the array ends in a null pointer and its strings live for 'a.
    unsafe { variable(array.as_ptr(), name) }
}

#[test]
fn a_variable_is_found_by_its_whole_name_and_the_first_counts() {
    let entries = [
        c"MALLOC_CONFUSION=a",
        c"XMALLOC_CONF=b",
        c"MALLOC_CONF",
        c"MALLOC_CONF=narenas:1,prof_prefix:a=b",
        c"MALLOC_CONF=narenas:2",
        c"EMPTY=",
    ];
    assert_eq!(
        look_up(&entries, b"MALLOC_CONF"),
        Some(&b"narenas:1,prof_prefix:a=b"[..])
    );
    assert_eq!(look_up(&entries, b"EMPTY"), Some(&b""[..]));
    assert_eq!(look_up(&entries, b"MALLARD_CONF"), None);
    assert_eq!(look_up(&[], b"MALLOC_CONF"), None);
}

#[test]
fn the_kernels_copy_of_the_environment_serves_before_libc_does() {
    let early = EarlyEnvironment::read();
    let mut compared = 0;
    for (name, value) in env::vars_os() {
        // The kernel's copy has only the variables that existed at the start of the process.
        if let Some(found) = early.variable(name.as_bytes()) {
            assert_eq!(found, value.as_bytes(), "{name:?}");
            compared += 1;
        }
    }
    assert!(
        compared > 0,
        "cargo sets variables for its tests, none was found"
    );
    assert_eq!(early.variable(b"MALLARD_NO_SUCH_VARIABLE"), None);
}

#[test]
fn a_link_gives_its_name_and_anything_else_nothing() {
    let folder = env::temp_dir().join(format!("mallard-conf-link-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder in the temporary directory");
    let c_path = |name: &str| {
        CString::new(folder.join(name).as_os_str().as_bytes()).expect("a path has no NUL")
    };
    std::os::unix::fs::symlink("narenas:5,zero:true", folder.join("link")).expect("a link");
    fs::write(folder.join("file"), "narenas:6").expect("a file");

    let mut buffer = [0u8; 64];
    assert_eq!(
        read_link(&c_path("link"), &mut buffer),
        Some(&b"narenas:5,zero:true"[..])
    );
    assert_eq!(read_link(&c_path("file"), &mut buffer), None);
    assert_eq!(read_link(&c_path("missing"), &mut buffer), None);
    fs::remove_dir_all(&folder).expect("the folder goes away again");
}

#[test]
fn errno_survives() {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = 1234 };
    {
        let _kept = KeptErrno::new();
        let mut buffer = [0u8; 8];
        assert_eq!(read_link(c"/no/such/link", &mut buffer), None);
        // SAFETY: as above.
        let changed = unsafe { *libc::__errno_location() };
        assert_eq!(changed, libc::ENOENT, "the call did change it");
    }
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 1234);
}
