//! The probe: `libmallard_probe.so`, which the lab preloads before a program's allocator.
//!
//! It defines malloc's family, the operators of C++ and jemalloc's functions with flags. Each call
//! is counted and goes on to the next object in link order that defines the function: the program's
//! own allocator, whichever it is. So every call is known exactly, without symbols, without
//! privileges and without a rebuild.
//!
//! The path of `malloc` in a program that runs:
//! 1. [`count::enter`] looks at the thread's variables ([`tls`]) and writes "inside malloc" into
//!    the thread's cell. A call from inside another call (`operator new` calls `malloc`) is not
//!    counted.
//! 2. The real function runs; [`allocator`] has its address.
//! 3. [`count`] adds the call, its bytes and the usable size of the block to the cell, and notes
//!    the birth of one block in 64. Then it writes "outside" into the cell.
//!
//! The first call of a thread takes [`segment::join`], which gives it a cell in the process's
//! [`segment`]: a file of the folder that the variable `MALLARD_PROBE` names, mapped by the process
//! and by the lab. The first call of a process makes the segment, and finds the real functions with
//! [`allocator::loader`], which reads the loader's own list of objects. A forked child notices by
//! [`state`] that it is one, and makes a segment of its own. If the lab wants a recording,
//! [`record`] writes each call into [`mallard_formats::probe::chunks`] instead of counting it.
//! `segment::exit` looks at the memory when the program ends. [`mallard_formats::probe`] describes
//! the shared memory; [`file`] maps it. [`arch`] has what depends on the processor.
//!
//! What always holds: nothing here allocates, takes a lock or changes `errno`. Everything that two
//! threads or the lab touch is atomic. The thread's variables take 48 bytes of static TLS.

#![no_std]

mod allocator;
mod arch;
mod clock;
mod count;
mod file;
mod interposers;
mod panicking;
mod record;
mod segment;
mod state;
mod tls;
