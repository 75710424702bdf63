//! What the runs found, with names.

use std::time::Duration;

use mallard_report::doctor::{self, Block, Call, Doctor, Event, Finding, Process, SCHEMA};

use super::advice;
use super::report::{self, Kind, Report};
use super::session::{Found, Member, Ran, is_crash};
use crate::options::command_line;
use crate::options::search::SearchOptions;
use crate::profiles::frames::{self, Names, Place};
use crate::profiles::members::End;
use crate::profiles::program::end_of;

/// The runs so far, each with what it was for.
#[derive(Default)]
pub struct Rounds(Vec<(String, Ran)>);

impl Rounds {
    pub fn add(&mut self, purpose: String, ran: Ran) {
        self.0.push((purpose, ran));
    }

    pub fn last(&self) -> &Ran {
        &self.0.last().expect("a run was added").1
    }

    fn reports(&self) -> impl Iterator<Item = (usize, &Found)> {
        let runs = (1..).zip(&self.0);
        runs.flat_map(|(run, (_, ran))| ran.reports.iter().map(move |found| (run, found)))
    }

    pub fn is_empty(&self) -> bool {
        self.reports().next().is_none()
    }

    /// Whether there is a finding, and the stack of each is that of the mistake.
    pub fn is_exact(&self) -> bool {
        !self.is_empty() && self.reports().all(|(_, found)| found.report.is_exact())
    }

    /// Whether the user has stopped the last run, and nothing calls for another one.
    pub fn is_interrupted(&self) -> bool {
        self.last().is_interrupted && self.last().reports.is_empty()
    }
}

/// Whether it is known that there is nothing, if nothing was found: the program was checked and
/// came to its end.
pub fn is_known(d: &Doctor) -> bool {
    let processes = d.runs.iter().flat_map(|run| &run.processes);
    let first = d.runs.first().and_then(|run| run.processes.first());
    first.is_some_and(|it| it.checked != Some(false)) && processes.into_iter().all(|it| !it.crashed)
}

/// Puts everything together.
pub fn outcome(rounds: Rounds, seed: u64, search: &SearchOptions) -> Doctor {
    let names = names_of(&rounds, search);
    let findings = findings(&rounds, &names);
    let runs: Vec<doctor::Run> = (rounds.0.iter())
        .map(|(purpose, ran)| doctor::Run {
            purpose: purpose.clone(),
            options: ran.options.clone(),
            seconds: ran.took.as_secs_f64(),
            processes: (ran.members.iter())
                .map(|member| process(member, ran, &names))
                .collect(),
        })
        .collect();
    Doctor {
        schema: SCHEMA,
        sentence: sentence(&rounds, &findings, &runs),
        notes: notes(&rounds, &findings, &runs, seed),
        findings,
        runs,
        command: command_line::words(),
    }
}

fn names_of(rounds: &Rounds, search: &SearchOptions) -> Names {
    let stacks = rounds.reports().flat_map(|(_, found)| {
        let report = &found.report;
        [&report.now, &report.allocated, &report.freed]
    });
    let frames = stacks.flatten().flat_map(|event| &event.stack);
    let frames = frames.filter(|frame| !frame.file.is_empty());
    let members = rounds.0.iter().flat_map(|(_, ran)| &ran.members);
    let crashes = members.filter_map(|member| member.known.crashed_at.clone());
    let places: Vec<Place> = frames.map(report::Frame::place).chain(crashes).collect();
    if places.is_empty() {
        return Names::new();
    }
    frames::named(places.into_iter(), search)
}

/// A file as a person would write it here.
fn shown(file: &str) -> &str {
    let here = std::env::current_dir().unwrap_or_default();
    let inside = file.strip_prefix(&*here.to_string_lossy());
    let inside = inside.and_then(|file| file.strip_prefix('/'));
    inside.unwrap_or(file)
}

/// The functions at a place, the innermost first.
pub fn calls(place: &Place, names: &Names) -> Vec<Call> {
    let bare = Call {
        module: place.path.clone(),
        offset: place.offset,
        ..Call::default()
    };
    let known = names.get(place).map_or(&[][..], Vec::as_slice);
    if known.is_empty() {
        return vec![bare];
    }
    let named = known.iter().map(|frame| Call {
        function: frame.function.to_string(),
        file: shown(&frame.file).to_owned(),
        line: frame.line,
        ..bare.clone()
    });
    named.collect()
}

fn event(event: &report::Event, names: &Names) -> Event {
    let calls_of = |frame: &report::Frame| {
        if !frame.file.is_empty() {
            return calls(&frame.place(), names);
        }
        vec![Call {
            module: "code without a file".to_owned(),
            offset: frame.address,
            ..Call::default()
        }]
    };
    let mut stack: Vec<Call> = event.stack.iter().flat_map(calls_of).collect();
    // What calls `main` and the functions of threads is the same in all programs.
    while stack.len() > 1 && stack.last().is_some_and(is_start) {
        stack.pop();
    }
    Event {
        thread: event.thread,
        stack,
    }
}

fn is_start(call: &Call) -> bool {
    const STARTS: [&str; 9] = [
        "_start",
        "__libc_start_main",
        "__libc_start_main_impl",
        "__libc_start_call_main",
        "libc_start_main_stage2",
        "start_thread",
        "start",
        "__clone",
        "clone3",
    ];
    let module = call.module.rsplit('/').next().unwrap_or_default();
    let is_libc = module.starts_with("libc") || module.starts_with("ld-");
    STARTS.contains(&call.function.as_str()) && (is_libc || call.function == "_start")
        || call.function == "__clone3"
        || call.function == "clone" && is_libc
}

/// Whether a frame is the program's own code, and not that of the allocator, of the C library or of
/// a standard library.
fn is_own(call: &Call) -> bool {
    const MODULES: [&str; 7] = [
        "libmallard",
        "libc.so",
        "libc-",
        "ld-",
        "libstdc++",
        "libc++",
        "libpthread",
    ];
    const FILES: [&str; 4] = ["/usr/include/", "/usr/lib/", "/rustc/", "/build/"];
    let module = call.module.rsplit('/').next().unwrap_or_default();
    !MODULES.iter().any(|name| module.starts_with(name))
        && !module.starts_with('[')
        && !FILES.iter().any(|folder| call.file.starts_with(folder))
}

/// The line that a reader looks at first.
fn blamed(event: &Event) -> Option<Call> {
    let named = || event.stack.iter().filter(|call| !call.function.is_empty());
    let own = named().find(|call| is_own(call));
    own.or_else(|| named().next()).cloned()
}

fn findings(rounds: &Rounds, names: &Names) -> Vec<Finding> {
    let mut findings: Vec<(Finding, Key)> = Vec::new();
    for (run, found) in rounds.reports() {
        let new = finding(run, found, names);
        let key = Key::of(&found.report);
        match findings.iter_mut().find(|(_, other)| *other == key) {
            Some((known, _)) => {
                let times = known.times + 1;
                // The one that shows the mistake itself, and the first of those.
                if new.exact && !known.exact {
                    *known = new;
                }
                known.times = times;
            }
            None => findings.push((new, key)),
        }
    }
    // An exact finding says what a late one is about: one of the same site, or of any if that is
    // not known.
    let exact: Vec<Site> = (findings.iter())
        .filter(|(finding, _)| finding.exact)
        .map(|(_, key)| key.site.clone())
        .collect();
    let is_known = |key: &Key| match &key.site[..] {
        [] => !exact.is_empty(),
        site => exact.iter().any(|other| other == site),
    };
    findings.retain(|(finding, key)| finding.exact || !is_known(key));
    findings.sort_by_key(|(finding, _)| !finding.exact);
    findings.into_iter().map(|(finding, _)| finding).collect()
}

type Site = Vec<Place>;

/// By what two reports are of one bug: what is wrong, and where.
#[derive(PartialEq)]
struct Key {
    kind: Kind,
    /// The innermost frames of the allocation.
    site: Site,
    /// Those of the mistake, where they are known.
    now: Option<Site>,
}

impl Key {
    fn of(report: &Report) -> Key {
        const FRAMES: usize = 4;
        let site = |stack: &[report::Frame]| {
            let files = stack
                .iter()
                .filter(|frame| !frame.file.contains("libmallard"));
            files.take(FRAMES).map(report::Frame::place).collect()
        };
        let now = report.now.as_ref().filter(|_| report.is_exact());
        Key {
            kind: report.kind(),
            site: site(report.site()),
            now: now.map(|event| site(&event.stack)),
        }
    }
}

fn finding(run: usize, found: &Found, names: &Names) -> Finding {
    let report = &found.report;
    let named = |of: &Option<report::Event>| of.as_ref().map(|it| event(it, names));
    let now = named(&report.now);
    Finding {
        kind: report.kind.clone(),
        sentence: advice::sentence(report),
        at: now.as_ref().filter(|_| report.is_exact()).and_then(blamed),
        run,
        exact: report.is_exact(),
        process: report.process,
        program: found.program.clone(),
        address: format!("{:#x}", report.address),
        block: report.block.map(|block| Block {
            address: format!("{:#x}", block.address),
            size: block.size,
            offset: report.address.wrapping_sub(block.address) as i64,
        }),
        now,
        allocated: named(&report.allocated),
        freed: named(&report.freed),
        picture: found.picture.clone(),
        look_for: advice::look_for(report).to_owned(),
        times: 1,
    }
}

fn process(member: &Member, ran: &Ran, names: &Names) -> Process {
    let reports = (ran.reports.iter())
        .filter(|found| found.report.process == member.known.inside)
        .count();
    let crashed = match member.end {
        End::Ended(status) => signal_of(status).is_some_and(is_crash) && reports == 0,
        End::Unknown | End::Runs => false,
    };
    let at = member.known.crashed_at.as_ref().filter(|_| crashed);
    Process {
        pid: member.pid,
        program: member.program.clone(),
        end: end_of(member.end),
        checked: member.known.is_checked,
        findings: reports,
        crashed,
        crashed_at: at.and_then(|place| calls(place, names).into_iter().next()),
    }
}

fn signal_of(status: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

fn sentence(rounds: &Rounds, findings: &[Finding], runs: &[doctor::Run]) -> String {
    let name = runs.first().and_then(|run| run.processes.first());
    let name = name.map_or("the program", |process| &process.program);
    match findings {
        [] => {}
        [only] => {
            return match &only.at {
                Some(at) => format!("1 heap bug found: {} at {}.", only.kind, at.shown()),
                None => format!("1 heap bug found: {}.", only.kind),
            };
        }
        all => return format!("{} heap bugs found.", all.len()),
    }
    let processes = runs.iter().flat_map(|run| &run.processes);
    if let Some(crash) = processes.into_iter().find(|process| process.crashed) {
        let at = crash.crashed_at.as_ref();
        let at = at.map_or_else(String::new, |at| format!(" at {}", at.shown()));
        return format!(
            "{} ({}) ended by {}{at}, and no block of the heap is known to be involved.",
            crash.program, crash.pid, crash.end
        );
    }
    let first = runs.first().and_then(|run| run.processes.first());
    if first.is_some_and(|process| process.checked == Some(false)) {
        return format!("{name} did not run on Mallard, so nothing was checked.");
    }
    let took: Duration = rounds.0.iter().map(|(_, ran)| ran.took).sum();
    let count = match runs.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    format!(
        "No heap bug found in {count} of {name}, which took {:.1} s.",
        took.as_secs_f64()
    )
}

fn notes(rounds: &Rounds, findings: &[Finding], runs: &[doctor::Run], seed: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let mut add = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    if findings.iter().any(|finding| !finding.exact) {
        let twice = if runs.len() > 1 {
            "the second run did not come to the same mistake; --repeat tries again"
        } else {
            "the stacks are those of the call that found it"
        };
        add(format!(
            "the mistake itself was before what is shown: {twice}"
        ));
    }
    for run in runs {
        for process in &run.processes {
            let Process { program, pid, .. } = process;
            if process.checked == Some(false) {
                add(format!(
                    "{program} ({pid}) did not run on Mallard: it was not checked"
                ));
            }
            if process.crashed && !findings.is_empty() {
                add(format!(
                    "{program} ({pid}) ended by {} without a finding",
                    process.end
                ));
            }
        }
        let first = run.processes.first();
        if let Some(first) = first.filter(|it| it.findings == 0 && !it.crashed)
            && first.end != "exit code 0"
        {
            add(format!(
                "{} ({}) ended with {}",
                first.program, first.pid, first.end
            ));
        }
    }
    if rounds.0.iter().any(|(_, ran)| !ran.is_traced) {
        add("the processes were not traced: the bytes around blocks are not known".to_owned());
    }
    if rounds.0.iter().any(|(_, ran)| ran.is_stopped) {
        add("the program was ended before its own end: what it would have done then was not checked".to_owned());
    }
    if seed != 0 {
        add("addresses, the order of threads and the sample of guarded blocks do not follow the seed".to_owned());
    }
    notes
}
