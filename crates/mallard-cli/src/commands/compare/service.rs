//! `mallard compare --service`: a server under its load on every allocator.

use std::process::ExitCode;

use anyhow::Result;
use mallard_report::model::{Experiment, Kind, Row};
use mallard_runner::{Cpus, Spec};
use mallard_service::Service;

use super::{Options, hooks};
use crate::race::runs::Runs;
use crate::race::{self, Beside, Entry, Start, settings};
use crate::service::about_loop;
use crate::service::work::{self, Work};
use crate::session::Session;
use crate::terminal::exit::Interrupted;
use crate::terminal::progress::Spinner;

pub fn run(options: &Options, service: &Service, runs: Runs) -> Result<ExitCode> {
    let label = options.name.as_deref().unwrap_or(&service.name);
    let session = Session::open("compare", label, &options.common, options.conf.as_deref())?;
    options.hooks.set_up()?;
    let work = Work::new(
        service,
        &session.launcher,
        options.subject.seconds(),
        session.cpus.clone(),
    )?;
    let entries: Vec<Entry> = (session.allocators().iter())
        .map(|allocator| Entry {
            allocator: allocator.name.clone(),
            start: match work.spec(allocator, options.conf.as_deref()) {
                Ok(spec) => Start::Run(Box::new(Spec {
                    timeout: options.common.limit(None),
                    ..spec
                })),
                Err(reason) => Start::Impossible(reason),
            },
            counted: None,
        })
        .collect();
    try_first(&work, &session, &entries)?;
    // Every entry has its unmeasured runs, and the trial was one more.
    let mut race = super::begin(options, &session, &entries, runs, &service.name);
    let title = format!("{}: {}", service.name, about(service));
    let row = race::Row {
        what: label,
        entries: &entries,
        peak_bytes: 0,
        weight: 1.0,
        beside: Some(&work as &dyn Beside),
        counting_weight: 0.0,
    };
    let cells = race.row(&row, &mut |_, measured| work.judge(measured));
    race.finish();
    let cleaned = options.hooks.clean_up();
    let experiment = Experiment {
        name: "compare".to_owned(),
        title: title.clone(),
        description: about_loop(service),
        claim: String::new(),
        parameters: Vec::new(),
        axis: "service".to_owned(),
        rows: vec![Row {
            seconds_are: Some(work.seconds_are().to_owned()),
            metrics: work.metrics(),
            ..Row::plain(label.to_owned(), cells)
        }],
    };
    let settings = shown_settings(options, service, runs);
    let closed = session.close(
        &options.common.exports,
        Kind::Compare,
        title,
        settings,
        vec![experiment],
    );
    hooks::ending(closed, None, cleaned)
}

fn about(service: &Service) -> String {
    match service.about.as_str() {
        "" => format!("{}, under {}", service.start.shown(), service.load.shown()),
        about => about.to_owned(),
    }
}

/// Runs the first allocator once before the race: a server that does not start, or a metric that
/// does not match, must not cost a race.
fn try_first(work: &Work, session: &Session, entries: &[Entry]) -> Result<()> {
    let mut runnable = entries.iter().filter_map(|entry| match &entry.start {
        Start::Run(spec) => Some((entry, spec)),
        _ => None,
    });
    let Some((entry, spec)) = runnable.next() else {
        return Ok(());
    };
    let spinner = Spinner::new();
    spinner.show(format!(
        "trying {} on {}",
        work.stage.service.name, entry.allocator
    ));
    let tried = work.once(&session.launcher, spec);
    drop(spinner);
    if session.stop.requested() {
        return Err(Interrupted.into());
    }
    tried.map(drop).map_err(|failure| work::failed(&failure))
}

fn shown_settings(options: &Options, service: &Service, runs: Runs) -> Vec<(String, String)> {
    let common = &options.common;
    let cpus = common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut shown = vec![
        ("start", service.start.shown()),
        ("load", service.load.shown()),
        ("seconds of the load", options.subject.seconds().to_string()),
        (
            "idle before the memory at the end",
            humantime::format_duration(service.settle).to_string(),
        ),
        settings::runs(runs),
        settings::warm_up_runs(options.warmup),
        settings::cpus(&cpus),
    ];
    shown.extend(options.hooks.settings());
    shown.extend(settings::conf(options.conf.as_deref()));
    settings::owned(shown)
}
