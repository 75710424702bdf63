//! The system calls, and what the C library knows of the process and the calling thread.
//!
//! `mem` wraps the memory system calls, `mappings` counts borders of mappings, and `memfd` maps
//! memory that other processes can open. `sockets` knows the sockets of the server in the process,
//! and `descriptor` descriptors that the program does not know. `futex` waits for a word of memory
//! to change, `time` reads the clocks by the function that `vdso` finds, `numa` and `cpu` find the
//! NUMA node and the CPU, `tls` finds the calling thread's cache, `errno` preserves the caller's
//! `errno`, `signals` blocks signals, `probe` finds out whether memory can be read, `proc` reads
//! files of `/proc` and `/sys`, `random` has numbers for secrets, and `pin` keeps our object from
//! being unloaded.

pub(super) mod futex;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod cpu;
        pub mod descriptor;
        pub mod errno;
        pub mod mappings;
        pub mod mem;
        pub mod memfd;
        pub mod moves;
        pub mod numa;
        pub mod pin;
        pub mod probe;
        pub mod proc;
        pub mod random;
        pub mod signals;
        pub mod sockets;
        pub mod thp;
        pub mod time;
        pub mod tls;
        mod vdso;
    }
}
