//! Ends a session early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

/// A request to stop, shared by the thread that receives it, such as that of a signal handler, and
/// the one that measures. Clones refer to the same request.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requested: AtomicBool,
    /// The launchers that are waiting for a process now: the measured one, and its load.
    running: Mutex<Vec<Pid>>,
}

impl Stop {
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Ends the running measured processes and prevents any other from starting.
    pub fn request(&self) {
        // Holding the lock ensures that a process being started either is seen here or sees this.
        let running = self.lock();
        self.0.requested.store(true, Ordering::Release);
        for launcher in &*running {
            // The launcher may have ended on its own; then there is nothing to do.
            let _ = kill_process(*launcher, Signal::TERM);
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
        running.extend(pid(id));
        Ok(Some(process))
    }

    pub(crate) fn ended(&self, id: u32) {
        self.lock().retain(|launcher| Some(*launcher) != pid(id));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Pid>> {
        // No step that changes the list can panic halfway.
        self.0
            .running
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}
