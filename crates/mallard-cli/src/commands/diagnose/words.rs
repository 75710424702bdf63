//! What a verdict is in words.

use mallard_judge::diagnose::{self, Finding, KeptAt, Reason, Settle, busy, thresholds as limit};
use mallard_report::diagnosis::{
    Answer, Aspect, Bound, Figures, Next, Trouble, TroubleKey, Verdict,
};
use mallard_report::units;
use mallard_report::units::{capital, percent};
use mallard_watch::family::{Family, Pool};

use super::next::{self, About};

/// A verdict as a report has it.
pub struct Words {
    pub answer: Answer,
    /// The answers about time and memory, the graver first.
    pub verdicts: Vec<Verdict>,
    pub bound: Option<Bound>,
    pub troubles: Vec<Trouble>,
    pub takes: Option<Trouble>,
    pub next: Vec<Next>,
}

/// Judges the figures. `unknown` says why nothing is known about time, where nothing is.
pub fn judge(f: &Figures, about: About, unknown: impl FnOnce() -> String) -> Words {
    let known = diagnose::About {
        is_glibc: about.family == Family::Glibc,
        has_pool: about.pool.is_some(),
        cpus: about.cpus,
    };
    let found = diagnose::judge(f, known);
    let in_words = |finding: &Finding| trouble(finding, about.pool);
    let troubles: Vec<Trouble> = found.troubles.iter().map(in_words).collect();
    let takes = found.takes.as_ref().map(in_words);
    let next = next::next(f, &found, about);
    let first = |aspect| first_about(&next, aspect, found.graver);
    let time = Verdict {
        aspect: Aspect::Time,
        answer: found.time,
        sentence: match found.time {
            Answer::CannotTell => unknown(),
            _ => about_time(f, &found, &troubles, takes.as_ref(), about.ends),
        },
        next: first(Aspect::Time),
    };
    let memory = Verdict {
        aspect: Aspect::Memory,
        answer: found.memory,
        sentence: about_memory(f, found.memory, &troubles),
        next: first(Aspect::Memory),
    };
    Words {
        answer: found.answer(),
        verdicts: match found.graver {
            Aspect::Time => vec![time, memory],
            Aspect::Memory => vec![memory, time],
        },
        bound: found.bound,
        next,
        troubles,
        takes,
    }
}

/// The first command that is about one of the two. One that suits any trouble is about the graver.
fn first_about(next: &[Next], aspect: Aspect, graver: Aspect) -> Option<String> {
    let is_about = |next: &&Next| {
        let against = next.suggestion.as_ref().and_then(|it| it.against.as_ref());
        against.map_or(graver, TroubleKey::aspect) == aspect
    };
    next.iter().find(is_about).map(|next| next.command.clone())
}

/// A finding in words.
fn trouble(found: &Finding, pool: Option<Pool>) -> Trouble {
    Trouble {
        what: what(found, pool),
        because: because(&found.reason, pool),
        key: found.key.clone(),
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
        (
            _,
            Reason::Above {
                at: KeptAt::End, ..
            },
        ) => "memory at the end is far above live bytes",
        (_, Reason::Above { .. }) => "memory is far above live bytes at its peak",
        (TroubleKey::OwnLock, Reason::WaitsOutside { .. }) => {
            "threads wait for locks of the program’s own"
        }
        (TroubleKey::Io, Reason::WaitsOutside { .. }) => "threads wait for files, pipes or sockets",
        (TroubleKey::Child, Reason::WaitsOutside { .. }) => "the program waits for its children",
        (_, Reason::WaitsOutside { kind, .. }) => match kind.as_str() {
            "events" => "threads wait for events",
            "another thread" => "threads wait for each other: idle workers, or work that is late",
            "futex" => "threads wait for locks, or are idle workers",
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
            "page faults take {} ≥ {} of CPU time{}",
            percent(*faults),
            percent(limit::FAULT_CPU_SHARE_MIN),
            new.map_or(String::new(), |new| {
                format!(", {} of them for new pages", percent(new))
            })
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
        Reason::Above { kept, live, at } => format!(
            "{} for {} of live bytes{}",
            bytes(kept),
            bytes(live),
            match at {
                KeptAt::PeakOnly => ", and free again by the end",
                KeptAt::End | KeptAt::Peak => "",
            }
        ),
        Reason::WaitsOutside { kind, share } => {
            format!("{} of thread time, {kind}", percent(*share))
        }
        Reason::Pool => {
            let name = pool.map_or("", |pool| pool.name);
            format!("its allocator is {name}")
        }
        Reason::Computes { outside, thread } => format!(
            "{} of CPU time is outside{}",
            percent(*outside),
            thread.as_ref().map_or(String::new(), |thread| format!(
                "; thread {} {} runs {} of its time",
                thread.name,
                thread.id,
                percent(thread.share)
            ))
        ),
    }
}

/// How malloc costs time, by the first trouble.
fn how(troubles: &[&Trouble]) -> &'static str {
    match troubles.first().map(|first| &first.key) {
        Some(TroubleKey::Locks) => "by locks.",
        Some(TroubleKey::Decay | TroubleKey::Trim | TroubleKey::Mmap | TroubleKey::ToAndFro) => {
            "by memory that is returned and needed again."
        }
        Some(TroubleKey::Growth) => "by page faults of a growing heap.",
        Some(TroubleKey::HandOff) => "by blocks that change threads.",
        Some(TroubleKey::SlowPurge) => "by slow frees.",
        _ => "by its own work.",
    }
}

/// The sentence about time, behind the word for the answer.
fn about_time(
    f: &Figures,
    found: &diagnose::Verdict,
    troubles: &[Trouble],
    takes: Option<&Trouble>,
    ends: bool,
) -> String {
    let of_time = |trouble: &&Trouble| trouble.key.aspect() == Aspect::Time;
    let troubles: Vec<&Trouble> = troubles.iter().filter(of_time).collect();
    let inside = f.inside.unwrap_or(0.0);
    let gains = |bound: &Bound| bound.high >= limit::BOUND_FACTOR_MIN;
    let instead = takes.map_or(String::new(), |takes| match takes.key {
        TroubleKey::Pool => format!(" {}.", capital(&takes.what)),
        _ => format!(" {} ({}).", capital(&takes.what), takes.because),
    });
    match (found.time, found.bound.filter(gains)) {
        (Answer::Yes, Some(bound)) if bound.low < limit::BOUND_FACTOR_MIN => format!(
            "by slow frees. {}. In throughput, up to {:.2} × as fast.",
            slow_frees(&troubles),
            bound.high
        ),
        (Answer::Yes, Some(bound)) => format!(
            "{} {}. No allocator can do better, except by a better placement of blocks.",
            how(&troubles),
            if_free(f, bound)
        ),
        (Answer::Yes, None) => format!(
            "by slow frees. {}.{}",
            slow_frees(&troubles),
            found.bound.map_or(String::new(), |bound| format!(
                " In throughput, no allocator makes it more than {:.2} × as fast.",
                bound.high.max(1.0)
            ))
        ),
        (Answer::Perhaps, Some(bound)) => format!(
            "up to {:.2} × as fast. {}. {}{instead}",
            bound.high,
            if_free(f, bound),
            settled(f, found.settle, ends)
        ),
        (Answer::Perhaps, None) => format!(
            "{} {} samples of CPU time do not show how much. {}",
            how(&troubles),
            f.samples,
            settled(f, found.settle, ends)
        ),
        (_, _) if found.bound.is_none() => format!(
            "The program uses {} of one CPU: no allocator makes it faster.{instead}",
            percent((f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3))
        ),
        (_, _) => format!(
            "malloc and free take {} of CPU time: no allocator makes this program more than \
             {:.2} × as fast.{instead}",
            percent(inside),
            found.bound.map_or(1.0, |bound| bound.high.max(1.0))
        ),
    }
}

/// The figure of the frees that take long.
fn slow_frees(troubles: &[&Trouble]) -> String {
    let slow = troubles
        .iter()
        .find(|trouble| trouble.key == TroubleKey::SlowPurge);
    slow.map_or(String::new(), |slow| capital(&slow.because))
}

/// The bound in a clause.
fn if_free(f: &Figures, bound: Bound) -> String {
    let what = if bound.calls.is_some() {
        "malloc, free and the page faults of their heap"
    } else {
        "malloc and free"
    };
    let alone = bound.calls.map_or(String::new(), |calls| {
        format!("; {} if malloc and free alone did", range(calls))
    });
    format!(
        "If {what} cost nothing: {} as fast (95 %){alone}{}",
        range((bound.low, bound.high)),
        sleeps(f)
    )
}

/// An interval of factors. Of a program that does hardly anything else, the figure says no more
/// than that.
fn range((low, high): (f64, f64)) -> String {
    const FACTOR_MAX: f64 = 20.0;
    match (low < FACTOR_MAX, high < FACTOR_MAX) {
        (_, true) => format!("{low:.2} to {high:.2} ×"),
        (true, false) => format!("{low:.2} to more than {FACTOR_MAX} ×"),
        (false, false) => format!("more than {FACTOR_MAX} ×"),
    }
}

/// What makes an answer of it. `ends` says that the program ends by itself, so that there is no
/// more of it to be watched.
fn settled(f: &Figures, settle: Option<Settle>, ends: bool) -> String {
    match settle {
        None => String::new(),
        Some(Settle::Samples { times }) => {
            let seconds = f.wall_seconds * f64::from(f.runs.max(1)) * times;
            let how = if ends {
                "by more work, such as a larger input".to_owned()
            } else {
                let seconds = seconds.ceil().max(1.0);
                format!("by more load or more time (`--for {seconds}s`)")
            };
            format!(
                "{} samples are too few: about {} times as many settle it, {how}.",
                f.samples,
                times.ceil()
            )
        }
        Some(Settle::ProbeCost) => {
            "What the probe costs was not measured: a run without `--quick` and `--for` settles it."
                .to_owned()
        }
        Some(Settle::QuietMachine) if f.runs > 1 => {
            "The runs differ more than by chance: a quiet machine settles it, or `mallard compare`."
                .to_owned()
        }
        Some(Settle::QuietMachine) => {
            "The readings of the run contradict its samples: a longer run settles it, or `mallard \
             compare`."
                .to_owned()
        }
        Some(Settle::Comparison) => "`mallard compare` measures what is left open.".to_owned(),
    }
}

/// The sentence about memory, behind the word for the answer.
fn about_memory(f: &Figures, answer: Answer, troubles: &[Trouble]) -> String {
    let peak = units::bytes(f.peak_rss as f64);
    let found = troubles
        .iter()
        .find(|trouble| trouble.key.aspect() == Aspect::Memory);
    match (answer, found) {
        (Answer::No, Some(leak)) => format!(
            "The allocator is not at fault: {} ({}).",
            leak.what, leak.because
        ),
        (Answer::Perhaps, Some(found)) => format!(
            "{}: {}. `mallard compare` shows whether another allocator needs less.",
            found.what, found.because
        ),
        (_, Some(found)) => format!("{}: {}.", found.what, found.because),
        (Answer::CannotTell, None) => format!(
            "The peak of RSS is {peak}; how much of it is live is not known for this program."
        ),
        (_, None) => match f.live_at_peak.or(f.peak_live) {
            Some(live) if (1..=f.peak_rss as i64).contains(&live) => format!(
                "The peak of RSS is {peak}, with {} live then.",
                units::bytes(live as f64)
            ),
            _ => format!("The peak of RSS is {peak}."),
        },
    }
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

    fn judged(f: &Figures) -> Words {
        judge(f, ABOUT, String::new)
    }

    fn commands(f: &Figures, about: About) -> Vec<String> {
        let next = judge(f, about, String::new).next.into_iter();
        next.map(|next| next.command).collect()
    }

    #[test]
    fn the_sentence_says_what_decides() {
        let computes = judged(&figures(0.005));
        assert!(computes.verdicts[0].sentence.contains("no allocator makes"));
        assert!(computes.next.is_empty());
        let mut sleeps = figures(0.2);
        sleeps.threads = 1;
        sleeps.user_seconds = 1.0;
        sleeps.running = 0.1;
        sleeps.waits_outside = vec![("sleep".to_owned(), 0.5)];
        let words = "by wall time, of which 50 % is spent waiting for other things";
        assert!(judged(&sleeps).verdicts[0].sentence.contains(words));
    }

    #[test]
    fn memory_has_its_own_sentence_and_the_graver_of_the_two_comes_first() {
        let mut leaks = figures(0.005);
        leaks.grows = Some(Growth {
            bytes_per_second: 1e6,
            fit: 0.99,
            share: 0.9,
        });
        let verdicts = judged(&leaks).verdicts;
        let text: Vec<String> = verdicts.iter().map(Verdict::text).collect();
        assert_eq!(
            text[0],
            "NO. The allocator is not at fault: the program keeps more and more blocks itself \
             (live bytes grow by 977 KiB a second through the whole run). Next: `mallard leak -- \
             ./a 1`."
        );
        assert!(
            text[1].starts_with("NO. malloc and free take"),
            "{}",
            text[1]
        );
    }

    #[test]
    fn perhaps_says_how_much_and_what_settles_it() {
        let mut f = figures(0.04);
        (f.inside_low, f.inside_high) = (Some(0.01), Some(0.3));
        f.samples = 54;
        f.probe_cost = Some(0.01);
        let text = judged(&f).verdicts[0].text();
        assert!(text.starts_with("PERHAPS, up to 1.4"), "{text}");
        assert!(text.contains("settle"), "{text}");
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
