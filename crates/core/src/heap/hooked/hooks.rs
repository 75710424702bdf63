//! Extent hooks: functions of the program that provide an arena's memory, with jemalloc's types.
//!
//! [`DEFAULT`] holds working functions over the system's own calls, for programs that take the
//! hooks of an arena, wrap one of them, and give the result to another arena. An arena whose hooks
//! are exactly these uses the reservation instead.
//!
//! A hook is called while its caller holds no lock, so it may allocate. Its allocations bypass the
//! thread's cache, which may be in the middle of a change, and come from the first arena
//! ([`call`]).

use crate::heap::standalone;
use crate::sys::errno::KeepErrno;
use crate::sys::page::PAGE;
use crate::sys::{mappings, mem, tls};
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;

type Address = *mut c_void;
type AllocHook = unsafe extern "C" fn(
    *mut ExtentHooks,
    Address,
    usize,
    usize,
    *mut bool,
    *mut bool,
    c_uint,
) -> Address;
type DallocHook = unsafe extern "C" fn(*mut ExtentHooks, Address, usize, bool, c_uint) -> bool;
type DestroyHook = unsafe extern "C" fn(*mut ExtentHooks, Address, usize, bool, c_uint);
/// Commits, decommits or purges a part of an extent.
type PartHook =
    unsafe extern "C" fn(*mut ExtentHooks, Address, usize, usize, usize, c_uint) -> bool;
type SplitHook =
    unsafe extern "C" fn(*mut ExtentHooks, Address, usize, usize, usize, bool, c_uint) -> bool;
type MergeHook =
    unsafe extern "C" fn(*mut ExtentHooks, Address, usize, Address, usize, bool, c_uint) -> bool;

/// jemalloc's `extent_hooks_t`. All but `alloc` may be null. Hooks that return a `bool` return true
/// if they did nothing; a null hook counts as that.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExtentHooks {
    pub alloc: Option<AllocHook>,
    pub dalloc: Option<DallocHook>,
    pub destroy: Option<DestroyHook>,
    pub commit: Option<PartHook>,
    pub decommit: Option<PartHook>,
    pub purge_lazy: Option<PartHook>,
    pub purge_forced: Option<PartHook>,
    pub split: Option<SplitHook>,
    pub merge: Option<MergeHook>,
}

/// The hooks of an arena that has none of its own.
pub static DEFAULT: ExtentHooks = ExtentHooks {
    alloc: Some(default::alloc),
    dalloc: Some(default::dalloc),
    destroy: Some(default::destroy),
    commit: Some(default::commit),
    decommit: Some(default::decommit),
    purge_lazy: Some(default::purge_lazy),
    purge_forced: Some(default::purge_forced),
    split: Some(default::split),
    merge: Some(default::merge),
};

/// The hooks in force and the arena that they are called for.
#[derive(Clone, Copy)]
pub struct Hooks {
    table: *mut ExtentHooks,
    arena: c_uint,
}

/// Calls a hook in a state in which it may allocate: the thread has no cache meanwhile.
fn call<T>(hook: impl FnOnce() -> T) -> T {
    let _keep = KeepErrno::new();
    let cache = tls::get();
    tls::set(tls::address_of(&tls::IN_HOOK));
    let answer = hook();
    tls::set(cache);
    answer
}

/// An extent that a hook provided.
pub struct Given {
    pub addr: usize,
    pub zeroed: bool,
    pub committed: bool,
}

impl Hooks {
    /// The hooks at `table`; null stands for [`DEFAULT`].
    pub fn new(table: *mut ExtentHooks, arena: u32) -> Hooks {
        let table = if table.is_null() {
            (&raw const DEFAULT).cast_mut()
        } else {
            table
        };
        Hooks { table, arena }
    }

    /// The table, read again each time because the program may change it.
    fn now(self) -> ExtentHooks {
        // SAFETY: the caller that set the table promised that it stays valid.
        unsafe { self.table.read() }
    }

    /// A new extent at a multiple of `align`; `None` when the hook has none.
    pub fn alloc(self, size: usize, align: usize) -> Option<Given> {
        let (hook, table, arena) = (self.now().alloc?, self.table, self.arena);
        let (mut zeroed, mut committed) = (false, true);
        let (z, c) = (&raw mut zeroed, &raw mut committed);
        // SAFETY: arguments as the hook's type documents them; both places are valid.
        let at = call(|| unsafe { hook(table, null_mut(), size, align, z, c, arena) });
        (!at.is_null()).then_some(Given {
            addr: at.addr(),
            zeroed,
            committed,
        })
    }

    /// Gives an extent back; false when the hook leaves it with the arena.
    #[inline(never)]
    pub fn dalloc(self, addr: usize, size: usize, committed: bool) -> bool {
        let Some(hook) = self.now().dalloc else {
            return false;
        };
        // SAFETY: an extent of the arena that is no longer in use.
        !call(|| unsafe { hook(self.table, addr as Address, size, committed, self.arena) })
    }

    /// Gives an extent up for good.
    #[inline(never)]
    pub fn destroy(self, addr: usize, size: usize, committed: bool) {
        if let Some(hook) = self.now().destroy {
            // SAFETY: an extent of the arena that is no longer in use.
            call(|| unsafe { hook(self.table, addr as Address, size, committed, self.arena) });
        }
    }

    #[inline(never)]
    fn part(self, hook: Option<PartHook>, extent: (usize, usize), at: usize, len: usize) -> bool {
        let (addr, size) = extent;
        let Some(hook) = hook else { return false };
        let (table, offset) = (self.table, at - addr);
        // SAFETY: a part of an extent of the arena, whose contents are not needed.
        !call(|| unsafe { hook(table, addr as Address, size, offset, len, self.arena) })
    }

    /// Commits a part of an extent, given by its address and length; returns whether the hook did
    /// so.
    pub fn commit(self, extent: (usize, usize), at: usize, len: usize) -> bool {
        self.part(self.now().commit, extent, at, len)
    }

    /// Decommits a part of an extent; returns whether the hook did so.
    pub fn decommit(self, extent: (usize, usize), at: usize, len: usize) -> bool {
        self.part(self.now().decommit, extent, at, len)
    }

    /// Lets the system take the memory of a part of an extent; returns whether the hook did so.
    pub fn purge_lazy(self, extent: (usize, usize), at: usize, len: usize) -> bool {
        self.part(self.now().purge_lazy, extent, at, len)
    }

    /// Drops the memory of a part of an extent, which then reads as zeros; returns whether the hook
    /// did so.
    pub fn purge_forced(self, extent: (usize, usize), at: usize, len: usize) -> bool {
        self.part(self.now().purge_forced, extent, at, len)
    }

    /// Splits an extent in two, the first of `first` bytes; returns whether the hook did so.
    pub fn split(self, extent: (usize, usize), first: usize, committed: bool) -> bool {
        let Some(hook) = self.now().split else {
            return false;
        };
        let (table, addr, size) = (self.table, extent.0 as Address, extent.1);
        let second = size - first;
        // SAFETY: an extent of the arena that is longer than the first part.
        !call(|| unsafe { hook(table, addr, size, first, second, committed, self.arena) })
    }

    /// Merges two adjacent extents into one; returns whether the hook did so.
    pub fn merge(self, a: (usize, usize), b: (usize, usize), committed: bool) -> bool {
        let Some(hook) = self.now().merge else {
            return false;
        };
        let (table, at, to) = (self.table, a.0 as Address, b.0 as Address);
        // SAFETY: two adjacent extents of the arena.
        !call(|| unsafe { hook(table, at, a.1, to, b.1, committed, self.arena) })
    }
}

/// The functions of [`DEFAULT`].
mod default {
    use super::*;

    pub unsafe extern "C" fn alloc(
        _: *mut ExtentHooks,
        wanted: Address,
        size: usize,
        align: usize,
        zeroed: *mut bool,
        committed: *mut bool,
        _: c_uint,
    ) -> Address {
        let align = align.max(mem::os_page());
        if !standalone::may_map(size) {
            return null_mut();
        }
        let found = if wanted.is_null() {
            mem::map_aligned(size, align)
        } else {
            mem::map_at(wanted.addr(), size)
        };
        let Some(at) = found else { return null_mut() };
        // SAFETY: by the manual, the caller passes valid pointers for both.
        unsafe {
            *zeroed = true;
            *committed = true;
        }
        at as Address
    }

    pub unsafe extern "C" fn dalloc(
        _: *mut ExtentHooks,
        addr: Address,
        size: usize,
        _: bool,
        _: c_uint,
    ) -> bool {
        mem::release(addr.addr(), size);
        false
    }

    pub unsafe extern "C" fn destroy(
        _: *mut ExtentHooks,
        addr: Address,
        size: usize,
        _: bool,
        _: c_uint,
    ) {
        mem::release(addr.addr(), size);
    }

    pub unsafe extern "C" fn commit(
        _: *mut ExtentHooks,
        addr: Address,
        _: usize,
        offset: usize,
        len: usize,
        _: c_uint,
    ) -> bool {
        let done = mem::commit(addr.addr() + offset, len);
        if done {
            mappings::count(2, 0);
        }
        !done
    }

    /// Keeps the mapping, and with it everything that the program has asked of the system for it.
    pub unsafe extern "C" fn decommit(
        _: *mut ExtentHooks,
        addr: Address,
        _: usize,
        offset: usize,
        len: usize,
        _: c_uint,
    ) -> bool {
        let at = addr.addr() + offset;
        !(mappings::may_split() && mem::discard(at, len) && mem::forbid(at, len) && {
            mappings::count(0, 2);
            true
        })
    }

    pub unsafe extern "C" fn purge_lazy(
        _: *mut ExtentHooks,
        addr: Address,
        _: usize,
        offset: usize,
        len: usize,
        _: c_uint,
    ) -> bool {
        !mem::discard_lazily(addr.addr() + offset, len)
    }

    pub unsafe extern "C" fn purge_forced(
        _: *mut ExtentHooks,
        addr: Address,
        _: usize,
        offset: usize,
        len: usize,
        _: c_uint,
    ) -> bool {
        !mem::discard(addr.addr() + offset, len)
    }

    /// The system's mappings can be split anywhere.
    pub unsafe extern "C" fn split(
        _: *mut ExtentHooks,
        _: Address,
        size: usize,
        first: usize,
        second: usize,
        _: bool,
        _: c_uint,
    ) -> bool {
        first + second != size || !first.is_multiple_of(PAGE)
    }

    /// Adjacent mappings can be used as one.
    pub unsafe extern "C" fn merge(
        _: *mut ExtentHooks,
        a: Address,
        size_a: usize,
        b: Address,
        _: usize,
        _: bool,
        _: c_uint,
    ) -> bool {
        a.addr() + size_a != b.addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::chunk::CHUNK;

    fn filled(at: usize, len: usize) -> bool {
        // SAFETY: the caller owns the mapping.
        let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
        bytes.iter().any(|&b| b != 0)
    }

    #[test]
    fn the_default_hooks_work() {
        let hooks = Hooks::new(null_mut(), 0);
        for align in [PAGE, CHUNK, 16 * CHUNK] {
            let given = hooks.alloc(8 * PAGE, align).unwrap();
            let extent = (given.addr, 8 * PAGE);
            assert!(given.zeroed && given.committed && given.addr.is_multiple_of(align));
            assert!(!filled(given.addr, 8 * PAGE));
            // SAFETY: the mapping belongs to this test.
            unsafe { (given.addr as *mut u8).write_bytes(1, 8 * PAGE) };
            assert!(hooks.purge_forced(extent, given.addr + PAGE, 2 * PAGE));
            assert!(filled(given.addr, PAGE) && !filled(given.addr + PAGE, 2 * PAGE));
            assert!(hooks.purge_lazy(extent, given.addr + 3 * PAGE, PAGE));
            assert!(hooks.decommit(extent, given.addr + 4 * PAGE, 2 * PAGE));
            assert!(hooks.commit(extent, given.addr + 4 * PAGE, 2 * PAGE));
            assert!(
                !filled(given.addr + 4 * PAGE, 2 * PAGE) && filled(given.addr + 7 * PAGE, PAGE)
            );
            assert!(hooks.split(extent, 5 * PAGE, true));
            let (a, b) = ((given.addr, 5 * PAGE), (given.addr + 5 * PAGE, 3 * PAGE));
            assert!(hooks.merge(a, b, true));
            assert!(!hooks.merge(b, a, true), "these do not touch");
            assert!(hooks.dalloc(b.0, b.1, true));
            hooks.destroy(a.0, a.1, true);
        }
    }

    #[test]
    fn the_default_alloc_returns_the_requested_address_or_nothing() {
        let hook = DEFAULT.alloc.unwrap();
        let table = (&raw const DEFAULT).cast_mut();
        let ask = |wanted: usize| {
            let (mut zeroed, mut committed) = (false, false);
            // SAFETY: all places are valid.
            unsafe {
                hook(
                    table,
                    wanted as Address,
                    4 * PAGE,
                    PAGE,
                    &mut zeroed,
                    &mut committed,
                    0,
                )
            }
            .addr()
        };
        // Another test's thread may occasionally map something there meanwhile.
        let is_given_again = |_| {
            let at = ask(0);
            assert_ne!(at, 0);
            assert_eq!(ask(at), 0, "it is taken");
            mem::release(at, 4 * PAGE);
            let given = ask(at);
            if given != 0 {
                mem::release(given, 4 * PAGE);
            }
            given == at
        };
        assert!((0..100).any(is_given_again));
        assert_eq!(ask(usize::MAX & !(PAGE - 1)), 0);
    }

    #[test]
    fn null_hooks_do_nothing_and_report_failure() {
        let mut table = ExtentHooks {
            alloc: None,
            dalloc: None,
            destroy: None,
            commit: None,
            decommit: None,
            purge_lazy: None,
            purge_forced: None,
            split: None,
            merge: None,
        };
        let hooks = Hooks::new(&mut table, 0);
        let extent = (CHUNK, CHUNK);
        assert!(hooks.alloc(CHUNK, CHUNK).is_none());
        assert!(!hooks.dalloc(CHUNK, CHUNK, true));
        hooks.destroy(CHUNK, CHUNK, true);
        assert!(!hooks.commit(extent, CHUNK, PAGE) && !hooks.decommit(extent, CHUNK, PAGE));
        assert!(!hooks.purge_lazy(extent, CHUNK, PAGE));
        assert!(!hooks.purge_forced(extent, CHUNK, PAGE));
        assert!(!hooks.split(extent, PAGE, true) && !hooks.merge(extent, (2 * CHUNK, PAGE), true));
    }
}
