//! Asks a process for something.
//!
//! A request is one word of the page. The process looks at it now and then while it allocates, does
//! what it says, and writes the word again in another place.

use std::thread;
use std::time::{Duration, Instant};

use crate::page;
use crate::process;
use crate::source::Reader;
use crate::{Error, Result};

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Sample allocations from now on, with this mean distance (base-2 logarithm) if one is given.
    Start(Option<u32>),
    Stop,
    /// Return all free memory to the system.
    Purge,
    /// Write a profile, where the process's options say.
    Dump,
}

/// Whether the request may be written into a process's own memory, which requires permission to
/// debug it. The word is in a page that the process keeps for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    SharedOnly,
    WriteMemory,
}

const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Request {
    /// The word of the request, with a number by which it differs from others.
    fn word(self, serial: u64) -> u64 {
        let (verb, argument) = match self {
            Request::Start(lg) => (1, lg.map_or(0, |lg| u64::from(lg) + 1)),
            Request::Stop => (2, 0),
            Request::Purge => (3, 0),
            Request::Dump => (4, 0),
        };
        serial << 16 | argument << 8 | verb
    }
}

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
                return match self.word(page::WORD_ANSWER)? {
                    0 => Ok(()),
                    1 => Err(Error::Unknown(self.pid)),
                    _ => Err(Error::Failed(self.pid)),
                };
            }
            if Instant::now() >= until {
                return Err(Error::NoAnswer(self.pid));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_form_that_the_allocator_reads() {
        assert_eq!(Request::Start(None).word(5) & 0xffff, 1);
        assert_eq!(Request::Start(Some(16)).word(5), 5 << 16 | 17 << 8 | 1);
        assert_eq!(
            Request::Purge.word(0xffff_ffff_ffff_0001),
            0xffff_ffff_0001_0003
        );
    }
}
