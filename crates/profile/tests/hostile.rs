//! Profiles may come from anywhere. Damaged and hostile ones give one error, in bounded memory, and
//! never a panic.

mod checks;
mod sample;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mallard_profile::{read, write};
use proptest::prelude::*;

/// The system's allocator, which also knows how much was in use at most.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is the system allocator's; the counters change no pointer and no layout.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(used, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HEAP_V2: &str = "\
heap_v2/4096
  t*: 3: 300 [4: 500]
  t0: 3: 300 [4: 500]
@ 0x1001 0x2001 0x2101
  t*: 100: 8192000 [100: 8192000]
  t1: 60: 4915200 [60: 4915200]
  t2: 40: 3276800 [40: 3276800]
@ 0x1001 0x3001
  t*: 4: 400 [8: 800]
  t1: 1: 100 [0: 0]

MAPPED_LIBRARIES:
1000-2000 r--p 00000000 fe:00 9 /x/prog
2000-3000 r-xp 00001000 fe:00 9 /x/prog
7000-7100 r-xp 00002000 fe:00 13 /tmp/lib x.so (deleted)
";

/// Bytes with some of them replaced, removed or doubled.
fn mutated(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), 0..6u8, any::<u8>()), 1..20);
    changes.prop_map(move |changes| {
        let mut bytes = whole.clone();
        for (place, what, byte) in changes {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match what {
                0 => bytes.truncate(place),
                1 => {
                    bytes.remove(place);
                }
                2 => bytes.insert(place, byte),
                3 => {
                    let rest = bytes[place..].to_vec();
                    bytes.extend(rest);
                }
                _ => bytes[place] = byte,
            }
            bytes.truncate(1 << 16);
        }
        bytes
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: 1000,
        ..ProptestConfig::default()
    }
}

#[test]
fn any_damage_to_a_profile_of_jemalloc_s_format_is_survived() {
    checks::profile(HEAP_V2.as_bytes());
    proptest!(config(), |(bytes in mutated(HEAP_V2.into()))| checks::profile(&bytes));
}

#[test]
fn any_damage_to_a_profile_of_pprof_s_format_is_survived() {
    let plain = write::pprof_plain(&sample::shop(1));
    checks::profile(&plain);
    proptest!(config(), |(bytes in mutated(plain))| checks::profile(&bytes));
}

#[test]
fn any_damage_to_a_packed_profile_is_survived() {
    let mut packed = Vec::new();
    write::pprof(&sample::shop(1), &mut packed).unwrap();
    checks::profile(&packed);
    proptest!(config(), |(bytes in mutated(packed))| checks::profile(&bytes));
}

#[test]
fn any_bytes_are_survived() {
    let strategy = prop::collection::vec(any::<u8>(), 0..200);
    proptest!(config(), |(bytes in strategy)| checks::profile(&bytes));
}

/// The most memory that reading takes beside the input. The other tests of this file run at the
/// same time, so the bound is one that only amplification breaks.
fn memory_of(bytes: &[u8]) -> usize {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let _ = read::profile(bytes);
    PEAK.load(Relaxed).saturating_sub(before)
}

#[test]
fn no_input_makes_reading_take_much_more_memory_than_its_size() {
    const INPUT: usize = 2 << 20;
    // A deep stack that many lines of threads share.
    let mut shared = "heap_v2/1\n@".to_owned() + &" 0x1".repeat(4096) + "\n t*: 900000: 9 [9: 9]\n";
    while shared.len() < INPUT {
        shared.push_str("t1: 1: 0 [0: 0]\n");
    }
    shared.push_str("MAPPED_LIBRARIES:\n");
    assert!(read::profile(shared.as_bytes()).is_ok());
    // A long text that many functions and locations have as their name.
    let mut named = vec![0x0a, 2, 0x08, 1, 0x32, 0, 0x32, 0x80, 0x80, 0x40];
    named.extend(vec![b'x'; 1 << 20]);
    for number in 1..20_000u32 {
        let (low, high) = (
            (number & 0x7f) as u8 | 0x80,
            (number >> 7 & 0x7f) as u8 | 0x80,
        );
        let id = [0x08, low, high, (number >> 14) as u8];
        named.extend([0x2a, 6].iter().chain(&id).chain(&[0x10, 1]));
        named.extend([0x22, 10].iter().chain(&id).chain(&[
            0x22,
            4,
            0x08,
            low,
            high,
            (number >> 14) as u8,
        ]));
    }
    assert!(read::profile(&named).is_ok());
    // A packed file of nothing but zeros, far beyond the limit.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..300 {
        packer.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let packed = packer.finish().unwrap();
    assert_eq!(read::profile(&packed), Err(read::Error::TooLarge));

    let slack = 64 << 20;
    for bytes in [shared.as_bytes(), &named] {
        let memory = memory_of(bytes);
        assert!(
            memory < 40 * bytes.len() + slack,
            "{memory} for {}",
            bytes.len()
        );
    }
    let memory = memory_of(&packed) as u64;
    // A vector that grows by doubling holds twice the limit for a moment, and then copies.
    assert!(memory < 4 * read::UNPACKED_BYTES + slack as u64, "{memory}");
}
