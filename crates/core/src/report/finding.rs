//! What there is to tell about a misuse.

use crate::prof::callers::{self, Site};

/// What found a misuse, which says what the present stack is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// The access itself.
    Access,
    /// The free that is the misuse, or that found damage.
    Free,
    /// A check of a later moment, in whatever call that was.
    Check,
}

impl FoundBy {
    pub fn name(self) -> &'static str {
        match self {
            FoundBy::Access => "access",
            FoundBy::Free => "free",
            FoundBy::Check => "check",
        }
    }
}

/// Something that is wrong with a block, or with an address.
pub struct Finding<'a> {
    /// What the report calls it.
    pub kind: &'a str,
    pub found_by: FoundBy,
    /// The address that was accessed or given to a call.
    pub at: usize,
    /// The block that it is about, if that is known.
    pub block: Option<Block>,
    /// What is not as it should be.
    pub damage: Option<Damage>,
    pub allocated: Event<'a>,
    pub freed: Event<'a>,
}

#[derive(Clone, Copy)]
pub struct Block {
    pub at: usize,
    /// What the program asked for.
    pub size: usize,
    /// Where it lies in its pages, if that is of interest: `, at the end of its pages`.
    pub place: &'static str,
}

#[derive(Clone, Copy)]
pub struct Damage {
    /// The first byte, from the beginning of the block on.
    pub offset: isize,
    pub bytes: usize,
}

/// Where something happened to the block.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    /// The system's number of the thread; 0 if it is not known.
    pub thread: u32,
    /// The return addresses, the innermost first.
    pub frames: &'a [usize],
}

impl Event<'_> {
    /// It did not happen, or nothing is known of it.
    pub const NONE: Event<'static> = Event {
        thread: 0,
        frames: &[],
    };

    pub fn of_site(site: Site) -> Event<'static> {
        Event {
            thread: 0,
            frames: callers::stack(site),
        }
    }

    pub fn is_known(&self) -> bool {
        self.thread != 0 || !self.frames.is_empty()
    }
}
