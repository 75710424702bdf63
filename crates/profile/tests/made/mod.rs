//! A core file made by hand: one library with the note, a root block, a site, two samples in a slab
//! and a large one.

/// Where the library, its root block and the records lie in the process.
const LIBRARY: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const SITE: u64 = DATA + 0x100;
const SAMPLES: u64 = DATA + 0x200;
const SAMPLE_BYTES: u64 = 96;
const SLAB: u64 = DATA + 0x400;
const CODE: u64 = 0x4_0000;
pub const LAYOUT_AT: usize = DATA_AT + 8;
pub const SITE_LATER_AT: usize = DATA_AT + 0x100 + 24;
const LIBRARY_AT: usize = 0x400;
const DATA_AT: usize = 0x600;
const END: usize = 0xc00;
const TID: u64 = 4711;
const WEIGHT_ONE: u64 = 1 << 20;

struct File(Vec<u8>);

impl File {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u64s(&mut self, at: usize, numbers: &[u64]) {
        for (i, number) in numbers.iter().enumerate() {
            self.put(at + 8 * i, &number.to_le_bytes());
        }
    }

    fn u32s(&mut self, at: usize, numbers: &[u32]) {
        for (i, number) in numbers.iter().enumerate() {
            self.put(at + 4 * i, &number.to_le_bytes());
        }
    }

    fn header(&mut self, at: usize, kind: u16, segments: u16) {
        self.put(at, b"\x7fELF\x02\x01\x01");
        self.put(at + 16, &kind.to_le_bytes());
        self.u64s(at + 32, &[64]);
        self.put(at + 56, &segments.to_le_bytes());
    }

    fn segment(&mut self, at: usize, kind: u32, flags: u32, numbers: [u64; 5]) {
        self.u32s(at, &[kind, flags]);
        let [offset, address, _, bytes, in_memory] = numbers;
        self.u64s(at + 8, &[offset, address, address, bytes, in_memory]);
    }

    /// The record with this number, of a block at this address.
    fn sample(&mut self, i: u64, block: u64, requested: u64, usable: u64, slab: [u64; 2]) {
        let at = DATA_AT + (SAMPLES - DATA + i * SAMPLE_BYTES) as usize;
        let older = i.checked_sub(1).map_or(0, |i| SAMPLES + i * SAMPLE_BYTES);
        self.u64s(at, &[block, 0, older]);
        let [slab, regions] = slab;
        let regions = regions | TID << 32;
        let what = [SITE, WEIGHT_ONE, requested, usable, slab, regions, 7];
        self.u64s(at + 24, &what);
        // A thread of its own for each sample, to which the system gave one number after the other.
        self.u32s(at + 80, &[i as u32 + 1]);
    }
}

/// The file. Its site has two small blocks of 112 bytes and one of 114,688.
pub fn core() -> Vec<u8> {
    let mut file = File(vec![0; END]);
    file.header(0, 4, 4);
    let notes = note_of_files();
    file.segment(64, 4, 4, [0x200, 0, 0, notes.len() as u64, 0]);
    file.segment(120, 1, 4, [LIBRARY_AT as u64, LIBRARY, 0, 0x200, 0x200]);
    file.segment(176, 1, 6, [DATA_AT as u64, DATA, 0, 0x600, 0x600]);
    file.segment(232, 1, 5, [END as u64, CODE, 0, 0, 0x1000]);
    file.put(0x200, &notes);
    // The library: a segment, and the note that leads to the root.
    file.header(LIBRARY_AT, 3, 2);
    file.segment(LIBRARY_AT + 64, 1, 4, [0, 0, 0, 0x200, 0x200]);
    file.segment(LIBRARY_AT + 120, 4, 4, [0x100, 0x100, 0, 28, 28]);
    file.u32s(LIBRARY_AT + 0x100, &[8, 8, 1]);
    file.put(LIBRARY_AT + 0x10c, b"Mallard\0");
    let here = LIBRARY + 0x114;
    file.u64s(LIBRARY_AT + 0x114, &[DATA - here]);
    // The root.
    file.put(DATA_AT, b"MALLARD\0");
    file.u32s(DATA_AT + 8, &[4, 0, 1, 112]);
    file.u64s(DATA_AT + 24, &[SITE, 5, 3, SAMPLES + 2 * SAMPLE_BYTES]);
    file.u32s(DATA_AT + 56, &[SAMPLE_BYTES as u32, 0, 48]);
    // A site of two frames, which has changed since the peak.
    let (live, bytes) = (3 * WEIGHT_ONE, 114_912);
    file.u64s(DATA_AT + 0x100, &[0]);
    file.u32s(DATA_AT + 0x108, &[2, 0]);
    file.u64s(
        DATA_AT + 0x110,
        &[
            0, 0, live, bytes, live, bytes, 100_200, live, 120_000, 5, 0, 0,
        ],
    );
    file.u64s(DATA_AT + 0x170, &[CODE + 0x11, CODE + 0x21]);
    // Two blocks of a slab of four regions, and a large one.
    let block = 0x9000;
    file.sample(0, block, 100, 112, [SLAB, 4]);
    file.sample(1, block + 112, 100, 112, [SLAB, 4]);
    file.sample(2, 0x5_0000, 100_000, 114_688, [0, 0]);
    // The slab's record: its address, and its bitmap after 48 bytes.
    file.u64s(DATA_AT + 0x400, &[block, 0, 0, 0, 0, 0, 0b1100]);
    file.0
}

/// The note that names the files of the process.
fn note_of_files() -> Vec<u8> {
    let names = b"/nowhere/libmallard.so\0/nowhere/prog\0";
    let mut text = Vec::new();
    for number in [
        2,
        4096,
        LIBRARY,
        LIBRARY + 0x1000,
        0,
        CODE,
        CODE + 0x1000,
        1,
    ] {
        text.extend(u64::to_le_bytes(number));
    }
    text.extend(names);
    let mut note = Vec::new();
    for number in [5, text.len() as u32, 0x4649_4c45] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"CORE\0\0\0\0");
    note.extend(text);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}
