//! What comes out of a walk: frames, and how it ended.

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With a frame that has no caller: `main`'s, a thread's or a fiber's first.
    Complete,
    /// At memory that cannot be read.
    Unreadable,
    /// With a step that leads down or too far, or to what is not code.
    Astray,
    /// At a table that makes no sense.
    BrokenTable,
    /// At a frame whose caller depends on registers that are not known.
    Unknown,
    /// There were more frames than a walk may have.
    TooMany,
}

/// The outcome of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// How many entries of the caller's memory were filled.
    pub frames: usize,
    /// Frames that [`OMITTED`] stands for.
    pub omitted: usize,
    pub end: End,
}

/// Stands, in the middle of a stack with more frames than there is room for, for those left out.
pub const OMITTED: usize = usize::MAX;

/// The most frames of which a walk notes where they are.
pub const NOTED_MAX: usize = 24;

/// A frame that a walk has met: the address that the call in it returns to, and its stack pointer
/// behind that call.
#[derive(Clone, Copy, Default)]
pub struct NotedFrame {
    pub pc: usize,
    pub sp: usize,
}

/// The first frames of a walk.
pub struct Noted {
    frames: [NotedFrame; NOTED_MAX],
    len: usize,
}

impl Noted {
    pub fn new() -> Noted {
        Noted {
            frames: [NotedFrame { pc: 0, sp: 0 }; NOTED_MAX],
            len: 0,
        }
    }

    /// The innermost first.
    pub fn frames(&self) -> &[NotedFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }

    #[cold]
    #[inline(never)]
    fn note(&mut self, pc: usize, sp: usize) {
        if let Some(place) = self.frames.get_mut(self.len) {
            *place = NotedFrame { pc, sp };
            self.len += 1;
        }
    }
}

/// The frames of a walk: those of both ends, if there is no room for all.
pub struct Frames<'a> {
    out: &'a mut [usize],
    met: usize,
    noted: Option<&'a mut Noted>,
}

impl<'a> Frames<'a> {
    pub fn new(out: &'a mut [usize], noted: Option<&'a mut Noted>) -> Frames<'a> {
        Frames { out, met: 0, noted }
    }

    /// Entries before the one that stands for those left out.
    #[inline(always)]
    fn first(&self) -> usize {
        self.out.len() / 2
    }

    #[inline(always)]
    pub fn push(&mut self, frame: usize, sp: usize) {
        if let Some(noted) = &mut self.noted {
            noted.note(frame, sp);
        }
        let mut place = self.met;
        self.met += 1;
        if place >= self.out.len() {
            // The second half is a ring.
            let behind = self.first() + 1;
            let ring = self.out.len().saturating_sub(behind);
            if ring == 0 {
                return;
            }
            place = behind + (place - behind) % ring;
        }
        if let Some(place) = self.out.get_mut(place) {
            *place = frame;
        }
    }

    pub fn finish(self, end: End) -> Walk {
        let (room, behind) = (self.out.len(), self.first() + 1);
        let ring = room.saturating_sub(behind);
        let mut omitted = self.met.saturating_sub(room);
        if omitted > 0 && ring > 0 {
            let oldest = (self.met - behind) % ring;
            let ring = &mut self.out[behind..];
            // A rotation, without the memory that the library's takes.
            ring[..oldest].reverse();
            ring[oldest..].reverse();
            ring.reverse();
            self.out[behind - 1] = OMITTED;
            omitted += 1;
        }
        Walk {
            frames: self.met.min(room),
            omitted,
            end,
        }
    }
}
