//! The profiler's records in a process's memory, which [`mallard_formats::records`] describes.

use std::collections::{BTreeMap, HashSet};
use std::mem::offset_of;

use mallard_formats::page::{self, About};
use mallard_formats::records::{self, ALIGN_BYTES, Entry, PlainRoot};
pub use mallard_formats::records::{FRACTION_BITS, LAYOUT};
use mallard_inspect::memory::{Fields, Memory, PAGE_BYTES_MIN, Piece};
use mallard_inspect::page::Words;

use super::Error;
use super::copies::{Versioned, stable};

/// Frames of the deepest stack, and regions of the largest slab.
const FRAMES_MAX: u32 = 4096;
const REGIONS_MAX: u32 = 4096;
/// The most bytes of records that are read, as the root says.
const SITE_BYTES_MAX: usize = 1024;
const SAMPLE_BYTES_MAX: usize = 512;

/// The root block.
#[derive(Debug, Clone, Copy)]
pub struct Root {
    pub lg_sample: u32,
    pub is_on: bool,
    site_bytes: usize,
    first_site: u64,
    epoch_at: u64,
    last_sample: u64,
    sample_bytes: usize,
    resets: u16,
    slab_bytes: u64,
    /// The page of statistics; 0 for none.
    page: u64,
}

/// A call stack, and the sums over its samples.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pub at: u64,
    /// Return addresses, the innermost first.
    pub frames: Vec<u64>,
    /// Blocks in units of 2^-20, and bytes.
    pub live: [u64; 2],
    pub ever: [u64; 2],
    pub peak_bytes: u64,
    pub freed: u64,
    pub lived_ms: u64,
}

/// What equal samples have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub site: u64,
    pub usable: u64,
    pub requested: u64,
    pub weight: u64,
    pub thread: Thread,
    pub arena: u16,
}

/// The thread that allocated a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    /// The profiler's number, which no other thread of the process ever has. 0 stands for threads
    /// that were about to end.
    pub number: u32,
    /// The system's, which another thread may have by now.
    pub tid: u32,
    /// Whether it has ended, as far as that is known.
    pub has_ended: bool,
}

/// Whether a thread with this number of the system that took a sample at this time (nanoseconds of
/// the monotonic clock) has ended, and another may have the number now.
pub type HasEnded<'a> = dyn Fn(u32, u64) -> bool + 'a;

/// How many samples are equal, and the sum of the free bytes that each of their blocks keeps from
/// being returned.
#[derive(Debug, Clone, Copy, Default)]
pub struct Group {
    pub count: u64,
    pub pinned: f64,
}

/// All that was read.
#[derive(Debug, Default)]
pub struct Records {
    pub sites: Vec<Site>,
    pub samples: BTreeMap<Key, Group>,
    /// Records that may have been copied in the middle of a change.
    pub torn: usize,
}

impl Root {
    /// Reads the root block; none if sampling was never on.
    pub fn read(memory: &dyn Memory, at: u64) -> Result<Option<Root>, Error> {
        let mut bytes = [0; size_of::<PlainRoot>()];
        memory.copy(at, &mut bytes)?;
        let root = Fields(&bytes);
        let magic = root.u64(offset_of!(PlainRoot, magic));
        let layout = root.u32(offset_of!(PlainRoot, layout));
        if magic == 0 {
            return Ok(None);
        }
        if magic != records::MAGIC {
            return Err(Error::damaged("the root block has no mark"));
        }
        if layout != LAYOUT {
            return Err(Error::Layout(layout));
        }
        let read = Root {
            lg_sample: root.u32(offset_of!(PlainRoot, lg_sample)).min(62),
            is_on: root.u32(offset_of!(PlainRoot, is_on)) != 0,
            site_bytes: root.u32(offset_of!(PlainRoot, site_bytes)) as usize,
            first_site: root.u64(offset_of!(PlainRoot, first_site)),
            epoch_at: at.wrapping_add(offset_of!(PlainRoot, epoch) as u64),
            last_sample: root.u64(offset_of!(PlainRoot, last_sample)),
            sample_bytes: root.u32(offset_of!(PlainRoot, sample_bytes)) as usize,
            resets: root.u32(offset_of!(PlainRoot, resets)) as u16,
            slab_bytes: root.u32(offset_of!(PlainRoot, slab_bytes)).into(),
            page: root.u64(offset_of!(PlainRoot, page)),
        };
        let plausible = [
            (read.site_bytes, size_of::<records::Site>()..=SITE_BYTES_MAX),
            (
                read.sample_bytes,
                offset_of!(Entry, next)..=SAMPLE_BYTES_MAX,
            ),
        ];
        // The block may lead to the page of statistics alone.
        let was_on = read.is_on || read.first_site != 0;
        if plausible.iter().all(|(bytes, range)| range.contains(bytes)) {
            Ok(was_on.then_some(read))
        } else {
            Err(Error::damaged("the root block has impossible sizes"))
        }
    }

    /// The bytes in use as the allocator counted them when it last wrote its page of statistics,
    /// and that time (nanoseconds of the monotonic clock); none without a page, or with one of
    /// another layout.
    pub fn allocated(&self, memory: &dyn Memory) -> Option<(u64, u64)> {
        const HEAD_WORDS: usize = page::FIGURES_AT_WORD + About::Totals as usize + 1;
        let mut head = [0; HEAD_WORDS * page::WORD_BYTES];
        (self.page != 0).then(|| memory.copy(self.page, &mut head).ok())??;
        let head = Words::new(&head);
        if head.get(page::WORD_MAGIC) != page::MAGIC || head.layout() != page::LAYOUT {
            return None;
        }
        // The first total.
        let words = (page::FIGURES_AT_WORD + head.section(About::Totals).first) * page::WORD_BYTES;
        let mut allocated = [0; page::WORD_BYTES];
        memory
            .copy(self.page.wrapping_add(words as u64), &mut allocated)
            .ok()?;
        Some((u64::from_le_bytes(allocated), head.about(About::Published)))
    }

    /// Reads the sites alone.
    pub fn sites(&self, memory: &dyn Memory) -> Result<Records, Error> {
        let mut records = Records::default();
        self.read_sites(memory, &mut records)?;
        Ok(records)
    }

    /// Reads all records.
    pub fn records(&self, memory: &dyn Memory, has_ended: &HasEnded<'_>) -> Result<Records, Error> {
        let mut records = Records::default();
        let mut pins = Vec::new();
        // Samples before sites: so the site of each sample is known.
        self.read_samples(memory, has_ended, &mut records, &mut pins)?;
        self.read_pins(memory, &pins, &mut records);
        self.read_sites(memory, &mut records)?;
        Ok(records)
    }

    fn read_sites(&self, memory: &dyn Memory, records: &mut Records) -> Result<(), Error> {
        const SITE_HEAD_BYTES: usize = offset_of!(records::Site, live);
        let mut list = List::new(memory);
        let mut found = Vec::new();
        let mut at = self.first_site;
        let mut head = [0; SITE_HEAD_BYTES];
        while at != 0 {
            memory.copy(list.enter(at)?, &mut head)?;
            let head = Fields(&head);
            let frames = head.u32(offset_of!(records::Site, frames));
            if frames > FRAMES_MAX {
                return Err(Error::damaged("a call stack is too long"));
            }
            let head_bytes = self.site_bytes + 8 * frames as usize;
            list.count(head_bytes)?;
            found.push(Versioned {
                at,
                version_at: offset_of!(records::Site, version) as u64,
                bytes: head_bytes,
            });
            at = head.u64(offset_of!(records::Site, later));
        }
        let copies = stable(memory, &found)?;
        records.torn += copies.torn;
        // After the copies: a site that has not changed since the last peak has what it had then.
        let mut epoch = [0; 8];
        memory.copy(self.epoch_at, &mut epoch)?;
        let epoch = u64::from_le_bytes(epoch);
        for (site, copied) in found.iter().zip(copies.records) {
            let record = Fields(&copied);
            let of_peak = record.u64(offset_of!(records::Site, epoch)) == epoch;
            let amount = |at: usize| {
                let blocks = record.u64(at + offset_of!(records::Amount, blocks));
                [blocks, record.u64(at + offset_of!(records::Amount, bytes))]
            };
            let peak = amount(if of_peak {
                offset_of!(records::Site, peak)
            } else {
                offset_of!(records::Site, live)
            });
            let frames = copied[self.site_bytes..].chunks_exact(8);
            records.sites.push(Site {
                at: site.at,
                frames: frames.map(|frame| Fields(frame).u64(0)).collect(),
                live: amount(offset_of!(records::Site, live)),
                ever: amount(offset_of!(records::Site, ever)),
                peak_bytes: peak[1],
                freed: record.u64(offset_of!(records::Site, freed)) >> FRACTION_BITS,
                lived_ms: record.u64(offset_of!(records::Site, lived_ms)),
            });
        }
        Ok(())
    }

    /// Reads the samples. What those in slabs pin is found out later.
    fn read_samples(
        &self,
        memory: &dyn Memory,
        has_ended: &HasEnded<'_>,
        records: &mut Records,
        pins: &mut Vec<Pin>,
    ) -> Result<(), Error> {
        let mut list = List::new(memory);
        let mut found = Vec::new();
        let mut at = self.last_sample;
        let mut head = [0; offset_of!(Entry, sample)];
        let mut pages = Pages::new(memory);
        while at != 0 {
            pages.copy(list.enter(at)?, &mut head)?;
            list.count(self.sample_bytes)?;
            if Fields(&head).u64(offset_of!(Entry, at)) != 0 {
                found.push(Versioned {
                    at,
                    version_at: offset_of!(Entry, version) as u64,
                    bytes: self.sample_bytes,
                });
            }
            at = Fields(&head).u64(offset_of!(Entry, older));
        }
        let copies = stable(memory, &found)?;
        records.torn += copies.torn;
        for copied in &copies.records {
            // The block may have been freed meanwhile.
            let block = Fields(copied).u64(offset_of!(Entry, at));
            if block == 0 {
                continue;
            }
            let sample = Fields(&copied[offset_of!(Entry, sample)..]);
            let slab = sample.u64(offset_of!(records::Sample, slab));
            let regions = sample.u32(offset_of!(records::Sample, regions));
            let Some(key) = self.take(sample, has_ended, records) else {
                continue;
            };
            if slab != 0 {
                if regions > REGIONS_MAX {
                    return Err(Error::damaged("a slab has too many regions"));
                }
                pins.push(Pin {
                    key,
                    block,
                    slab,
                    regions,
                    size: key.usable,
                });
            }
        }
        Ok(())
    }

    /// Counts a sample, if no reset has made it invalid.
    fn take(
        &self,
        sample: Fields<'_>,
        has_ended: &HasEnded<'_>,
        records: &mut Records,
    ) -> Option<Key> {
        if sample.u16(offset_of!(records::Sample, resets)) != self.resets {
            return None;
        }
        let key = Key {
            site: sample.u64(offset_of!(records::Sample, site)),
            weight: sample.u64(offset_of!(records::Sample, weight)),
            requested: sample.u64(offset_of!(records::Sample, requested)),
            usable: sample.u64(offset_of!(records::Sample, usable)),
            thread: Thread {
                number: sample.u32(offset_of!(records::Sample, thread)),
                tid: sample.u32(offset_of!(records::Sample, tid)),
                has_ended: has_ended(
                    sample.u32(offset_of!(records::Sample, tid)),
                    sample.u64(offset_of!(records::Sample, born_ns)),
                ),
            },
            arena: sample.u16(offset_of!(records::Sample, arena)),
        };
        records.samples.entry(key).or_default().count += 1;
        Some(key)
    }

    /// Adds the free bytes that blocks of slabs keep. A slab that cannot be read adds nothing.
    fn read_pins(&self, memory: &dyn Memory, pins: &[Pin], records: &mut Records) {
        let mut known: BTreeMap<u64, Option<(u64, f64)>> = BTreeMap::new();
        for pin in pins {
            let slab = *known
                .entry(pin.slab)
                .or_insert_with(|| self.read_slab(memory, pin));
            let bytes = u64::from(pin.regions).saturating_mul(pin.size);
            if let (Some((addr, each)), Some(group)) = (slab, records.samples.get_mut(&pin.key))
                && pin.block.wrapping_sub(addr) < bytes
            {
                group.pinned += each;
            }
        }
    }

    /// The address of a slab, and what each of its blocks keeps.
    fn read_slab(&self, memory: &dyn Memory, pin: &Pin) -> Option<(u64, f64)> {
        let mut addr = [0; 8];
        let mut bits = vec![0; words(pin.regions) * 8];
        let mut pieces = [
            Piece {
                at: pin.slab,
                into: &mut addr,
            },
            Piece {
                at: pin.slab.wrapping_add(self.slab_bytes),
                into: &mut bits,
            },
        ];
        memory.read(&mut pieces).ok()?;
        let bitmap = Bitmap::of(&bits, pin.regions, pin.size);
        let addr = u64::from_le_bytes(addr);
        Some((addr, bitmap.pinned_by_each(addr, memory.page_bytes())))
    }
}

/// The piece that was read last, which lies within one page on any machine: records that follow
/// each other in a list mostly lie side by side.
struct Pages<'a> {
    memory: &'a dyn Memory,
    at: u64,
    page: [u8; PAGE_BYTES_MIN as usize],
}

impl<'a> Pages<'a> {
    fn new(memory: &'a dyn Memory) -> Pages<'a> {
        Pages {
            memory,
            // No page begins here.
            at: 1,
            page: [0; PAGE_BYTES_MIN as usize],
        }
    }

    fn copy(&mut self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let (page, first) = (
            at / PAGE_BYTES_MIN * PAGE_BYTES_MIN,
            (at % PAGE_BYTES_MIN) as usize,
        );
        let Some(end) = first
            .checked_add(into.len())
            .filter(|&end| end <= PAGE_BYTES_MIN as usize)
        else {
            return Ok(self.memory.copy(at, into)?);
        };
        if page != self.at {
            self.at = 1;
            // Of a core that is cut or made by hand, less than a page may be there.
            if self.memory.copy(page, &mut self.page).is_err() {
                return Ok(self.memory.copy(at, into)?);
            }
            self.at = page;
        }
        into.copy_from_slice(&self.page[first..end]);
        Ok(())
    }
}

/// A sampled block in a slab.
struct Pin {
    key: Key,
    block: u64,
    slab: u64,
    regions: u32,
    size: u64,
}

fn words(regions: u32) -> usize {
    regions.div_ceil(64) as usize
}

/// Which regions of a slab are free.
struct Bitmap {
    free: Vec<u64>,
    regions: u32,
    size: u64,
}

impl Bitmap {
    fn of(bytes: &[u8], regions: u32, size: u64) -> Bitmap {
        let regions = regions.min(REGIONS_MAX);
        let free = bytes.chunks_exact(8).map(|word| Fields(word).u64(0));
        Bitmap {
            free: free.take(words(regions)).collect(),
            regions,
            size,
        }
    }

    fn is_free(&self, region: u32) -> bool {
        let word = self.free.get(region as usize / 64).copied();
        word.is_none_or(|word| word >> (region % 64) & 1 != 0)
    }

    /// The free bytes in pages that hold blocks, for each block of a slab at this address. A page
    /// that is not whole within the slab may hold another one's blocks.
    fn pinned_by_each(&self, addr: u64, page_bytes: u64) -> f64 {
        // No slab is larger; a record that says so is damaged.
        const SLAB_BYTES_MAX: u64 = 1 << 21;
        let bytes = u64::from(self.regions).saturating_mul(self.size);
        if self.size == 0 || bytes > SLAB_BYTES_MAX {
            return 0.0;
        }
        let used = (0..self.regions)
            .filter(|&region| !self.is_free(region))
            .count() as u64;
        if used == 0 {
            return 0.0;
        }
        // Slabs consist of whole pages of the smallest machine.
        let end = bytes.next_multiple_of(PAGE_BYTES_MIN);
        let is_bare = |page: &u64| {
            let last = ((page + page_bytes - 1) / self.size).min(u64::from(self.regions) - 1);
            page + page_bytes <= end
                && (page / self.size..=last).all(|region| self.is_free(region as u32))
        };
        let first = addr.wrapping_neg() % page_bytes;
        let pages = (first..bytes).step_by(page_bytes as usize).filter(is_bare);
        let bare: u64 = pages.map(|page| (bytes - page).min(page_bytes)).sum();
        (bytes - used * self.size).saturating_sub(bare) as f64 / used as f64
    }
}

/// A list of records that is followed once, within bounds.
struct List {
    seen: HashSet<u64>,
    left: u64,
}

impl List {
    fn new(memory: &dyn Memory) -> List {
        List {
            seen: HashSet::new(),
            left: memory.most_bytes(),
        }
    }

    /// Checks the address of the next record.
    fn enter(&mut self, at: u64) -> Result<u64, Error> {
        if !at.is_multiple_of(ALIGN_BYTES as u64) || !self.seen.insert(at) {
            return Err(Error::damaged("a list of records leads nowhere"));
        }
        Ok(at)
    }

    /// Checks that records of so many bytes can be there.
    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or_else(|| Error::damaged("a list of records is too long"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_the_free_bytes_of_their_own_pages() {
        // Four regions of 2 KiB: two pages. One block keeps the other half of its page.
        let one = Bitmap::of(&0b1110u64.to_le_bytes(), 4, 2048);
        assert_eq!(one.pinned_by_each(0, 4096), 2048.0);
        let apart = Bitmap::of(&0b1010u64.to_le_bytes(), 4, 2048);
        assert_eq!(apart.pinned_by_each(0, 4096), 2048.0);
        let full = Bitmap::of(&0u64.to_le_bytes(), 4, 2048);
        assert_eq!(full.pinned_by_each(0, 4096), 0.0);
        let empty = Bitmap::of(&0b1111u64.to_le_bytes(), 4, 2048);
        assert_eq!(empty.pinned_by_each(0, 4096), 0.0);
    }

    #[test]
    fn of_larger_pages_a_block_keeps_more() {
        // 24 regions of 2 KiB: three pages of 16 KiB, or two and two halves.
        const PAGE: u64 = 16 << 10;
        let one = Bitmap::of(&0xff_fffeu64.to_le_bytes(), 24, 2048);
        assert_eq!(one.pinned_by_each(5 * PAGE, PAGE), (PAGE - 2048) as f64);
        // The halves may hold another slab's blocks.
        let halves = (PAGE - 2048) as f64;
        assert_eq!(one.pinned_by_each(5 * PAGE + PAGE / 2, PAGE), halves);
        assert_eq!(one.pinned_by_each(5 * PAGE, 4096), 2048.0);
    }
}
