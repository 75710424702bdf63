//! From figures to verdicts. Nothing here measures: figures in, words out.

use mallard_observe::who::{Family, Pool};
use mallard_report::diagnosis::{Answer, Bound, Figures, Next, Trouble};
use mallard_report::units;

use super::thresholds as limit;

/// The verdict.
#[derive(Debug)]
pub struct Verdict {
    pub answer: Answer,
    pub sentence: String,
    pub bound: Option<Bound>,
    pub troubles: Vec<Trouble>,
    pub takes: Option<Trouble>,
    pub next: Vec<Next>,
}

/// What is known besides figures.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub family: Family,
    pub pool: Option<Pool>,
    /// CPUs that the program may use.
    pub cpus: usize,
    /// The program as the user typed it, or the command that starts the service.
    pub typed: &'a str,
    /// What `mallard compare` takes for it.
    pub subject: &'a str,
}

pub fn judge(f: &Figures, about: About) -> Verdict {
    let bound = bound(f, about.cpus);
    let mut troubles = time_troubles(f, about.family);
    let memory = memory_troubles(f, about.pool);
    let fast_enough = bound.is_none_or(|bound| bound.high < limit::BOUND);
    // Nothing about time matters if no allocator makes the program faster; its memory may.
    let locks = f.waiting.unwrap_or(0.0) >= limit::LOCKS;
    if fast_enough && !locks {
        troubles.retain(|trouble| ["slow_purge", "growth"].contains(&trouble.key.as_str()));
    }
    if memory.iter().any(|trouble| trouble.key == "leak") {
        // The heap grows because the program keeps more and more.
        troubles.retain(|trouble| trouble.key != "growth");
    }
    troubles.extend(memory);
    let leak_only = troubles.iter().all(|trouble| trouble.key == "leak");
    let answer = match () {
        () if bound.is_none() && troubles.is_empty() && waits_only(f) => Answer::No,
        () if bound.is_none() && troubles.is_empty() => Answer::CannotTell,
        () if troubles.is_empty()
            && bound.is_some_and(|b| b.low < limit::BOUND && b.high > limit::WIDE) =>
        {
            Answer::CannotTell
        }
        () if leak_only => Answer::No,
        () => Answer::Yes,
    };
    let takes = (answer == Answer::No || troubles.is_empty())
        .then(|| takes(f, about.pool))
        .flatten();
    let sentence = sentence(f, answer, bound, &troubles, takes.as_ref());
    let next = next(&troubles, answer, about);
    Verdict {
        answer,
        sentence,
        bound,
        troubles,
        takes,
        next,
    }
}

/// Whether the program hardly computes, and was looked at long enough to say so.
fn waits_only(f: &Figures) -> bool {
    let cpu = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    cpu < limit::BUSY && f.wall_seconds >= limit::WAITS_SECONDS && !f.waits_outside.is_empty()
}

/// How much faster the program could be.
fn bound(f: &Figures, cpus: usize) -> Option<Bound> {
    let (low, high) = (f.inside_low?, f.inside_high?);
    if f.samples < limit::SAMPLES {
        return None;
    }
    let cpu = f.user_seconds + f.system_seconds;
    let saturated = cpu >= 0.95 * cpus as f64 * f.wall_seconds;
    let waiting = if saturated {
        0.0
    } else {
        f.waiting.unwrap_or(0.0)
    };
    // A share of CPU time, of the part of busy time that does not wait.
    let gone = |inside: f64, faults: f64| {
        let share = waiting + (1.0 - waiting) * (inside + faults);
        1.0 / (1.0 - share.min(0.99))
    };
    let middle = (low + high) / 2.0;
    let grows = heap_grows(f);
    let faults = if grows {
        f.fault_share
    } else {
        f.refault_share
    };
    Some(Bound {
        low: gone(low, 0.0),
        high: gone(high, 0.0),
        // Where both are nearly all of the time, the estimate of faults takes too much.
        without_faults: (faults >= 0.005 && middle + faults < 0.95).then(|| gone(middle, faults)),
    })
}

fn trouble(key: &str, what: &str, because: String) -> Trouble {
    Trouble {
        key: key.to_owned(),
        what: what.to_owned(),
        because,
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// What the allocator does to the program's time.
fn time_troubles(f: &Figures, family: Family) -> Vec<Trouble> {
    let mut found = Vec::new();
    let inside = f.inside.unwrap_or(0.0);
    let waiting = f.waiting.unwrap_or(0.0);
    let by_kind = |name: &str| {
        f.waits
            .iter()
            .find(|(kind, _)| kind == name)
            .map_or(0.0, |w| w.1)
    };
    if waiting >= limit::LOCKS {
        let kernel = by_kind("madvise") + by_kind("mmap") + by_kind("page fault");
        let what = if by_kind("futex") >= kernel {
            "threads wait for the allocator’s locks"
        } else {
            "threads wait inside the allocator for the kernel’s lock of the address space"
        };
        let because = format!("waits {} ≥ {}", percent(waiting), percent(limit::LOCKS));
        found.push(trouble("locks", what, because));
    }
    if let Some(trouble) = to_and_fro(f) {
        found.push(trouble);
    } else if heap_grows(f) {
        let because = format!(
            "page faults take {} ≥ {} of CPU time, {} of them for new pages",
            percent(f.fault_share),
            percent(limit::FAULTS),
            percent(1.0 - f.refaults.unwrap_or(0.0))
        );
        found.push(trouble("growth", "the heap grows page by page", because));
    }
    let slow: u64 = f
        .long_calls
        .iter()
        .filter(|(kind, _)| slow_kind(kind))
        .map(|(_, n)| n)
        .sum();
    let slow_rate = slow as f64 / f.wall_seconds.max(1e-3) / f64::from(f.runs.max(1));
    if slow >= 3 && slow_rate >= limit::SLOW_FREES {
        let because = format!(
            "{slow} frees worked in the kernel longer than 1 ms, the longest {}",
            units::seconds(f.longest_call_seconds)
        );
        found.push(trouble(
            "slow_purge",
            "frees wait for memory to be given back",
            because,
        ));
    }
    let elsewhere = f.calls.freed_elsewhere.unwrap_or(0.0);
    if elsewhere >= limit::HAND_OFF && inside >= limit::WORK {
        let because = format!(
            "{} ≥ {} of blocks are freed by another thread, malloc and free take {}",
            percent(elsewhere),
            percent(limit::HAND_OFF),
            percent(inside)
        );
        found.push(trouble(
            "hand_off",
            "blocks change threads before they are freed",
            because,
        ));
    }
    let middle = f.calls.middle_bytes.unwrap_or(0.0);
    if middle >= limit::MIDDLE
        && inside >= limit::WORK
        && found.is_empty()
        && family != Family::Glibc
    {
        let because = format!("{} ≥ {} of bytes", percent(middle), percent(limit::MIDDLE));
        found.push(trouble(
            "caches",
            "requests of 32 to 256 KiB pass the thread caches by",
            because,
        ));
    }
    if found.is_empty() && inside >= limit::WORK {
        let because = format!("malloc and free take {} of CPU time", percent(inside));
        found.push(trouble(
            "work",
            "the program calls the allocator very often",
            because,
        ));
    }
    found
}

/// Whether page faults of malloc's heap take time because it grows. The start of a program has
/// faults too, and so has a heap of its own (V8, a mapped file).
fn heap_grows(f: &Figures) -> bool {
    let live = f.peak_live.unwrap_or(0).max(0) as u64;
    f.fault_share >= limit::FAULTS
        && f.refaults.unwrap_or(0.0) < limit::REFAULTS
        && f.faults >= limit::FAULTS_COUNT
        && live >= f.peak_rss / 2
}

/// Long calls that give memory back.
fn slow_kind(kind: &str) -> bool {
    matches!(kind, "free" | "madvise" | "mmap")
}

/// Memory that goes back to the system and comes again, and how.
fn to_and_fro(f: &Figures) -> Option<Trouble> {
    let rate = |name: &str| {
        f.syscalls
            .iter()
            .find(|(kind, _, _)| kind == name)
            .map_or(0.0, |s| s.1)
    };
    let (madvise, munmap, brk) = (rate("madvise"), rate("munmap"), rate("brk"));
    let giving = madvise + munmap + brk;
    let refaults = f.refaults.unwrap_or(0.0);
    let often = refaults >= limit::REFAULTS && f.faults > limit::FAULTS_COUNT;
    // A heap that only grows calls brk too, and any program makes some calls as it starts.
    let gives = giving >= limit::GIVING
        && giving * f.wall_seconds >= limit::GIVING_CALLS
        && refaults >= limit::GIVING_REFAULTS;
    if !often && !gives {
        return None;
    }
    let (key, how) = match () {
        () if giving < 1.0 => ("to_and_fro", ""),
        () if madvise >= munmap.max(brk) => ("decay", ": pages are given back by madvise"),
        () if brk >= munmap => (
            "trim",
            ": the top of the heap is trimmed and grown again by brk",
        ),
        () => ("mmap", ": large blocks are mapped and unmapped one by one"),
    };
    let mut because = Vec::new();
    if often {
        because.push(format!(
            "{} ≥ {} of page faults are on pages that had been there before",
            percent(refaults),
            percent(limit::REFAULTS)
        ));
    }
    if gives {
        because.push(format!(
            "{} calls that give memory back",
            units::rate(giving)
        ));
    }
    let what = format!("memory goes to the system and comes again{how}");
    Some(trouble(key, &what, because.join("; ")))
}

/// What the allocator does to the program's memory.
fn memory_troubles(f: &Figures, pool: Option<Pool>) -> Vec<Trouble> {
    let mut found = Vec::new();
    if let Some(growth) = &f.grows
        && growth.share >= limit::GROWTH
        && growth.fit >= limit::GROWTH_FIT
    {
        let because = format!(
            "live bytes grow by {} a second through the whole run",
            units::bytes(growth.bytes_per_second)
        );
        found.push(trouble(
            "leak",
            "the program keeps more and more blocks itself",
            because,
        ));
        return found;
    }
    let Some(end) = &f.end else { return found };
    let live = end.live.max(0) as u64;
    let kept = end.anonymous.saturating_sub(end.lazy);
    let excess = kept.saturating_sub(live);
    let ratio = kept as f64 / live.max(1) as f64;
    // A heap that never held this much cannot hold it back: the memory is the program's own.
    let was_heap = f.peak_live.unwrap_or(0).max(0) as u64 >= kept / 2;
    // A program that frees everything as it ends holds nothing back.
    let lasted = f.held_late.is_none_or(|share| share >= 0.5);
    if ratio < limit::HELD || excess < limit::HELD_BYTES || !was_heap || !lasted {
        return found;
    }
    let Some(returned) = end.returned else {
        return found;
    };
    let because = format!(
        "memory at the end is {} for {} of live bytes; {} went back when asked to",
        units::bytes(kept as f64),
        units::bytes(live as f64),
        units::bytes(returned as f64)
    );
    if returned * 2 >= excess {
        found.push(trouble(
            "held_back",
            "the allocator keeps free memory",
            because,
        ));
    } else if pool.is_none() {
        let what = "live blocks pin pages that are nearly free (fragmentation)";
        found.push(trouble("pinned", what, because));
    }
    found
}

/// What takes the time instead.
fn takes(f: &Figures, pool: Option<Pool>) -> Option<Trouble> {
    let mut waits: Vec<&(String, f64)> = f.waits_outside.iter().collect();
    waits.sort_by(|a, b| b.1.total_cmp(&a.1));
    let cpu = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    if let Some((kind, share)) = waits.first()
        && *share >= limit::OUTSIDE
        && *share > f.running
    {
        let (key, what) = match kind.as_str() {
            "futex" => ("own_lock", "threads wait for locks of the program’s own"),
            "file or socket" => ("io", "threads wait for files, pipes or sockets"),
            "events" => ("idle", "threads wait for events"),
            "sleep" => ("idle", "the program sleeps"),
            "child process" => ("child", "the program waits for its children"),
            _ => ("waits", "threads wait outside of the allocator"),
        };
        let because = format!("{} of thread time, {kind}", percent(*share));
        return Some(trouble(key, what, because));
    }
    if let Some(pool) = pool {
        return Some(trouble(
            "pool",
            pool.advice,
            format!("its allocator is {}", pool.name),
        ));
    }
    (f.samples >= limit::SAMPLES && cpu >= 0.05).then(|| {
        let because = format!(
            "{} of CPU time is outside",
            percent(1.0 - f.inside.unwrap_or(0.0))
        );
        trouble("computing", "the program computes", because)
    })
}

fn sentence(
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
            let by = troubles
                .first()
                .map_or("work", |trouble| trouble.key.as_str());
            let by = match by {
                "locks" => "by locks.",
                "decay" | "trim" | "mmap" | "to_and_fro" => "by memory that goes to and fro.",
                "growth" => "by page faults of a growing heap.",
                "hand_off" => "by blocks that change threads.",
                "slow_purge" => "by slow frees.",
                "held_back" => "in memory: the allocator holds it back.",
                "pinned" => "in memory: blocks pin it.",
                _ => "by its own work.",
            };
            match bound {
                Some(bound) if bound.high >= limit::BOUND => format!(
                    "{by} If malloc and free cost nothing: {:.2} to {:.2} × as fast (95 %){}. That is \
                     the most an allocator can bring, but for what the placing of blocks does to \
                     caches.",
                    bound.low,
                    bound.high,
                    bound.without_faults.map_or(String::new(), |more| format!(
                        "; {more:.2} without those page faults either"
                    ))
                ),
                _ if troubles[0].key == "growth" => {
                    format!("{by} They take {} of CPU time.", percent(f.fault_share))
                }
                _ => format!("{by} In time, no allocator makes it more than {most:.2} × as fast."),
            }
        }
    };
    if answer == Answer::No {
        if let Some(leak) = troubles.iter().find(|trouble| trouble.key == "leak") {
            text += &format!(" But {}: {}.", leak.what, leak.because);
        } else if let Some(takes) = takes.filter(|takes| takes.key == "pool") {
            text += &format!(" {}.", capital(&takes.what));
        } else if let Some(takes) = takes {
            text += &format!(" {}: {}.", capital(&takes.what), takes.because);
        }
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// The commands to try.
fn next(troubles: &[Trouble], answer: Answer, about: About) -> Vec<Next> {
    let mut next = Vec::new();
    let mut add = |command: String, what: &str| {
        next.push(Next {
            command,
            what: what.to_owned(),
        });
    };
    let typed = about.typed;
    if answer == Answer::Yes {
        add(
            format!("mallard compare {}", about.subject),
            "all allocators side by side",
        );
    }
    let conf = match about.family {
        Family::Mallard => Some("MALLARD_CONF"),
        Family::Jemalloc => Some("MALLOC_CONF"),
        _ => None,
    };
    for trouble in troubles {
        let glibc = about.family == Family::Glibc;
        let tunable = |text: &str| format!("GLIBC_TUNABLES={text} {typed}");
        let (own, what) = match (trouble.key.as_str(), conf) {
            ("locks", Some(name)) => (
                format!("{name}=percpu_arena:percpu {typed}"),
                "an arena for each CPU",
            ),
            ("locks", None) if glibc => (tunable("glibc.malloc.arena_max=64"), "more arenas"),
            ("decay" | "trim" | "mmap" | "to_and_fro", Some(name)) => (
                format!("{name}=dirty_decay_ms:30000 {typed}"),
                "keep free pages for half a minute",
            ),
            ("decay" | "trim" | "mmap" | "to_and_fro", None) if glibc => (
                tunable(
                    "glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824",
                ),
                "keep free memory",
            ),
            ("growth", Some(name)) => (format!("{name}=thp:always {typed}"), "huge pages"),
            ("growth", None) if glibc => (tunable("glibc.malloc.hugetlb=1"), "huge pages"),
            ("slow_purge", Some(name)) => (
                format!("{name}=background_thread:true {typed}"),
                "give memory back elsewhere",
            ),
            ("caches", Some(name)) => (
                format!("{name}=tcache_max:256k {typed}"),
                "larger thread caches",
            ),
            ("held_back", Some(name)) => (
                format!("{name}=dirty_decay_ms:1000 {typed}"),
                "give free pages back after a second",
            ),
            ("held_back" | "pinned", None) if glibc => (
                tunable("glibc.malloc.arena_max=2"),
                "fewer arenas, which keep less",
            ),
            ("pinned", Some(name)) => (format!("{name}=narenas:2 {typed}"), "fewer arenas"),
            _ => continue,
        };
        add(own, what);
    }
    if troubles.iter().any(|trouble| trouble.key == "leak") {
        add(
            format!("MALLARD_CONF=prof:true,prof_final:true mallard run -- {typed}"),
            "a heap profile: which code keeps the blocks",
        );
    }
    next
}

#[cfg(test)]
mod tests;
