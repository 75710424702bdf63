//! A program that was written for jemalloc, unchanged on Mallard.
//!
//! ```console
//! $ JEMALLOC_OVERRIDE=/usr/local/lib/libmallard.so cargo run --release  # linked to the library
//! $ JEMALLOC_OVERRIDE=/usr/local/lib/libmallard.a cargo run --release   # carrying it inside
//! ```

use tikv_jemalloc_ctl::{arenas, background_thread, epoch, opt, raw, stats, thread, version};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> tikv_jemalloc_ctl::Result<()> {
    println!("version: {}", version::read()?);
    println!("arenas: {}", arenas::narenas::read()?);
    println!(
        "options: tcache {}, dss {}",
        opt::tcache::read()?,
        opt::dss::read()?
    );
    println!("background thread: {}", background_thread::read()?);

    let figures = epoch::mib()?;
    let (allocated, resident) = (stats::allocated::mib()?, stats::resident::mib()?);
    let taken = thread::allocatedp::read()?;
    let given = thread::deallocatedp::read()?;
    let report = |when: &str| -> tikv_jemalloc_ctl::Result<()> {
        figures.advance()?;
        println!(
            "{when}: allocated {}, resident {}",
            allocated.read()?,
            resident.read()?
        );
        Ok(())
    };

    report("before")?;
    let (taken_before, given_before) = (taken.get(), given.get());
    let lines: Vec<String> = (0..100_000)
        .map(|number| format!("{number:0100}"))
        .collect();
    report("during")?;
    println!("this thread took: {}", taken.get() - taken_before);
    drop(lines);
    println!("this thread gave: {}", given.get() - given_before);

    // Names without a type in the crate are accessed by name.
    // SAFETY: the types are those in the manual.
    unsafe {
        raw::write(b"arenas.dirty_decay_ms\0", 1000_isize)?;
        let decay: isize = raw::read(b"arenas.dirty_decay_ms\0")?;
        println!("decay of new arenas: {decay} ms");
        let page: usize = raw::read(b"arenas.page\0")?;
        println!("page: {page}");
    }
    report("after")
}
