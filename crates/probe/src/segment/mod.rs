//! The process's segment: makes the file and maps it. The modules below write what no counted call
//! writes: the owner of a slot ([`join`]), ticks of CPU time ([`tick`]), and the memory of the
//! process ([`trim`]), also at its end ([`exit`]).
//!
//! [`state`] tells whether this process has one.

mod exit;
pub mod join;
mod tick;
pub mod trim;

use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::file::{self, Failed, Text, copy};
use crate::tls::thread;
use crate::{allocator, clock, record, state};
use mallard_formats::probe::layout::{self, Birth, Control, Header, Slot};

/// The mapped segment; also that of the parent in a child that has none yet.
static MAPPED: AtomicPtr<Header> = AtomicPtr::new(null_mut());
/// Live bytes of the process when it last forked.
static LIVE_AT_FORK: AtomicI64 = AtomicI64::new(0);
static FLAGS: AtomicU32 = AtomicU32::new(0);
static TIMER_HZ: AtomicU32 = AtomicU32::new(0);
/// The segment's file, to reserve more of it.
static FILE: file::Path = file::Path::new();

/// The segment of the process, which must have one.
#[inline(always)]
pub fn header() -> &'static Header {
    // SAFETY: `MAPPED` is set before the state says that the segment is ready, and stays mapped.
    unsafe { &*MAPPED.load(Ordering::Relaxed) }
}

/// The births' table entry with this number.
#[inline(always)]
pub fn birth(index: usize) -> &'static Birth {
    debug_assert!(index < layout::BIRTH_ENTRIES);
    // SAFETY: the table lies there in every segment.
    unsafe { &*at::<Birth>(layout::BIRTHS_AT).add(index % layout::BIRTH_ENTRIES) }
}

/// The tags of the group of entries with this number.
#[inline(always)]
pub fn tags(group: usize) -> &'static AtomicU64 {
    debug_assert!(group < layout::GROUPS);
    // SAFETY: as above.
    unsafe { &*at::<AtomicU64>(layout::TAGS_AT).add(group % layout::GROUPS) }
}

/// The slot with this number.
pub fn slot(index: usize) -> *const Slot {
    debug_assert!(index < layout::SLOTS_MAX);
    at::<Slot>(layout::SLOTS_AT).wrapping_add(index)
}

/// The number of a slot of this segment.
#[inline(always)]
pub fn number(slot: *const Slot) -> usize {
    (slot.addr() - at::<Slot>(layout::SLOTS_AT).addr()) / size_of::<Slot>()
}

#[inline(always)]
fn at<T>(offset: usize) -> *const T {
    MAPPED
        .load(Ordering::Relaxed)
        .cast_const()
        .wrapping_byte_add(offset)
        .cast()
}

pub fn flags() -> u32 {
    FLAGS.load(Ordering::Relaxed)
}

pub fn timer_hz() -> u32 {
    TIMER_HZ.load(Ordering::Relaxed)
}

/// Live bytes as the slots know them.
pub fn live() -> i64 {
    let header = header();
    let used = (header.used.load(Ordering::Relaxed) as usize).min(layout::SLOTS_MAX);
    (0..used)
        .map(|index| {
            // SAFETY: slots below `used` are reserved.
            let cell = unsafe { &(*slot(index)).cell };
            let (begun, ended) = (&cell.begun, &cell.ended);
            begun
                .load(Ordering::Relaxed)
                .wrapping_sub(ended.load(Ordering::Relaxed)) as i64
        })
        .fold(header.inherited.load(Ordering::Relaxed), i64::wrapping_add)
}

/// Makes the segment of this process, unless another thread does: then waits for it, which takes
/// microseconds and happens once in a process.
#[cold]
pub fn make() {
    if !state::begin() {
        while !state::is_ready() {
            core::hint::spin_loop();
        }
        return;
    }
    state::clear_in_children();
    let parents = MAPPED.load(Ordering::Relaxed);
    record::leave_parent();
    let made = in_folder().unwrap_or_else(private);
    MAPPED.store(made, Ordering::Relaxed);
    describe(parents);
    if !parents.is_null() {
        // SAFETY: this child no longer uses its parent's segment. The parent does.
        unsafe { libc::munmap(parents.cast(), layout::SEGMENT_BYTES) };
    }
    state::finish();
}

/// The handlers of forks. The parent's counts live bytes just before, for the child.
pub fn watch_forks() {
    unsafe extern "C" {
        fn __register_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
            object: *const core::ffi::c_void,
        ) -> i32;
    }
    extern "C" fn prepare() {
        if state::is_ready() {
            LIVE_AT_FORK.store(live(), Ordering::Relaxed);
            record::before_fork(thread());
        }
    }
    extern "C" fn child() {
        state::clear();
    }
    // SAFETY: the C library's function behind `pthread_atfork`; the handlers may run at any fork.
    unsafe { __register_atfork(Some(prepare), None, Some(child), core::ptr::null()) };
}

/// Fills the header in and marks the segment as complete.
fn describe(parents: *mut Header) {
    let header = header();
    let now = clock::monotonic_ns();
    header.clock_ns.store(now, Ordering::Relaxed);
    // SAFETY: asks the kernel for an id and the program's path.
    unsafe {
        header.pid.store(libc::getpid() as u32, Ordering::Relaxed);
        if let Some(parents) = parents.as_ref() {
            let parent = parents.pid.load(Ordering::Relaxed);
            header.forked_from.store(parent, Ordering::Relaxed);
            header
                .inherited
                .store(LIVE_AT_FORK.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut text = [0_u8; layout::PATH_BYTES];
        let room = text.len() - 1;
        let program = c"/proc/self/exe".as_ptr();
        libc::readlink(program, text.as_mut_ptr().cast(), room);
        copy(&text, &header.program);
    }
    header.tsc.store(clock::now(), Ordering::Relaxed);
    header.used.store(1, Ordering::Relaxed);
    let name = allocator::serves().map_or(c"", |object| object.name());
    copy(name.to_bytes(), &header.allocator);
    header.magic.store(layout::MAGIC, Ordering::Release);
}

/// The value of our variable at the start of the program. The block of arguments and variables
/// that the kernel made is there before the C library knows of it.
fn folder() -> Option<&'static CStr> {
    unsafe extern "C" {
        static __libc_stack_end: *const usize;
    }
    /// More than the kernel passes on.
    const ARGUMENTS_MAX: usize = 1 << 31;
    // SAFETY: at the end of the stack lie the count of arguments, the arguments, a null, and the
    // variables up to a null. Programs that overwrite their arguments leave strings.
    unsafe {
        let stack = __libc_stack_end;
        // An old loader that runs as a command has moved them.
        let count = Some(*stack).filter(|count| *count < ARGUMENTS_MAX)?;
        let mut entry = stack.add(count + 2).cast::<*const c_char>();
        while !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let name = layout::VARIABLE.as_bytes();
            if text.starts_with(name) && text.get(name.len()) == Some(&b'=') {
                return Some(CStr::from_ptr((*entry).add(name.len() + 1)));
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Maps a new file of the folder.
fn in_folder() -> Option<*mut Header> {
    let folder = folder()?.to_bytes();
    let begin = || {
        let mut path = Text::new();
        path.push(folder)?;
        Some(path)
    };
    let mut path = begin()?;
    path.push(b"/")?;
    path.push(layout::CONTROL_FILE.as_bytes())?;
    let control = read_control(&path.bytes)?;
    // SAFETY: asks for an id.
    let process = unsafe { libc::getpid() } as u32;
    /// More images than a process id goes through in one session.
    const IMAGES_MAX: u32 = 10_000;
    for image in 0..IMAGES_MAX {
        let mut path = begin()?;
        path.push(b"/")?;
        path.push_number(process)?;
        path.push(b"-")?;
        path.push_number(image)?;
        let first = layout::SLOTS_AT + layout::BATCH_SLOTS * size_of::<Slot>();
        let mapped = match FILE.make(&path, layout::SEGMENT_BYTES, first) {
            Ok(mapped) => mapped.cast::<Header>(),
            Err(Failed::Exists) => continue,
            Err(Failed::Refused) => return None,
        };
        // SAFETY: just mapped.
        unsafe {
            (*mapped)
                .reserved
                .store(layout::BATCH_SLOTS as u32, Ordering::Relaxed)
        };
        record::make(&control, path);
        return Some(mapped);
    }
    None
}

fn read_control(path: &[u8]) -> Option<Control> {
    // SAFETY: the path ends with a zero; the buffer is a plain structure of this length.
    let control = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let mut control: Control = core::mem::zeroed();
        let length = libc::read(file, (&raw mut control).cast(), size_of::<Control>());
        libc::close(file);
        (length == size_of::<Control>() as isize).then_some(control)?
    };
    if control.magic != layout::MAGIC {
        return None;
    }
    FLAGS.store(control.flags, Ordering::Relaxed);
    TIMER_HZ.store(control.timer_hz, Ordering::Relaxed);
    Some(control)
}

/// Memory that no observer reads, for a process that cannot be observed: without a variable, in a
/// sandbox, or with a full folder.
fn private() -> *mut Header {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let mapped = unsafe { libc::mmap(null_mut(), layout::SEGMENT_BYTES, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        // SAFETY: without memory there is nothing to go on with.
        unsafe { libc::abort() }
    }
    FILE.clear();
    let header = mapped.cast::<Header>();
    // SAFETY: just mapped.
    unsafe {
        (*header)
            .reserved
            .store(layout::SLOTS_MAX as u32, Ordering::Relaxed)
    };
    header
}

/// Makes sure that the memory of the slot with this number is there.
pub fn reserve_slot(index: usize) -> bool {
    let header = header();
    let reserved = header.reserved.load(Ordering::Acquire) as usize;
    if index < reserved {
        return true;
    }
    let end = (index / layout::BATCH_SLOTS + 1) * layout::BATCH_SLOTS;
    let bytes = |slots: usize| layout::SLOTS_AT + slots * size_of::<Slot>();
    let done = FILE.reserve(bytes(reserved), bytes(end) - bytes(reserved));
    if done {
        header.reserved.fetch_max(end as u32, Ordering::Release);
    }
    done
}
