//! What the models of loom have in place of the system: threads without numbers, and no time.

pub mod time {
    pub fn now_ns() -> u64 {
        0
    }

    pub fn give_way() {
        loom::thread::yield_now();
    }
}

pub mod tls {
    /// The models check no lock for its owner.
    pub fn thread() -> usize {
        0
    }
}
