//! What the models of shuttle have in place of the system: threads that a schedule steps through.
//!
//! Under `--cfg shuttle`, the whole crate is built, and its real memory is used. Each access to an
//! atomic of [`crate::sys::atomic`] is a scheduling point before it happens, and so are the
//! acquisitions of locks, which are such accesses. A thread that would sleep lets others run
//! instead. All threads of a model are coroutines of one thread of the system, so each has words of
//! thread-local storage here, and time is counted in steps. Outside a model, nothing is different.
//!
//! A model may fork: the child goes on alone ([`go_on_alone`]). It may have the system lose moves
//! of memory ([`lose_moves`]).

extern crate std;

use core::cell::{Cell, RefCell};
use core::ops::{Deref, DerefMut};
use shuttle::current::try_get_current_task;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::time::Duration;
use std::vec::Vec;

/// A model that takes this many steps has threads that wait for each other.
const STEPS_MAX: usize = 20_000_000;
/// The seed of the random schedules, for the same ones in each run.
const SEED: u64 = 0x6d61_6c6c_6172_6421;
/// How many changes of priority a schedule with priorities has.
const DEPTH: usize = 4;

/// The words of thread-local storage of a model's thread.
#[derive(Clone, Copy)]
struct Words {
    pointer: usize,
    depth: usize,
}

std::thread_local! {
    /// The words of the model's threads, by their numbers.
    static WORDS: RefCell<Vec<Option<Words>>> = const { RefCell::new(Vec::new()) };
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// Whether the process is the child of a model's thread.
    static IS_CHILD: Cell<bool> = const { Cell::new(false) };
    /// Whether some moves of memory fail.
    static LOSES_MOVES: Cell<bool> = const { Cell::new(false) };
}

/// In the child of a fork: no other thread takes a step any more.
pub fn go_on_alone() {
    IS_CHILD.set(true);
}

/// What models of moves look at.
#[derive(Default)]
pub struct Moves {
    /// How many moves of memory there were.
    pub done: usize,
    /// Pages that another part of the program has mapped where a move has failed.
    pub foreign: Vec<usize>,
}

/// The moves so far.
pub static MOVES: std::sync::Mutex<Moves> = std::sync::Mutex::new(Moves {
    done: 0,
    foreign: Vec::new(),
});

/// Whether some moves of memory fail from now on.
pub fn lose_moves(some: bool) {
    LOSES_MOVES.set(some);
}

/// Whether a move fails now, at random, and what then takes a page of the destination: nothing, or
/// another part of the program.
pub fn failure() -> Option<bool> {
    number()?;
    MOVES.lock().unwrap().done += 1;
    let fails = LOSES_MOVES.get() && thread_rng().gen_range(0..2) == 0;
    fails.then(|| thread_rng().gen_range(0..2) == 0)
}

/// The number of the calling thread of a model; `None` outside.
pub fn number() -> Option<usize> {
    try_get_current_task().map(usize::from)
}

/// Lets the schedule decide which thread takes the next step.
pub fn point() {
    if number().is_some() && !IS_CHILD.get() {
        STEPS.set(STEPS.get() + 1);
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// The calling thread cannot go on before another has; false outside a model.
pub fn wait() -> bool {
    let is_modelled = number().is_some();
    if is_modelled && !IS_CHILD.get() {
        STEPS.set(STEPS.get() + 1);
        shuttle::thread::yield_now();
    }
    is_modelled
}

/// The time in a model, in nanoseconds.
pub fn now_ns() -> Option<u64> {
    number().map(|_| (1 << 40) + STEPS.get() * 1000)
}

/// The calling thread's number where threads are told apart by an address.
pub fn thread() -> Option<usize> {
    number().map(|number| (number + 1) << 12)
}

/// A call of the system that takes a while: other threads take some steps, or none.
pub fn call_system() {
    pause(2);
}

/// A lock was released. Now and then others do much before the thread goes on, with what it has
/// seen under the lock.
pub fn unlocked() {
    pause(16);
}

/// Once in `times`, others may take many steps.
fn pause(times: u32) {
    if number().is_some() && !IS_CHILD.get() && thread_rng().gen_range(0..times) == 0 {
        (0..thread_rng().gen_range(0..200)).for_each(|_| point());
    }
}

/// Reads and changes the words of the calling thread of a model, which begin as `first` and 0.
pub fn with_words<R>(first: usize, f: impl FnOnce(&mut usize, &mut usize) -> R) -> Option<R> {
    let number = number()?;
    WORDS.with_borrow_mut(|words| {
        if words.len() <= number {
            words.resize(number + 1, None);
        }
        let words = words[number].get_or_insert(Words {
            pointer: first,
            depth: 0,
        });
        Some(f(&mut words.pointer, &mut words.depth))
    })
}

/// Runs `model` in `schedules` random schedules, and in as many in which few changes of priority
/// decide, which find what many steps in a row lead to.
pub fn check(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    run(
        RandomScheduler::new_from_seed(SEED, schedules),
        model.clone(),
    );
    run(PctScheduler::new_from_seed(SEED, DEPTH, schedules), model);
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        WORDS.with_borrow_mut(Vec::clear);
        model();
    });
}

macro_rules! stepped {
    ($($name:ident $(<$type:ident>)?: $value:ty),*) => {$(
        #[derive(Default, Debug)]
        #[repr(transparent)]
        pub struct $name $(<$type>)? (core::sync::atomic::$name $(<$type>)?);

        impl $(<$type>)? $name $(<$type>)? {
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }

            /// # Safety
            /// As for the function of this name in `core`.
            #[allow(dead_code, reason = "few of the types are used so")]
            pub unsafe fn from_ptr<'a>(at: *mut $value) -> &'a Self {
                // SAFETY: the caller's promise; the type is transparent.
                unsafe { &*at.cast::<Self>() }
            }
        }

        impl $(<$type>)? Deref for $name $(<$type>)? {
            type Target = core::sync::atomic::$name $(<$type>)?;

            fn deref(&self) -> &Self::Target {
                point();
                &self.0
            }
        }

        impl $(<$type>)? DerefMut for $name $(<$type>)? {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }
    )*};
}

stepped! {
    AtomicBool: bool, AtomicI64: i64, AtomicPtr<T>: *mut T, AtomicU8: u8, AtomicU16: u16,
    AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize
}
