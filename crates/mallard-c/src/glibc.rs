//! What the GNU C library's allocator offers beyond the standards, with types or parameters of its
//! own: `mallinfo`, `malloc_info`, `mallopt`. Left out on musl, whose headers lack all of them.
//!
//! The statistics follow glibc's manual as far as its terms apply here: all memory is in one arena
//! of mapped chunks, so `arena` is the committed heap, `hblks` is always 0, and `fordblks` is the
//! free part of the heap's resident memory.

use core::ffi::{c_int, c_void};
use core::fmt::Write;
use mallard_core::stats;

use crate::upkeep::lines;

/// The figures of [`mallinfo2`] in glibc's order.
struct MallInfo {
    arena: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
    fsmblks: usize,
}

fn figures() -> MallInfo {
    let s = stats::now();
    MallInfo {
        arena: s.mapped,
        uordblks: s.allocated,
        fordblks: (s.active + s.dirty + s.muzzy).saturating_sub(s.allocated),
        keepcost: s.dirty + s.muzzy,
        fsmblks: s.cached,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let f = figures();
    libc::mallinfo2 {
        arena: f.arena,
        ordblks: 0,
        smblks: 0,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: f.fsmblks,
        uordblks: f.uordblks,
        fordblks: f.fordblks,
        keepcost: f.keepcost,
    }
}

/// Like [`mallinfo2`] with the old, narrow type: larger values are capped.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> libc::mallinfo {
    let narrow = |n: usize| n.min(c_int::MAX as usize) as c_int;
    let f = figures();
    libc::mallinfo {
        arena: narrow(f.arena),
        ordblks: 0,
        smblks: 0,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: narrow(f.fsmblks),
        uordblks: narrow(f.uordblks),
        fordblks: narrow(f.fordblks),
        keepcost: narrow(f.keepcost),
    }
}

/// Accepts glibc's parameters, none of which applies here: returns 1 for those it knows, which are
/// hints, else 0. Mallard's own options are read from `MALLOC_CONF`.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(param: c_int, _value: c_int) -> c_int {
    /// `M_MXFAST`, the only one above zero.
    const MXFAST: c_int = 1;
    /// From `M_ARENA_MAX` to `M_TRIM_THRESHOLD`.
    const HINTS: core::ops::RangeInclusive<c_int> = -8..=-1;
    (param == MXFAST || HINTS.contains(&param)) as c_int
}

/// Writes the statistics as XML to a stream; `options` must be 0.
///
/// # Safety
/// `stream` is a valid stream of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let s = stats::now();
    let mut out = Stream { stream, ok: true };
    let _ = writeln!(out, "<malloc version=\"1\">");
    let _ = writeln!(out, "<heap nr=\"0\">");
    let _ = writeln!(out, "<system type=\"current\" size=\"{}\"/>", s.mapped);
    let _ = writeln!(out, "<aspace type=\"total\" size=\"{}\"/>", s.mapped);
    let _ = writeln!(out, "</heap>");
    for (name, value) in lines(&s) {
        let (what, unit) = name.split_once(' ').unwrap_or((name, "count"));
        let _ = writeln!(out, "<total type=\"{what}\" {unit}=\"{value}\"/>");
    }
    let _ = writeln!(out, "</malloc>");
    if out.ok { 0 } else { -1 }
}

/// A stream of the C library as a writer.
struct Stream {
    stream: *mut libc::FILE,
    ok: bool,
}

impl Write for Stream {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        // SAFETY: the caller of `malloc_info` vouches for the stream; the text is valid.
        let n = unsafe { libc::fwrite(s.as_ptr().cast::<c_void>(), 1, s.len(), self.stream) };
        if n != s.len() {
            self.ok = false;
        }
        Ok(())
    }
}
