//! One call of `mallctl`: where the old value goes, where the new one comes from, and the rules for
//! both.
//!
//! The rules are jemalloc's. Without room for it (`oldp` or `oldlenp` null) the old value is not
//! returned. With room of the wrong length, as much of it is copied as fits, `*oldlenp` says how
//! much, and the call fails with `EINVAL`. A new value of the wrong length is `EINVAL`, which is
//! detected before anything is returned or changed. A write to a read-only name, or a read of a
//! write-only one, is `EPERM`.

use super::access::{Access, At, Mode};
use super::{CtlResult, Error};
use core::ffi::{CStr, c_char, c_void};

/// The arguments of a call of `mallctl`.
pub struct Request {
    old: *mut u8,
    old_len: *mut usize,
    new: *const u8,
    new_len: usize,
}

/// A C type of values.
///
/// # Safety
/// The type has no padding.
pub unsafe trait CType: Copy {
    /// # Safety
    /// `from` points to a value of this type in C, aligned or not.
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise; all bit patterns are valid for every type but `bool`.
        unsafe { from.cast::<Self>().read_unaligned() }
    }
}

// SAFETY: one byte.
unsafe impl CType for bool {
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise. A byte that is neither 0 nor 1 must not become a bool.
        unsafe { from.read() != 0 }
    }
}

macro_rules! c_types {
    ($($type:ty)*) => {$(
        // SAFETY: numbers and pointers have no padding.
        unsafe impl CType for $type {}
    )*};
}
// SAFETY: an array has no padding if its elements have none.
unsafe impl<const N: usize> CType for [usize; N] {}
c_types! { u32 usize isize u64 i64 *const c_char *mut u64 *mut c_void }

/// A reader's result, convertible to a C type.
pub trait Told {
    type C: CType;
    fn c(self) -> Self::C;
}

impl<T: CType> Told for T {
    type C = T;
    fn c(self) -> T {
        self
    }
}

impl Told for &'static CStr {
    type C = *const c_char;
    fn c(self) -> *const c_char {
        self.as_ptr()
    }
}

impl Request {
    /// # Safety
    /// Each of `old_len`, `old` (for `*old_len` bytes) and `new` (for `new_len` bytes) is null or
    /// valid, and the value at `new` is what the name expects. If the name discards blocks
    /// (`arena.<i>.reset` and `destroy`), they are no longer in use.
    pub unsafe fn new(
        old: *mut c_void,
        old_len: *mut usize,
        new: *const c_void,
        new_len: usize,
    ) -> Self {
        Request {
            old: old.cast(),
            old_len,
            new: new.cast(),
            new_len,
        }
    }

    /// Whether the caller wants the old value.
    pub fn is_read(&self) -> bool {
        !self.old.is_null() && !self.old_len.is_null()
    }

    /// Whether the caller gives a new value.
    pub fn is_write(&self) -> bool {
        !self.new.is_null()
    }

    /// Refuses a request that this mode does not allow.
    pub fn allow(&self, mode: Mode) -> CtlResult<()> {
        let reads = !self.old.is_null() || !self.old_len.is_null();
        let writes = !self.new.is_null() || self.new_len != 0;
        match mode {
            Mode::ReadOnly if writes => Err(Error::NotPermitted),
            Mode::WriteOnly if reads => Err(Error::NotPermitted),
            Mode::Neither if reads || writes => Err(Error::NotPermitted),
            _ => Ok(()),
        }
    }

    /// Refuses to read and write in one call.
    pub fn allow_one_of_both(&self) -> CtlResult<()> {
        let writes = !self.new.is_null() || self.new_len != 0;
        if self.is_read() && writes {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Returns the value to the caller, if it wants it.
    pub fn answer<T: CType>(&mut self, value: T) -> CtlResult<()> {
        self.answer_bytes((&raw const value).cast(), size_of::<T>())
    }

    #[inline(never)]
    fn answer_bytes(&mut self, value: *const u8, len: usize) -> CtlResult<()> {
        if !self.is_read() {
            return Ok(());
        }
        // SAFETY: not null, so valid by the promise of `new`.
        let room = unsafe { self.old_len.read_unaligned() };
        let copied = len.min(room);
        // SAFETY: `room` bytes can be written by the promise of `new`; the value has `len`.
        unsafe { core::ptr::copy_nonoverlapping(value, self.old, copied) };
        if room == len {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.old_len.write_unaligned(copied) };
        Err(Error::Invalid)
    }

    /// Refuses, before anything is done, a call without correct room for the result.
    pub fn must_read<T: CType>(&mut self) -> CtlResult<()> {
        self.must_read_bytes(size_of::<T>())
    }

    fn must_read_bytes(&mut self, len: usize) -> CtlResult<()> {
        // SAFETY: not null if it is read, so valid by the promise of `new`.
        let fits = self.is_read() && unsafe { self.old_len.read_unaligned() } == len;
        if !fits && !self.old_len.is_null() {
            // SAFETY: not null, so valid by the promise of `new`.
            unsafe { self.old_len.write_unaligned(0) };
        }
        fits.then_some(()).ok_or(Error::Invalid)
    }

    /// The bytes that the caller put in the old value's place, for names that read them.
    pub fn old<T: CType>(&self) -> CtlResult<Option<T>> {
        if !self.is_read() {
            return Ok(None);
        }
        // SAFETY: not null, so valid by the promise of `new`, for this many bytes.
        unsafe {
            if self.old_len.read_unaligned() == size_of::<T>() {
                Ok(Some(T::load(self.old)))
            } else {
                Err(Error::Invalid)
            }
        }
    }

    /// The new value, if given.
    pub fn given<T: CType>(&self) -> CtlResult<Option<T>> {
        if self.new.is_null() {
            return Ok(None);
        }
        if self.new_len != size_of::<T>() {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, so valid by the promise of `new`, for this many bytes.
        Ok(Some(unsafe { T::load(self.new) }))
    }

    /// The new value; an error if none is given.
    pub fn must_give<T: CType>(&self) -> CtlResult<T> {
        self.given()?.ok_or(Error::Invalid)
    }

    /// Answers each of the new values, at least one, with a value of its own.
    pub fn each<New: CType, Old: CType>(&mut self, answer: impl Fn(New) -> Old) -> CtlResult<()> {
        let n = self.new_len / size_of::<New>();
        let whole = n > 0 && self.new_len.is_multiple_of(size_of::<New>());
        // SAFETY: not null if it is read, so valid by the promise of `new`.
        let room = self
            .is_read()
            .then(|| unsafe { self.old_len.read_unaligned() });
        if !whole || !self.is_write() || room.is_none() || room != n.checked_mul(size_of::<Old>()) {
            return Err(Error::Invalid);
        }
        for i in 0..n {
            // SAFETY: there are as many of both, by the lengths and the promise of `new`.
            unsafe {
                let value = answer(New::load(self.new.add(i * size_of::<New>())));
                self.old.cast::<Old>().add(i).write_unaligned(value);
            }
        }
        Ok(())
    }

    /// Serves a leaf with a plain value.
    #[inline(never)]
    pub(super) fn value<T: Told, New: CType>(
        &mut self,
        access: &Access<T, New>,
        at: &At<'_>,
    ) -> CtlResult<()> {
        match access {
            Access::Read(read) => {
                self.allow(Mode::ReadOnly)?;
                self.answer(read(at)?.c())
            }
            Access::Write(write) => {
                self.allow(Mode::WriteOnly)?;
                write(at, self.must_give()?)
            }
            Access::ReadWrite(read, write) => {
                let new = self.given()?;
                self.answer(read(at)?.c())?;
                new.map_or(Ok(()), |new| write(at, new))
            }
        }
    }
}
