//! Threads that switch sampling at the same moment, and forks meanwhile.

use super::*;
use crate::cache::inside;
use crate::class::hidden;
use crate::prof::{is_on, is_without_stacks, switch_for_tracers};
use crate::space::meta;
use crate::upkeep::probes;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Users and tracers begin at once, and then stop at once.
#[test]
fn the_last_wishes_of_users_and_of_tracers_are_met() {
    const ROUNDS: usize = 2000;
    own_process!();
    api::start();
    let begun = Barrier::new(2);
    let mut wrong = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2 * ROUNDS {
                begun.wait();
                probes::pretend(u16::from(round % 2 == 0));
                switch_for_tracers();
                begun.wait();
            }
        });
        for round in 0..2 * ROUNDS {
            let on = round % 2 == 0;
            begun.wait();
            switch(on);
            begun.wait();
            let has_stacks = !is_without_stacks();
            wrong += usize::from(is_on() != on || on && !has_stacks);
        }
    });
    assert_eq!(wrong, 0);
}

/// The child of a fork must not inherit the lock, nor a table that is half hidden.
#[test]
fn a_fork_that_waited_long_enough_leaves_the_lock_free_in_its_child() {
    own_process!();
    api::start();
    let (is_in, come) = mpsc::channel();
    let changing = thread::spawn(move || {
        let _inside = inside::enter_or_wait();
        hidden::set(hidden::User::Profiler, || {
            is_in.send(()).expect("somebody waits");
            // Until the fork waits for the lock itself: it has the one before.
            let until = Instant::now() + Duration::from_secs(60);
            while Instant::now() < until && meta::lock().try_lock() {
                meta::lock().unlock();
                thread::sleep(Duration::from_millis(1));
            }
            true
        });
    });
    come.recv().expect("the other thread is there");
    // SAFETY: the child uses nothing of the C library that needs a lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above. A child that waits for ever ends all the same.
        unsafe {
            libc::alarm(60);
            let before = hidden::is_on();
            drop(hidden::try_change().unwrap_or_else(|| libc::_exit(1)));
            hidden::set(hidden::User::Profiler, || !before);
            libc::_exit(if hidden::is_on() == before { 2 } else { 0 });
        }
    }
    changing.join().expect("it ends");
    let mut status = 0;
    // SAFETY: the status is written, and the child is this process's.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
