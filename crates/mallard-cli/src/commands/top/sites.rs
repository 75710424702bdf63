//! The code that holds a process's memory, as the details show it.
//!
//! Reading a profile takes milliseconds, but finding the names of a large program takes seconds the
//! first time. A thread does both, so that the screen stays responsive.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use mallard_profile::model::Profile;
use mallard_profile::names;
use mallard_profile::process::Error;
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, Row, rows};

use crate::processes::figures::{bytes, count, percent};
use crate::profiles::source::{self, Names};

/// The time between the end of a look and the next one.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// What is known of the sites of one process.
#[derive(Debug)]
pub struct Sites {
    pid: u32,
    lines: Vec<String>,
    names: Names,
    /// A look that a thread is at.
    pending: Option<Receiver<Look>>,
    next: Instant,
}

type Look = (Result<Profile, Error>, Names);

impl Sites {
    pub fn of(pid: u32) -> Sites {
        Sites {
            pid,
            lines: vec![heading(), "reading the profile".to_owned()],
            names: Names::default(),
            pending: None,
            next: Instant::now(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The lines as far as they are known; the first is a heading. Begins a further look when the
    /// last one is old.
    pub fn lines(&mut self) -> &[String] {
        if let Some(pending) = &self.pending {
            match pending.try_recv() {
                Ok((read, names)) => {
                    self.lines = match read {
                        Ok(profile) => lines(&profile),
                        Err(error) => vec![heading(), error.to_string()],
                    };
                    self.names = names;
                    self.pending = None;
                    self.next = Instant::now() + LOOK_INTERVAL;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.pending = None,
            }
        }
        if self.pending.is_none() && Instant::now() >= self.next {
            self.begin();
        }
        &self.lines
    }

    fn begin(&mut self) {
        let (sender, receiver) = mpsc::channel();
        let (pid, mut names) = (self.pid, std::mem::take(&mut self.names));
        let look = move || {
            let read = source::running(pid, &names::Options::default(), &mut names, None);
            // The screen may show another process by now.
            let _ = sender.send((read, names));
        };
        let begun = thread::Builder::new().name("sites".to_owned()).spawn(look);
        match begun {
            Ok(_) => self.pending = Some(receiver),
            Err(error) => self.lines = vec![heading(), error.to_string()],
        }
    }
}

fn heading() -> String {
    format!(
        "{:>7} {:>5} {:>7} {:>7}  {}",
        "LIVE", "%", "BLOCKS", "AVG", "SITE"
    )
}

fn lines(profile: &Profile) -> Vec<String> {
    let mut lines = vec![heading()];
    let figures = match View::Live.figures(profile) {
        Ok(figures) => figures,
        Err(error) => {
            lines.push(error.to_string());
            return lines;
        }
    };
    let rows = rows(profile, figures, By::Function);
    let all: i128 = rows.iter().map(|row| row.main(figures)).sum();
    lines.extend(rows.iter().map(|row| {
        let (main, blocks) = (row.main(figures), row.blocks(figures));
        format!(
            "{:>7} {:>5} {:>7} {:>7}  {}",
            bytes(u64::try_from(main).unwrap_or(0)),
            percent(main as f64 / all.max(1) as f64),
            blocks.map_or_else(String::new, |blocks| count(blocks as f64)),
            row.average(figures)
                .map_or_else(String::new, |average| bytes(average as u64)),
            site(row),
        )
    }));
    if rows.is_empty() {
        lines.push("no sample is live".to_owned());
    }
    lines
}

/// The function, and where it is.
fn site(row: &Row) -> String {
    let place = row.heaviest.site.as_ref();
    match place.filter(|place| place.line > 0) {
        Some(place) => format!("{}  {}:{}", row.key, place.file, place.line),
        None => row.key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_no_profile_is_a_line() {
        let mut sites = Sites::of(u32::MAX);
        let begun = Instant::now();
        while sites.lines()[1] == "reading the profile" {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
        let why = format!("there is no process {}", u32::MAX);
        assert_eq!(sites.lines(), [heading(), why]);
    }
}
