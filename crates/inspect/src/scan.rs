//! All processes on Mallard, again and again.
//!
//! The mappings of a process are read when it is new or has another name, and once more when it is
//! some seconds old. A process whose page is known costs a few reads.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::process::About;
use crate::snapshot::Snapshot;
use crate::source::Reader;
use crate::source::image::Images;
use crate::{Error, Result};

/// When a process without a page is read again: at first, and at last.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// What a look at a process found.
#[derive(Debug)]
pub struct Found {
    pub about: About,
    /// The statistics, or why there are none though it runs on Mallard or may do so.
    pub snapshot: Result<Snapshot>,
    /// Whether it takes requests without further ado.
    pub is_shared: bool,
}

#[derive(Debug)]
struct Known {
    about: About,
    reader: Option<Reader>,
    /// When to look for a page again, and how long to wait then.
    next: Instant,
    pause: Duration,
    /// Whether the last look found that it runs on Mallard.
    on_mallard: bool,
}

/// Finds processes.
#[derive(Debug, Default)]
pub struct Scanner {
    images: Images,
    known: HashMap<u32, Known>,
}

impl Scanner {
    /// Looks at these processes, or at all of them. Those not on Mallard are left out.
    pub fn scan(&mut self, wanted: Option<&[u32]>) -> Vec<Found> {
        let pids = wanted.map_or_else(mallard_procfs::all, <[u32]>::to_vec);
        self.images.limit();
        let mut found: Vec<Found> = pids.iter().filter_map(|&pid| self.look(pid)).collect();
        found.sort_by_key(|found| found.about.identity.pid);
        let is_left = |pid: &u32, _: &mut Known| pids.contains(pid);
        if self.known.len() > pids.len() {
            self.known.retain(is_left);
        }
        found
    }

    fn look(&mut self, pid: u32) -> Option<Found> {
        let Some(about) = About::of(pid) else {
            self.known.remove(&pid);
            return None;
        };
        let now = Instant::now();
        let known = self
            .known
            .entry(pid)
            .or_insert_with(|| Known::new(&about, now));
        let is_other = known.about.identity != about.identity || known.about.name != about.name;
        if is_other {
            *known = Known::new(&about, now);
        }
        known.about = about.clone();
        let snapshot = known.snapshot(&mut self.images, now)?;
        Some(Found {
            about,
            snapshot,
            is_shared: known.reader.as_ref().is_some_and(Reader::is_shared),
        })
    }

    /// The reader of a process that was found.
    pub fn reader(&self, pid: u32) -> Option<&Reader> {
        self.known.get(&pid)?.reader.as_ref()
    }
}

impl Known {
    fn new(about: &About, now: Instant) -> Known {
        Known {
            about: about.clone(),
            reader: None,
            next: now,
            pause: RETRY_INTERVAL,
            on_mallard: false,
        }
    }

    /// The statistics; `None` if the process is not on Mallard, or not known to be.
    fn snapshot(&mut self, images: &mut Images, now: Instant) -> Option<Result<Snapshot>> {
        let pid = self.about.identity.pid;
        if let Some(reader) = &self.reader {
            match reader.read() {
                Err(Error::Gone(_)) => return None,
                // It runs another program, or made another page.
                Err(Error::NoPage(_)) => {
                    self.reader = None;
                    self.next = now;
                }
                read => return Some(read),
            }
        }
        if now < self.next {
            return self.on_mallard.then_some(Err(Error::NoPage(pid)));
        }
        self.next = now + self.pause;
        let opened = Reader::open(pid, images);
        self.on_mallard = matches!(opened, Ok(_) | Err(Error::NoPage(_)));
        if !self.on_mallard {
            self.pause = (2 * self.pause).min(RETRY_INTERVAL_MAX);
        }
        match opened {
            Ok(reader) => {
                let read = reader.read();
                self.reader = Some(reader);
                Some(read)
            }
            Err(error @ (Error::NoPage(_) | Error::Refused(_))) => Some(Err(error)),
            Err(_) => None,
        }
    }
}
