//! Programs that take no probe: static ones, setuid ones, those of another C library or with a
//! malloc of their own. The kernel's samples and the names in the program's files show what share
//! of its time is the allocator's. `--how perf` asks for the same for any program.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use mallard_judge::diagnose::thresholds::{SAMPLES_MIN, WANTED_SAMPLES};
use mallard_procfs::about;
use mallard_report::diagnosis::{Diagnosis, Evidence, Figures, TroubleKey};
use mallard_runner::{Cpus, Launcher, Measurement, Purpose, Spec, Stop};
use mallard_watch::family::{self, Family};
use mallard_watch::perf::{Samples, What};

use super::figures::PageFaults;
use super::kernel::Kernel;
use super::next::About;
use super::observation::{Eyes, Seen, watch};
use super::options::Options;
use super::words::judge;
use super::{figures, named, runs};

/// What is known of a program before it runs.
pub struct Subject<'a> {
    pub executable: &'a Path,
    pub typed: &'a str,
    /// Why it takes no probe; none if the user asked for none.
    pub why: Option<String>,
    /// The process, if it runs already.
    pub pid: Option<u32>,
    /// Whether it ends by itself.
    pub ends: bool,
}

impl Subject<'_> {
    /// Whether the program sees the same files as this command, and not those of a container.
    fn has_our_files(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let root = |path: &Path| fs::metadata(path).ok().map(|root| (root.dev(), root.ino()));
        let Some(pid) = self.pid else {
            return true;
        };
        root(&mallard_procfs::path(pid, "root")) == root(Path::new("/"))
    }
}

pub fn diagnose(
    launcher: &Launcher,
    stop: &Stop,
    spec: &Spec,
    options: &Options,
    subject: &Subject<'_>,
) -> Result<Diagnosis> {
    let begun = Instant::now();
    let (mut measured, mut seen) = one(launcher, stop, spec, options)?;
    let mut f = times(&measured);
    let more = !options.quick && options.duration.is_none();
    while more
        && seen.refused.is_none()
        && seen.samples() < WANTED_SAMPLES
        && f.runs < runs::RUNS_MAX
        && runs::has_time(begun, f.runs, measured.wall)
        && !stop.requested()
    {
        let (again, also) = one(launcher, stop, spec, options)?;
        seen.add(also);
        measured = again;
        let runs = f.runs;
        let mean = |sum: f64, next: f64| (sum * f64::from(runs) + next) / f64::from(runs + 1);
        f.wall_seconds = mean(f.wall_seconds, measured.wall.as_secs_f64());
        f.user_seconds = mean(f.user_seconds, measured.user.as_secs_f64());
        f.system_seconds = mean(f.system_seconds, measured.system.as_secs_f64());
        f.runs += 1;
    }
    f.processes = 1;
    f.faults = measured.minor_faults + measured.major_faults;
    let page_faults = PageFaults {
        count: f.faults,
        peak_rss: f.peak_rss,
        peaks: &[],
        images: 1,
        cpu: (measured.user.as_secs_f64(), measured.system.as_secs_f64()),
    };
    page_faults.figures(&mut f);
    seen.shares(&mut f);
    let mut d = verdict(f, seen, subject);
    d.notes.extend(super::left_behind(&measured));
    Ok(d)
}

fn times(measured: &Measurement) -> Figures {
    Figures {
        runs: 1,
        wall_seconds: measured.wall.as_secs_f64(),
        user_seconds: measured.user.as_secs_f64(),
        system_seconds: measured.system.as_secs_f64(),
        exit: figures::ended(measured.end),
        page_bytes: figures::page_bytes(),
        peak_rss: measured.peak_rss_bytes,
        ..Figures::default()
    }
}

fn one(
    launcher: &Launcher,
    stop: &Stop,
    spec: &Spec,
    options: &Options,
) -> Result<(Measurement, Seen)> {
    let until = options.duration.map(|duration| Instant::now() + duration);
    let eyes = Eyes {
        samples: Samples::of_children(What::Time),
        stops: false,
        kernel: Kernel::of_children(),
        page: None,
    };
    let beside = |pid: u32| -> Result<Box<Seen>, Box<Seen>> {
        let late = || until.is_some_and(|until| Instant::now() >= until);
        let seen = Box::new(watch(pid, eyes, || late() || stop.requested()));
        // An error has the launcher kill what does not end by itself.
        if !late() || runs::ends(pid) {
            Ok(seen)
        } else {
            Err(seen)
        }
    };
    let (measured, seen) = launcher.run_beside(spec, Purpose::Cost, beside)?;
    Ok((measured, *seen.unwrap_or_else(|seen| seen)))
}

/// Judges what was seen from outside, of a program or of a process that runs already.
pub fn verdict(mut f: Figures, seen: Seen, subject: &Subject<'_>) -> Diagnosis {
    let family = allocator(&mut f, subject, &seen.mapped);
    let pool = family::pool_of(&subject.executable.to_string_lossy(), &seen.mapped);
    f.pool = pool.map(|pool| pool.name.to_owned());
    let about = About {
        family,
        pool,
        cpus: Cpus::allowed().count(),
        is_replaceable: f.linkage != "static",
        typed: subject.typed,
        subject: &format!("-- {}", subject.typed),
        ends: subject.ends,
        pid: subject.pid,
    };
    let mut judged = judge(&f, about, || cannot_tell(&f, &seen, subject));
    if f.samples >= SAMPLES_MIN && f.inside.is_none() {
        // What is not known to be the allocator's is not known to be the program's either.
        judged.takes = None;
    }
    let mut notes = Vec::new();
    if let Some(why) = &subject.why {
        notes.push(format!("{why} It was watched from outside."));
    }
    let takes = judged.takes.as_ref();
    let is_said = takes.is_some_and(|takes| takes.key == TroubleKey::Pool);
    if let Some(pool) = pool.filter(|_| !is_said) {
        notes.push(format!("{}.", pool.advice));
    }
    notes.extend(super::held(seen.held_seconds));
    let evidence = |what: &str, how: String| Evidence {
        what: what.to_owned(),
        how,
    };
    let mut ways = vec![
        evidence("CPU share", seen.how()),
        evidence(
            "waits",
            "/proc, read a hundred times a second, with the stacks of threads that wait".to_owned(),
        ),
        evidence(
            "page faults",
            "the kernel’s count; again: beyond the growth of resident pages".to_owned(),
        ),
    ];
    ways.extend(seen.kernel.ways());
    Diagnosis {
        answer: judged.answer,
        verdicts: judged.verdicts,
        bound: judged.bound,
        troubles: judged.troubles,
        takes: judged.takes,
        notes,
        next: judged.next,
        ways,
        timeline: seen.timeline,
        ..super::blank(f)
    }
}

/// Why there is no answer.
fn cannot_tell(f: &Figures, seen: &Seen, subject: &Subject<'_>) -> String {
    let cpus = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    if let Some(pid) = subject
        .pid
        .filter(|_| seen.held_seconds * 2.0 >= seen.seconds)
    {
        return held_by(pid);
    }
    match &seen.refused {
        Some(reason) => format!(
            "The program uses {cpus:.1} CPUs, but what share of that is malloc’s is not known: \
             {reason}.{}",
            match subject.pid {
                Some(pid) if seen.stops.is_none() => format!(
                    " `mallard diagnose --how ptrace --pid {pid}` stops its running threads for \
                     a moment instead."
                ),
                _ => String::new(),
            }
        ),
        None if seen.samples() >= SAMPLES_MIN && !seen.has_allocator => {
            "No function of the program has the name of an allocator’s: it is stripped, or brings \
             a malloc that this command does not know."
                .to_owned()
        }
        None => format!(
            "Only {} samples of CPU time in {:.1} s: the program is too short, or waits too much, \
             to tell.",
            seen.samples(),
            f.wall_seconds * f64::from(f.runs)
        ),
    }
}

/// What holds a process that did nothing for most of the time.
fn held_by(pid: u32) -> String {
    match about::tracer(pid) {
        Some(tracer) => format!(
            "The process is held by {} (process {tracer}), a debugger: it does nothing until that \
             lets it go on.",
            about::name(tracer).unwrap_or_default()
        ),
        None => format!(
            "The process was stopped by a signal: it does nothing until `kill -CONT {pid}`."
        ),
    }
}

/// Names the allocator, by the files that are loaded and by texts in the program.
fn allocator(f: &mut Figures, subject: &Subject<'_>, mapped: &[String]) -> Family {
    let of =
        |wanted: fn(Family) -> bool| mapped.iter().find(|file| wanted(Family::of_object(file)));
    let served = of(|family| !matches!(family, Family::Other | Family::Glibc));
    let libc = of(|family| family == Family::Glibc);
    if mapped.is_empty() {
        // It ended before it could be looked at.
        f.allocator = "not known".to_owned();
        return Family::Other;
    }
    // The link leads to the file itself, also from a container.
    let file = match subject.pid {
        Some(pid) => mallard_procfs::path(pid, "exe"),
        None => subject.executable.to_owned(),
    };
    let content = fs::read(file).unwrap_or_default();
    let named = |family, object: &str| match family {
        Family::Glibc if !subject.has_our_files() => family.name().to_owned(),
        _ => named(family, object),
    };
    let (name, linkage, family) = match (served, libc) {
        (Some(object), _) => {
            let family = Family::of_object(object);
            (named(family, object), "dynamic", family)
        }
        _ if family::is_go(&content) => ("Go’s own".to_owned(), "static", Family::Other),
        (None, libc) => match (super::brings_malloc(&content), libc) {
            (false, Some(object)) => (named(Family::Glibc, object), "dynamic", Family::Glibc),
            (_, libc) => {
                let family = Family::of_program(&content).unwrap_or(Family::Other);
                let name = match family {
                    Family::Other => "not known",
                    family => family.name(),
                };
                let musl = mapped.iter().find(|file| file.contains("/ld-musl-"));
                let linkage = match (libc, musl) {
                    (Some(_), _) => "the program’s own",
                    (None, Some(_)) => "dynamic",
                    (None, None) => "static",
                };
                let name = match (family, musl) {
                    (Family::Other, Some(_)) => "musl",
                    _ => name,
                };
                (name.to_owned(), linkage, family)
            }
        },
    };
    f.allocator = name;
    f.linkage = linkage.to_owned();
    family
}
