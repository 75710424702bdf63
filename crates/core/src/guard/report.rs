//! Findings: what they concern, how they are told, and what follows.

use super::finding::{Accessed, Finding, Kind};
use super::pool::{self, SlotPlace};
use super::slots::{Event, FRAMES_MAX, State};
use crate::report::{self, Block, Damage, FoundBy};
use crate::sys::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whether the program goes on after a finding.
static GOES_ON: AtomicBool = AtomicBool::new(false);
static FINDINGS: AtomicU32 = AtomicU32::new(0);

/// Applies the option.
pub fn configure(goes_on: bool) {
    GOES_ON.store(goes_on, Ordering::Relaxed);
}

/// Whether the program goes on after a finding.
pub fn goes_on() -> bool {
    GOES_ON.load(Ordering::Relaxed)
}

/// How many findings were reported.
pub fn findings() -> u32 {
    FINDINGS.load(Ordering::Relaxed)
}

/// Reports a finding. `frames` is the stack of the calling thread, the innermost frame first.
pub fn print(finding: &Finding, frames: &[usize]) {
    FINDINGS.fetch_add(1, Ordering::Relaxed);
    let (slot, mut rooms) = (finding.place.slot, [[0; FRAMES_MAX]; 2]);
    let (block, size) = slot.block();
    let [allocated, freed] = &mut rooms;
    let is_access = matches!(
        (finding.kind, finding.accessed),
        (
            Kind::Overflow | Kind::Underflow | Kind::AfterFree,
            Accessed::Read | Accessed::Write | Accessed::Unknown
        )
    );
    let damage = (finding.accessed == Accessed::Before).then(|| Damage {
        offset: finding.at.wrapping_sub(block) as isize,
        bytes: pool::damaged_bytes(&finding.place, finding.kind == Kind::Underflow),
    });
    let told = report::Finding {
        kind: finding.name(),
        found_by: if is_access {
            FoundBy::Access
        } else {
            FoundBy::Free
        },
        at: finding.at,
        block: Some(Block {
            at: block,
            size,
            place: if block == finding.place.start {
                ", at the beginning of its pages"
            } else {
                ", at the end of its pages"
            },
        }),
        damage,
        allocated: told(&slot.allocated, allocated),
        freed: told(&slot.freed, freed),
    };
    report::print(&told, frames);
}

fn told<'a>(event: &Event, room: &'a mut [usize; FRAMES_MAX]) -> report::Event<'a> {
    report::Event {
        thread: event.thread(),
        frames: event.frames(room),
    }
}

/// The slot that an access to an address concerns, and how.
pub fn judge(at: usize) -> Option<(SlotPlace, Kind)> {
    let [one, other] = pool::near(at);
    let distance = |place: &SlotPlace| {
        let (block, size) = place.slot.block();
        if at < block {
            block - at
        } else {
            (at + 1).saturating_sub(block + size)
        }
    };
    let is_live = |place: &&SlotPlace| place.slot.state() == State::Live;
    let all = [one, other];
    let known = || {
        all.iter()
            .flatten()
            .filter(|place| place.slot.state() != State::Fresh)
    };
    let near = known().filter(is_live).min_by_key(|place| distance(place));
    if let Some(place) = near {
        let kind = if at < place.slot.block().0 {
            Kind::Underflow
        } else {
            Kind::Overflow
        };
        return Some((*place, kind));
    }
    let freed = known().min_by_key(|place| distance(place))?;
    Some((*freed, Kind::AfterFree))
}
