//! Misuses a guarded block of Rust, as the argument says.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    fn malloc_usable_size(p: *mut c_void) -> usize;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

#[inline(never)]
fn make_bytes(layout: Layout) -> *mut u8 {
    unsafe { alloc(layout) }
}

#[inline(never)]
fn drop_bytes(p: *mut u8, layout: Layout) {
    unsafe { dealloc(p, layout) }
}

#[inline(never)]
fn set_byte(p: *mut u8, at: usize) {
    unsafe { p.add(at).write_volatile(1) }
}

fn main() {
    let how = std::env::args().nth(1).unwrap();
    let (mallctl, mut on) = (
        unsafe { dlsym(std::ptr::null_mut(), c"mallctl".as_ptr()) },
        true,
    );
    let mallctl: Mallctl = unsafe { std::mem::transmute(mallctl) };
    let name = c"experimental.guard.active".as_ptr();
    let null = std::ptr::null_mut();
    let set = unsafe { mallctl(name, null, std::ptr::null_mut(), (&raw mut on).cast(), 1) };
    assert_eq!(set, 0);
    let layout = Layout::from_size_align(40, 8).unwrap();
    let p = (0..1_000_000)
        .find_map(|_| {
            let p = make_bytes(layout);
            if unsafe { malloc_usable_size(p.cast()) } == 40 && p.addr() % 4096 != 0 {
                return Some(p);
            }
            drop_bytes(p, layout);
            None
        })
        .unwrap();
    if how == "overflow" {
        set_byte(p, 48);
    }
    drop_bytes(p, layout);
    if how == "write" {
        set_byte(p, 8);
    }
    if how == "read" {
        std::process::exit(unsafe { p.add(8).read_volatile() }.into());
    }
    drop_bytes(p, layout);
    println!("went on");
}
