//! A page heap over hooks that record their extents and check every call against the record.

use super::*;
use crate::heap::{Backing, PAGE_HEAPS, PageHeap, Reach, make_apart, making, standalone};
use crate::sys::mem;
use crate::testing::alone;
use core::ffi::{c_uint, c_void};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::vec::Vec;

/// The calls that the hooks refuse.
const DALLOC: u32 = 1;
const DECOMMIT: u32 = 2;
const FORCED: u32 = 4;
const LAZY: u32 = 8;
const SPLIT: u32 = 16;
const MERGE: u32 = 32;
const ALLOC: u32 = 64;
const COMMIT: u32 = 128;
/// How `alloc` provides memory: not committed, with old contents.
const UNCOMMITTED: u32 = 256;
const NOT_ZEROED: u32 = 512;

/// An extent: its length, and which of its chunks are committed.
struct Extent {
    size: usize,
    committed: Vec<bool>,
}

#[derive(Default)]
struct Book {
    extents: BTreeMap<usize, Extent>,
    refused: u32,
    calls: BTreeMap<&'static str, usize>,
}

#[repr(C)]
struct Lender {
    table: ExtentHooks,
    book: Mutex<Book>,
}

const ARENA: u32 = 77;

impl Book {
    fn enter(&mut self, name: &'static str, arena: c_uint) {
        assert_eq!(arena, ARENA);
        assert!(crate::sys::flag::is_inside());
        *self.calls.entry(name).or_default() += 1;
    }

    fn extent(&mut self, addr: *mut c_void, size: usize) -> &mut Extent {
        let extent = self.extents.get_mut(&addr.addr());
        let extent = extent.unwrap_or_else(|| panic!("no extent begins at {addr:p}"));
        assert_eq!(extent.size, size, "{addr:p}");
        extent
    }

    /// The state of the chunks that a part of an extent touches.
    fn part(&mut self, addr: *mut c_void, size: usize, offset: usize, len: usize) -> &mut [bool] {
        assert!(offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0);
        assert!(offset + len <= size);
        let extent = self.extent(addr, size);
        &mut extent.committed[offset / CHUNK..(offset + len).div_ceil(CHUNK)]
    }

    fn refuses(&self, what: u32) -> bool {
        self.refused & what != 0
    }
}

/// Records a call of the hook `name` and returns the book.
///
/// # Safety
/// `table` is the table of a [`Lender`].
unsafe fn enter<'a>(
    table: *mut ExtentHooks,
    name: &'static str,
    arena: c_uint,
) -> std::sync::MutexGuard<'a, Book> {
    // SAFETY: the table is the first field of a lender that lives forever.
    let mut book = unsafe { &*table.cast::<Lender>() }.book.lock().unwrap();
    book.enter(name, arena);
    book
}

unsafe extern "C" fn alloc(
    table: *mut ExtentHooks,
    wanted: *mut c_void,
    size: usize,
    align: usize,
    zeroed: *mut bool,
    committed: *mut bool,
    arena: c_uint,
) -> *mut c_void {
    // SAFETY: called as documented.
    unsafe {
        let mut book = enter(table, "alloc", arena);
        assert!(wanted.is_null() && size > 0 && size.is_multiple_of(CHUNK));
        assert!(align.is_power_of_two() && align >= CHUNK);
        if book.refuses(ALLOC) {
            return core::ptr::null_mut();
        }
        let at = mem::map_aligned(size, align).expect("there is memory");
        if book.refuses(NOT_ZEROED) {
            (at as *mut u8).write_bytes(0xaa, size);
        }
        *zeroed = !book.refuses(NOT_ZEROED);
        *committed = !book.refuses(UNCOMMITTED);
        if !*committed {
            assert!(mem::decommit(at, size));
        }
        let committed = std::vec![*committed; size / CHUNK];
        let before = book.extents.insert(at, Extent { size, committed });
        assert!(before.is_none());
        at as *mut c_void
    }
}

/// Removes an extent from the book and unmaps it.
fn unmap(book: &mut Book, addr: *mut c_void, size: usize, committed: bool) {
    let extent = book.extent(addr, size);
    assert!(extent.committed.iter().all(|&c| c == committed));
    book.extents.remove(&addr.addr());
    mem::release(addr.addr(), size);
}

unsafe extern "C" fn dalloc(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    committed: bool,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "dalloc", arena) };
    book.extent(addr, size);
    let refused = book.refuses(DALLOC);
    if !refused {
        unmap(&mut book, addr, size, committed);
    }
    refused
}

unsafe extern "C" fn destroy(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    _: bool,
    arena: c_uint,
) {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "destroy", arena) };
    book.extent(addr, size);
    book.extents.remove(&addr.addr());
    mem::release(addr.addr(), size);
}

/// Commits or decommits a part of an extent, unless the hook refuses.
fn set_committed(
    book: &mut Book,
    (addr, size): (*mut c_void, usize),
    (offset, len): (usize, usize),
    to: bool,
) -> bool {
    let refused = book.refuses(if to { COMMIT } else { DECOMMIT });
    let part = book.part(addr, size, offset, len);
    assert!(part.iter().all(|&c| c != to));
    if !refused {
        part.fill(to);
        let change = if to { mem::commit } else { mem::decommit };
        assert!(change(addr.addr() + offset, len));
    }
    refused
}

unsafe extern "C" fn commit(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    offset: usize,
    len: usize,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "commit", arena) };
    set_committed(&mut book, (addr, size), (offset, len), true)
}

unsafe extern "C" fn decommit(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    offset: usize,
    len: usize,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "decommit", arena) };
    set_committed(&mut book, (addr, size), (offset, len), false)
}

unsafe extern "C" fn purge_lazy(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    offset: usize,
    len: usize,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "purge_lazy", arena) };
    assert!(book.part(addr, size, offset, len).iter().all(|&c| c));
    // The system may do this at any time, so nothing may rely on the contents.
    book.refuses(LAZY) || {
        // SAFETY: the pages are free.
        unsafe { (addr.addr() as *mut u8).add(offset).write_bytes(0x55, len) };
        false
    }
}

unsafe extern "C" fn purge_forced(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    offset: usize,
    len: usize,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "purge_forced", arena) };
    assert!(book.part(addr, size, offset, len).iter().all(|&c| c));
    book.refuses(FORCED) || !mem::discard(addr.addr() + offset, len)
}

unsafe extern "C" fn split(
    table: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    first: usize,
    second: usize,
    _: bool,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "split", arena) };
    assert!(first > 0 && second > 0 && first + second == size);
    assert!(first.is_multiple_of(CHUNK));
    let refused = book.refuses(SPLIT);
    let extent = book.extent(addr, size);
    if !refused {
        let committed = extent.committed.split_off(first / CHUNK);
        extent.size = first;
        let rest = Extent {
            size: second,
            committed,
        };
        book.extents.insert(addr.addr() + first, rest);
    }
    refused
}

unsafe extern "C" fn merge(
    table: *mut ExtentHooks,
    a: *mut c_void,
    size_a: usize,
    b: *mut c_void,
    size_b: usize,
    committed: bool,
    arena: c_uint,
) -> bool {
    // SAFETY: called as documented.
    let mut book = unsafe { enter(table, "merge", arena) };
    assert_eq!(a.addr() + size_a, b.addr());
    let same = |e: &Extent| e.committed.iter().all(|&c| c == committed);
    assert!(same(book.extent(a, size_a)) && same(book.extent(b, size_b)));
    let refused = book.refuses(MERGE);
    if !refused {
        let mut second = book.extents.remove(&b.addr()).unwrap();
        let first = book.extent(a, size_a);
        first.size += size_b;
        first.committed.append(&mut second.committed);
    }
    refused
}

const TABLE: ExtentHooks = ExtentHooks {
    alloc: Some(alloc),
    dalloc: Some(dalloc),
    destroy: Some(destroy),
    commit: Some(commit),
    decommit: Some(decommit),
    purge_lazy: Some(purge_lazy),
    purge_forced: Some(purge_forced),
    split: Some(split),
    merge: Some(merge),
};

/// A page heap with hooks, and the runs of it that are held: address, pages, number.
struct Model {
    heap: &'static PageHeap,
    lender: &'static Lender,
    runs: Vec<(usize, usize, usize)>,
    number: usize,
}

fn words(addr: usize, pages: usize) -> impl Iterator<Item = *mut usize> {
    (0..pages).map(move |i| (addr + i * PAGE + 8) as *mut usize)
}

impl Model {
    fn new(refused: u32) -> Model {
        static MADE: std::sync::OnceLock<&'static PageHeap> = std::sync::OnceLock::new();
        let heap = MADE.get_or_init(|| make_apart(&making()).expect("there is memory"));
        let lender: &'static Lender = Box::leak(Box::new(Lender {
            table: TABLE,
            book: Mutex::default(),
        }));
        lender.book.lock().unwrap().refused = refused;
        heap.begin_anew();
        heap.set_decay_of(Some(-1), Some(0));
        heap.set_hooks(ARENA, (&raw const lender.table).cast_mut());
        Model {
            heap,
            lender,
            runs: Vec::new(),
            number: 0,
        }
    }

    fn refuse(&self, what: u32) {
        self.lender.book.lock().unwrap().refused = what;
    }

    fn calls(&self, name: &str) -> usize {
        let book = self.lender.book.lock().unwrap();
        book.calls.get(name).copied().unwrap_or(0)
    }

    fn extents(&self) -> usize {
        self.lender.book.lock().unwrap().extents.len()
    }

    fn alloc(&mut self, pages: usize, align: usize) -> bool {
        let Some(run) = self.heap.alloc(pages, align) else {
            return false;
        };
        assert!(run.addr.is_multiple_of(align));
        {
            let book = self.lender.book.lock().unwrap();
            let (&at, extent) = book.extents.range(..=run.addr).next_back().unwrap();
            assert!(run.addr + pages * PAGE <= at + extent.size, "over a border");
            let (first, end) = (run.addr - at, run.addr + pages * PAGE - at);
            assert!(
                extent.committed[first / CHUNK..end.div_ceil(CHUNK)]
                    .iter()
                    .all(|&c| c)
            );
        }
        self.number += 1;
        for at in words(run.addr, pages) {
            // SAFETY: the run is held.
            unsafe {
                assert!(!run.zeroed || at.read() == 0, "{at:p} is not zero");
                at.write(at.addr() ^ self.number);
            }
        }
        self.runs.push((run.addr, pages, self.number));
        true
    }

    fn free(&mut self, pick: usize) {
        let Some(pick) = pick.checked_rem(self.runs.len()) else {
            return;
        };
        let (addr, pages, number) = self.runs.swap_remove(pick);
        for at in words(addr, pages) {
            // SAFETY: the run is held.
            assert_eq!(unsafe { at.read() }, at.addr() ^ number, "{at:p} was lost");
        }
        self.heap.free_as(addr, pages, Backing::Dirty);
    }

    /// Takes an extent of eight chunks, frees all but a few pages of the first one, and purges.
    fn leave_one_chunk_in_use(&mut self) {
        assert!(self.alloc(8 * CHUNK_PAGES, PAGE));
        self.free(0);
        assert!(self.alloc(10, PAGE));
        self.heap.purge_all();
    }

    /// Returns everything, and checks that nothing is left.
    fn end(mut self) {
        while !self.runs.is_empty() {
            self.free(0);
        }
        assert_eq!(self.heap.totals().used, 0);
        self.heap.give_all_up();
        assert_eq!(self.extents(), 0, "extents are left");
        let totals = self.heap.totals();
        assert_eq!((totals.dirty, totals.muzzy, totals.committed), (0, 0, 0));
    }
}

/// A block that is an extent of its own.
#[test]
fn a_standalone_block_goes_back_whole_or_becomes_free_chunks() {
    crate::testing::own_process!();
    let _alone = alone();
    let pages = standalone::CHUNKS_MIN * CHUNK_PAGES;
    for refused in [0, UNCOMMITTED, DALLOC, DALLOC | UNCOMMITTED] {
        let mut model = Model::new(refused);
        let addr = model.heap.alloc(pages, CHUNK).expect("provided").addr;
        assert_eq!((model.extents(), model.heap.totals().used), (1, pages));
        assert!(standalone::of(addr).is_some());
        PAGE_HEAPS.free(addr, pages);
        let stays = refused & DALLOC != 0;
        assert_eq!((model.calls("dalloc"), model.calls("destroy")), (1, 0));
        assert_eq!(
            (model.extents(), model.heap.totals().used),
            (stays as usize, 0)
        );
        assert!(standalone::of(addr).is_none());
        if stays {
            assert!(model.alloc(3, PAGE), "its chunks serve other requests");
            assert_eq!(model.calls("alloc"), 1);
        }
        model.refuse(0);
        model.end();
    }
    let model = Model::new(UNCOMMITTED | COMMIT);
    assert!(model.heap.alloc(pages, CHUNK).is_none(), "it has no memory");
    assert_eq!(model.extents(), 0);
    model.end();
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize, usize),
    Free(usize),
    Grow(usize, usize),
    Purge,
    PurgeLazily,
    Refuse(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let pages = prop_oneof![6 => 1usize..60, 3 => 60usize..700, 1 => 700usize..3000];
    let align = prop_oneof![6 => Just(PAGE), 1 => Just(16 * PAGE), 1 => Just(2 * CHUNK)];
    prop_oneof![
        20 => (pages, align).prop_map(|(pages, align)| Op::Alloc(pages, align)),
        18 => any::<usize>().prop_map(Op::Free),
        4 => (any::<usize>(), 1usize..600).prop_map(|(pick, more)| Op::Grow(pick, more)),
        3 => Just(Op::Purge),
        2 => Just(Op::PurgeLazily),
        2 => (0u32..1024).prop_map(Op::Refuse),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hooks_are_called_as_documented_and_pages_keep_their_contents(
        refused in prop_oneof![Just(0), Just(UNCOMMITTED), Just(NOT_ZEROED), Just(DALLOC), 0u32..1024],
        ops in prop::collection::vec(op(), 1..120),
    ) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        let mut model = Model::new(refused);
        for op in ops {
            match op {
                Op::Alloc(pages, align) => {
                    let done = model.alloc(pages, align);
                    let book = model.lender.book.lock().unwrap();
                    prop_assert!(done || book.refuses(ALLOC | COMMIT));
                }
                Op::Free(pick) => model.free(pick),
                Op::Grow(pick, more) => {
                    if let Some(pick) = pick.checked_rem(model.runs.len()) {
                        let (addr, pages, number) = model.runs[pick];
                        if model.heap.grow_in_place(addr, pages, pages + more, Reach::Any).is_some() {
                            for at in words(addr + pages * PAGE, more) {
                                // SAFETY: the pages are the run's now.
                                unsafe { at.write(at.addr() ^ number) };
                            }
                            model.runs[pick].1 += more;
                        }
                    }
                }
                Op::Purge => { model.heap.purge_all(); }
                Op::PurgeLazily => {
                    model.heap.set_decay_of(Some(0), Some(-1));
                    model.heap.purge_due();
                    model.heap.set_decay_of(Some(-1), Some(0));
                }
                Op::Refuse(what) => model.refuse(what),
            }
            let totals = model.heap.totals();
            let held: usize = model.runs.iter().map(|run| run.1).sum();
            prop_assert_eq!(totals.used, held);
            prop_assert!(totals.used + totals.dirty + totals.muzzy <= totals.committed);
        }
        model.end();
    }
}

#[test]
fn vacant_chunks_are_returned_whole_or_in_part_and_refused_ones_are_kept_and_reused() {
    crate::testing::own_process!();
    let _alone = alone();
    let mut model = Model::new(0);
    // An extent with one chunk still in use.
    model.leave_one_chunk_in_use();
    assert!(model.calls("split") == 1 && model.calls("dalloc") == 1);
    assert_eq!(model.heap.totals().committed, CHUNK_PAGES);
    model.free(0);
    model.heap.purge_all();
    assert_eq!((model.extents(), model.heap.totals().committed), (0, 0));
    // An extent that stays: it is decommitted, rejoined, and committed when it is needed.
    model.refuse(DALLOC);
    model.leave_one_chunk_in_use();
    assert_eq!(model.calls("decommit"), 1);
    assert_eq!(model.heap.totals().committed, CHUNK_PAGES);
    assert!(model.alloc(4 * CHUNK_PAGES, PAGE));
    assert_eq!((model.calls("commit"), model.calls("alloc")), (1, 2));
    model.free(0);
    model.free(0);
    model.heap.purge_all();
    // An extent whose memory is cleared in place.
    model.refuse(DALLOC | DECOMMIT);
    assert!(model.alloc(8 * CHUNK_PAGES, PAGE));
    model.free(0);
    model.heap.purge_all();
    assert!(model.calls("purge_forced") > 0);
    assert_eq!(model.heap.totals().dirty, 0);
    model.refuse(0);
    model.end();
}

#[test]
fn hooks_may_run_out_of_memory_and_nothing_is_lost() {
    crate::testing::own_process!();
    let _alone = alone();
    let mut model = Model::new(ALLOC);
    assert!(!model.alloc(1, PAGE));
    model.refuse(0);
    assert!(model.alloc(1, PAGE));
    model.refuse(ALLOC);
    let mut more = 0;
    while model.alloc(100, PAGE) {
        more += 1;
        assert!(more < 100, "memory without end");
    }
    model.refuse(0);
    assert!(model.alloc(100, PAGE));
    model.end();
}
