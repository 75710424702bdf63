//! Every option, once.
//!
//! `options!` turns the list at the end of this file into three things: the struct [`Options`]
//! that the allocator reads, its compiled-in [`Options::DEFAULT`], and [`TABLE`], with which the
//! reader, `confirm_conf` and the user's reference (`docs/options.md`) look up the same options by
//! name. A new option is one more row.

use super::line::LineBuffer;
use super::plain::{Kept, Plain, Shape};
use super::text::*;
use super::value::*;

/// One option, and how to read and show it in an [`Options`].
///
/// No row of the table holds an address, neither a name's text nor a format: the loader would
/// relocate each of them in every process, and a relocated page cannot be shared between processes.
pub struct Descriptor {
    row: Row,
    /// The option that it sets: itself, or the one it is an alias of.
    sets: Row,
    /// The natural C type of its value, from how it is stored.
    pub shape: Shape,
    /// The section of the reference that has the option.
    #[cfg(test)]
    pub group: &'static str,
    /// A line about the option for the reference.
    #[cfg(test)]
    pub meaning: &'static str,
    #[cfg(test)]
    pub origin: Origin,
    #[cfg(test)]
    pub effect: Effect,
}

/// An operation on a value.
enum Work<'w, 'a> {
    /// Sets the value from this text; returns false, and changes nothing, if the text is invalid.
    Set(&'w [u8]),
    Show(&'w mut LineBuffer),
    Plain(&'w mut Plain<'a>),
    /// Describes the valid values; the value itself is not used.
    Valid(&'w mut LineBuffer),
}

/// Performs the operation on a value of this format. Not inlined: there are three times as many
/// options as formats.
///
/// # Safety
/// The value can be read for `'a`. To set it, it can be written, and nothing else accesses it.
#[inline(never)]
unsafe fn work<'a, F>(format: &F, value: *mut F::Value, work: Work<'_, 'a>) -> bool
where
    F: Format<Value: Kept + 'a>,
{
    match work {
        Work::Set(text) => match format.read(text) {
            // SAFETY: the caller's promise.
            Some(new) => unsafe { value.write(new) },
            None => return false,
        },
        // SAFETY: as above.
        Work::Show(out) => format.show(unsafe { &*value }, out),
        // SAFETY: as above.
        Work::Plain(plain) => *plain = unsafe { &*value }.plain(),
        Work::Valid(out) => format.valid(out),
    }
    true
}

impl Descriptor {
    #[inline(never)]
    pub const fn name(&self) -> &'static str {
        let row = self.row as usize;
        let begin = match row {
            0 => 0,
            _ => ENDS[row - 1] as usize + 1,
        };
        // Checked, so that no panic message for invalid splits is linked in; they are all valid.
        if let Some((names, _)) = NAMES.split_at_checked(ENDS[row] as usize)
            && let Some((_, name)) = names.split_at_checked(begin)
        {
            name
        } else {
            ""
        }
    }

    /// For an alias, the option it sets.
    pub fn alias_of(&self) -> Option<&'static Descriptor> {
        (self.sets != self.row).then(|| self.target())
    }

    /// The option that it sets.
    pub fn target(&self) -> &'static Descriptor {
        &TABLE[self.sets as usize]
    }

    /// Sets the option from `text`; returns false, and changes nothing, if the value is invalid.
    #[must_use]
    pub fn set(&self, options: &mut Options, text: &[u8]) -> bool {
        // SAFETY: the caller has exclusive access to the options.
        unsafe { self.work(options, Work::Set(text)) }
    }

    /// Appends the option's value as it would be written in an option string.
    pub fn show(&self, options: &Options, out: &mut LineBuffer) {
        // SAFETY: nothing is set.
        unsafe { self.work(core::ptr::from_ref(options).cast_mut(), Work::Show(out)) };
    }

    /// The option's value for C; for an alias, that of the option it sets.
    pub fn plain<'a>(&self, options: &'a Options) -> Plain<'a> {
        let mut plain = Plain::Unset;
        let options = core::ptr::from_ref(options).cast_mut();
        // SAFETY: nothing is set, and the answer borrows the options.
        unsafe { self.work(options, Work::Plain(&mut plain)) };
        plain
    }

    /// Appends a description of the valid values.
    pub fn valid(&self, out: &mut LineBuffer) {
        let any = core::ptr::from_ref(&Options::DEFAULT).cast_mut();
        // SAFETY: nothing is set.
        unsafe { self.work(any, Work::Valid(out)) };
    }
}

/// The end of each name in [`NAMES`].
static ENDS: [u16; TABLE.len()] = {
    let mut ends = [0; TABLE.len()];
    let (mut row, mut at) = (0, 0);
    while at < NAMES.len() {
        if NAMES.as_bytes()[at] == b' ' {
            ends[row] = at as u16;
            row += 1;
        }
        at += 1;
    }
    assert!(row == TABLE.len());
    ends
};

/// Where the option comes from.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// jemalloc's, with the same meaning.
    Jemalloc,
    /// jemalloc's name, with more values or another default.
    Extended,
    /// Mallard's own.
    Mallard,
}

/// Whether the option has an effect.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Now,
    /// Accepted, so that strings with it are valid, but there is nothing here that it could change,
    /// for this reason.
    Never(&'static str),
}
#[cfg(test)]
use Effect::{Never, Now};

/// The option called `name`, including aliases.
pub fn find(name: &[u8]) -> Option<&'static Descriptor> {
    TABLE.iter().find(|option| option.name().as_bytes() == name)
}

macro_rules! options {
    (
        $($group:literal {
            $($name:ident: $type:ty = $default:expr, $format:expr, $origin:ident, $effect:expr, $meaning:literal;)*
        })*
        aliases {
            $($alias_group:literal $alias:ident => $target:ident: $alias_format:expr, $alias_origin:ident, $alias_effect:expr, $alias_meaning:literal;)*
        }
    ) => {
        /// The settings of a process. Plain data: it lives in a static and is copied freely.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Options {
            $($(#[doc = $meaning] pub $name: $type,)*)*
        }

        impl Options {
            /// The values that hold if no source sets them.
            pub const DEFAULT: Options = Options { $($($name: $default,)*)* };
        }

        /// Identifies an option.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum Row { $($($name,)*)* $($alias,)* }

        /// The names, each followed by a space.
        const NAMES: &str = concat!($($(stringify!($name), " ",)*)* $(stringify!($alias), " ",)*);

        /// All options in the order of the reference, aliases last.
        pub static TABLE: [Descriptor; [$($(Row::$name,)*)* $(Row::$alias,)*].len()] = [
            $($(options!(@row $group, $name => $name, $origin, $effect, $meaning),)*)*
            $(options!(@row $alias_group, $alias => $target, $alias_origin, $alias_effect, $alias_meaning),)*
        ];

        impl Descriptor {
            /// # Safety
            /// The options can be read for `'a`. To set one, they can be written, and nothing else
            /// accesses them.
            unsafe fn work<'a>(&self, options: *mut Options, what: Work<'_, 'a>) -> bool {
                match self.row {
                    $($(
                        // SAFETY: the caller's promise.
                        Row::$name => unsafe { work(const { &$format }, &raw mut (*options).$name, what) },
                    )*)*
                    $(
                        // SAFETY: as above.
                        Row::$alias => unsafe { work(const { &$alias_format }, &raw mut (*options).$target, what) },
                    )*
                }
            }
        }
    };
    (@row $group:literal, $name:ident => $field:ident, $origin:ident, $effect:expr, $meaning:literal) => {
        Descriptor {
            row: Row::$name,
            sets: Row::$field,
            shape: shape_of(|options| &options.$field),
            #[cfg(test)]
            group: $group,
            #[cfg(test)]
            meaning: $meaning,
            #[cfg(test)]
            origin: Origin::$origin,
            #[cfg(test)]
            effect: $effect,
        }
    };
}

/// The shape of a field.
const fn shape_of<T: Kept>(_field: fn(&Options) -> &T) -> Shape {
    T::SHAPE
}

/// Bytes of the longest `prof_prefix` and `http`, with their closing NUL.
const PREFIX_BYTES: usize = 256;
/// Bytes of the longest `report_file`, with its closing NUL: a longer one would take every process
/// another page of constants.
const FILE_BYTES: usize = 128;
/// Bytes for all letters of `malloc_stats_print`, with room for the closing NUL.
const LETTERS_BYTES: usize = 16;
/// The letters that `malloc_stats_print` understands.
const STATS_LETTERS: Letters<LETTERS_BYTES> = Letters("JPgmdablxeh");
/// jemalloc's limit of decay times, in milliseconds.
pub const DECAY_MS_MAX: i64 = 18_446_744_072_000;
/// The largest size that a thread cache can be set to keep: 8 MiB, as in jemalloc (base-2 logarithm
/// of bytes).
const LG_TCACHE_MAX: u32 = 23;

/// Bytes of the longest list of classes in an option's value.
const LIST_BYTES: usize = 256;
/// Bytes of the longest list of call sites, with its closing NUL.
const SITES_BYTES: usize = 352;
/// Bytes of a huge page, which limits several of jemalloc's options.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Why options for parts of jemalloc that Mallard lacks have no effect.
#[cfg(test)]
mod why {
    pub const BINS: &str =
        "A lock is taken once for a whole batch; `narenas` controls how many threads share it.";
    pub const CACHES: &str =
        "Caches grow for classes that are used often and shrink for the others.";
    pub const GC: &str = "Idle blocks leave a cache after a number of its own slow events.";
    pub const HPA: &str = "The page heap is built around huge pages in any case: see `thp`.";
    pub const FIT: &str = "Free runs end with their chunk of 2 MiB, and the first chunk with room serves a request, or beyond 128 MiB the fullest.";
    pub const SLABS: &str =
        "The slabs of each class have one shape, fixed when the library is built.";
    pub const GUARDS: &str = "Mallard has no way to find such errors yet.";
    pub const ONE: &str =
        "There is only one; the value is the limit of the control of the same name.";
    pub const DSS: &str = "All memory comes from `mmap`; `sbrk` is left to the program. The controls `arena.<i>.dss` return the value.";
    pub const UTRACE: &str = "Linux has no `utrace(2)`.";
}

const fn text<const N: usize>(text: &str) -> Text<N> {
    match Text::new(text.as_bytes()) {
        Some(text) => text,
        None => panic!("a default that does not fit its option"),
    }
}

options! {
    "Reading options" {
        abort_conf: bool = false, Switch, Jemalloc, Now,
            "Abort when an option string has an error, once all sources have been read.";
        confirm_conf: ConfirmConf = ConfirmConf::False, one_of(), Extended, Now,
            "At start, print the version, the string of each source and the settings that result, on standard error; `short` prints one line, with the version and the settings that differ from the defaults.";
    }
    "Arenas" {
        narenas: Option<u32> = None, OrDefault(number(1, 1024)), Jemalloc, Now,
            "Number of arenas for the threads; `default` depends on the number of CPUs.";
        percpu_arena: PercpuArena = PercpuArena::Disabled, one_of(), Jemalloc, Now,
            "Assign arenas to CPUs instead of threads: one for each CPU (`percpu`) or each physical core (`phycpu`).";
        narenas_ratio: Option<u64> = None, Fraction::or("default"), Jemalloc, Now,
            "Arenas per CPU if `narenas` is `default`, such as 0.5; `default` is one per four CPUs, up to 16.";
        bin_shards: Text<LIST_BYTES> = text(""), Classes, Jemalloc, Never(why::BINS),
            "Number of bins that the bin of a class is divided into.";
        oversize_threshold: usize = 0, bytes(0, usize::MAX), Extended, Now,
            "Requests of this size or more, if above 256 KiB, are served from a separate arena, whose freed memory is returned at once (with `background_thread:true`, after a while). 0, the default, disables this: large blocks have their own chunks of 2 MiB anyway, and their freed memory is worth keeping for a while.";
        huge_arena_pac_thp: bool = false, Switch, Jemalloc, Never(why::HPA),
            "Huge pages for the arena of large requests.";
        cache_oblivious: bool = true, Switch, Jemalloc, Now,
            "Start blocks of 16 to 32 KiB at varying cache lines, so that data at the beginning of buffers does not compete for the same cache sets, at the cost of a page each. In each arena, 64 blocks at a time do; blocks with an alignment of more than 64 bytes, and longer ones, start at a page.";
        slab_sizes: Text<LIST_BYTES> = text(""), Classes, Jemalloc, Never(why::SLABS),
            "Pages of the slabs of classes.";
        disable_large_size_classes: bool = false, Switch, Extended, Now,
            "Round requests above 256 KiB up only to whole pages, not to a size class. This uses less address space, but a block that grows in small steps is moved more often.";
        tailored_classes: bool = true, Switch, Mallard, Now,
            "Add up to 10 size classes while the process runs, for requested sizes that leave a twelfth or more of their class's blocks unused; none after the first call of `nallocx`, which promises a size.";
        lg_extent_max_active_fit: u32 = 6, number(0, 64), Jemalloc, Never(why::FIT),
            "Largest ratio (base-2 logarithm) of a free run that is split to the request.";
    }
    "Thread caches" {
        tcache: bool = true, Switch, Jemalloc, Now,
            "Give each thread a cache of free blocks.";
        tcache_max: usize = 64 << 10, clipped_bytes(0, 1 << LG_TCACHE_MAX), Jemalloc, Now,
            "Largest size of a block that thread caches keep; values above 256 KiB have no further effect.";
        tcache_ncached_max: Text<LIST_BYTES> = text(""), Classes, Jemalloc, Never(why::CACHES),
            "Maximum numbers of cached blocks, by class.";
        lg_tcache_nslots_mul: i64 = 1, number(-16, 16), Jemalloc, Never(why::CACHES),
            "Cached blocks for each region of a slab (base-2 logarithm).";
        tcache_nslots_small_min: u32 = 20, clipped(0, 2048), Jemalloc, Never(why::CACHES),
            "Minimum number of slots of a cache for a small class.";
        tcache_nslots_small_max: u32 = 200, clipped(0, 2048), Jemalloc, Never(why::CACHES),
            "Maximum number of slots of a cache for a small class.";
        tcache_nslots_large: u32 = 20, clipped(0, 2048), Jemalloc, Never(why::CACHES),
            "Slots of a cache for a large class.";
        tcache_gc_incr_bytes: usize = 64 << 10, bytes(0, usize::MAX), Jemalloc, Never(why::GC),
            "Allocated bytes between two checks of a cache for idle blocks.";
        tcache_gc_delay_bytes: usize = 0, bytes(0, usize::MAX), Jemalloc, Never(why::GC),
            "Bytes of a class that must be allocated before its idle blocks are returned.";
        lg_tcache_flush_small_div: u32 = 1, clipped(0, 16), Jemalloc, Never(why::CACHES),
            "Share of a full cache of a small class that is flushed (base-2 logarithm of the divisor).";
        lg_tcache_flush_large_div: u32 = 1, clipped(0, 16), Jemalloc, Never(why::CACHES),
            "Share of a full cache of a large class that is flushed (base-2 logarithm of the divisor).";
        experimental_tcache_gc: bool = true, Switch, Jemalloc, Never(why::GC),
            "jemalloc's newer method of finding idle blocks.";
    }
    "Returning memory" {
        dirty_decay_ms: i64 = 10_000, number(-1, DECAY_MS_MAX), Jemalloc, Now,
            "Milliseconds over which freed pages are offered to the kernel (become muzzy); 0 for at once, -1 for never.";
        muzzy_decay_ms: i64 = 0, number(-1, DECAY_MS_MAX), Jemalloc, Now,
            "Milliseconds over which offered pages are returned for good; 0 for at once, -1 for never.";
        dirty_max: DirtyMax = DirtyMax::None, DirtyCap, Mallard, Now,
            "Limit on freed memory that has not been returned, whatever the decay times say; a percentage refers to the memory in use.";
        background_thread: BackgroundThread = BackgroundThread::Auto, one_of(), Extended, Now,
            "Purge from a background thread; `auto` starts it once the process has several threads and something to purge.";
        max_background_threads: u32 = 4, clipped(1, 4095), Jemalloc, Never(why::ONE),
            "Maximum number of background threads.";
        retain: bool = true, Switch, Jemalloc, Now,
            "Keep addresses usable when their memory is returned; otherwise whole free chunks of 2 MiB are only reserved until they are needed.";
        trust_madvise: bool = false, Switch, Jemalloc, Now,
            "Do not check, when memory is first returned, that `MADV_DONTNEED` really clears pages.";
        calloc_madvise_threshold: Option<usize> = None, OrDefault(bytes(0, usize::MAX)), Extended, Now,
            "For blocks of this size or more, if above 256 KiB, `calloc` lets the kernel clear reused memory instead of filling it. This is good for blocks that are used only in part. `default` means never.";
        process_madvise_max_batch: usize = 0, clipped(0, 1024), Jemalloc, Now,
            "Maximum number of ranges returned by one call, up to 32, if the kernel supports it (Linux 6.14); 0 or 1 for one by one.";
    }
    "Address space and huge pages" {
        reserve: Option<usize> = None, OrDefault(bytes(0, 1 << 47)), Mallard, Now,
            "Address space to reserve at the start, without memory; all memory but blocks of 128 MiB or more comes from it as long as it lasts. With 0 and `default` nothing is reserved, and the heap maps addresses as it grows.";
        thp: Thp = Thp::Auto, one_of(), Extended, Now,
            "Transparent huge pages: if they pay (`auto`), as the system decides (`default`), for all memory or for none.";
        metadata_thp: MetadataThp = MetadataThp::Disabled, one_of(), Jemalloc, Now,
            "Transparent huge pages for the allocator's own records: none, for those beyond the first 8 MiB (`auto`), or for all and the page map (`always`).";
        dss: Dss = Dss::Disabled, one_of(), Extended, Never(why::DSS),
            "Use of `sbrk` in addition to `mmap`: not at all, before it, or after it.";
    }
    "jemalloc's page allocator of huge pages" {
        hpa: bool = false, Switch, Jemalloc, Never(why::HPA),
            "Use it.";
        hpa_slab_max_alloc: usize = 64 << 10, clipped_bytes(0, HUGE_PAGE_BYTES), Jemalloc, Never(why::HPA),
            "Largest request that it serves.";
        hpa_hugification_threshold: usize = HUGE_PAGE_BYTES / 100 * 95, clipped_bytes(0, HUGE_PAGE_BYTES), Jemalloc, Never(why::HPA),
            "Bytes in use from which on a huge page is requested.";
        hpa_hugification_threshold_ratio: Option<u64> = None, Fraction::or("default"), Jemalloc, Never(why::HPA),
            "The same as a part of a huge page.";
        hpa_hugify_delay_ms: u64 = 10_000, number(0, u64::MAX), Jemalloc, Never(why::HPA),
            "Milliseconds for which that condition must hold.";
        hpa_hugify_sync: bool = false, Switch, Jemalloc, Never(why::HPA),
            "Request huge pages by `MADV_COLLAPSE`.";
        hpa_hugify_style: HugifyStyle = HugifyStyle::Auto, one_of(), Jemalloc, Never(why::HPA),
            "When huge pages are requested.";
        hpa_min_purge_interval_ms: u64 = 5_000, number(0, u64::MAX), Jemalloc, Never(why::HPA),
            "Milliseconds between two purges.";
        hpa_min_purge_delay_ms: u64 = 0, number(0, u64::MAX), Jemalloc, Never(why::HPA),
            "Milliseconds before a page may be purged.";
        hpa_purge_threshold: usize = 4096, clipped_bytes(0, HUGE_PAGE_BYTES), Jemalloc, Never(why::HPA),
            "Dirty bytes from which a huge page is purged.";
        hpa_purge_threshold_ratio: Option<u64> = None, Fraction::or("default"), Jemalloc, Never(why::HPA),
            "The same as a part of a huge page.";
        hpa_dirty_mult: Option<u64> = Some(250_000), Fraction::or("-1"), Jemalloc, Never(why::HPA),
            "Maximum ratio of dirty pages to pages in use; -1 for no limit.";
        hpa_sec_nshards: usize = 2, number(0, usize::MAX), Jemalloc, Never(why::HPA),
            "Caches in front of it.";
        hpa_sec_max_alloc: usize = 32 << 10, bytes(0, usize::MAX), Jemalloc, Never(why::HPA),
            "Largest request that these caches serve.";
        hpa_sec_max_bytes: usize = 256 << 10, bytes(0, usize::MAX), Jemalloc, Never(why::HPA),
            "Maximum number of bytes in one of them.";
        hpa_sec_bytes_after_flush: usize = 128 << 10, bytes(0, usize::MAX), Jemalloc, Never(why::HPA),
            "Bytes that stay in a full one after a flush.";
        hpa_sec_batch_fill_extra: usize = 3, clipped(0, 512), Jemalloc, Never(why::HPA),
            "Runs that an empty one takes in addition to the request.";
        experimental_hpa_start_huge_if_thp_always: bool = true, Switch, Jemalloc, Never(why::HPA),
            "Assume huge pages if the system creates them by default.";
        experimental_hpa_enforce_hugify: bool = false, Switch, Jemalloc, Never(why::HPA),
            "Request them nevertheless.";
        experimental_hpa_max_purge_nhp: i64 = -1, number(-1, i64::MAX), Jemalloc, Never(why::HPA),
            "Maximum number of huge pages in one purge; -1 for no limit.";
    }
    "Faults and debugging" {
        abort: bool = false, Switch, Jemalloc, Now,
            "Abort if the C library cannot notify Mallard when threads end and processes fork, instead of going on silently.";
        xmalloc: bool = false, Switch, Jemalloc, Now,
            "Abort with a message when memory runs out, instead of returning null.";
        zero: bool = false, Switch, Jemalloc, Now,
            "Clear memory that is handed out; threads then have no caches.";
        junk: Junk = Junk::False, one_of(), Jemalloc, Now,
            "Fill memory with 0xa5 when it is handed out (`alloc`), with 0x5a when it is freed (`free`), or both (`true`); threads then have no caches.";
        zero_realloc: ZeroRealloc = ZeroRealloc::Free, one_of(), Jemalloc, Now,
            "What `realloc(p, 0)` does: allocate a block of no bytes, free `p` and return null, or abort.";
        zero_size: ZeroSize = ZeroSize::Closed, one_of(), Mallard, Now,
            "What a request of 0 bytes returns: an address in pages without access, so that a read or a write there ends the program (`closed`), or a block of the smallest size (`block`).";
        hardened: bool = false, Switch, Mallard, Now,
            "Find every wrong free at once, writes behind and before a block at its free, and writes after the free before the memory is reused; clear freed memory, and reuse it later and in random order (see `docs/misuse.md`).";
        hardened_sites: bool = false, Switch, Mallard, Now,
            "With `hardened`: note the call stack of each request and free, for the reports. This takes more time than all else of it.";
        family_mismatch: FamilyMismatch = FamilyMismatch::Warn, one_of(), Mallard, Now,
            "With `hardened`: what follows a `delete` of a block of `malloc`, a `delete[]` of one of `new`, and the like: nothing (`off`), a line for the first one (`warn`), or the end of the process (`abort`).";
        guard_sample: u64 = 0, number(0, u64::MAX), Mallard, Now,
            "Put blocks between closed pages, so that an access beside such a block or after its free ends the process with a report (see `docs/guards.md`): the mean number of allocated bytes to the next one, rounded down to a power of two; 0 for none, 65536 for production. The control `experimental.guard.active` switches this in any process.";
        guard_rate: u32 = 50, number(0, u32::MAX), Mallard, Now,
            "Most such blocks in a second on the mean; 0 for no limit.";
        guard_action: GuardAction = GuardAction::Abort, one_of(), Mallard, Now,
            "What follows the report about such a block: the end of the process, or nothing (`report`): the pages then stay open, and after 16 reports no more blocks are guarded.";
        guard_align: GuardAlign = GuardAlign::Random, one_of(), Mallard, Now,
            "Where such a block lies in its pages: at the beginning (`left`), at the end (`right`), or at either by chance. At the end up to 15 bytes may be left behind it. With `tight` none are, and blocks begin at odd addresses if their size is odd: for `mallard doctor`, since some programs cannot bear that.";
        guard_slots: u32 = 256, number(1, 16384), Mallard, Now,
            "The most such blocks at a time, those included that were freed and stay closed until the others were used. Each may need two of the process's mappings (`vm.max_map_count`).";
        guard_sites: Text<SITES_BYTES> = text(""), AnyText, Mallard, Now,
            "Put every block of up to 32 KiB between closed pages that these call sites ask for, and no other, whatever `guard_sample` and `guard_rate` say: up to 16 addresses that the calls return to, as `FILE+0xOFFSET`, with a vertical bar between two, each with up to three callers behind it as `A<B`; or `*` for all sites. For `mallard doctor`.";
        report_file: Text<FILE_BYTES> = text(""), AnyText, Mallard, Now,
            "File to which reports of misuses are appended as well, a line of JSON each; empty for none.";
        experimental_infallible_new: bool = false, Switch, Jemalloc, Now,
            "Abort if an operator `new` of C++ gets no memory, before any new-handler is called.";
        debug_double_free_max_scan: u32 = 32, number(0, u32::MAX), Jemalloc, Now,
            "Number of cached blocks that a free compares with the freed one, in a debug build of the library. In other builds it is 0, and a double free is detected when the cache returns the block.";
        san_guard_small: usize = 0, number(0, usize::MAX), Jemalloc, Never(why::GUARDS),
            "Put guard pages around one of this many slabs; 0 for none.";
        san_guard_large: usize = 0, number(0, usize::MAX), Jemalloc, Never(why::GUARDS),
            "Put guard pages around one of this many large blocks; 0 for none.";
        lg_san_uaf_align: i64 = -1, number(-1, 63), Jemalloc, Never(why::GUARDS),
            "Watch freed blocks at multiples of this alignment (base-2 logarithm) for writes; -1 for none.";
        mutex_max_spin: i64 = 60, number(-1, i64::MAX), Extended, Now,
            "How often a thread checks a taken lock before it sleeps; -1 for no limit.";
        utrace: bool = false, Switch, Jemalloc, Never(why::UTRACE),
            "Trace allocations with `utrace(2)`.";
    }
    "Statistics" {
        stats_print: bool = false, Switch, Jemalloc, Now,
            "Print statistics at exit, on standard error or through `malloc_message`.";
        stats_print_opts: Text<LETTERS_BYTES> = text(""), STATS_LETTERS, Jemalloc, Now,
            "Letters for that report, as for `malloc_stats_print`.";
        stats_interval: i64 = -1, number(-1, i64::MAX), Jemalloc, Now,
            "Print statistics whenever this many bytes have been allocated, counted in the batches that thread caches take; -1 for never.";
        stats_interval_opts: Text<LETTERS_BYTES> = text(""), STATS_LETTERS, Jemalloc, Now,
            "Letters for that report, as for `malloc_stats_print`.";
        export_stats: ExportStats = ExportStats::Auto, one_of(), Mallard, Now,
            "Keep a page of statistics that `mallard top` and others can read. With `auto`, a process has one in its own memory once it is a second old and holds 8 MiB; readers need the right to debug the process. With `true`, every process has one, in memory that the user's other processes can open by a descriptor of 900 or more, and takes requests by it.";
    }
    "Server in the process" {
        http: Text<PREFIX_BYTES> = text(""), AnyText, Mallard, Now,
            "Serve metrics, reports and heap profiles by HTTP at this address: `PORT` on the own machine, `ADDRESS:PORT`, `unix:PATH`, or `@NAME` for an abstract socket; `%p` in names is the number of the process. The file of `unix:PATH` stays when the process ends. Empty for no server.";
        http_control: bool = false, Switch, Mallard, Now,
            "Let clients of that server start, stop and reset sampling.";
    }
    "Heap profiling" {
        prof: bool = false, Switch, Jemalloc, Now,
            "Sample allocations from the start, and be ready to write profiles.";
        prof_active: bool = true, Switch, Jemalloc, Now,
            "With `prof`, sample from the start. The control `prof.active` switches sampling in any process, whatever `prof` says.";
        prof_thread_active_init: bool = true, Switch, Jemalloc, Now,
            "Sample in new threads, each of which can switch it for itself.";
        lg_prof_sample: u32 = 19, clipped(0, 63), Jemalloc, Now,
            "Mean distance between samples in allocated bytes (base-2 logarithm).";
        prof_accum: bool = false, Switch, Jemalloc, Now,
            "Write what was ever allocated to `heap_v2` profiles, beside what is live. Both are counted in any case, and pprof's form has both.";
        prof_prefix: Text<PREFIX_BYTES> = text("jeprof"), AnyText, Jemalloc, Now,
            "Start of the names of profile files; empty for no automatic dumps.";
        lg_prof_interval: i64 = -1, number(-1, 63), Jemalloc, Now,
            "Mean distance between dumps in allocated bytes (base-2 logarithm); -1 for no such dumps.";
        prof_gdump: bool = false, Switch, Jemalloc, Now,
            "Dump a profile when the memory in use has grown by a tenth over its last maximum, once a second at most.";
        prof_final: bool = false, Switch, Jemalloc, Now,
            "Dump a profile at exit.";
        prof_leak: bool = false, Switch, Jemalloc, Now,
            "With `prof_final`, report leaks at exit.";
        prof_leak_error: bool = false, Switch, Jemalloc, Now,
            "With `prof_final`, report leaks at exit and exit with status 1 if there are any.";
        prof_bt_max: u32 = 128, clipped(1, 256), Jemalloc, Now,
            "Most stack frames kept of a sample.";
        prof_pid_namespace: bool = false, Switch, Jemalloc, Now,
            "Put the number of the process namespace into the names of profile files.";
        prof_log: bool = false, Switch, Jemalloc, Now,
            "Log the sampled blocks that are freed, and write the log at exit.";
        prof_recent_alloc_max: i64 = 0, number(-1, i64::MAX), Jemalloc, Now,
            "Recent samples to be kept after they were freed; -1 for all.";
        prof_stats: bool = false, Switch, Jemalloc, Now,
            "Count samples by size class, for `prof.stats`.";
        prof_sys_thread_name: bool = false, Switch, Jemalloc, Now,
            "Name threads in profiles as the system names them.";
        prof_time_resolution: ProfTime = ProfTime::Default, one_of(), Jemalloc, Now,
            "Clock of the times of samples: the kernel's ticks, or exact (`high`).";
        prof_unbias: bool = true, Switch, Jemalloc, Now,
            "Let each sample stand for the blocks that its size makes likely. `false`: for itself, and `jeprof` estimates.";
        prof_format: ProfFormat = ProfFormat::HeapV2, one_of(), Mallard, Now,
            "Format of profiles: jemalloc's text form or pprof's.";
        prof_max_memory: usize = 64 << 20, bytes(0, usize::MAX), Mallard, Now,
            "Most bytes for records of call stacks, which are kept for good; samples of further ones count together, as `(more)`.";
        prof_rate_max: u32 = 5000, number(0, u32::MAX), Mallard, Now,
            "Most samples of a thread in a second: one with more is sampled more rarely, and its samples stand for more. 0 for no limit; without effect below `lg_prof_sample:17`.";
        prof_usdt: bool = true, Switch, Mallard, Now,
            "Sample, without call stacks of Mallard's own, while a tracer is attached to the probes `alloc` and `free` of `otel_memory`.";
        prof_seed: Option<u64> = None, OrDefault(number(0, u64::MAX)), Mallard, Now,
            "Seed of the distances between samples, for repeatable runs of one thread; `default` differs in each run.";
    }
    aliases {
        "Thread caches" lg_tcache_max => tcache_max: Log2 { max: LG_TCACHE_MAX }, Jemalloc, Now,
            "`tcache_max` given as its base-2 logarithm.";
    }
}
