//! Builds the peers of `bench/peers` on first use and finds the system's packages.

/// A step on the way from a name to an allocator, for a line on the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    pub allocator: &'a str,
    pub state: State,
    /// The latest line of the build's output, or the reason of a failure; may be empty.
    pub line: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Building,
    Probing,
    Ready,
    Unavailable,
}
