//! Asks a process for something.
//!
//! A request is one word of the page. The process looks at it now and then while it allocates, does
//! what it says, and writes the word again in another place.

use std::thread;
use std::time::{Duration, Instant};

use mallard_formats::page::{self, RequestStatus};

use crate::process;
use crate::source::Reader;
use crate::{Error, Result};

/// What to ask for.
pub use mallard_formats::page::Request;

/// Whether the request may be written into a process's own memory, which requires permission to
/// debug it. The word is in a page that the process keeps for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    SharedOnly,
    WriteMemory,
}

const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Reader {
    /// Asks the process and waits for its answer, for as long as `patience` says.
    ///
    /// # Errors
    /// The process cannot be asked, did not answer or could not do it.
    pub fn ask(&self, request: Request, consent: Consent, patience: Duration) -> Result<()> {
        if !self.is_shared() && consent == Consent::SharedOnly {
            return Err(Error::NeedsConsent(self.pid));
        }
        // Checks that this is a page of a layout that is known.
        self.words()?;
        let until = Instant::now() + patience;
        // Another reader's request comes first.
        while self.word(page::WORD_REQUEST)? != self.word(page::WORD_DONE)?
            && Instant::now() < until
        {
            thread::sleep(POLL_INTERVAL);
        }
        let word = request.word(process::now_ns() ^ u64::from(std::process::id()) << 32);
        let written = self.write(page::WORD_REQUEST, word);
        written.map_err(|error| Error::of(self.pid, error))?;
        loop {
            if self.word(page::WORD_DONE)? == word {
                return match RequestStatus::of(self.word(page::WORD_ANSWER)?) {
                    RequestStatus::Done => Ok(()),
                    RequestStatus::Unknown => Err(Error::Unknown(self.pid)),
                    RequestStatus::Failed => Err(Error::Failed(self.pid)),
                };
            }
            if Instant::now() >= until {
                return Err(Error::NoAnswer(self.pid));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}
