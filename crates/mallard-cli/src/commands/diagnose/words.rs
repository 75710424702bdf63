//! What a verdict is in words.

use mallard_judge::diagnose::{self, Finding, Reason, busy, heap_faults, thresholds as limit};
use mallard_report::diagnosis::{Answer, Bound, Figures, Next, Trouble, TroubleKey};
use mallard_report::units;
use mallard_report::units::percent;
use mallard_watch::family::{Family, Pool};

use super::next::{self, About};

/// A verdict as a report has it.
pub struct Verdict {
    pub answer: Answer,
    pub sentence: String,
    pub bound: Option<Bound>,
    pub troubles: Vec<Trouble>,
    pub takes: Option<Trouble>,
    pub next: Vec<Next>,
}

/// Judges the figures.
pub fn judge(f: &Figures, about: About) -> Verdict {
    let known = diagnose::About {
        is_glibc: about.family == Family::Glibc,
        has_pool: about.pool.is_some(),
        cpus: about.cpus,
    };
    let found = diagnose::judge(f, known);
    let next = next::next(f, &found, about);
    let in_words = |finding| trouble(finding, about.pool);
    let troubles: Vec<Trouble> = found.troubles.into_iter().map(in_words).collect();
    let takes = found.takes.map(in_words);
    Verdict {
        answer: found.answer,
        sentence: sentence(f, found.answer, found.bound, &troubles, takes.as_ref()),
        bound: found.bound,
        next,
        troubles,
        takes,
    }
}

/// A finding in words.
fn trouble(found: Finding, pool: Option<Pool>) -> Trouble {
    Trouble {
        what: what(&found, pool),
        because: because(&found.reason, pool),
        key: found.key,
    }
}

/// What was found, in a clause.
fn what(found: &Finding, pool: Option<Pool>) -> String {
    let what = match (&found.key, &found.reason) {
        (
            _,
            Reason::Waits {
                for_kernel: false, ..
            },
        ) => "threads wait for the allocator’s locks",
        (
            _,
            Reason::Waits {
                for_kernel: true, ..
            },
        ) => "threads wait inside the allocator for the kernel’s lock of the address space",
        (_, Reason::NewPages { .. }) => "the heap grows page by page",
        (_, Reason::SlowFrees { .. }) => "frees wait for memory to be given back",
        (_, Reason::FreedElsewhere { .. }) => "blocks change threads before they are freed",
        (_, Reason::MiddleBytes(_)) => "requests of 32 to 256 KiB bypass the thread caches",
        (_, Reason::Work { .. }) => "the program calls the allocator very often",
        (key, Reason::Returned { .. }) => {
            let how = match key {
                TroubleKey::Decay => ": pages are given back by madvise",
                TroubleKey::Trim => ": the top of the heap is trimmed and grown again by brk",
                TroubleKey::Mmap => ": large blocks are mapped and unmapped one by one",
                _ => "",
            };
            return format!("memory is returned to the system and requested again{how}");
        }
        (_, Reason::Grows { .. }) => "the program keeps more and more blocks itself",
        (TroubleKey::Pinned, Reason::AtEnd { .. } | Reason::InHeap { .. }) => {
            "live blocks pin pages that are nearly free (fragmentation)"
        }
        (_, Reason::AtEnd { .. } | Reason::InHeap { .. }) => "the allocator keeps free memory",
        (TroubleKey::OwnLock, Reason::WaitsOutside { .. }) => {
            "threads wait for locks of the program’s own"
        }
        (TroubleKey::Io, Reason::WaitsOutside { .. }) => "threads wait for files, pipes or sockets",
        (TroubleKey::Child, Reason::WaitsOutside { .. }) => "the program waits for its children",
        (_, Reason::WaitsOutside { kind, .. }) => match kind.as_str() {
            "events" => "threads wait for events",
            "sleep" => "the program sleeps",
            _ => "threads wait outside the allocator",
        },
        (_, Reason::Pool) => pool.map_or("", |pool| pool.advice),
        (_, Reason::Computes { .. }) => "the program computes",
    };
    what.to_owned()
}

/// The figure that shows it, and its threshold.
fn because(reason: &Reason, pool: Option<Pool>) -> String {
    let bytes = |bytes: &u64| units::bytes(*bytes as f64);
    match reason {
        Reason::Waits { share, .. } => format!(
            "waits {} ≥ {}",
            percent(*share),
            percent(limit::LOCK_WAIT_SHARE_MIN)
        ),
        Reason::NewPages { faults, new } => format!(
            "page faults take {} ≥ {} of CPU time, {} of them for new pages",
            percent(*faults),
            percent(limit::FAULT_CPU_SHARE_MIN),
            percent(*new)
        ),
        Reason::SlowFrees {
            count,
            longest_seconds,
        } => format!(
            "{count} frees spent more than 1 ms in the kernel, the longest {}",
            units::seconds(*longest_seconds)
        ),
        Reason::FreedElsewhere { blocks, inside } => format!(
            "{} ≥ {} of blocks are freed by another thread, malloc and free take {}",
            percent(*blocks),
            percent(limit::HAND_OFF_SHARE_MIN),
            percent(*inside)
        ),
        Reason::MiddleBytes(share) => format!(
            "{} ≥ {} of bytes",
            percent(*share),
            percent(limit::MIDDLE_BYTES_SHARE_MIN)
        ),
        Reason::Work { inside } => {
            format!("malloc and free take {} of CPU time", percent(*inside))
        }
        Reason::Returned {
            again,
            calls_per_second,
        } => {
            let again = again.map(|share| {
                format!(
                    "{} ≥ {} of page faults are on pages that had been there before",
                    percent(share),
                    percent(limit::REFAULT_SHARE_MIN)
                )
            });
            let calls = calls_per_second
                .map(|rate| format!("{} calls that give memory back", units::rate(rate)));
            let both: Vec<String> = again.into_iter().chain(calls).collect();
            both.join("; ")
        }
        Reason::Grows { bytes_per_second } => format!(
            "live bytes grow by {} a second through the whole run",
            units::bytes(*bytes_per_second)
        ),
        Reason::AtEnd {
            kept,
            live,
            returned,
        } => format!(
            "memory at the end is {} for {} of live bytes; {} went back when asked to",
            bytes(kept),
            bytes(live),
            bytes(returned)
        ),
        Reason::InHeap { kept, live, free } => format!(
            "the heap has {} for {} of live bytes; {} are free pages and blocks in caches",
            bytes(kept),
            bytes(live),
            bytes(free)
        ),
        Reason::WaitsOutside { kind, share } => {
            format!("{} of thread time, {kind}", percent(*share))
        }
        Reason::Pool => {
            let name = pool.map_or("", |pool| pool.name);
            format!("its allocator is {name}")
        }
        Reason::Computes { outside } => format!("{} of CPU time is outside", percent(*outside)),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use mallard_report::diagnosis::{EndMemory, Growth};

    fn figures(inside: f64) -> Figures {
        Figures {
            samples: 2000,
            runs: 1,
            wall_seconds: 10.0,
            user_seconds: 9.0,
            inside: Some(inside),
            inside_low: Some((inside - 0.01).max(0.0)),
            inside_high: Some(inside + 0.01),
            waiting: Some(0.0),
            running: 0.9,
            ..Figures::default()
        }
    }

    const ABOUT: About<'_> = About {
        family: Family::Glibc,
        pool: None,
        cpus: 8,
        typed: "./a 1",
        subject: "-- ./a 1",
        ends: true,
        is_replaceable: true,
        pid: None,
    };

    fn commands(f: &Figures, about: About) -> Vec<String> {
        let next = judge(f, about).next.into_iter();
        next.map(|next| next.command).collect()
    }

    #[test]
    fn the_sentence_says_what_decides() {
        let computes = judge(&figures(0.005), ABOUT);
        assert!(computes.sentence.contains("no allocator makes"));
        assert!(computes.next.is_empty());
        let mut sleeps = figures(0.2);
        sleeps.threads = 1;
        sleeps.user_seconds = 1.0;
        sleeps.running = 0.1;
        sleeps.waits_outside = vec![("sleep".to_owned(), 0.5)];
        let words = "by wall time, of which 50 % is spent waiting for other things";
        assert!(judge(&sleeps, ABOUT).sentence.contains(words));
        let mut leaks = figures(0.01);
        leaks.grows = Some(Growth {
            bytes_per_second: 1e6,
            fit: 0.99,
            share: 0.9,
        });
        let sentence = judge(&leaks, ABOUT).sentence;
        assert!(sentence.contains("keeps more and more"), "{sentence}");
    }

    #[test]
    fn the_commands_to_try_next_end_whatever_the_program_does() {
        let f = figures(0.4);
        let of_a_program = commands(&f, ABOUT);
        let all = [
            "mallard run -- ./a 1",
            "mallard compare -- ./a 1",
            "mallard tune -- ./a 1",
        ];
        assert_eq!(of_a_program, all);
        let of_a_server = commands(
            &f,
            About {
                ends: false,
                ..ABOUT
            },
        );
        assert_eq!(
            of_a_server[1],
            "mallard compare --start './a 1' --ready tcp:ADDRESS --load COMMAND"
        );
        let of_a_static_program = About {
            is_replaceable: false,
            ..ABOUT
        };
        assert!(commands(&f, of_a_static_program).is_empty());
    }

    #[test]
    fn what_one_thread_holds_back_needs_another_that_returns_it() {
        let mut f = figures(0.01);
        f.peak_live = Some(200 << 20);
        f.end = Some(EndMemory {
            rss: 110 << 20,
            lazy: 0,
            anonymous: 100 << 20,
            live: 10 << 20,
            returned: Some(80 << 20),
        });
        let mut about = ABOUT;
        about.family = Family::Mallard;
        for (processes, threads, alone) in [(1, 1, true), (3, 3, true), (1, 2, false)] {
            (f.processes, f.threads) = (processes, threads);
            let commands = commands(&f, about);
            let mut commands = commands.iter();
            let is_advice = |command: &String| command.contains("background_thread:true");
            assert_eq!(commands.any(is_advice), alone, "{threads} threads");
        }
    }
}
