//! Exhausted memory: null and ENOMEM, no other change, and memory again after some is freed.
//!
//! Each test runs its body in a process of its own with a limit on address space. The bodies keep
//! their records inside the blocks, because under the limit there is no other memory.

use std::env;
use std::process::Command;

use mallard_core::{api, stats};

/// The memory beyond what the process has at its start.
const ROOM: usize = 64 << 20;

/// Runs `body` in a child process that may use [`ROOM`] more.
fn with_little_memory(test: &str, conf: &str, body: fn()) {
    const CHILD: &str = "MALLARD_LITTLE_MEMORY";
    const DONE: &str = "the body ran to its end";
    if env::var_os(CHILD).is_some() {
        limit();
        body();
        println!("{DONE}");
        std::process::exit(0);
    }
    let output = Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("MALLOC_CONF", conf)
        .env_remove("MALLARD_CONF")
        .output()
        .expect("the test binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(DONE),
        "{conf}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

fn limit() {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let bytes = pages * page + ROOM as u64;
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: `limit` is valid.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn clear_errno() {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = 0 };
}

/// Blocks of one size. Each begins with the address of the previous one and ends with its own.
struct Chain {
    last: *mut usize,
    size: usize,
    count: usize,
}

impl Chain {
    /// Allocates until memory is exhausted.
    fn of_all_there_is(size: usize) -> Chain {
        let mut chain = Chain {
            last: std::ptr::null_mut(),
            size,
            count: 0,
        };
        clear_errno();
        loop {
            let block = api::alloc(size).cast::<usize>();
            if block.is_null() {
                assert_eq!(errno(), libc::ENOMEM);
                return chain;
            }
            // SAFETY: the block is ours and at least two words long.
            unsafe {
                block.write(chain.last.addr());
                block.add(size / 8 - 1).write(block.addr());
            }
            chain.last = block;
            chain.count += 1;
            assert!(chain.count * size < 2 * ROOM, "the limit does not hold");
        }
    }

    fn bytes(&self) -> usize {
        self.count * self.size
    }

    /// Takes a block from the chain, if there is one.
    fn pop(&mut self) -> Option<*mut u8> {
        if self.last.is_null() {
            return None;
        }
        let block = self.last;
        // SAFETY: a block of the chain, with the words written above.
        let (before, own) = unsafe { (block.read(), block.add(self.size / 8 - 1).read()) };
        assert_eq!(own, block.addr(), "a block was overwritten");
        self.last = before as *mut usize;
        self.count -= 1;
        Some(block.cast())
    }

    fn free(mut self) {
        while let Some(block) = self.pop() {
            // SAFETY: just taken from the chain.
            unsafe { api::dealloc_sized(block, self.size) };
        }
        assert_eq!(self.count, 0);
    }
}

fn exhaust_again_and_again() {
    let before = stats::now().allocated;
    for size in [48, 4096, 16, 100_000, 1024, 3 << 20, 20_000, 48] {
        let chain = Chain::of_all_there_is(size);
        assert!(
            chain.bytes() > ROOM / 8,
            "only {} bytes in blocks of {size}",
            chain.bytes()
        );
        // A failing request must leave nothing behind, of any size.
        let allocated = stats::now().allocated;
        for wish in [size, 64 << 20, 1 << 40] {
            clear_errno();
            assert!(
                api::alloc_zeroed(wish).is_null() && errno() == libc::ENOMEM,
                "{wish}"
            );
            assert!(api::alloc_aligned(wish, 1 << 21).is_null(), "{wish}");
        }
        assert_eq!(stats::now().allocated, allocated);
        chain.free();
        api::trim();
        assert_eq!(
            stats::now().allocated,
            before,
            "after blocks of {size} were freed"
        );
    }
}

#[test]
fn memory_that_ran_out_comes_back_when_it_is_freed() {
    for conf in [
        "",
        "tcache:false",
        "narenas:1,retain:false",
        "dirty_decay_ms:0",
    ] {
        with_little_memory(
            "memory_that_ran_out_comes_back_when_it_is_freed",
            conf,
            exhaust_again_and_again,
        );
    }
}

/// Resizes one of several blocks of 5000 bytes when there is no memory for another block.
fn resize_without_memory() {
    let mut chain = Chain::of_all_there_is(5000);
    let rest = Chain::of_all_there_is(48);
    let block = chain.pop().unwrap();
    for byte in 0..5000 {
        // SAFETY: the block is ours.
        unsafe { block.add(byte).write(byte as u8) };
    }
    let whole = |block: *mut u8, len| {
        // SAFETY: the block is ours and at least this long.
        (0..len).all(|byte| unsafe { block.add(byte).read() } == byte as u8)
    };
    // SAFETY: the block is ours, and stays so if null is returned.
    let (block, size) = unsafe {
        clear_errno();
        assert!(api::realloc(block, 200_000).is_null());
        assert!(whole(block, 5000));
        match api::realloc(block, 48) {
            p if p.is_null() => (block, 5000),
            p => (p, 48),
        }
    };
    assert!(whole(block, size.min(48)));
    // A resized block, moved or not, can be freed by its requested size.
    // SAFETY: the block is ours.
    unsafe { api::dealloc_sized(block, size) };
    api::trim();
    chain.free();
    rest.free();
    api::trim();
    let block = api::alloc(1 << 20);
    assert!(!block.is_null());
    // SAFETY: the block is ours.
    unsafe { api::dealloc(block) };
}

#[test]
fn a_block_that_cannot_be_resized_stays_as_it_was() {
    for conf in ["", "tcache:false"] {
        with_little_memory(
            "a_block_that_cannot_be_resized_stays_as_it_was",
            conf,
            resize_without_memory,
        );
    }
}

/// Threads that start when there is no memory, not even for their caches.
fn threads_without_memory() {
    // What the threads need of the system is allocated first, and waiting takes no memory.
    let [ready, go] = [(); 2].map(|()| std::sync::Arc::new(std::sync::Barrier::new(5)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (ready, go) = (ready.clone(), go.clone());
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || {
                    ready.wait();
                    go.wait();
                    for size in [8, 700, 9000, 300_000] {
                        let p = api::alloc(size);
                        // SAFETY: null, or a block of ours.
                        unsafe { api::dealloc(p) };
                    }
                    !api::alloc(1 << 40).is_null()
                })
                .unwrap()
        })
        .collect();
    ready.wait();
    let large = Chain::of_all_there_is(1 << 20);
    let small = Chain::of_all_there_is(16);
    go.wait();
    for thread in threads {
        assert!(!thread.join().unwrap());
    }
    large.free();
    small.free();
    api::trim();
    assert_eq!(stats::now().allocated, 0);
}

#[test]
fn threads_that_begin_without_memory_fail_softly() {
    with_little_memory(
        "threads_that_begin_without_memory_fail_softly",
        "",
        threads_without_memory,
    );
}
