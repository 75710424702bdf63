//! Plans: what a replay executes (`bench/workloads/replay.c`), compiled from one process of a
//! recording, or from a [`Family`].
//!
//! A plan is a file of 64-bit words, little-endian. Its head has [`HEAD_WORDS`]: the magic number,
//! the number of threads, lanes and slots, the span in microseconds, the calls, the microseconds
//! between two ticks, where the table of threads begins (a byte offset), the peak of live bytes,
//! and the number of processes; from word 16 on, live bytes at a hundred points of the recorded
//! time, and from word 128 on, the microseconds of these points. The table has five words for each
//! thread: where its operations begin, how many words they are, its lane ([`TURN_AT_BIT`]), the
//! time of its first event, and its process, from 0.
//!
//! An operation is a word: three bits for the kind ([`Op`]), one flag, 28 bits for the slot, 32
//! bits for an argument. Some have further words.
//!
//! - A **slot** holds the address of a block from its allocation to its free. The thread that freed
//!   its last block uses it again, or another one, which then waits until it is empty
//!   ([`WAITS_BIT`]). The blocks of a slot are numbered from 1, modulo 2^15 ([`NUMBER_AT_BIT`]):
//!   an allocation waits for the end of the block with the number before its own.
//! - The **flag** of an operation that takes a block says that another thread allocated it: the
//!   replay waits until the slot is filled by the block of that number. The flag of an allocation
//!   says that another thread waits. Those are the only edges between threads, and all of them lead
//!   from an earlier event to a later one.
//! - A **lane** is a place for one thread at a time. A thread that has ended leaves it to a later
//!   one, which waits for its turn: within the window, the later one may be started first.
//! - **Ticks** tell the recorded time. The replay lets no thread run far ahead of the slowest.
//! - At a **fork** all threads of the process come together ([`Control::Pause`]), so that the child
//!   begins with exactly the blocks that lived in the recording; one of them forks
//!   ([`Control::Fork`]), and goes on in the child as the first thread of that process. The child
//!   has a copy of all slots: a block that it has inherited lies where it lay in the parent, under
//!   the same number, and no edge leads to it. From there on each process numbers its slots for
//!   itself. Live bytes are those of all processes; a block that was inherited counts in each. A
//!   family comes together at each point of the curve, too ([`Control::Point`]).

mod compile;
mod family;
mod inheritance;
mod slots;
mod writer;

pub use compile::{Options, Plan, compile};
pub use family::{Family, Fork, families};
pub(crate) use inheritance::inherited;

/// Words of the head.
pub const HEAD_WORDS: usize = 512;
/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\0mplan\0\x03");
/// Where the curve begins, in words.
pub const CURVE_AT_WORD: usize = 16;
/// Where the times of its points begin.
pub const TIMES_AT_WORD: usize = 128;
/// The most microseconds between two ticks of a thread that is busy.
pub const TICK_US_MAX: u64 = 250;
/// A recording has at least this many ticks, however short it is.
pub const TICKS_MIN: u64 = 2000;
/// The most slots: 28 bits.
pub const SLOTS_MAX: u32 = 1 << 28;
/// Where the lane of a thread has the number of threads that had it before.
pub const TURN_AT_BIT: u32 = 32;
/// Where the argument of an operation has the number of the block in its slot: 15 bits.
pub const NUMBER_AT_BIT: u32 = 16;
/// In the argument of an allocation: it waits until the block before it has left the slot.
pub const WAITS_BIT: u64 = 1 << 31;

/// The kinds of operations, and what their argument and further words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Op {
    /// The argument's lowest four bits are a [`Control`].
    Control = 0,
    /// The size, below 64 KiB; the number; [`WAITS_BIT`].
    Malloc = 1,
    Calloc = 2,
    /// The size's lower half. Second word: whether it waits (bit 0), flag (bit 3), new slot, upper
    /// 16 bits of the size (from bit 32), touched share (from bit 48). Third word: the numbers of
    /// the old block and, from bit 16, of the new one.
    Realloc = 3,
    /// The number.
    Free = 4,
    SizedFree = 5,
    /// 0 malloc, 1 calloc, 2 aligned; from bit 2 the logarithm of the alignment, from bit 8 the
    /// touched share in 255ths; the number; [`WAITS_BIT`]. Second word: the size.
    Long = 6,
    /// The usable size is asked for. The number.
    Query = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Control {
    Nothing = 0,
    /// The slot and the rest of the argument are microseconds.
    Tick = 1,
    /// The slot is the number of a thread that begins now.
    Spawn = 2,
    Trim = 4,
    /// The slot is the number of a thread, the first of a process that is forked now.
    Fork = 5,
    /// The thread waits until its process has forked this many times.
    Pause = 6,
    /// The thread waits until all threads of the family have come to this point of the curve.
    Point = 7,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::CURVE_POINTS;

    /// The replayer is written in C and states the layout once more.
    #[test]
    fn the_replayer_has_the_same_layout() {
        let replayer = concat!(
            include_str!("../../../../bench/workloads/plan.h"),
            include_str!("../../../../bench/workloads/family.h")
        );
        for line in [
            format!(
                "enum {{ HEAD_WORDS = {HEAD_WORDS}, CURVE_AT_WORD = {CURVE_AT_WORD}, TIMES_AT_WORD = {TIMES_AT_WORD} \
                 }};"
            ),
            format!("enum {{ CURVE_POINTS = {CURVE_POINTS} }};"),
            format!("#define PLAN_MAGIC UINT64_C({MAGIC:#018x})"),
            "enum { CONTROL, MALLOC, CALLOC, REALLOC, FREE, SIZED_FREE, LONG, QUERY };".to_owned(),
            "enum { NOTHING, TICK, SPAWN, END, TRIM, FORK, PAUSE, POINT };".to_owned(),
        ] {
            assert!(replayer.contains(&line), "not in replay.c: {line}");
        }
        assert_eq!(
            [Op::Realloc as u64, Op::SizedFree as u64, Op::Query as u64],
            [3, 5, 7]
        );
        assert_eq!([Control::Spawn as u64, Control::Trim as u64], [2, 4]);
        let new = [Control::Fork, Control::Pause, Control::Point];
        assert_eq!(new.map(|control| control as u64), [5, 6, 7]);
    }
}
