//! A Rust program on Mallard: its collections, its threads and their ends, and its forks.
//!
//! The test harness allocates too, from its own threads, so statistics are compared only where the
//! difference exceeds anything that the harness does.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::RefCell;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError, mpsc};
use std::thread;

#[global_allocator]
static ALLOCATOR: mallard_core::Mallard = mallard_core::Mallard;

/// Pseudo-random numbers, the same for the same seed.
fn numbers(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut state = seed;
    (0..count).map(move |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    })
}

/// Various collections whose contents all follow from a seed.
struct World {
    seed: u64,
    names: HashMap<String, Vec<u64>>,
    tree: BTreeMap<u64, Box<str>>,
    queue: VecDeque<Arc<[u8]>>,
    heap: BinaryHeap<u64>,
    page: Box<Aligned>,
}

#[repr(align(4096))]
struct Aligned([u64; 600]);

const SIZE: usize = 400;

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            names: HashMap::new(),
            tree: BTreeMap::new(),
            queue: VecDeque::new(),
            heap: BinaryHeap::new(),
            page: Box::new(Aligned([seed; 600])),
        };
        for n in numbers(seed, SIZE) {
            let list = world.names.entry(format!("name {}", n % 50)).or_default();
            list.push(n);
            world.tree.insert(n, "x".repeat(n as usize % 300).into());
            world
                .queue
                .push_back(vec![n as u8; n as usize % 3000].into());
            world.heap.push(n);
        }
        world
    }

    fn is_whole(&self) -> bool {
        let mut lists: HashMap<String, Vec<u64>> = HashMap::new();
        for n in numbers(self.seed, SIZE) {
            lists.entry(format!("name {}", n % 50)).or_default().push(n);
        }
        let mut sorted: Vec<u64> = numbers(self.seed, SIZE).collect();
        sorted.sort_unstable();
        lists == self.names
            && self
                .tree
                .iter()
                .all(|(&n, text)| text.len() == n as usize % 300 && text.bytes().all(|b| b == b'x'))
            && self
                .queue
                .iter()
                .zip(numbers(self.seed, SIZE))
                .all(|(bytes, n)| {
                    bytes.len() == n as usize % 3000 && bytes.iter().all(|&b| b == n as u8)
                })
            && self.queue.len() == SIZE
            && self.heap.clone().into_sorted_vec() == sorted
            && self.page.0.iter().all(|&n| n == self.seed)
            && (&raw const *self.page).addr().is_multiple_of(4096)
    }
}

/// Held by the test that forks, and by tests that nothing may fork beside: while a fork is under
/// way, blocks of other threads come from memory that the statistics do not count.
static FORKS: Mutex<()> = Mutex::new(());

#[test]
fn the_program_s_blocks_come_from_here() {
    let _nothing_forks = FORKS.lock().unwrap_or_else(PoisonError::into_inner);
    const BYTES: usize = 256 << 20;
    let before = mallard_core::stats::now().allocated;
    let zeros = vec![0u8; BYTES];
    let after = mallard_core::stats::now().allocated;
    assert!(
        after >= before + BYTES / 2,
        "{before} before, {after} after"
    );
    assert!(zeros.iter().step_by(4096).all(|&b| b == 0));
}

/// Whole-page blocks with and without page alignment share the same caches.
#[test]
fn a_block_aligned_to_up_to_a_page_stays_so_however_it_is_resized() {
    const SIZES: [usize; 5] = [20_000, 30_000, 24_000, 32_768, 17_000];
    for align in [128, 1024, 4096] {
        // Freed blocks of each size, without alignment.
        for size in SIZES {
            drop([(); 4].map(|()| vec![1u8; size]));
        }
        let layout = |size| Layout::from_size_align(size, align).expect("a power of two");
        let mut size = 16_000;
        // SAFETY: every block is resized and freed with its own layout, and written to within it.
        unsafe {
            let mut p = alloc(layout(size));
            for (i, next) in SIZES.into_iter().enumerate() {
                assert!(
                    !p.is_null() && p.addr().is_multiple_of(align),
                    "{size} at {align}"
                );
                p.write(i as u8);
                p = realloc(p, layout(size), next);
                assert_eq!(p.read(), i as u8);
                size = next;
            }
            assert!(p.addr().is_multiple_of(align), "{size} at {align}");
            dealloc(p, layout(size));
        }
    }
}

#[test]
fn worlds_stay_whole_while_threads_build_hand_over_and_drop_them() {
    const THREADS: u64 = 6;
    const WORLDS: u64 = 12;
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<World>()).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .zip(0..)
        .map(|(from, me)| {
            let to = senders[(me as usize + 1) % senders.len()].clone();
            thread::spawn(move || {
                for i in 0..WORLDS {
                    let world = World::new(me * 1000 + i);
                    let _dropped_here = World::new(i);
                    to.send(world)
                        .expect("the neighbour listens until all came");
                }
                drop(to);
                let mut seen = 0;
                // Checks and drops each neighbour's world, far from where it was made.
                for world in from.iter().take(WORLDS as usize) {
                    assert!(world.is_whole(), "world {}", world.seed);
                    seen += 1;
                }
                seen
            })
        })
        .collect();
    // Otherwise a thread that fails would leave its neighbour waiting.
    drop(senders);
    let seen: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(seen, THREADS * WORLDS);
}

/// Dropped when its thread ends, perhaps after Mallard's own thread exit.
struct Last {
    kept: RefCell<Vec<World>>,
    ended: Arc<AtomicUsize>,
}

impl Drop for Last {
    fn drop(&mut self) {
        let fresh = World::new(7);
        let whole = self.kept.get_mut().drain(..).all(|world| world.is_whole());
        self.ended
            .fetch_add((whole && fresh.is_whole()) as usize, Ordering::Relaxed);
    }
}

/// A destructor of thread-specific data that sets its value again, so that the C library runs
/// another round, perhaps after Mallard's own destructor.
extern "C" fn round(left: *mut libc::c_void) {
    let world = World::new(left.addr() as u64);
    ROUNDS.fetch_add(world.is_whole() as usize, Ordering::Relaxed);
    let left = left.addr() - 1;
    if left > 0 {
        // SAFETY: the key was made before any thread used it.
        unsafe {
            libc::pthread_setspecific(
                KEY.load(Ordering::Relaxed) as libc::pthread_key_t,
                std::ptr::without_provenance(left),
            )
        };
    }
}

static KEY: AtomicUsize = AtomicUsize::new(0);
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn destructors_at_a_thread_s_end_free_and_allocate() {
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    let mut key = 0;
    // SAFETY: `key` is an out-pointer.
    let failed = unsafe { libc::pthread_key_create(&mut key, Some(round)) };
    assert_eq!(failed, 0);
    KEY.store(key as usize, Ordering::Relaxed);
    let ended = Arc::new(AtomicUsize::new(0));
    for seed in 0..20 {
        let ended = ended.clone();
        let thread = thread::spawn(move || {
            let kept = RefCell::new(vec![World::new(seed), World::new(seed + 1)]);
            LAST.set(Some(Last { kept, ended }));
            // SAFETY: the key is valid; the value is a number.
            unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(3)) };
        });
        thread.join().unwrap();
    }
    assert_eq!(ended.load(Ordering::Relaxed), 20);
    assert_eq!(ROUNDS.load(Ordering::Relaxed), 20 * 3);
}

/// What a child of fork does; returns its exit status. It must not panic or print: any locks that
/// the standard library's threads held at the fork stay locked here.
fn live_on(inherited: World) -> i32 {
    if !inherited.is_whole() {
        return 1;
    }
    drop(inherited);
    if !(0..5).all(|seed| World::new(seed).is_whole()) {
        return 2;
    }
    // Many more blocks than the thread's cache holds, in classes that other threads were using.
    let lists: Vec<Vec<u8>> = (0..20_000).map(|i| vec![i as u8; i % 700]).collect();
    if !(lists.iter().zip(0..)).all(|(list, i)| list.iter().all(|&b| b == i as u8)) {
        return 3;
    }
    drop(lists);
    mallard_core::api::trim();
    // Does not use the standard library, whose own lock another thread may have held at the fork.
    let mut thread = 0;
    let mut built = std::ptr::null_mut();
    // SAFETY: `build` borrows nothing, and both out-pointers are valid.
    let failed = unsafe {
        libc::pthread_create(&mut thread, std::ptr::null(), build, std::ptr::null_mut()) != 0
            || libc::pthread_join(thread, &mut built) != 0
    };
    if failed || built.is_null() {
        return 4;
    }
    0
}

/// A thread of the child; returns null if something is wrong.
extern "C" fn build(_: *mut libc::c_void) -> *mut libc::c_void {
    std::ptr::without_provenance_mut(World::new(9).is_whole() as usize)
}

#[test]
fn a_child_forked_amid_threads_that_allocate_lives_on() {
    let _forks = FORKS.lock().unwrap_or_else(PoisonError::into_inner);
    const CHILDREN: u64 = 30;
    let done = Arc::new(AtomicBool::new(false));
    let ready = Arc::new(Barrier::new(4));
    let others: Vec<_> = (0..3)
        .map(|seed| {
            let (done, ready) = (done.clone(), ready.clone());
            thread::spawn(move || {
                ready.wait();
                let mut made = 0;
                while !done.load(Ordering::Relaxed) {
                    assert!(World::new(seed).is_whole());
                    mallard_core::api::trim();
                    made += 1;
                }
                made
            })
        })
        .collect();
    ready.wait();
    let mut statuses = Vec::new();
    for seed in 0..CHILDREN {
        let world = World::new(seed);
        // SAFETY: the child only runs `live_on` and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: kills a child that hangs, with a signal that the parent sees.
            unsafe { libc::alarm(120) };
            let status = live_on(world);
            // SAFETY: leaves without the harness's exit handlers.
            unsafe { libc::_exit(status) };
        }
        assert!(child > 0, "fork failed");
        let mut status = -1;
        // SAFETY: `status` is an out-pointer; the child is ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(world.is_whole());
        statuses.push(status);
    }
    done.store(true, Ordering::Relaxed);
    let made: u64 = others.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(made > 0, "the other threads allocated");
    // 0 is exit(0); otherwise bits 8.. are the exit status and bits 0..7 the signal.
    assert!(statuses.iter().all(|&s| s == 0), "statuses {statuses:x?}");
}
