//! Decides which thread must act at once when memory is freed: the sleeping background thread, if
//! more is free than it expected, or the freeing thread itself, if more is free than the option
//! `dirty_max` allows. Pages that a purge is returning still count for that until the system has
//! them.
//!
//! Both are comparisons under the page heap's lock, which is held when pages are freed anyway. A
//! third comparison, made when whole chunks are taken, keeps freed chunks that did not fit from
//! adding to the process's peak: they are returned first.

use crate::sys::bell::Bell;

/// The bell that wakes the background thread, for all page heaps.
pub static BELL: Bell = Bell::new();

/// The cap on dirty pages: a number of pages, and a percentage of the pages in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cap {
    pub pages: usize,
    pub share: Option<u32>,
}

impl Cap {
    pub const NONE: Cap = Cap {
        pages: usize::MAX,
        share: None,
    };

    fn of(self, used: usize) -> usize {
        let share = self
            .share
            .map(|s| (used as u128 * s as u128 / 100) as usize);
        self.pages.min(share.unwrap_or(usize::MAX))
    }
}

/// Pages used and dirty together may exceed the most that were ever in use by one part in this
/// many.
const CEILING_SHARE: usize = 8;
/// The pages may exceed the peak by this many in any case.
const CEILING_PAGES_MIN: usize = 1024;

pub struct Watch {
    /// Number of dirty pages at which the bell rings, once.
    rouse_at: Option<usize>,
    /// Whether there is a cap: all that most processes check at each free of a run.
    is_capped: bool,
    cap: Cap,
    /// Number of dirty pages up to which the system refused to take enough of them; usually 0.
    refused: usize,
    /// Dirty pages that a purge is returning, or that are being moved to a run; they are counted as
    /// used meanwhile.
    under_way: usize,
    /// The most pages that were ever in use.
    peak: usize,
}

/// What to do once the lock is released.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Alarm {
    pub rouse: bool,
    /// Whether more pages are dirty than the cap allows.
    pub is_over: bool,
}

impl Alarm {
    pub fn is_silent(self) -> bool {
        self == Alarm::default()
    }
}

impl Watch {
    pub const fn new() -> Self {
        Watch {
            rouse_at: None,
            is_capped: false,
            cap: Cap {
                pages: 0,
                share: None,
            },
            refused: 0,
            under_way: 0,
            peak: 0,
        }
    }

    /// Called when whole chunks were taken: returns how many dirty pages may stay, if there are too
    /// many.
    pub fn grown(&mut self, dirty: usize, used: usize) -> Option<usize> {
        let used = used - self.under_way;
        self.peak = self.peak.max(used);
        let ceiling = self.peak + (self.peak / CEILING_SHARE).max(CEILING_PAGES_MIN);
        let excess = (used + dirty).checked_sub(ceiling + 1)? + 1;
        Some(dirty - excess.min(dirty))
    }

    pub fn set_cap(&mut self, cap: Cap) {
        self.cap = cap;
        self.is_capped = cap != Cap::NONE;
        self.refused = 0;
    }

    pub fn cap(&self) -> Cap {
        if self.is_capped { self.cap } else { Cap::NONE }
    }

    /// Called when pages became free: returns what must happen at once.
    pub fn check(&mut self, dirty: usize, used: usize) -> Alarm {
        let mut alarm = Alarm::default();
        if self.rouse_at.is_some_and(|at| dirty >= at) {
            self.rouse_at = None;
            alarm.rouse = true;
        }
        alarm.is_over = self.is_capped && self.over(dirty, used).is_some();
        alarm
    }

    /// The number of dirty pages to purge down to, if there are more than the cap allows.
    pub fn over(&mut self, dirty: usize, used: usize) -> Option<usize> {
        let cap = self.cap().of(used - self.under_way);
        let there = dirty + self.under_way;
        if there <= cap {
            self.refused = 0;
        }
        (there > cap.max(self.refused)).then(|| room_under(cap))
    }

    /// Sets how many dirty pages the thread with the right to purge is returning, replacing its
    /// previous number.
    pub fn set_under_way(&mut self, pages: usize) {
        self.under_way = pages;
    }

    /// Counts pages of those that are free again, in whatever state.
    pub fn returned(&mut self, pages: usize) {
        self.under_way = self.under_way.saturating_sub(pages);
    }

    /// The number of dirty pages that the background thread purges down to, so that no other thread
    /// has to.
    pub fn near(&self, dirty: usize, used: usize) -> Option<usize> {
        let cap = self.cap().of(used);
        (dirty >= near(cap).max(self.refused)).then_some(room_under(cap))
    }

    /// Records that more pages stayed than were wanted: no further attempt before there are more.
    pub fn give_up(&mut self, dirty: usize, used: usize) {
        if dirty > near(self.cap().of(used)) {
            self.refused = dirty + dirty / 8;
        }
    }

    /// Prepares for the sleep of the background thread. With nothing to wait for, any dirty page
    /// wakes it; else whatever makes its plan wrong, or brings the cap near.
    pub fn sleep(&mut self, dirty: usize, used: usize, plan: Plan) {
        let news = match plan {
            Plan::Timed => (2 * dirty).max(dirty + NEWS_PAGES),
            Plan::Nothing => dirty + 1,
            Plan::Never => usize::MAX,
        };
        let cap = self.cap().of(used);
        let near = near(cap).max(self.refused);
        self.rouse_at = Some(if near > dirty { news.min(near) } else { news });
    }
}

/// The number of dirty pages at which the cap is near.
fn near(cap: usize) -> usize {
    if cap == usize::MAX {
        cap
    } else {
        cap - cap / 8
    }
}

/// A quarter below the cap, so that not every freed page makes a system call.
fn room_under(cap: usize) -> usize {
    cap - cap / 4
}

/// Additional dirty pages that make a plan wrong.
const NEWS_PAGES: usize = 1024;

/// What the background thread expects when it goes to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// The thread wakes by itself when the next pages are due.
    Timed,
    /// There is nothing to return.
    Nothing,
    /// There never is anything to return: decay is off, or immediate.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(watch: &mut Watch, dirty: usize, used: usize) -> Option<usize> {
        let limit = watch.over(dirty, used);
        assert_eq!(watch.check(dirty, used).is_over, limit.is_some());
        limit
    }

    #[test]
    fn without_a_cap_and_a_thread_nobody_hears() {
        assert!(Watch::new().check(1 << 40, 0).is_silent());
    }

    #[test]
    fn over_the_cap_a_quarter_of_it_is_made_room_for() {
        let mut watch = Watch::new();
        watch.set_cap(Cap {
            pages: 1000,
            share: None,
        });
        assert_eq!(limit(&mut watch, 1000, 0), None);
        assert_eq!(limit(&mut watch, 1001, 0), Some(750));
        watch.set_cap(Cap {
            pages: 0,
            share: None,
        });
        assert_eq!(limit(&mut watch, 1, 0), Some(0));
    }

    #[test]
    fn what_a_purge_has_in_its_hands_counts_until_it_is_through() {
        let mut watch = Watch::new();
        watch.set_cap(Cap {
            pages: 1000,
            share: None,
        });
        watch.set_under_way(300);
        assert_eq!(limit(&mut watch, 700, 300), None);
        assert_eq!(limit(&mut watch, 701, 300), Some(750));
        watch.returned(100);
        assert_eq!(limit(&mut watch, 800, 200), None);
        assert_eq!(limit(&mut watch, 801, 200), Some(750));
        watch.set_under_way(0);
        assert_eq!(limit(&mut watch, 1000, 0), None);
        // Nor do they count as used, of which a share may stay.
        watch.set_cap(Cap {
            pages: usize::MAX,
            share: Some(10),
        });
        watch.set_under_way(50);
        assert_eq!(limit(&mut watch, 50, 1050), None);
        assert_eq!(limit(&mut watch, 51, 1050), Some(75));
    }

    #[test]
    fn what_somebody_has_in_hand_is_no_peak() {
        let mut watch = Watch::new();
        watch.set_under_way(500);
        assert_eq!(watch.grown(0, 1500), None);
        watch.set_under_way(0);
        assert_eq!(watch.grown(1024, 1000), None);
        assert_eq!(watch.grown(1025, 1000), Some(1024));
    }

    #[test]
    fn freed_chunks_add_an_eighth_to_the_peak_at_most() {
        let mut watch = Watch::new();
        assert_eq!(watch.grown(1024, 1600), None, "a few may stay at any rate");
        assert_eq!(watch.grown(1025, 1600), Some(1024));
        assert_eq!(watch.grown(20_000, 160_000), None);
        assert_eq!(watch.grown(20_001, 160_000), Some(20_000));
        assert_eq!(watch.grown(100_000, 80_000), None, "as it has been before");
        assert_eq!(watch.grown(100_001, 80_000), Some(100_000));
        assert_eq!(watch.grown(10, 320_000), None);
    }

    #[test]
    fn a_share_is_one_of_what_is_in_use_now() {
        let mut watch = Watch::new();
        watch.set_cap(Cap {
            pages: usize::MAX,
            share: Some(10),
        });
        assert_eq!(limit(&mut watch, 100, 1000), None);
        assert_eq!(limit(&mut watch, 101, 1000), Some(75));
        assert_eq!(limit(&mut watch, 100, 999), Some(75));
        assert_eq!(limit(&mut watch, 1, 0), Some(0));
    }

    #[test]
    fn what_the_system_refuses_is_not_asked_for_at_every_free() {
        let mut watch = Watch::new();
        watch.set_cap(Cap {
            pages: 100,
            share: None,
        });
        watch.give_up(800, 0);
        assert_eq!(limit(&mut watch, 900, 0), None);
        assert_eq!(limit(&mut watch, 901, 0), Some(75));
        assert_eq!(limit(&mut watch, 100, 0), None, "back under the cap");
        assert_eq!(
            limit(&mut watch, 101, 0),
            Some(75),
            "as if nothing had been"
        );
    }

    #[test]
    fn the_sleeper_is_roused_once_for_a_sleep() {
        let mut watch = Watch::new();
        watch.sleep(5, 0, Plan::Nothing);
        assert!(!watch.check(5, 0).rouse);
        assert!(watch.check(6, 0).rouse);
        assert!(!watch.check(7, 0).rouse);
        watch.sleep(5000, 0, Plan::Timed);
        assert!(!watch.check(9999, 0).rouse);
        assert!(watch.check(10_000, 0).rouse);
        watch.sleep(0, 0, Plan::Never);
        assert!(watch.check(1 << 40, 0).is_silent());
    }

    #[test]
    fn the_sleeper_is_roused_before_the_cap_is_reached() {
        let mut watch = Watch::new();
        watch.set_cap(Cap {
            pages: 8000,
            share: None,
        });
        watch.sleep(6900, 0, Plan::Timed);
        assert!(!watch.check(6999, 0).rouse);
        assert_eq!(watch.near(6999, 0), None);
        assert!(watch.check(7000, 0).rouse);
        assert_eq!(watch.near(7000, 0), Some(6000));
    }
}
