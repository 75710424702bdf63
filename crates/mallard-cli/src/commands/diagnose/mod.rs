//! `mallard diagnose`: whether malloc is a program's bottleneck, and why.
//!
//! [`runs`] runs the program with the probe, [`figures`] computes figures from what was seen, and
//! `mallard_judge` gives the verdict. [`words`] makes sentences of it, and [`next`] the commands to
//! try, which [`trying`] tries.
//! [`observation`] watches a process without the probe: a program that takes none ([`sampling`]),
//! or a [`process`] that runs already.

mod explain;
mod figures;
mod kernel;
mod next;
mod observation;
pub mod options;
mod process;
mod runs;
mod sampling;
mod trying;
mod waits;
mod words;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result};
use mallard_allocators::Error;
use mallard_allocators::program::{self, Program};
use mallard_report::diagnosis::{self, Answer, Diagnosis, Evidence, Figures, SCHEMA, TroubleKey};
use mallard_report::units::{self, percent};
use mallard_runner::{Cpus, End, Launcher, Measurement, Spec, Stop};
use mallard_service::Service;
use mallard_watch::Findings;
use mallard_watch::family::{self, Family, Pool};
use object::{Object, ObjectSymbol};

use crate::options::command_line;
use crate::service;
use crate::service::work::Work;
use crate::session::folder::DIAGNOSIS_FILE;
use crate::session::{self, machine};
use crate::terminal::exit::{CANNOT_TELL, INTERRUPTED, usage};
use crate::terminal::output::{self, say};
use crate::terminal::progress::Spinner;
use explain::explain;
use next::About;
use options::{Options, Way};
use runs::{Runner, Runs};
use words::judge;

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.explain {
        return explain();
    }
    trying::check(options)?;
    if let Some(pid) = options.pid {
        return process::run(options, pid);
    }
    if options.way == Some(Way::Ptrace) {
        return Err(usage(
            "--how ptrace is for processes that run already (--pid)",
        ));
    }
    if let Some(service) = options.subject.service()? {
        return serve(options, &service);
    }
    if let Some(input) = &options.input {
        fs::File::open(input)
            .with_context(|| format!("cannot read {} as standard input", input.display()))?;
    }
    diagnose_program(options)
}

/// Diagnoses a program that ends by itself.
fn diagnose_program(options: &Options) -> Result<ExitCode> {
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    let started = SystemTime::now();
    let stop = session::stop_on_signals()?;
    let launcher = Launcher::new(stop.clone())?;
    let typed = command_line::typed(&options.program);
    let (executable, probe) = checked(&name.to_string_lossy())?;
    let from_outside = |why: Option<String>| {
        let spec = Spec {
            program: match &probe {
                Ok(program) => program.path.clone().into(),
                Err(_) => executable.clone().into(),
            },
            arguments: arguments.to_vec(),
            input: options.input.clone(),
            ..Spec::default()
        };
        let subject = sampling::Subject {
            executable: &executable,
            typed: &typed,
            why,
            pid: None,
            ends: options.duration.is_none(),
        };
        let spinner = Spinner::new();
        spinner.show("watching the program from outside".to_owned());
        sampling::diagnose(&launcher, &stop, &spec, options, &subject)
    };
    let mut d = match &probe {
        Err(problem) => from_outside(Some(format!("The probe cannot be loaded: {problem}.")))?,
        Ok(_) if options.way == Some(Way::Perf) => from_outside(None)?,
        Ok(program) => {
            let runner = Runner {
                launcher: &launcher,
                stop: &stop,
                options,
                program,
                arguments,
                probe: runs::install_probe()?,
                service: None,
            };
            let spinner = Spinner::new();
            let runs = runner.all(&mut |doing| spinner.show(doing.to_owned()))?;
            drop(spinner);
            match diagnose(options, &runs, &typed, &format!("-- {typed}"), program) {
                Ok(d) => d,
                Err(why) => from_outside(Some(why))?,
            }
        }
    };
    d.program.clone_from(&typed);
    if options.tries {
        let program = probe.as_ref().map_or(&executable, |program| &program.path);
        trying(options, &launcher, &stop).program(&mut d, program, arguments)?;
    }
    finish(&mut d, started);
    let shown = show(options, &d, Path::new(name))?;
    Ok(if_not_interrupted(&stop, shown))
}

/// The executable of a program, and the program itself or why it does not take the probe.
fn checked(name: &str) -> Result<(PathBuf, Result<Program, String>)> {
    match program::check(name) {
        Ok(program) => Ok((program.executable.clone(), Ok(program))),
        // What can be run, though without the probe, is watched from outside.
        Err(Error::Program { program, problem }) if program::check_as_is(name).is_ok() => {
            Ok((program, Err(problem)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Diagnoses a server while its load runs.
fn serve(options: &Options, service: &Service) -> Result<ExitCode> {
    if options.input.is_some() || options.way == Some(Way::Perf) {
        return Err(usage("--input and --how perf are for programs"));
    }
    let seconds = options.subject.seconds_within(options.duration)?;
    let started = SystemTime::now();
    let stop = session::stop_on_signals()?;
    let launcher = Launcher::new(stop.clone())?;
    let work = Work::new(service, &launcher, seconds, None)?;
    let named = work.stage.program().unwrap_or_else(|| "sh".into());
    let program = program::check(&named.to_string_lossy())?;
    let runner = Runner {
        launcher: &launcher,
        stop: &stop,
        options,
        program: &program,
        arguments: &[],
        probe: runs::install_probe()?,
        service: Some(&work),
    };
    let spinner = Spinner::new();
    let runs = runner.all(&mut |doing| spinner.show(doing.to_owned()))?;
    drop(spinner);
    let typed = options.subject.typed(service);
    let start = service.start.shown();
    let found = diagnose(options, &runs, &start, &typed, &program);
    let mut d = found.unwrap_or_else(|why| Diagnosis {
        sentence: why,
        ..blank(Figures::default())
    });
    d.notes.push(service::about_loop(service));
    d.program = typed;
    if options.tries {
        trying(options, &launcher, &stop).service(&mut d, &work)?;
    }
    finish(&mut d, started);
    let shown = show(options, &d, Path::new(&service.name))?;
    Ok(if_not_interrupted(&stop, shown))
}

fn trying<'a>(options: &'a Options, launcher: &'a Launcher, stop: &'a Stop) -> trying::Lab<'a> {
    trying::Lab {
        launcher,
        stop,
        options,
    }
}

/// The exit code of a diagnosis that was written, unless the user ended it early.
fn if_not_interrupted(stop: &Stop, code: ExitCode) -> ExitCode {
    if stop.requested() {
        eprintln!("Interrupted: the diagnosis is of what was seen so far.");
        ExitCode::from(INTERRUPTED)
    } else {
        code
    }
}

/// Judges what the runs have shown; an error says why the probe has seen nothing.
fn diagnose(
    options: &Options,
    runs: &Runs,
    typed: &str,
    subject: &str,
    program: &Program,
) -> Result<Diagnosis, String> {
    let executable = program.executable.as_path();
    let (_, found) = runs.observed.last().expect("there is a run");
    if found.total().calls.iter().sum::<u64>() == 0 {
        return Err(not_observed(executable));
    }
    let (mut f, way) = figures::figures(runs, options.way);
    let of_one = f.heaviest.as_ref().map(|one| found.of(one.pid));
    let judged = of_one.as_ref().unwrap_or(found);
    let (family, pool) = name_allocators(&mut f, judged, executable);
    if let Some(one) = &mut f.heaviest
        && is_script(&program.path)
    {
        one.started_by = Some(format!("the script {}", program.path.display()));
    }
    let mut notes = notes(options, runs, &f);
    let mut d = Diagnosis {
        ways: ways(runs, way),
        timeline: figures::timeline(judged),
        ..blank(f)
    };
    let about = About {
        family,
        pool,
        cpus: Cpus::allowed().count(),
        is_replaceable: next::takes_mallard(executable),
        typed,
        subject,
        ends: !runs.ended_by_us,
        pid: None,
    };
    let words = judge(&d.figures, about, || {
        too_few_samples(&d.figures, way, about.cpus)
    });
    d.answer = words.answer;
    d.verdicts = words.verdicts;
    d.bound = words.bound;
    d.troubles = words.troubles;
    d.takes = words.takes;
    d.next = words.next;
    let takes = d.takes.as_ref();
    let is_said = takes.is_some_and(|takes| takes.key == TroubleKey::Pool);
    if let Some(pool) = pool.filter(|_| !is_said) {
        notes.push(format!("{}.", pool.advice));
    }
    d.notes = notes;
    Ok(d)
}

/// Notes the names of the allocator and of the program's own pool, if it has one.
fn name_allocators(f: &mut Figures, found: &Findings, executable: &Path) -> (Family, Option<Pool>) {
    let main = found.main();
    let served = main.map(|image| image.allocator.clone());
    let served = served.unwrap_or_default();
    let family = Family::of_object(&served);
    f.allocator = named(family, &served);
    f.linkage = if served.is_empty() {
        String::new()
    } else {
        "dynamic".to_owned()
    };
    let program = main.map_or(executable.to_string_lossy().into_owned(), |image| {
        image.program.clone()
    });
    let pool = family::pool_of(&program, &found.mapped);
    f.pool = pool.map(|pool| pool.name.to_owned());
    (family, pool)
}

fn too_few_samples(f: &Figures, way: Way, cpus: usize) -> String {
    let why = if way == Way::Proc && cpus == 1 {
        "sampling from outside needs a second CPU"
    } else {
        "the program is too short, or waits too much, to tell"
    };
    format!(
        "Only {} samples of CPU time in {} {}: {why}.",
        f.samples,
        f.runs,
        if f.runs == 1 { "run" } else { "runs" }
    )
}

/// The name of an allocator with its version where the object has it.
fn named(family: Family, served: &str) -> String {
    match family {
        Family::Glibc => {
            let version = glibc_version().unwrap_or_default();
            format!("glibc {version}").trim_end().to_owned()
        }
        Family::Other if served.is_empty() => "not known".to_owned(),
        Family::Other => Path::new(served)
            .file_name()
            .map_or(served.to_owned(), |name| {
                name.to_string_lossy().into_owned()
            }),
        family => {
            let file = Path::new(served)
                .file_name()
                .map(|name| name.to_string_lossy());
            format!("{} ({})", family.name(), file.unwrap_or_default())
        }
    }
}

fn glibc_version() -> Option<String> {
    // SAFETY: returns a static text.
    let text = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(text.to_str().ok()?.to_owned())
}

/// Whether a program has its own malloc, which no probe can precede.
fn brings_malloc(content: &[u8]) -> bool {
    object::File::parse(content).is_ok_and(|file| {
        let mut symbols = file.dynamic_symbols();
        symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok("malloc"))
    })
}

/// Why no call was seen although the probe could be loaded.
fn not_observed(executable: &Path) -> String {
    let content = fs::read(executable).unwrap_or_default();
    if family::is_go(&content) {
        return "This is a Go program: its runtime has an allocator of its own, which no malloc \
                replaces."
            .to_owned();
    }
    if brings_malloc(&content) {
        let family = Family::of_program(&content).map_or("not known", Family::name);
        return format!(
            "The program brings its own malloc ({family}), which no probe can precede."
        );
    }
    "The program called malloc in no process that the probe could observe.".to_owned()
}

fn notes(options: &Options, runs: &Runs, f: &Figures) -> Vec<String> {
    let mut notes = Vec::new();
    let (measured, _) = runs.observed.last().expect("there is a run");
    match measured.end {
        End::Signal(_) if !runs.ended_by_us => {
            notes.push(format!(
                "The program ended by {}: the figures end there.",
                f.exit
            ));
        }
        End::Code(code) if code != 0 => {
            notes.push(format!("The program exits with code {code}."));
            if let Ok(lines) = measured.stderr.last_lines(1) {
                notes.extend(
                    lines
                        .into_iter()
                        .map(|line| format!("Its last line: {line}")),
                );
            }
        }
        End::Stopped => notes.push("Interrupted: the figures end there.".to_owned()),
        _ => {}
    }
    if let Some(reason) = &runs.elsewhere {
        notes.push(format!(
            "The probe’s counters are in a temporary folder: {reason}."
        ));
    }
    notes.extend(of_several(f));
    let (_, found) = runs.observed.last().expect("there is a run");
    notes.extend(left_behind(measured));
    notes.extend(held(found.held_seconds));
    if f.probe_cost.is_some_and(|cost| cost > 0.10) {
        notes.push(
            "The probe cost more than 10 % of CPU time: the times are only an indication."
                .to_owned(),
        );
    }
    if f.end.is_none() && options.duration.is_none() {
        let how = match measured.end {
            End::Code(_) => "The program ended without `exit`",
            _ => "The program did not end by itself",
        };
        notes.push(format!("{how}, so memory at the end is not known."));
    }
    notes
}

/// Whether a program is a script, such as the shims of pyenv and rbenv.
fn is_script(executable: &Path) -> bool {
    let mut start = [0; 2];
    let read = fs::File::open(executable).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Which of several processes is judged.
fn of_several(f: &Figures) -> Option<String> {
    let one = f.heaviest.as_ref()?;
    let shim = one.started_by.as_ref();
    let shim = shim.map_or(String::new(), |shim| format!("It was started by {shim}. "));
    Some(format!(
        "Of {} processes, {} (process {}) takes {} of the CPU time. {shim}The figures are of that \
         process alone, but for system calls and the kinds of page faults, which are of all.",
        one.processes,
        one.program,
        one.pid,
        percent(one.share)
    ))
}

/// What is said of processes that were still there when the program had ended.
fn left_behind(measured: &Measurement) -> Option<String> {
    let names = measured.left.join(", ");
    (!measured.left.is_empty()).then(|| {
        format!(
            "The program has ended and left processes behind ({names}). The lab has ended them, \
             and the figures end there. To watch such a process, start the program without the \
             lab, and use `mallard diagnose --pid PID`."
        )
    })
}

/// What is said of a process that was held for so long.
fn held(seconds: f64) -> Option<String> {
    /// Shorter stops are those of a shell that takes over the terminal.
    const HELD_SECONDS_MIN: f64 = 0.5;
    (seconds >= HELD_SECONDS_MIN).then(|| {
        format!(
            "The process was held for {} by a signal or a debugger: it did nothing meanwhile.",
            units::seconds(seconds)
        )
    })
}

fn ways(runs: &Runs, way: Way) -> Vec<Evidence> {
    let evidence = |what: &str, how: &str| Evidence {
        what: what.to_owned(),
        how: how.to_owned(),
    };
    let share = match way {
        Way::Signals => &format!(
            "timer signals of each thread’s CPU time, {} a second, at which the probe says \
             whether the thread is inside",
            runs::TIMER_HZ
        ),
        Way::Proc | Way::Perf | Way::Ptrace => {
            "the probe’s cells, read a thousand times a second, with the state of threads from \
             /proc"
        }
    };
    let syscalls = match &runs.syscalls {
        Ok(counted) if counted.cut => format!(
            "counted for {:.1} s of a separate run (seccomp)",
            counted.seconds
        ),
        Ok(_) => "counted in a separate run (seccomp)".to_owned(),
        Err(reason) => reason.clone(),
    };
    vec![
        evidence(
            "calls",
            "the probe, before the program’s own allocator: every call, exactly",
        ),
        evidence("CPU share", share),
        evidence(
            "waits",
            "the probe’s cells and /proc, read a thousand times a second",
        ),
        evidence("system calls", &syscalls),
        evidence(
            "page faults",
            "the kernel’s count; again: beyond the pages resident at the peak",
        ),
        runs.faults.way_of_faults(),
        evidence(
            "memory at the end",
            "RSS before and after the allocator’s own purge, at exit",
        ),
    ]
}

/// A diagnosis of these figures without an answer.
fn blank(figures: Figures) -> Diagnosis {
    Diagnosis {
        schema: SCHEMA,
        program: String::new(),
        command: Vec::new(),
        started: String::new(),
        machine: mallard_report::model::Machine::default(),
        answer: Answer::CannotTell,
        sentence: String::new(),
        verdicts: Vec::new(),
        bound: None,
        troubles: Vec::new(),
        takes: None,
        notes: Vec::new(),
        next: Vec::new(),
        tried: None,
        ways: Vec::new(),
        figures,
        timeline: Vec::new(),
    }
}

/// Adds what every diagnosis says of itself.
fn finish(d: &mut Diagnosis, started: SystemTime) {
    d.command = command_line::words();
    d.started = humantime::format_rfc3339_seconds(started).to_string();
    d.machine = machine::describe(&Cpus::allowed());
    if let Some(graver) = d.verdicts.first() {
        d.sentence.clone_from(&graver.sentence);
    }
    d.thin();
}

/// Prints the result and writes the report.
fn show(options: &Options, d: &Diagnosis, name: &Path) -> Result<ExitCode> {
    let folder = options.output.clone().unwrap_or_else(|| {
        let name = name
            .file_name()
            .unwrap_or(name.as_os_str())
            .to_string_lossy()
            .into_owned();
        PathBuf::from("mallard-results").join(format!("diagnose-{name}"))
    });
    let page = folder.join("diagnose.html");
    let write = |path: &Path, text: &str| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot write results to the folder {}", folder.display()))?;
    keep_earlier(&folder);
    write(&page, &diagnosis::page(d))?;
    write(&folder.join(DIAGNOSIS_FILE), &d.json())?;
    if options.json {
        output::text(&d.json())?;
    } else {
        let width = console::Term::stdout()
            .size_checked()
            .map_or(120, |(_, width)| width.into());
        output::text(&diagnosis::text(d, width))?;
        say!("  report    {}", page.display())?;
    }
    Ok(match d.answer {
        Answer::CannotTell | Answer::Perhaps => ExitCode::from(CANNOT_TELL),
        _ => ExitCode::SUCCESS,
    })
}

/// Renames an earlier diagnosis in the folder by the time when it was made, so that both can be
/// compared. One that cannot be read or renamed is overwritten.
fn keep_earlier(folder: &Path) {
    let Ok(made) = fs::metadata(folder.join(DIAGNOSIS_FILE)).and_then(|file| file.modified())
    else {
        return;
    };
    let time = humantime::format_rfc3339_seconds(made).to_string();
    let time = time.replace(':', "-");
    for kind in ["html", "json"] {
        let earlier = folder.join(format!("diagnose-{time}.{kind}"));
        let _ = fs::rename(folder.join(format!("diagnose.{kind}")), earlier);
    }
}
