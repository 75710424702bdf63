//! The figures of the process as metrics for Prometheus: the report's third form.

use super::write::Out;
use crate::stats::page::Words;
use core::ffi::CStr;
use core::fmt::Write;
use mallard_formats::metrics::{self, Format};

/// Passes the text to `out`, in pieces. `None` when memory is out.
pub fn print(format: Format, out: &mut dyn FnMut(&CStr)) -> Option<()> {
    let words = Words::take()?;
    let mut out = Out::new(out);
    let mut text: &mut dyn Write = &mut out;
    // Writing to the buffer cannot fail.
    let _ = metrics::process(&mut text, format, &*words);
    out.flush();
    Some(())
}
