//! Descriptors of the allocator's own, which the program does not know.
//!
//! They have high numbers and are closed on `exec`. Programs count on the low numbers, and may
//! close all of them; then a number may be another file's, which [`Descriptor::is_ours`] finds out.
//!
//! These are plain system calls: some of the C library's functions are newer than libraries that we
//! run on, others are cancellation points, and each that is named costs every process an address to
//! relocate.

use core::mem::MaybeUninit;
use mallard_formats::page::DESCRIPTOR_MIN;

/// The least number of a descriptor, and another for processes that may not have so many; readers
/// outside look no lower.
const NUMBERS: [i32; 2] = [900, DESCRIPTOR_MIN];

/// A descriptor, and the file that it was made for. Nothing closes it by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    pub number: i32,
    /// The file's device and number.
    identity: (u64, u64),
}

impl Descriptor {
    pub const NONE: Descriptor = Descriptor {
        number: -1,
        identity: (0, 0),
    };

    /// Moves a new descriptor to a high number. `None`, and `low` is closed, when the system
    /// refuses.
    #[cold]
    #[inline(never)]
    pub fn raise(low: i32) -> Option<Descriptor> {
        let high = |&least: &i32| {
            // SAFETY: the descriptor is ours.
            unsafe {
                asked!(
                    Descriptor or -1,
                    libc::syscall(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, least)
                ) as i32
            }
        };
        let made = (NUMBERS.iter().map(high))
            .find(|&number| number >= 0)
            .map(|number| Descriptor {
                number,
                identity: identity(low).unwrap_or_default(),
            });
        close(low);
        made
    }

    /// An open descriptor that was raised before.
    pub fn of(number: i32) -> Descriptor {
        Descriptor {
            number,
            identity: identity(number).unwrap_or_default(),
        }
    }

    /// The file's number in its file system.
    pub fn file(self) -> u64 {
        self.identity.1
    }

    /// Whether the number is still the file's.
    #[inline(never)]
    pub fn is_ours(self) -> bool {
        identity(self.number) == Some(self.identity)
    }

    /// Closes it, unless the program has.
    #[inline(never)]
    pub fn close(self) {
        if self.is_ours() {
            close(self.number);
        }
    }
}

#[inline(never)]
pub fn close(number: i32) {
    // SAFETY: the descriptor is the caller's.
    unsafe { asked!(Descriptor or -1, libc::syscall(libc::SYS_close, number)) };
}

#[inline(never)]
fn identity(number: i32) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the record in, if it returns 0.
    unsafe {
        if asked!(Descriptor or -1, libc::syscall(libc::SYS_fstat, number, status.as_mut_ptr()))
            != 0
        {
            return None;
        }
        let status = status.assume_init_ref();
        Some((status.st_dev, status.st_ino))
    }
}
