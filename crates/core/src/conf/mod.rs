//! The options: their definitions, and how a process gets its settings.
//!
//! [`read`] runs once, inside the first allocation of a process: before `main`, perhaps before libc
//! has initialised itself. So this layer allocates nothing, takes no lock, preserves `errno`,
//! writes messages with raw system calls, and cannot panic, whatever bytes it is given. It uses no
//! other layer; those read the [`Options`] it returns.
//!
//! The steps of a reading:
//!
//! 1. `system` finds the strings: the one compiled in, the program's symbol `malloc_conf`, the name
//!    in the symbolic link `/etc/malloc.conf`, the variable `MALLOC_CONF`, the program's symbol
//!    `malloc_conf_2_conf_harder`, the variable `MALLARD_CONF` (the variables only if the process
//!    has no more privileges than its caller).
//! 2. `reader` parses them in this order, `key:value,key:value`; later ones win.
//! 3. `options` holds the single table of all options; it finds the key's row, and the row's format
//!    (`value`, `text`) reads the value into its field.
//! 4. A mistake produces one line (`line`), on standard error or the caller's sink, that says what
//!    would be valid, with the `nearest` name to an unknown one.

mod line;
mod nearest;
mod options;
mod plain;
mod reader;
mod system;
mod text;
mod value;

#[cfg(test)]
mod tests;

use core::ffi::CStr;

pub use line::{LineBuffer, Sink};
pub use options::{DECAY_MS_MAX, Descriptor, Options, TABLE, find};
#[cfg(test)]
pub use options::{Effect, Origin};
pub use plain::{Plain, Shape};
pub use reader::{ReadOptions, Source, Sources, read_from};
pub use system::Stderr;
pub use text::{Text, range};
pub use value::{
    BackgroundThread, ConfirmConf, DirtyMax, Dss, ExportStats, FamilyMismatch, GuardAction,
    GuardAlign, HugifyStyle, Junk, MILLIONTHS_PER_ONE, MetadataThp, PercpuArena, ProfFormat,
    ProfTime, Thp, ZeroRealloc, ZeroSize,
};

/// The options that this library was built with: the variable `MALLARD_BUILD_CONF` at build time.
const COMPILED_IN: Option<&str> = option_env!("MALLARD_BUILD_CONF");

/// The string that this library was built with; empty if there is none.
pub fn compiled_in() -> &'static CStr {
    const TEXT: &str = match COMPILED_IN {
        Some(text) => text,
        None => "",
    };
    const WITH_NUL: [u8; TEXT.len() + 1] = {
        let mut bytes = [0; TEXT.len() + 1];
        let mut i = 0;
        while i < TEXT.len() {
            bytes[i] = TEXT.as_bytes()[i];
            i += 1;
        }
        bytes
    };
    CStr::from_bytes_until_nul(&WITH_NUL).unwrap_or_default()
}

/// Returns the strings that the symbols `malloc_conf` and `malloc_conf_2_conf_harder` point to.
pub type Symbols = fn() -> [Option<&'static CStr>; 2];

/// Reads the options of this process; those that are not set are taken from `options`. `None` if
/// there is nothing to read.
///
/// Messages go to `sink`. If the outcome says `must_abort`, the reason has been printed.
// Inlined into its only caller: every process runs it.
#[inline(always)]
pub fn read(
    options: &Options,
    symbols: Option<Symbols>,
    sink: &mut dyn Sink,
) -> Option<ReadOptions> {
    let _errno = system::KeptErrno::new();
    system::with_sources(COMPILED_IN.map(str::as_bytes), symbols, |sources| {
        (!sources.are_none()).then(|| read_and_keep(options, sources, sink))
    })
}

#[cold]
#[inline(never)]
fn read_and_keep(options: &Options, sources: &Sources<'_>, sink: &mut dyn Sink) -> ReadOptions {
    system::keep(sources);
    read_from(options, sources, sink)
}

/// The text that was read from [`Source::Link`] or [`Source::MallocConf`] at the start, if there
/// was one.
pub fn kept(source: Source) -> Option<&'static CStr> {
    system::kept(source)
}
