//! Mappings of freed standalone blocks that are kept for the next block.
//!
//! A freed block returns its memory at once. If the program asks for such a block again within
//! [`SOON_MS`], that was a mistake: the kernel clears the memory a second time. From then on the
//! mappings of freed blocks stay, dirty, for half of the decay time, which is when half of other
//! dirty pages are gone. They never exceed what was once in use, and a mapping that nobody took
//! again ends this.

use crate::space::Segment;

/// The most mappings that are kept.
const KEPT_MAX: usize = 4;
/// A block that is asked for within this time after one was freed could have had its memory.
const SOON_MS: u64 = 1000;
/// A kept mapping serves a block if at most one part in this many of it is left over.
const LEFT_PART: usize = 4;

pub struct Kept {
    mappings: [Option<Mapping>; KEPT_MAX],
    /// Pages of the kept mappings.
    pages: usize,
    /// Whether freed memory was asked for again soon.
    is_learned: bool,
    /// When a block was freed, 0 if none was since the last one was asked for.
    freed_ms: u64,
    /// The most pages of blocks that were ever in use.
    peak: usize,
}

#[derive(Clone, Copy)]
struct Mapping {
    segment: &'static Segment,
    since_ms: u64,
}

impl Kept {
    pub const fn new() -> Kept {
        Kept {
            mappings: [None; KEPT_MAX],
            pages: 0,
            is_learned: false,
            freed_ms: 0,
            peak: 0,
        }
    }

    /// Pages of the mappings.
    #[inline]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Called for a new block: takes the shortest mapping that serves it.
    #[cold]
    #[inline(never)]
    pub fn take(&mut self, pages: usize, align: usize, now: u64) -> Option<&'static Segment> {
        if self.freed_ms > 0 {
            self.is_learned |= now - self.freed_ms.min(now) <= SOON_MS;
            self.freed_ms = 0;
        }
        self.pick(&|m| {
            let there = m.segment.block_pages();
            let fits = pages <= there && there - pages <= there / LEFT_PART;
            (fits && m.segment.heap().is_multiple_of(align)).then_some(there as u64)
        })
    }

    /// Called for a freed block, with `used` pages of blocks still in use: keeps its mapping if
    /// that is likely to pay.
    #[cold]
    #[inline(never)]
    pub fn keep(&mut self, segment: &'static Segment, used: usize, now: u64) -> bool {
        self.peak = self.peak.max(used + segment.block_pages());
        if !self.is_learned {
            self.freed_ms = now.max(1);
            return false;
        }
        let Some(free) = self.mappings.iter_mut().find(|m| m.is_none()) else {
            return false;
        };
        let since_ms = now;
        *free = Some(Mapping { segment, since_ms });
        self.pages += segment.block_pages();
        true
    }

    /// A mapping to give back because the blocks in use and the mappings exceed what was ever in
    /// use: the oldest one.
    pub fn surplus(&mut self, used: usize) -> Option<&'static Segment> {
        let is_over = used + self.pages > self.peak.max(used);
        self.oldest_until(if is_over { u64::MAX } else { 0 })
    }

    /// A mapping to give back because it is due: nobody took it for half of the decay time.
    #[cold]
    #[inline(never)]
    pub fn due(&mut self, now: u64, decay_ms: i64) -> Option<&'static Segment> {
        let due = self.oldest_until((now + 1).saturating_sub(stay_ms(decay_ms)?));
        self.is_learned &= due.is_none() || decay_ms == 0;
        due
    }

    /// When the next one is due.
    #[cold]
    #[inline(never)]
    pub fn next_due(&self, decay_ms: i64) -> Option<u64> {
        let oldest = self.mappings.iter().flatten().map(|m| m.since_ms).min()?;
        Some(oldest + stay_ms(decay_ms)?)
    }

    /// The oldest mapping, to give it back.
    pub fn any(&mut self) -> Option<&'static Segment> {
        self.oldest_until(u64::MAX)
    }

    /// Takes the oldest mapping out, if it has been there since before `end_ms`.
    fn oldest_until(&mut self, end_ms: u64) -> Option<&'static Segment> {
        self.pick(&|m| (m.since_ms < end_ms).then_some(m.since_ms))
    }

    /// Takes the mapping out for which `rank` is lowest.
    #[inline(never)]
    fn pick(&mut self, rank: &dyn Fn(&Mapping) -> Option<u64>) -> Option<&'static Segment> {
        let mut best = None;
        for place in &mut self.mappings {
            let Some(rank) = place.as_ref().and_then(rank) else {
                continue;
            };
            if best.as_ref().is_none_or(|&(least, _)| rank < least) {
                best = Some((rank, place));
            }
        }
        let segment = best?.1.take()?.segment;
        self.pages -= segment.block_pages();
        Some(segment)
    }
}

/// How long a mapping stays; `None` if for ever.
fn stay_ms(decay_ms: i64) -> Option<u64> {
    u64::try_from(decay_ms).ok().map(|ms| ms / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_asks_again_keeps_nothing() {
        let mut kept = Kept::new();
        let segment = Segment::leaked(100);
        for round in 0..5 {
            let now = 1000 + round * 2 * SOON_MS;
            assert!(kept.take(100, 1, now).is_none());
            assert!(!kept.keep(segment, 0, now + 1));
        }
        assert!(kept.pages() == 0 && kept.next_due(10_000).is_none());
    }

    #[test]
    fn a_mapping_stays_for_half_of_the_decay_time_and_ends_the_lesson() {
        let mut kept = Kept::new();
        let segment = Segment::leaked(100);
        assert!(!kept.keep(segment, 0, 1000));
        assert!(kept.take(100, 1, 1500).is_none());
        assert!(kept.keep(segment, 0, 2000));
        assert_eq!((kept.pages(), kept.next_due(10_000)), (100, Some(7000)));
        assert!(kept.due(6999, 10_000).is_none() && kept.due(9999, -1).is_none());
        assert!(
            kept.take(74, 1, 2001).is_none(),
            "too much would be left over"
        );
        assert!(kept.take(101, 1, 2001).is_none(), "it is too short");
        assert!(kept.due(7000, 10_000).is_some() && kept.pages() == 0);
        assert!(!kept.keep(segment, 0, 7001), "it was in vain");
    }

    #[test]
    fn the_shortest_that_serves_is_taken_and_the_oldest_goes_first() {
        let mut kept = Kept::new();
        let [short, long] = [100, 120].map(Segment::leaked);
        kept.is_learned = true;
        assert!(kept.keep(long, 100, 10) && kept.keep(short, 0, 20));
        assert!(kept.surplus(0).is_none(), "as much was in use");
        assert!(core::ptr::eq(kept.surplus(1).unwrap(), long));
        assert!(kept.keep(long, 0, 30));
        assert!(core::ptr::eq(kept.take(100, 1, 40).unwrap(), short));
        assert!(core::ptr::eq(kept.take(100, 1, 40).unwrap(), long));
    }
}
