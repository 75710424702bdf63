//! Calls of the C functions, read from bytes, on the library and on the C library's own `malloc`:
//! null or not, what they return, `errno`, alignment and contents must be the same. The fuzzer
//! (`fuzz/`) includes this file.

use super::bytes::Bytes;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Error;

const RTLD_NOW: c_int = 2;
/// A value of `errno` that no function sets.
const UNTOUCHED: i32 = 77;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

type Block = *mut u8;

/// The functions of one library.
pub struct Face {
    malloc: unsafe extern "C" fn(usize) -> Block,
    calloc: unsafe extern "C" fn(usize, usize) -> Block,
    realloc: unsafe extern "C" fn(Block, usize) -> Block,
    reallocarray: unsafe extern "C" fn(Block, usize, usize) -> Block,
    free: unsafe extern "C" fn(Block),
    posix_memalign: unsafe extern "C" fn(*mut Block, usize, usize) -> c_int,
    aligned_alloc: unsafe extern "C" fn(usize, usize) -> Block,
    memalign: unsafe extern "C" fn(usize, usize) -> Block,
    valloc: unsafe extern "C" fn(usize) -> Block,
    pvalloc: unsafe extern "C" fn(usize) -> Block,
    usable_size: unsafe extern "C" fn(Block) -> usize,
}

impl Face {
    /// The functions of the library at this path, which is loaded beside the program's own.
    pub fn of(path: &str) -> Face {
        let path = CString::new(path).expect("a path");
        // SAFETY: a string that ends with a null byte; the library's start has no demands.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        // SAFETY: functions of these names have these types in C.
        unsafe {
            Face {
                malloc: function(library, c"malloc"),
                calloc: function(library, c"calloc"),
                realloc: function(library, c"realloc"),
                reallocarray: function(library, c"reallocarray"),
                free: function(library, c"free"),
                posix_memalign: function(library, c"posix_memalign"),
                aligned_alloc: function(library, c"aligned_alloc"),
                memalign: function(library, c"memalign"),
                valloc: function(library, c"valloc"),
                pvalloc: function(library, c"pvalloc"),
                usable_size: function(library, c"malloc_usable_size"),
            }
        }
    }
}

/// The function of a library with this name.
///
/// # Safety
/// The library stays loaded, and `F` is a pointer to a function of the type that this one has.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> F {
    // SAFETY: the caller's promise.
    let at = unsafe { dlsym(library, name.as_ptr()) };
    assert!(!at.is_null(), "there is no {name:?}");
    assert_eq!(size_of::<F>(), size_of_val(&at));
    // SAFETY: the caller's promise; both are pointers.
    unsafe { std::mem::transmute_copy(&at) }
}

/// One call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Malloc(usize),
    Calloc(usize, usize),
    Realloc(usize),
    Reallocarray(usize, usize),
    Free,
    PosixMemalign(usize, usize),
    AlignedAlloc(usize, usize),
    Memalign(usize, usize),
    Valloc(usize),
    Pvalloc(usize),
}
use Call::*;

/// What a call returned: the block, the number, and `errno`.
struct Answer {
    block: Block,
    code: c_int,
    errno: i32,
}

impl Call {
    fn read(bytes: &mut Bytes) -> Call {
        match bytes.byte() % 12 {
            0 | 1 => Malloc(size(bytes)),
            2 => Calloc(size(bytes), factor(bytes)),
            3 | 4 => Realloc(size(bytes)),
            5 => Reallocarray(size(bytes), factor(bytes)),
            6 => Free,
            7 => PosixMemalign(any_align(bytes), size(bytes)),
            8 => AlignedAlloc(align(bytes), size(bytes)),
            9 => Memalign(any_align(bytes), size(bytes)),
            10 => Valloc(size(bytes)),
            _ => Pvalloc(size(bytes)),
        }
    }

    /// Calls the function of a library, with its own block for those that take one.
    fn on(self, face: &Face, old: Block) -> Answer {
        let (mut block, mut code) = (std::ptr::null_mut(), 0);
        // SAFETY: the block is null or live, and not used again unless the call fails; `errno` is
        // this thread's.
        unsafe {
            __errno_location().write(UNTOUCHED);
            match self {
                Malloc(size) => block = (face.malloc)(size),
                Calloc(count, size) => block = (face.calloc)(count, size),
                Realloc(size) => block = (face.realloc)(old, size),
                Reallocarray(count, size) => block = (face.reallocarray)(old, count, size),
                Free => (face.free)(old),
                PosixMemalign(align, size) => {
                    code = (face.posix_memalign)(&mut block, align, size);
                }
                AlignedAlloc(align, size) => block = (face.aligned_alloc)(align, size),
                Memalign(align, size) => block = (face.memalign)(align, size),
                Valloc(size) => block = (face.valloc)(size),
                Pvalloc(size) => block = (face.pvalloc)(size),
            }
        }
        let errno = Error::last_os_error().raw_os_error().unwrap_or(0);
        Answer { block, code, errno }
    }

    /// The bytes that the caller may use, and the alignment that it may rely on.
    fn promise(self) -> (usize, usize) {
        match self {
            Malloc(size) | Realloc(size) => (size, natural(size)),
            Calloc(count, size) | Reallocarray(count, size) => {
                let bytes = count.wrapping_mul(size);
                (bytes, natural(bytes))
            }
            Free => (0, 1),
            PosixMemalign(align, size) | AlignedAlloc(align, size) => (size, align),
            Memalign(align, size) => (size, align.checked_next_power_of_two().unwrap_or(1)),
            Valloc(size) => (size, 4096),
            Pvalloc(size) => (size.checked_next_multiple_of(4096).unwrap_or(size), 4096),
        }
    }
}

fn natural(size: usize) -> usize {
    if size < 16 { 8 } else { 16 }
}

/// A size that there is memory for, or one that no system has memory for.
fn size(bytes: &mut Bytes) -> usize {
    match bytes.byte() {
        0 => 0,
        n @ 1..9 => (usize::MAX << (n * 2)) - bytes.pair() % 2 * 0x1001,
        9 => isize::MAX as usize - bytes.pair(),
        10 => isize::MAX as usize + bytes.pair(),
        11 => usize::MAX - bytes.pair(),
        _ => bytes.size(),
    }
}

fn factor(bytes: &mut Bytes) -> usize {
    match bytes.byte() {
        0 => 0,
        n @ 1..9 => 1 << (n * 7),
        n => usize::from(n % 3 + 1),
    }
}

/// A power of two.
fn align(bytes: &mut Bytes) -> usize {
    match bytes.byte() {
        n @ 0..8 => 1 << (47 + n * 2),
        _ => bytes.align(),
    }
}

fn any_align(bytes: &mut Bytes) -> usize {
    match bytes.byte() {
        0..64 => align(bytes),
        n @ 64..72 => usize::from(n - 64) * 3,
        72 => usize::MAX - bytes.pair(),
        _ => bytes.align(),
    }
}

/// A block of each library, of the same size and contents.
#[derive(Clone, Copy)]
struct Pair {
    ours: Block,
    theirs: Block,
    len: usize,
}

impl Pair {
    fn contents(&self) -> [&[u8]; 2] {
        // SAFETY: both blocks are live and this long, and all of their bytes have been written.
        [self.ours, self.theirs].map(|p| unsafe { std::slice::from_raw_parts(p, self.len) })
    }

    fn assert_alike(&self, call: Call) {
        let [ours, theirs] = self.contents();
        assert!(ours == theirs, "contents after {call:?}");
    }
}

/// Whether the system may have memory for this or not: the libraries may differ.
fn is_open(call: Call) -> bool {
    let bytes = match call {
        Calloc(count, size) | Reallocarray(count, size) => count.checked_mul(size),
        other => Some(other.promise().0),
    };
    bytes.is_some_and(|bytes| (64 << 20..1 << 47).contains(&bytes))
}

/// Makes the calls on both libraries.
pub fn calls(ours: &Face, theirs: &Face, bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut pairs: [Option<Pair>; 16] = [None; 16];
    let mut fill = 0u8;
    while !bytes.is_empty() {
        let slot = bytes.below(pairs.len());
        let call = Call::read(&mut bytes);
        if is_open(call) {
            continue;
        }
        let takes_old = matches!(call, Realloc(_) | Reallocarray(..) | Free);
        let old = pairs[slot].take();
        if !takes_old && let Some(old) = old {
            // SAFETY: both blocks are live.
            unsafe {
                (ours.free)(old.ours);
                (theirs.free)(old.theirs);
            }
        }
        let old = old.filter(|_| takes_old);
        let null = std::ptr::null_mut();
        let [mine, other] = [
            call.on(ours, old.map_or(null, |pair| pair.ours)),
            call.on(theirs, old.map_or(null, |pair| pair.theirs)),
        ];
        assert_eq!(
            mine.block.is_null(),
            other.block.is_null(),
            "null or not: {call:?}"
        );
        assert_eq!(mine.code, other.code, "returned: {call:?}");
        if mine.block.is_null() {
            // `posix_memalign` reports by its result; the C library's sets `errno` besides.
            let errno = match call {
                PosixMemalign(..) => UNTOUCHED,
                _ => other.errno,
            };
            assert_eq!(mine.errno, errno, "errno: {call:?}");
            let is_freed = matches!(call, Free | Realloc(0))
                || matches!(call, Reallocarray(a, b) if a.checked_mul(b) == Some(0));
            if !is_freed && let Some(old) = old {
                old.assert_alike(call);
                pairs[slot] = Some(old);
            }
            continue;
        }
        assert_eq!(mine.errno, UNTOUCHED, "errno after success: {call:?}");
        let (len, align) = call.promise();
        assert!(
            mine.block.addr().is_multiple_of(align),
            "{:p}: {call:?}",
            mine.block
        );
        // SAFETY: a live block.
        let usable = unsafe { (ours.usable_size)(mine.block) };
        assert!(usable >= len, "{usable} usable bytes: {call:?}");
        let mut pair = Pair {
            ours: mine.block,
            theirs: other.block,
            len,
        };
        if let Some(old) = old {
            pair.len = old.len.min(len);
            pair.assert_alike(call);
        } else if matches!(call, Calloc(..)) {
            pair.assert_alike(call);
        }
        fill = fill.wrapping_add(1);
        // SAFETY: both blocks are live and this long.
        unsafe {
            pair.ours.write_bytes(fill, len);
            pair.theirs.write_bytes(fill, len);
        }
        pair.len = len;
        pairs[slot] = Some(pair);
    }
    for pair in pairs.into_iter().flatten() {
        pair.assert_alike(Free);
        // SAFETY: both blocks are live.
        unsafe {
            (ours.free)(pair.ours);
            (theirs.free)(pair.theirs);
        }
    }
}
