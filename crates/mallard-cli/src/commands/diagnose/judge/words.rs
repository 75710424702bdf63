//! The verdict as a sentence.

use mallard_figures::percent;
use mallard_report::diagnosis::{Answer, Bound, Figures, Trouble, TroubleKey};

use super::super::thresholds as limit;
use super::busy;
use super::time::heap_faults;

/// How malloc is the bottleneck, by the first trouble.
fn how(troubles: &[Trouble]) -> &'static str {
    match troubles.first().map(|first| &first.key) {
        Some(TroubleKey::Locks) => "by locks.",
        Some(TroubleKey::Decay | TroubleKey::Trim | TroubleKey::Mmap | TroubleKey::ToAndFro) => {
            "by memory that is returned and needed again."
        }
        Some(TroubleKey::Growth) => "by page faults of a growing heap.",
        Some(TroubleKey::HandOff) => "by blocks that change threads.",
        Some(TroubleKey::SlowPurge) => "by slow frees.",
        Some(TroubleKey::HeldBack) => "in memory: the allocator holds it back.",
        Some(TroubleKey::Pinned) => "in memory: blocks pin it.",
        _ => "by its own work.",
    }
}

pub fn sentence(
    f: &Figures,
    answer: Answer,
    bound: Option<Bound>,
    troubles: &[Trouble],
    takes: Option<&Trouble>,
) -> String {
    let inside = f.inside.unwrap_or(0.0);
    let most = bound.map_or(1.0, |bound| bound.high.max(1.0));
    let mut text = match answer {
        Answer::CannotTell => return String::new(),
        Answer::No if bound.is_none() => format!(
            "The program uses {} of one CPU: no allocator makes it faster.",
            percent((f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3))
        ),
        Answer::No => format!(
            "malloc and free take {} of CPU time: no allocator makes this program more than \
             {most:.2} × as fast.",
            percent(inside)
        ),
        Answer::Yes => {
            let by = how(troubles);
            match bound {
                Some(bound) if bound.high >= limit::BOUND_FACTOR_MIN => format!(
                    "{by} If malloc and free cost nothing: {:.2} to {:.2} × as fast (95 %){}{}. No \
                     allocator can do better, except by a better placement of blocks.",
                    bound.low,
                    bound.high,
                    bound.without_faults.map_or(String::new(), |more| format!(
                        "; {more:.2} without those page faults either"
                    )),
                    sleeps(f)
                ),
                _ if troubles[0].key == TroubleKey::Growth => {
                    format!("{by} They take {} of CPU time.", percent(heap_faults(f)))
                }
                _ => format!("{by} In time, no allocator makes it more than {most:.2} × as fast."),
            }
        }
    };
    if answer == Answer::No {
        if let Some(leak) = troubles
            .iter()
            .find(|trouble| trouble.key == TroubleKey::Leak)
        {
            text += &format!(" But {}: {}.", leak.what, leak.because);
        } else if let Some(takes) = takes.filter(|takes| takes.key == TroubleKey::Pool) {
            text += &format!(" {}.", capital(&takes.what));
        } else if let Some(takes) = takes {
            text += &format!(" {}: {}.", capital(&takes.what), takes.because);
        }
    }
    text
}

/// How much of the time the program sleeps, where that limits the gain from another allocator.
fn sleeps(f: &Figures) -> String {
    let asleep = 1.0 - busy(f);
    if asleep >= limit::ASLEEP_SHARE_MIN {
        format!(
            ", by wall time, of which {} is spent waiting for other things",
            percent(asleep)
        )
    } else {
        String::new()
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
