//! `mallard replay`: a recording on every allocator.
//!
//! The recording is compiled into a plan ([`mallard_trace::plan`]), which the workload `replay`
//! executes. Allocators take turns as in any [race](crate::race). [`family`] has the rows of the
//! processes that forked from one, and [`fidelity`] says how accurate they were.

mod decay;
mod family;
mod fidelity;
pub mod options;

use std::fs::File;
use std::process::ExitCode;

use anyhow::Result;
use mallard_allocators::program::{self, Program};
use mallard_report::model::{Experiment, Kind, Row};
use mallard_runner::Cpus;
use mallard_trace::Recording;

use crate::race::settings;
use crate::recording::plan::compile;
use crate::recording::processes::{self, Subject};
use crate::recording::{open, warn_of_state};
use crate::session::Session;
use crate::terminal::exit::usage;
use crate::workloads::Workloads;
use family::FamilyReplay;
use options::Options;

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.file;
    if options.program.is_empty() && options.check {
        return Err(usage("--check needs the program after --"));
    }
    let checked = match options.program.first() {
        Some(name) => Some(program::check(&name.to_string_lossy())?),
        None => None,
    };
    let mut recording = open(path)?;
    warn_of_state(path, &recording);
    let wanted = options.process.unwrap_or_default();
    let (replayed, left) = processes::chosen(wanted, path, &mut recording)?;
    let processes: usize = replayed.iter().map(|subject| subject.processes.len()).sum();
    if options.check && processes > 1 {
        return Err(usage(
            "--check is for one process, --process all for several",
        ));
    }
    let label = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    let session = Session::open("replay", &label, &options.common, options.conf.as_deref())?;
    let (rows, descriptions) = rows(
        options,
        &session,
        &mut recording,
        &replayed,
        checked.as_ref(),
    )?;
    let description = descriptions.join(" ") + &processes::left_out(&replayed, &left);
    let experiment = Experiment {
        name: "replay".to_owned(),
        title: format!("replay of {label}"),
        description,
        claim: String::new(),
        parameters: Vec::new(),
        axis: "speed".to_owned(),
        rows,
    };
    let numbers: Vec<String> = replayed.iter().map(|subject| subject.numbers()).collect();
    let settings = settings(options, numbers.join("; "));
    let title = format!("replay {}", path.display());
    session.close(
        &options.common.exports,
        Kind::Bench,
        title,
        settings,
        vec![experiment],
    )
}

/// The rows of each subject, and what a reader should know of them.
fn rows(
    options: &Options,
    session: &Session,
    recording: &mut Recording<File>,
    replayed: &[Subject],
    checked: Option<&Program>,
) -> Result<(Vec<Row>, Vec<String>)> {
    let workloads = Workloads::install(session.launcher.folder())?;
    let processes: usize = replayed.iter().map(|subject| subject.processes.len()).sum();
    let mut rows = Vec::new();
    let mut descriptions = Vec::new();
    for subject in replayed {
        if session.stop.requested() {
            break;
        }
        let family = &subject.family;
        let own = (session.launcher.folder()).join(format!("plan-{}", family.processes[0]));
        let (plan_path, plan) = compile(options.serial, recording, &options.file, family, &own)?;
        let replay = FamilyReplay {
            options,
            session,
            program: workloads.plain("replay"),
            plan_path,
            plan: &plan,
            label: (processes > 1).then(|| subject.label()),
        };
        let description = replay.run(checked, &mut rows)?;
        descriptions.push(description + &subject.apart());
        // The next one may need the room.
        let _ = std::fs::remove_file(&own);
    }
    Ok((rows, descriptions))
}

fn settings(options: &Options, processes: String) -> Vec<(String, String)> {
    let cpus = options.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    settings::owned(vec![
        ("recording", options.file.display().to_string()),
        ("process", processes),
        (
            "threads",
            if options.serial {
                "one, in the recorded order".to_owned()
            } else {
                "as recorded".to_owned()
            },
        ),
        (
            "window",
            options
                .window
                .map_or("as the recording".to_owned(), |window| {
                    format!("{window:?}")
                }),
        ),
        ("touched", format!("{:?}", options.touch).to_lowercase()),
        (
            "subtracted",
            "time and memory of the same replay without an allocator".to_owned(),
        ),
        settings::cpus(&cpus),
    ])
}
