//! Switches guards on and off.

use super::{Side, blocks, handler, pool, rate, report};
use crate::cache::inside;
use crate::prof::{self, callers, capture, guards};
use crate::sys::atomic::{AtomicU32, Ordering};

/// The mean bytes between guarded blocks (base-2 logarithm), from the options.
static LG_BYTES: AtomicU32 = AtomicU32::new(LG_BYTES_DEFAULT);

/// 64 KiB.
const LG_BYTES_DEFAULT: u32 = 16;

/// How guards work, from the options.
pub struct Settings {
    /// The mean bytes between guarded blocks; 0 for the default.
    pub bytes: u64,
    /// The most in a second; 0 for no such bound.
    pub max_a_second: u32,
    /// Whether the program goes on after a finding.
    pub goes_on: bool,
    /// Where blocks lie in their pages; `None` for either side by chance.
    pub side: Option<Side>,
    /// The most blocks at a time, those that were freed and stay closed included.
    pub slots: u32,
    /// The sites whose requests all get such blocks, as [`callers::choose`] takes them; empty to
    /// choose requests by their bytes.
    pub sites: &'static [u8],
}

/// Whether some requests get guarded blocks.
pub fn is_on() -> bool {
    guards::are_on()
}

/// Lets some requests get guarded blocks. False when memory is out.
pub fn on(settings: &Settings) -> bool {
    let _inside = inside::enter_or_wait();
    if !crate::report::begin() || !pool::begin(settings.slots) {
        return false;
    }
    rate::begin(settings.max_a_second);
    let lg = settings.bytes.checked_ilog2().unwrap_or(LG_BYTES_DEFAULT);
    LG_BYTES.store(lg, Ordering::Relaxed);
    report::configure(settings.goes_on);
    blocks::set_side(settings.side);
    capture::begin();
    let by_site = !settings.sites.is_empty();
    if by_site && !callers::choose(settings.sites) {
        return false;
    }
    guards::set_by_site(by_site);
    prof::switch_guards(Some(lg), blocks::replace, handler::install);
    true
}

/// Gives no more requests guarded blocks. Those in use stay until they are freed.
pub fn off() {
    let _inside = inside::enter_or_wait();
    if is_on() {
        prof::switch_guards(None, blocks::replace, handler::remove);
    }
}

/// The figures of guards.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Guarded blocks so far, and in use.
    pub blocks: u64,
    pub live: usize,
    /// Bytes of the pages that are open for them.
    pub open_bytes: usize,
    pub findings: u32,
    /// The mean bytes between two (base-2 logarithm).
    pub lg_bytes: u32,
}

/// Reads the figures.
pub fn totals() -> Totals {
    let _inside = inside::enter_or_wait();
    Totals {
        blocks: rate::blocks(),
        live: pool::live(),
        open_bytes: pool::open_bytes(),
        findings: report::findings(),
        lg_bytes: LG_BYTES.load(Ordering::Relaxed),
    }
}
