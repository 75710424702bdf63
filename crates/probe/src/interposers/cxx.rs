//! The operators of C++.
//!
//! An operator that throws must not be called from a frame of ours, because nothing here can be
//! unwound. So the block comes from an operator that returns null, or from malloc. Only after that
//! has failed, the probe jumps to the real operator, which is not counted. It calls the program's
//! handler, and throws.

use core::ffi::c_void;

use super::c::{begun, ended};
use crate::allocator::loader::Pointer;
use crate::allocator::{self, Function, Operators, address, call};
use crate::arch::take_or_jump;
use mallard_formats::probe::layout::State;

/// Any object serves as `std::nothrow`: only its type matters.
static NOTHROW: u8 = 0;

fn nothrow() -> *const c_void {
    (&raw const NOTHROW).cast()
}

/// The block of a plain operator; null if the real operator must be called instead.
extern "C" fn plain(size: usize) -> Pointer {
    match allocator::operators() {
        Operators::Allocator => begun(State::Malloc, size, 1, || {
            call!(new_nothrow as fn(usize, *const c_void) -> Pointer, size, nothrow();
                else core::ptr::null_mut())
        }),
        Operators::Runtime | Operators::Unknown => {
            begun(State::Malloc, size, 1, || allocator::malloc(size.max(1)))
        }
        Operators::Other => core::ptr::null_mut(),
    }
}

/// Calls the allocator for an operator with an alignment.
extern "C" fn aligned(size: usize, align: usize) -> Pointer {
    match allocator::operators() {
        Operators::Allocator => begun(State::Aligned, size, align, || {
            call!(new_aligned_nothrow as fn(usize, usize, *const c_void) -> Pointer,
                size, align, nothrow(); else core::ptr::null_mut())
        }),
        Operators::Runtime | Operators::Unknown => {
            begun(State::Aligned, size, align, || {
                match size.max(1).checked_next_multiple_of(align) {
                    Some(rounded) => {
                        call!(aligned_alloc as fn(usize, usize) -> Pointer, align, rounded;
                    else allocator::memalign(align, rounded))
                    }
                    None => core::ptr::null_mut(),
                }
            })
        }
        Operators::Other => core::ptr::null_mut(),
    }
}

/// The address of a real operator; the end of the process if it has none.
extern "C" fn operator(index: usize) -> usize {
    const THROWING: [Function; 8] = [
        Function::new,
        Function::new_array,
        Function::new_aligned,
        Function::new_array_aligned,
        Function::new_nothrow,
        Function::new_array_nothrow,
        Function::new_aligned_nothrow,
        Function::new_array_aligned_nothrow,
    ];
    match address(THROWING[index]) {
        // SAFETY: out of memory, and there is no C++ runtime to throw with.
        0 => unsafe { libc::abort() },
        found => found,
    }
}

/// Defines operators: `$take` makes the block from the first two arguments; if it returns null, the
/// real operator with this index is jumped to with all arguments.
macro_rules! new {
    ($($name:ident $take:ident $index:literal)*) => { $(
        take_or_jump!($name, $take, $index, operator);
    )* };
}

new! {
    _Znwm plain 0
    _Znam plain 1
    _ZnwmSt11align_val_t aligned 2
    _ZnamSt11align_val_t aligned 3
    _ZnwmRKSt9nothrow_t plain 4
    _ZnamRKSt9nothrow_t plain 5
    _ZnwmSt11align_val_tRKSt9nothrow_t aligned 6
    _ZnamSt11align_val_tRKSt9nothrow_t aligned 7
}

/// Defines operators that end a block. The real one is called unless it would only call free.
macro_rules! delete {
    ($($name:ident $real:ident $state:ident ($($argument:ident: $type:ty),*);)*) => { $(
        /// # Safety
        /// The block is null or live, and the other arguments are those of its request.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: Pointer $(, $argument: $type)*) {
            match allocator::operators() {
                Operators::Runtime | Operators::Unknown => {
                    ended(State::$state, block, || allocator::free(block))
                }
                Operators::Allocator => ended(State::$state, block, || {
                    call!($real as fn(Pointer $(, $type)*), block $(, $argument)*;
                        else allocator::free(block));
                }),
                Operators::Other => {
                    call!($real as fn(Pointer $(, $type)*), block $(, $argument)*;
                        else allocator::free(block));
                }
            }
        }
    )* };
}

delete! {
    _ZdlPv delete Free ();
    _ZdaPv delete_array Free ();
    _ZdlPvm delete_sized SizedFree (size: usize);
    _ZdaPvm delete_array_sized SizedFree (size: usize);
    _ZdlPvRKSt9nothrow_t delete_nothrow Free (nothrow: *const c_void);
    _ZdaPvRKSt9nothrow_t delete_array_nothrow Free (nothrow: *const c_void);
    _ZdlPvSt11align_val_t delete_aligned Free (align: usize);
    _ZdaPvSt11align_val_t delete_array_aligned Free (align: usize);
    _ZdlPvSt11align_val_tRKSt9nothrow_t delete_aligned_nothrow Free
        (align: usize, nothrow: *const c_void);
    _ZdaPvSt11align_val_tRKSt9nothrow_t delete_array_aligned_nothrow Free
        (align: usize, nothrow: *const c_void);
    _ZdlPvmSt11align_val_t delete_sized_aligned SizedFree (size: usize, align: usize);
    _ZdaPvmSt11align_val_t delete_array_sized_aligned SizedFree (size: usize, align: usize);
}
