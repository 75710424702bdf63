//! A real program of the suite in a race: it is driven beside each run, and its figures are read.

use std::sync::Mutex;

use mallard_report::model::{Failure, Run};
use mallard_runner::{End, Measurement, Purpose};

use super::super::suite::{Real, Reported, Running, WorkPlace};
use crate::race::{self, Beside, Failed};
use crate::workloads::ANSWER_BYTES_MAX;

/// A real program at work: its folders, and the latest result of its driver.
pub struct Work {
    pub real: &'static dyn Real,
    pub timed: WorkPlace,
    pub counted: WorkPlace,
    driven: Mutex<Result<Reported, String>>,
}

impl Work {
    pub fn new(
        real: &'static dyn Real,
        timed: WorkPlace,
        counted: WorkPlace,
    ) -> Result<Work, String> {
        real.prepare(&timed)?;
        if counted.folder != timed.folder {
            real.prepare(&counted)?;
        }
        Ok(Work {
            real,
            timed,
            counted,
            driven: Mutex::new(Ok(Reported::default())),
        })
    }

    fn place(&self, purpose: Purpose) -> &WorkPlace {
        match purpose {
            Purpose::Cost => &self.timed,
            Purpose::Syscalls => &self.counted,
        }
    }

    pub fn judge(&self, measured: &Measurement) -> Result<Run, Failure> {
        let fail = |reason: String| Err(race::failure(reason, measured));
        let driven = std::mem::replace(&mut *self.lock(), Ok(Reported::default()));
        if measured.end == End::TimedOut {
            return fail(race::NOT_IN_TIME.to_owned());
        }
        let driven = match driven {
            Ok(reported) => reported,
            Err(reason) => return fail(reason),
        };
        match measured.end {
            End::Code(0) => {}
            // The driver may have stopped the server with a signal.
            End::Signal(15) if self.real.is_server() => {}
            _ => return fail("the program failed".to_owned()),
        }
        let reported = if self.real.is_server() {
            driven
        } else {
            let text = measured.stdout.head(ANSWER_BYTES_MAX).unwrap_or_default();
            match self.real.judge(&self.timed, &text) {
                Ok(reported) => reported,
                Err(reason) => return fail(reason),
            }
        };
        let figures = race::figures(measured);
        let seconds = reported.seconds.unwrap_or(figures.seconds);
        let hash = || measured.stdout.sha256.clone();
        Ok(Run {
            seconds,
            ops_per_second: reported.operations.map(|operations| operations / seconds),
            latency: reported.latency,
            peak_rss_bytes: race::peak(measured, reported.rss_bytes_max),
            end_rss_bytes: reported.end_rss_bytes,
            huge_bytes: reported.huge_bytes,
            output_hash: self.real.same_output().then(hash),
            ..figures
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Result<Reported, String>> {
        // Assignments replace the whole value, so a poisoned lock is harmless.
        self.driven
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Beside for Work {
    fn before(&self, purpose: Purpose) -> Result<(), String> {
        self.real.reset(self.place(purpose))
    }

    fn drive(&self, pid: u32, purpose: Purpose) -> Result<(), Failed> {
        if !self.real.is_server() {
            return Ok(());
        }
        let reported = self.real.drive(self.place(purpose), Running { pid });
        let failed = reported.is_err();
        *self.lock() = reported;
        if failed { Err(Failed) } else { Ok(()) }
    }
}
