//! From registers to the number of a site, and from that to the stack.

use super::table::{LEVELS, SiteLine, Table};
use crate::cache::{self, Countdown, inside};
use crate::prof::capture::{self, Stack};
use crate::prof::unwind::{NOTED_MAX, Noted, Registers};
use crate::space::meta;
use crate::sys::arch::capture::without_signature;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::published::Published;
use crate::sys::spread::SPREAD_FACTOR;

/// The number of a site.
pub type Site = u16;

/// The site of requests of which nothing is known.
pub const UNKNOWN: Site = 0;

/// The most frames that are kept of a stack.
const FRAMES_MAX: usize = 28;

/// The most sites, and one.
const SITES: usize = 1 << 16;

/// The stack of a site. Its addresses follow.
#[repr(C)]
struct Record {
    frames: u32,
    /// Whether it is chosen: 0 if nobody asked, [`IS_CHOSEN`] or [`IS_NOT_CHOSEN`].
    choice: AtomicU32,
}

const IS_CHOSEN: u32 = 1;
const IS_NOT_CHOSEN: u32 = 2;

type Records = [Published<Record>; SITES];

static TABLE: Table = Table::new();
static RECORDS: Published<Records> = Published::none();
/// Sites so far.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The frames that keys have; 0 before sites are wanted.
static DEPTH: AtomicUsize = AtomicUsize::new(0);
/// Whether the table of keys is full.
static FULL: AtomicBool = AtomicBool::new(false);

/// What a hash is about.
#[derive(Clone, Copy)]
enum About {
    Key = 1,
    Frame = 2,
    Stack = 3,
}

/// Gets all ready for [`site`], whose keys will have at least so many frames. False when memory is
/// out.
#[cold]
#[inline(never)]
pub fn begin(depth: usize) -> bool {
    let _inside = inside::enter_or_wait();
    capture::begin();
    if RECORDS.get().is_none() {
        let Some(records) = meta::take_apart(size_of::<Records>()) else {
            return false;
        };
        // SAFETY: zero, which is a valid array of none; this long, aligned to a cache line, and
        // never freed.
        let _ = RECORDS.set_first(unsafe { records.cast::<Records>().as_ref() });
    }
    DEPTH.fetch_max(depth.clamp(1, NOTED_MAX / 2), Ordering::Relaxed);
    true
}

/// Sites so far.
#[cfg(test)]
fn count() -> usize {
    COUNT.load(Ordering::Relaxed).min(SITES - 1)
}

fn record_of(site: Site) -> Option<&'static Record> {
    RECORDS.get()?.get(usize::from(site))?.get()
}

/// Whether a site is chosen, by its stack; asked once.
pub(super) fn choice(site: Site, is_chosen: fn(&[usize]) -> bool) -> bool {
    let Some(record) = record_of(site) else {
        return false;
    };
    match record.choice.load(Ordering::Relaxed) {
        0 => {
            let is_chosen = is_chosen(stack(site));
            let choice = if is_chosen { IS_CHOSEN } else { IS_NOT_CHOSEN };
            record.choice.store(choice, Ordering::Relaxed);
            is_chosen
        }
        choice => choice == IS_CHOSEN,
    }
}

/// The stack of a site: return addresses, the innermost first.
pub fn stack(site: Site) -> &'static [usize] {
    record_of(site).map_or(&[], |record| {
        // SAFETY: the record was made with this many addresses behind it, and lives for ever.
        unsafe {
            let first = core::ptr::from_ref(record).add(1).cast();
            core::slice::from_raw_parts(first, record.frames as usize)
        }
    })
}

/// The site of the call that the program has under way in this thread.
#[inline(always)]
pub fn site_of_request() -> Site {
    site(&Registers::here())
}

/// The site of the call that a frame with these registers makes, or the one that led to it if the
/// frame is this library's.
#[inline(never)]
pub fn site(from: &Registers) -> Site {
    match TABLE.find(key(from)) {
        Some(site) => site,
        None => new_site(from),
    }
}

#[inline(always)]
fn mixed(hash: u64, word: usize) -> u64 {
    let hash = (hash ^ word as u64).wrapping_mul(SPREAD_FACTOR);
    hash ^ hash >> 32
}

/// What the table has entries by: the upper bits of a product depend on all bits.
#[inline(always)]
fn finished(hash: u64, about: About) -> u64 {
    hash ^ about as u64
}

/// The key of a frame with these registers.
#[inline(always)]
fn key(from: &Registers) -> u64 {
    let (mut pc, mut sp) = (from.pc, from.sp);
    let mut left = DEPTH.load(Ordering::Relaxed);
    let [first, end] = cache::countdown().map_or([0; 2], Countdown::stack_pages);
    let mut hash = 0;
    for _ in 0..NOTED_MAX {
        if !capture::is_own(pc) {
            if hash == 0 {
                // Stacks of threads begin at the same place of a page.
                hash = sp as u64 & 0xff0 | 1;
            }
            hash = mixed(hash, pc);
            left = left.wrapping_sub(1);
            if left == 0 {
                return finished(hash, About::Key);
            }
        }
        let step = TABLE.find(frame_hash(pc)).unwrap_or(0);
        let at = sp.wrapping_add(place_of_return(step));
        if step == 0 || at.wrapping_sub(first) >= end - first {
            break;
        }
        // SAFETY: an aligned word on pages of the thread's own stack, which it is on.
        let word = unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
        (pc, sp) = (without_signature(word), sp + distance(step));
    }
    finished(mixed(mixed(hash, pc), sp & 0xff0), About::Key)
}

#[inline(always)]
fn frame_hash(pc: usize) -> u64 {
    finished((pc as u64).wrapping_mul(SPREAD_FACTOR), About::Frame)
}

// How to get from a frame to its caller is written as the words between the stack pointers, and
// whether the return address is the second of these words or the last one. 0 if it is not known.

const IS_SECOND: u16 = 1;
const WORD: usize = size_of::<usize>();

#[inline(always)]
fn distance(step: u16) -> usize {
    usize::from(step >> 1) * WORD
}

#[inline(always)]
fn place_of_return(step: u16) -> usize {
    if step & IS_SECOND != 0 {
        WORD
    } else {
        distance(step).wrapping_sub(WORD)
    }
}

/// The lines of a level of the table.
fn lines(level: usize) -> Option<&'static SiteLine> {
    let lines = meta::take_apart(LEVELS[level] * size_of::<SiteLine>())?;
    // SAFETY: zeros are valid lines; aligned to a cache line, and never freed.
    Some(unsafe { lines.cast().as_ref() })
}

#[inline(never)]
fn add(hash: u64, value: u16) -> Option<u16> {
    TABLE.add(hash, value, lines)
}

/// The number of a site whose key is new.
#[cold]
#[inline(never)]
fn new_site(from: &Registers) -> Site {
    if DEPTH.load(Ordering::Relaxed) == 0 || FULL.load(Ordering::Relaxed) {
        return UNKNOWN;
    }
    let _keep = KeepErrno::new();
    let Some(_inside) = inside::enter() else {
        return UNKNOWN;
    };
    let mut noted = Noted::new();
    let Some(stack) = Stack::take_noting(from, FRAMES_MAX, &mut noted) else {
        return UNKNOWN;
    };
    learn(&noted);
    let site = site_of_stack(stack.frames());
    match add(key(from), site) {
        Some(site) => site,
        None => {
            FULL.store(true, Ordering::Relaxed);
            site
        }
    }
}

/// Notes how to get from the first frames of a walk to their callers.
fn learn(noted: &Noted) {
    let mut left = DEPTH.load(Ordering::Relaxed);
    for (this, caller) in noted.frames().iter().zip(noted.frames().iter().skip(1)) {
        left = left.wrapping_sub(usize::from(!capture::is_own(this.pc)));
        if left == 0 {
            return;
        }
        let (hash, step) = (frame_hash(this.pc), step_of(this.sp, caller.sp, caller.pc));
        match add(hash, step) {
            Some(before) if before != step => TABLE.change(hash, before, 0),
            _ => {}
        }
    }
}

/// How to get from a frame with this stack pointer to the caller's, at whose `pc` it returns.
fn step_of(sp: usize, caller_sp: usize, pc: usize) -> u16 {
    let bytes = caller_sp.wrapping_sub(sp);
    let Ok(words) = u16::try_from(bytes / WORD) else {
        return 0;
    };
    if words == 0 || words >= 1 << 15 {
        return 0;
    }
    for step in [words << 1, words << 1 | IS_SECOND] {
        let at = sp + place_of_return(step);
        // SAFETY: an aligned word between two frames of this thread that a walk has met.
        let word = unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
        if without_signature(word) == pc && at < caller_sp {
            return step;
        }
    }
    0
}

/// The number of a stack; a new one if there is none.
fn site_of_stack(frames: &[usize]) -> Site {
    let hash = frames.iter().fold(0, |hash, &frame| mixed(hash, frame));
    let hash = finished(hash, About::Stack);
    if let Some(site) = TABLE.find(hash) {
        return site;
    }
    let record = (RECORDS.get()).zip(meta::take(size_of::<Record>() + size_of_val(frames)));
    let Some((records, memory)) = record else {
        return UNKNOWN;
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let Some(place) = records.get(number) else {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: just taken with this size.
        unsafe { meta::give(memory, size_of::<Record>() + size_of_val(frames)) };
        return UNKNOWN;
    };
    let record = memory.cast::<Record>();
    // SAFETY: the memory is new, aligned to a cache line, this long, and never freed.
    unsafe {
        record.write(Record {
            frames: frames.len() as u32,
            choice: AtomicU32::new(0),
        });
        let first = record.as_ptr().add(1).cast::<usize>();
        first.copy_from_nonoverlapping(frames.as_ptr(), frames.len());
        place.set(record.as_ref());
    }
    // Another thread may have numbered the same stack meanwhile.
    add(hash, number as Site).unwrap_or(number as Site)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::life;
    use core::hint::black_box;
    use std::vec::Vec;

    #[inline(never)]
    fn ask() -> Site {
        black_box(site_of_request())
    }

    /// Wrappers with frames of their own.
    #[inline(never)]
    fn through_one(depth: usize) -> Site {
        let room = black_box([depth; 4]);
        let site = ask();
        black_box(room);
        site
    }

    #[inline(never)]
    fn through_another(depth: usize) -> Site {
        let site = through_one(depth);
        black_box(depth);
        site
    }

    /// Three stacks, which differ in the second frame or the third.
    #[inline(never)]
    fn round() -> [Site; 3] {
        [through_one(1), through_one(2), through_another(3)]
    }

    /// The thread gets a cache, which knows the pages of its stack.
    fn begun(depth: usize) -> bool {
        static READY: std::sync::Once = std::sync::Once::new();
        READY.call_once(|| assert!(life::initialise(|| ())));
        life::current_or_new();
        begin(depth)
    }

    #[test]
    fn a_call_has_one_site_each_time_and_others_have_others() {
        crate::testing::own_process!();
        assert_eq!(ask(), UNKNOWN, "no sites are wanted yet");
        assert!(begun(3));
        let all: Vec<_> = (0..3).map(|_| round()).collect();
        assert!(all.iter().all(|sites| sites == &all[0]), "{all:?}");
        let [one, two, other] = all[0];
        assert!(
            one != two && two != other && one != other && one != UNKNOWN,
            "{one} {two} {other}"
        );
        assert!(stack(one).len() > 4);
        assert_ne!(stack(one), stack(two));
        assert_eq!(stack(UNKNOWN), &[]);
        assert_eq!(stack(Site::MAX), &[]);
    }

    #[test]
    fn deep_recursion_makes_few_sites() {
        #[inline(never)]
        fn recurse(left: usize) -> Site {
            let deeper = if left == 0 { ask() } else { recurse(left - 1) };
            black_box(deeper)
        }
        crate::testing::own_process!();
        assert!(begun(2));
        let before = count();
        for depth in 0..3000 {
            recurse(depth);
        }
        let made = count() - before;
        assert!(made <= 2 * FRAMES_MAX, "{made}");
    }

    #[test]
    fn threads_share_the_sites_of_equal_stacks() {
        crate::testing::own_process!();
        assert!(begun(4));
        let sites: Vec<Site> = (0..4)
            .map(|_| {
                std::thread::spawn(|| begun(4).then(|| through_one(1)).unwrap())
                    .join()
                    .unwrap()
            })
            .collect();
        assert!(sites.iter().all(|&site| site == sites[0]), "{sites:?}");
    }

    #[test]
    fn without_room_for_more_sites_they_are_unknown() {
        crate::testing::own_process!();
        assert!(begun(4));
        let known = through_one(1);
        COUNT.store(SITES - 1, Ordering::Relaxed);
        assert_eq!(through_another(1), UNKNOWN);
        assert_eq!(through_another(2), UNKNOWN);
        assert_eq!((count(), known != UNKNOWN), (SITES - 1, true));
    }
}
