//! What threads wait for, thread by thread, and which of them only wait for work.
//!
//! A thread of a pool that has nothing to do waits nearly always, and shows nothing of the
//! program's time. It waits for another thread or for events. A thread that waits for a lock as
//! long waits because others have it. So idle threads are left out, unless they do most of the
//! work.

use std::collections::BTreeMap;

use mallard_procfs::about;

use crate::threads::Wait;

/// Fewer looks do not tell whether a thread is idle.
const IDLE_LOOKS_MIN: u64 = 20;
/// A thread that waits for one thing in this share of its looks is parked there, whatever it is but
/// a lock of the program's.
const PARKED_SHARE_MIN: f64 = 0.995;
/// A thread that waits for work in this share of its looks is idle,
const IDLE_SHARE_MIN: f64 = 0.9;
/// unless it waits for locks in more than this share.
const IDLE_LOCK_SHARE_MAX: f64 = 0.02;

/// What one thread was seen to do.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    pub id: u32,
    pub name: String,
    pub looks: u64,
    pub running: u64,
    /// Looks at which it waited inside the allocator, and outside, by what for.
    pub inside: BTreeMap<Wait, u64>,
    pub outside: BTreeMap<Wait, u64>,
}

impl Thread {
    /// Counts a look at a thread of this process. A thread gets its name once it runs, if at all,
    /// so that the name is read again, ever more seldom.
    pub fn look(&mut self, process: u32, id: u32) {
        if self.looks == 0 || self.looks.is_power_of_two() {
            self.id = id;
            self.name = about::thread_name(process, id).unwrap_or_default();
        }
        self.looks += 1;
    }

    /// The share of its looks at which it waited, and what it waited for most.
    pub fn waits(&self) -> (f64, Option<Wait>) {
        let all = || self.inside.iter().chain(&self.outside);
        let waiting: u64 = all().map(|(_, looks)| looks).sum();
        let most = all().max_by_key(|(_, looks)| **looks);
        let share = waiting as f64 / self.looks.max(1) as f64;
        (share, most.map(|(wait, _)| *wait))
    }

    /// Whether it only waits for work to come.
    pub fn is_idle(&self) -> bool {
        if self.looks < IDLE_LOOKS_MIN {
            return false;
        }
        let share = |looks: u64| looks as f64 / self.looks as f64;
        let may_park = self.outside.iter().filter(|(wait, _)| **wait != Wait::Lock);
        let may_park = may_park.map(|(_, looks)| looks);
        let longest = self.inside.values().chain(may_park).max();
        let for_work = |wait: &Wait| matches!(wait, Wait::Thread | Wait::Futex | Wait::Events);
        let of = |wanted: &dyn Fn(&Wait) -> bool| {
            let of = self.outside.iter().filter(|(wait, _)| wanted(wait));
            share(of.map(|(_, looks)| looks).sum())
        };
        share(longest.copied().unwrap_or(0)) >= PARKED_SHARE_MIN
            || (of(&for_work) >= IDLE_SHARE_MIN
                && of(&|wait| *wait == Wait::Lock) <= IDLE_LOCK_SHARE_MAX)
    }
}

/// The waits of the threads that are not idle.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    pub inside: BTreeMap<Wait, u64>,
    pub outside: BTreeMap<Wait, u64>,
    /// Looks at these threads, and those at which they ran.
    pub looks: u64,
    pub running: u64,
}

impl Waits {
    /// Adds threads up. `hardly_computes` says that the program only waits: then what its idle
    /// threads wait for is what it does.
    pub fn of<'a>(
        threads: impl Iterator<Item = &'a Thread> + Clone,
        hardly_computes: bool,
    ) -> Waits {
        let running = |of: &mut dyn Iterator<Item = &'a Thread>| -> u64 {
            of.map(|thread| thread.running).sum()
        };
        let all = running(&mut threads.clone());
        let idle = running(&mut threads.clone().filter(|thread| thread.is_idle()));
        let keeps_idle = hardly_computes || idle * 2 > all;
        let mut waits = Waits::default();
        for thread in threads.filter(|thread| keeps_idle || !thread.is_idle()) {
            waits.looks += thread.looks;
            waits.running += thread.running;
            add(&mut waits.inside, &thread.inside);
            add(&mut waits.outside, &thread.outside);
        }
        waits
    }

    pub fn add(&mut self, more: &Waits) {
        add(&mut self.inside, &more.inside);
        add(&mut self.outside, &more.outside);
        self.looks += more.looks;
        self.running += more.running;
    }
}

/// Adds counts by what is waited for.
pub fn add(sums: &mut BTreeMap<Wait, u64>, more: &BTreeMap<Wait, u64>) {
    for (wait, count) in more {
        *sums.entry(*wait).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(running: u64, waits: &[(Wait, u64)]) -> Thread {
        Thread {
            looks: running + waits.iter().map(|(_, looks)| looks).sum::<u64>(),
            running,
            outside: waits.iter().copied().collect(),
            ..Thread::default()
        }
    }

    #[test]
    fn a_worker_without_work_is_idle_and_one_that_waits_for_a_lock_is_not() {
        assert!(thread(40, &[(Wait::Thread, 960)]).is_idle());
        assert!(thread(20, &[(Wait::Futex, 500), (Wait::Events, 480)]).is_idle());
        assert!(!thread(100, &[(Wait::Lock, 900)]).is_idle());
        assert!(!thread(200, &[(Wait::Thread, 800)]).is_idle());
        assert!(!thread(40, &[(Wait::Io, 960)]).is_idle());
        assert!(!thread(0, &[(Wait::Thread, 10)]).is_idle(), "too few looks");
        // What never moves is parked, unless others keep a lock from it.
        assert!(thread(1, &[(Wait::Child, 999)]).is_idle());
        assert!(!thread(0, &[(Wait::Lock, 1000)]).is_idle());
    }

    #[test]
    fn idle_threads_count_where_they_do_the_work() {
        let (main, worker) = (
            thread(900, &[(Wait::Io, 100)]),
            thread(50, &[(Wait::Thread, 950)]),
        );
        let busy = [main, worker.clone(), worker.clone()];
        let waits = Waits::of(busy.iter(), false);
        assert_eq!((waits.looks, waits.running), (1000, 900));
        assert_eq!(waits.outside, [(Wait::Io, 100)].into());
        assert_eq!(Waits::of(busy.iter(), true).looks, 3000);
        let even = [worker.clone(), worker];
        assert_eq!(Waits::of(even.iter(), false).looks, 2000);
    }
}
