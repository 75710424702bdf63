//! The way to end a session early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

/// A request to stop, shared between whoever hears it (a signal handler's thread) and whoever
/// measures. Clones are the same request.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requested: AtomicBool,
    /// The launcher that is waiting for a measured process now.
    running: Mutex<Option<Pid>>,
}

impl Stop {
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Ends the measured process that is running and lets no other start.
    pub fn request(&self) {
        // Under the lock: a process that is just being started is either seen here or sees this.
        let running = self.lock();
        self.0.requested.store(true, Ordering::Release);
        if let Some(launcher) = *running {
            // It has ended by itself; then there is nothing to do.
            let _ = kill_process(launcher, Signal::TERM);
        }
    }

    /// Starts a process unless a stop was requested, and remembers it until [`Stop::ended`].
    pub(crate) fn started<T>(
        &self,
        start: impl FnOnce() -> std::io::Result<(T, u32)>,
    ) -> std::io::Result<Option<T>> {
        let mut running = self.lock();
        if self.requested() {
            return Ok(None);
        }
        let (process, id) = start()?;
        *running = i32::try_from(id).ok().and_then(Pid::from_raw);
        Ok(Some(process))
    }

    pub(crate) fn ended(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Pid>> {
        // The value is a plain number, whole at any time.
        self.0
            .running
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}
