//! Per-CPU arenas: the option `percpu_arena`.
//!
//! A thread is then in the arena of the CPU, or of the core, that it runs on. The kernel may move
//! it to another, so its cache checks at each slow event. Threads that the program has put into an
//! manual arena stay there.

use crate::arena::Arena;
use crate::arena::life::Life;
use crate::arena::making::making;
use crate::arena::table::{self, AUTOMATIC_ARENAS_MAX};
use crate::heap::{self, nodes};
use crate::sys::atomic::{AtomicU16, AtomicUsize, Ordering};
use crate::sys::cpu;

/// What has an arena of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Each {
    Cpu,
    /// The CPUs of a core share one.
    Core,
}

/// The number of such arenas, which are the first; 0 if threads are spread instead.
static ARENAS: AtomicUsize = AtomicUsize::new(0);
/// How many CPU numbers there were at the start. CPUs added later share the arenas.
static CPUS: AtomicUsize = AtomicUsize::new(1);
/// The arena of each CPU.
static OF_CPU: [AtomicU16; AUTOMATIC_ARENAS_MAX] =
    [const { AtomicU16::new(0) }; AUTOMATIC_ARENAS_MAX];

/// Assigns arenas to CPUs or cores, or to neither; returns how many arenas that takes. `None` when
/// the system cannot say which CPU a thread is on.
pub fn configure(each: Option<Each>) -> Option<usize> {
    let Some(each) = each else {
        ARENAS.store(0, Ordering::Relaxed);
        return Some(0);
    };
    number_all(each)
}

#[cold]
#[inline(never)]
fn number_all(each: Each) -> Option<usize> {
    cpu::current()?;
    let cpus = cpu::numbers().clamp(1, AUTOMATIC_ARENAS_MAX);
    let arenas = number(
        cpus,
        match each {
            Each::Cpu => |cpu| cpu,
            Each::Core => cpu::first_of_core,
        },
    );
    CPUS.store(cpus, Ordering::Relaxed);
    ARENAS.store(arenas, Ordering::Relaxed);
    Some(arenas)
}

/// Numbers the arenas of CPUs; CPUs with the same `first` share one. Returns how many there are.
fn number(cpus: usize, first: fn(usize) -> usize) -> usize {
    let mut next = 0;
    // The length is hidden from the compiler, which would unroll the loop.
    let all = core::hint::black_box(&OF_CPU[..]);
    for (cpu, place) in all.iter().enumerate().take(cpus) {
        let first = first(cpu);
        let arena = if first < cpu {
            all[first].load(Ordering::Relaxed)
        } else {
            next += 1;
            next - 1
        };
        place.store(arena, Ordering::Relaxed);
    }
    next as usize
}

/// The number of per-CPU arenas; 0 if threads are spread instead.
#[inline]
pub fn arenas() -> usize {
    ARENAS.load(Ordering::Relaxed)
}

/// The number of the arena of the calling thread's current CPU, with per-CPU arenas.
pub fn here() -> Option<usize> {
    if arenas() == 0 {
        return None;
    }
    let cpu = cpu::current()? % CPUS.load(Ordering::Relaxed);
    Some(OF_CPU[cpu].load(Ordering::Relaxed) as usize)
}

/// Counts the calling thread into this per-CPU arena, made if needed. `None` when memory is out.
#[cold]
#[inline(never)]
pub fn enter(index: usize) -> Option<&'static Arena> {
    let arena = table::existing(index).or_else(|| make(index))?;
    arena.enter();
    Some(arena)
}

#[cold]
fn make(index: usize) -> Option<&'static Arena> {
    // Memory of the CPU's node, as for any thread.
    let first = table::existing(0);
    let near = first.and_then(|_| nodes::here());
    let making = making();
    table::make_under(
        &making,
        index,
        near.unwrap_or(&heap::FIRST_HEAP),
        Life::Automatic,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    #[test]
    fn cpus_of_a_core_share_an_arena_and_arenas_are_numbered_without_gaps() {
        crate::testing::own_process!();
        let _alone = alone();
        let of_cpus = |n: usize| {
            let all = OF_CPU[..n].iter().map(|a| a.load(Ordering::Relaxed));
            all.collect::<std::vec::Vec<_>>()
        };
        assert_eq!(number(4, |cpu| cpu), 4);
        assert_eq!(of_cpus(4), [0, 1, 2, 3]);
        assert_eq!(number(6, |cpu| cpu % 3), 3, "siblings far apart");
        assert_eq!(of_cpus(6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(
            number(5, |cpu| cpu & !1),
            3,
            "siblings side by side, one alone"
        );
        assert_eq!(of_cpus(5), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn who_asks_is_told_an_arena_of_those_there_are() {
        crate::testing::own_process!();
        let _alone = alone();
        assert_eq!((configure(None), here()), (Some(0), None));
        for each in [Each::Cpu, Each::Core] {
            let arenas = configure(Some(each)).expect("Linux tells");
            assert!(here().is_some_and(|arena| arena < arenas), "{each:?}");
        }
        configure(None);
    }
}
