//! Wrong frees, and the line with which each ends the process.

use crate::die;
use crate::sys::atomic::{AtomicPtr, Ordering};

/// How a user finds the call that did it. The default looks at most blocks when they leave the
/// thread's cache; the command of the lab has every block checked.
const HOW_TO_FIND: &str = "to find the line: mallard doctor -- PROGRAM";

/// A free that cannot be right. The code that finds it may hold a lock: the process is ended after
/// the lock is released, because a signal handler may want to allocate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// A block of this many bytes begins there, and is free already.
    Double(usize),
    /// The address is this many bytes into a block, which has the second number of bytes.
    Inside(usize, usize),
    /// Memory of the heap in which no block in use lies.
    NoBlock,
    /// Memory of somebody else.
    Foreign,
    /// The program says that the block has the first number of bytes. It has the second.
    Size(usize, usize),
}

/// A function that records a misuse of a call with this address, before the process is ended.
pub type Record = fn(Misuse, usize);

/// A [`Record`]; null for none.
static RECORD: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Lets misuses be recorded by this function.
pub fn record_by(record: Record) {
    RECORD.store(record as *mut (), Ordering::Release);
}

impl Misuse {
    fn record(self, p: usize) {
        let record = RECORD.load(Ordering::Acquire);
        if !record.is_null() {
            // SAFETY: only `record_by` writes it, and only with a function of this type.
            let record = unsafe { core::mem::transmute::<*mut (), Record>(record) };
            record(self, p);
        }
    }

    /// Ends the process with a line about the misuse, which was a free of `p`.
    #[cold]
    #[inline(never)]
    pub fn die(self, p: usize) -> ! {
        self.record(p);
        match self {
            Misuse::Double(bytes) => {
                die!("free({p:#x}): this block of {bytes} bytes is free already; {HOW_TO_FIND}")
            }
            Misuse::Inside(into, bytes) => {
                die!("free({p:#x}): {into} bytes into a block of {bytes} bytes; {HOW_TO_FIND}")
            }
            Misuse::NoBlock => {
                die!("free({p:#x}): no block is there, or it is free already; {HOW_TO_FIND}")
            }
            Misuse::Foreign => {
                die!("free({p:#x}): this allocator never gave that out; {HOW_TO_FIND}")
            }
            Misuse::Size(said, bytes) => die!(
                "free({p:#x}) with the size {said}: the block has {bytes} bytes; {HOW_TO_FIND}"
            ),
        }
    }

    /// Like [`Misuse::die`], for a call that is no free but needs a block in use.
    #[cold]
    #[inline(never)]
    pub fn die_in_use(self, p: usize) -> ! {
        self.record(p);
        match self {
            Misuse::Inside(into, bytes) => {
                die!("use of {p:#x}: {into} bytes into a block of {bytes} bytes")
            }
            Misuse::Foreign => die!("use of {p:#x}: this allocator never gave that out"),
            _ => die!("use of {p:#x}: no block is there, or it is free"),
        }
    }
}
