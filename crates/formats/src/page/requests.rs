//! What a reader of the page can ask a process for: a word of
//! [`StatsPage::request`](super::StatsPage).

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Samples from now on, with this mean distance (base-2 logarithm) if one is given.
    Start(Option<u32>),
    Stop,
    /// Returns all free memory to the system.
    Purge,
    /// Writes a profile, where the process's options say.
    Dump,
    /// Gives some requests guarded blocks from now on, or none any more.
    Guard,
    Unguard,
}

const START: u64 = 1;
const STOP: u64 = 2;
const PURGE: u64 = 3;
const DUMP: u64 = 4;
const GUARD: u64 = 5;
const UNGUARD: u64 = 6;

impl Request {
    /// The request of a word; `None` if there is none. The lowest byte is the verb, the next one
    /// its argument.
    pub fn of(word: u64) -> Option<Request> {
        let argument = (word >> 8 & 0xff) as u32;
        Some(match word & 0xff {
            START => Request::Start(argument.checked_sub(1).filter(|&lg| lg < 64)),
            STOP => Request::Stop,
            PURGE => Request::Purge,
            DUMP => Request::Dump,
            GUARD => Request::Guard,
            UNGUARD => Request::Unguard,
            _ => return None,
        })
    }

    /// The word of the request, with a number by which it differs from others.
    pub fn word(self, serial: u64) -> u64 {
        let (verb, argument) = match self {
            Request::Start(lg) => (START, lg.map_or(0, |lg| u64::from(lg) + 1)),
            Request::Stop => (STOP, 0),
            Request::Purge => (PURGE, 0),
            Request::Dump => (DUMP, 0),
            Request::Guard => (GUARD, 0),
            Request::Unguard => (UNGUARD, 0),
        };
        serial << 16 | argument << 8 | verb
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum RequestStatus {
    Done = 0,
    /// The process does not know this request: its library is older.
    Unknown = 1,
    Failed = 2,
}

impl RequestStatus {
    pub fn of(word: u64) -> RequestStatus {
        match word {
            0 => RequestStatus::Done,
            1 => RequestStatus::Unknown,
            _ => RequestStatus::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of another build relies on this.
    #[test]
    fn requests_keep_their_words() {
        assert_eq!(Request::Start(None).word(5), 5 << 16 | 1);
        assert_eq!(Request::Start(Some(16)).word(5), 5 << 16 | 17 << 8 | 1);
        assert_eq!(Request::Stop.word(0), 2);
        assert_eq!(
            Request::Purge.word(0xffff_ffff_ffff_0001),
            0xffff_ffff_0001_0003
        );
        assert_eq!(Request::Dump.word(0), 4);
        assert_eq!(Request::Guard.word(0), 5);
        assert_eq!(Request::Unguard.word(0), 6);
        for answer in [
            RequestStatus::Done,
            RequestStatus::Unknown,
            RequestStatus::Failed,
        ] {
            assert_eq!(RequestStatus::of(answer as u64), answer);
        }
    }

    #[test]
    fn requests_are_read_as_they_are_written_and_others_are_none() {
        let all = [
            Request::Stop,
            Request::Purge,
            Request::Dump,
            Request::Guard,
            Request::Unguard,
        ];
        let starts = (0..64).map(|lg| Request::Start(Some(lg)));
        for request in all.into_iter().chain(starts).chain([Request::Start(None)]) {
            assert_eq!(Request::of(request.word(0xabcd)), Some(request));
        }
        assert_eq!(Request::of(0xff01), Some(Request::Start(None)));
        assert_eq!(Request::of(0), None);
        assert_eq!(Request::of(99), None);
    }
}
