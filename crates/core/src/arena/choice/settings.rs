//! Settings of a single arena: its name, its dss preference, and the decay times and growth limit
//! of its page heap.
//!
//! Decay times and growth belong to the page heap. Automatic arenas share one per memory node, so
//! setting them for one arena sets them for the others too, unless it has hooks.

use crate::arena::making::making;
use crate::arena::small::subrelease;
use crate::arena::{Arena, Drain};
use crate::heap;
use crate::heap::hooks::ExtentHooks;
use crate::sys::atomic::{AtomicU8, AtomicU64, Ordering, settle};
use crate::sys::flag::Blocking;
use core::ffi::CStr;
use core::fmt::Write;

/// Bytes of a name, including the terminating zero.
pub const NAME_BYTES: usize = 32;

/// The `sbrk` preference: stored and reported, but never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Dss {
    Disabled,
    Primary,
    Secondary,
}

/// The value for new arenas.
static FIRST_DSS: AtomicU8 = AtomicU8::new(Dss::Disabled as u8);

pub fn first_dss() -> Dss {
    Dss::of(FIRST_DSS.load(Ordering::Relaxed))
}

pub fn set_first_dss(dss: Dss) {
    settle!(FIRST_DSS, dss as u8);
}

impl Dss {
    fn of(byte: u8) -> Dss {
        match byte {
            0 => Dss::Disabled,
            1 => Dss::Primary,
            _ => Dss::Secondary,
        }
    }
}

pub struct Settings {
    /// A zero-terminated string, or all zero for the default name with the arena's number.
    name: [AtomicU64; NAME_BYTES / 8],
    dss: AtomicU8,
}

impl Settings {
    pub fn new() -> Self {
        Settings {
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
            dss: AtomicU8::new(first_dss() as u8),
        }
    }

    /// Resets the settings, for a new arena with this record.
    pub fn clear(&self) {
        self.set_name_bytes(&[0; NAME_BYTES]);
        self.dss.store(first_dss() as u8, Ordering::Relaxed);
    }

    fn set_name_bytes(&self, bytes: &[u8; NAME_BYTES]) {
        for (word, bytes) in self.name.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
}

/// Text in a buffer of a name's length, truncated to fit.
struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl Name {
    fn add(&mut self, text: &[u8]) {
        let n = text.len().min(NAME_BYTES - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&text[..n]);
        self.len += n;
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

impl Arena {
    /// The name, zero-terminated.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = Name {
            bytes: [0; NAME_BYTES],
            len: 0,
        };
        let _arenas = making();
        for (bytes, word) in (name.bytes.as_chunks_mut().0.iter_mut()).zip(&self.settings.name) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if name.bytes[0] == 0 {
            let kind = if self.is_manual() { "manual" } else { "auto" };
            name.bytes = [0; NAME_BYTES];
            let _ = write!(name, "{kind}_{}", self.index);
        }
        name.bytes
    }

    /// Sets the name, truncated to fit. An empty name restores the default.
    pub fn set_name(&self, text: &CStr) {
        let mut name = Name {
            bytes: [0; NAME_BYTES],
            len: 0,
        };
        name.add(text.to_bytes());
        let _arenas = making();
        self.settings.set_name_bytes(&name.bytes);
    }

    pub fn dss(&self) -> Dss {
        Dss::of(self.settings.dss.load(Ordering::Relaxed))
    }

    pub fn set_dss(&self, dss: Dss) {
        self.settings.dss.store(dss as u8, Ordering::Relaxed);
    }

    /// The decay times of dirty and of muzzy pages in milliseconds: 0 at once, negative never.
    pub fn decay_times(&self) -> (i64, i64) {
        self.heap().decay_times()
    }

    /// Sets the decay time of dirty pages, of muzzy ones, or both.
    pub fn set_decay(&self, dirty_ms: Option<i64>, muzzy_ms: Option<i64>) {
        self.heap().set_decay_of(dirty_ms, muzzy_ms);
    }

    /// Returns the memory of its page heap that is due.
    pub fn decay(&self) {
        self.heap().purge_due();
    }

    /// Returns all free memory of its page heap, its transfer caches and its slabs. Returns whether
    /// there was any.
    pub fn purge(&self) -> bool {
        {
            let _in_hand = self.is_manual().then(|| self.in_hand.raise(Blocking::Yes));
            self.drain_transfer_caches(Drain::All);
            self.drain_spares(Drain::All);
        }
        subrelease::all(Some(self.index)) | self.heap().purge_all()
    }

    /// Its hooks; the default ones if its memory comes from the common segments.
    pub fn hooks(&self) -> *mut ExtentHooks {
        self.heap().hooks()
    }

    /// Makes these hooks provide new memory, and hands them the memory that hooks have provided so
    /// far; an automatic arena gets a page heap of its own for that. Returns the previous hooks;
    /// `None` when memory is out.
    ///
    /// # Safety
    /// The table stays valid as long as the arena has memory, and its hooks do what is documented
    /// of them.
    pub unsafe fn set_hooks(&self, table: *mut ExtentHooks) -> Option<*mut ExtentHooks> {
        let heaps = heap::making();
        let shared = self.heap();
        let before = shared.hooks();
        let nothing_new = core::ptr::eq(before, table) || table.is_null();
        if nothing_new {
            return Some(before);
        }
        let own = if shared.is_apart() {
            shared
        } else {
            heap::make_apart(&heaps)?
        };
        own.set_hooks(self.index.into(), table);
        if !shared.is_apart() {
            let (dirty, muzzy) = shared.decay_times();
            own.set_decay_of(Some(dirty), Some(muzzy));
            self.heap.set(own);
        }
        Some(before)
    }

    /// The most bytes by which its page heap grows at a time.
    pub fn growth_limit(&self) -> usize {
        self.heap().growth_limit()
    }

    pub fn set_growth_limit(&self, bytes: usize) {
        self.heap().set_growth_limit(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::choice::manual;
    use crate::arena::table;
    use crate::testing::alone;

    fn made() -> &'static Arena {
        // SAFETY: no hooks.
        unsafe { manual::create(core::ptr::null_mut()) }.unwrap()
    }

    fn text(name: &[u8; NAME_BYTES]) -> &str {
        CStr::from_bytes_until_nul(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn a_name_is_what_was_set_cut_off_or_what_the_number_gives() {
        crate::testing::own_process!();
        let _alone = alone();
        assert_eq!(text(&table::any().unwrap().name()), "auto_0");
        let arena = made();
        let first = std::format!("manual_{}", arena.index());
        assert_eq!(text(&arena.name()), first);
        for (set, got) in [
            (c"a", "a"),
            (
                c"thirty-one characters are kept, the rest is not",
                "thirty-one characters are kept,",
            ),
        ] {
            arena.set_name(set);
            assert_eq!(text(&arena.name()), got);
        }
        assert!(arena.destroy());
        let again = made();
        assert_eq!(text(&again.name()), first, "the next one's name is its own");
        assert!(again.destroy());
    }

    #[test]
    fn decay_times_of_one_arena_are_not_those_of_another() {
        crate::testing::own_process!();
        let _alone = alone();
        let (a, b) = (made(), made());
        let before = b.decay_times();
        a.set_decay(Some(17), None);
        a.set_decay(None, Some(-1));
        assert_eq!(a.decay_times(), (17, -1));
        assert_eq!(b.decay_times(), before);
        assert!(a.destroy() && b.destroy());
        let again = made();
        assert_eq!(
            again.decay_times(),
            before,
            "nothing is left of the last one"
        );
        assert!(again.destroy());
    }
}
