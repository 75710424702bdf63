//! Where an address of a process lies in the file's own addresses, which debug information and
//! symbol tables use.
//!
//! Segments are mapped by whole pages, of 4 KiB on most systems, and of 16 or 64 KiB on some with
//! AArch64. A recording may come from another system, so the size is read off the mappings.

use object::elf::PF_X;
use object::{Object, ObjectSegment, SegmentFlags};

use super::Address;
use super::file::File;
use crate::model::Mapping;

pub struct Places {
    /// Those with code first.
    segments: Vec<Segment>,
    /// Whether the file has debug information alone.
    is_separate: bool,
}

struct Segment {
    address: u64,
    file_start: u64,
    file_size: u64,
    memory_size: u64,
    /// The address and the place in the file are the same modulo this.
    align: u64,
    has_code: bool,
}

/// The smallest page that any system has, and the largest.
const PAGE_BYTES: u64 = 4096;
const PAGE_BYTES_MAX: u64 = 65536;

/// The largest page of which the mapping may consist.
fn page_of(mapping: &Mapping) -> u64 {
    let bits = mapping.start | mapping.limit | mapping.file_offset | PAGE_BYTES_MAX;
    (1 << bits.trailing_zeros()).max(PAGE_BYTES)
}

/// Whether the mapping can be one of this file's code. Without build ids this is all that tells a
/// file that was replaced.
pub fn can_hold(file: &File<'_>, mapping: &Mapping) -> bool {
    let size = mapping.limit.saturating_sub(mapping.start);
    let end = mapping.file_offset.saturating_add(size);
    let page = page_of(mapping);
    let code = Places::new(file).segments.into_iter();
    code.filter(|segment| segment.has_code).any(|segment| {
        segment.first_page(page) <= mapping.file_offset && end <= segment.end_page(page)
    })
}

/// An alignment that serves as a mask, whatever a damaged file says.
fn alignment(said: u64) -> u64 {
    said.clamp(PAGE_BYTES, 1 << 63).next_power_of_two()
}

impl Segment {
    /// The place in the file of the first page that is mapped.
    fn first_page(&self, page: u64) -> u64 {
        self.file_start & !(page - 1)
    }

    /// The place behind the last page.
    fn end_page(&self, page: u64) -> u64 {
        let end = self.file_start.saturating_add(self.file_size);
        end.saturating_add(page - 1) & !(page - 1)
    }

    /// Whether the file has the place in this segment itself.
    fn holds(&self, in_file: u64) -> bool {
        let from = in_file.wrapping_sub(self.file_start);
        in_file >= self.file_start && from < self.file_size
    }

    /// Whether a mapping has as many pages as this segment needs.
    fn has_size_of(&self, mapping: &Mapping) -> bool {
        let page = page_of(mapping);
        let end = self.address.saturating_add(self.memory_size);
        let end = end.saturating_add(page - 1) & !(page - 1);
        mapping.limit.wrapping_sub(mapping.start) == end - (self.address & !(page - 1))
    }

    /// The address at which a mapping from this place of the file begins, if the segment's own
    /// place in the file is not known. None if the mapping cannot be of this segment.
    fn mapped_from(&self, file_offset: u64) -> Option<u64> {
        let within = self.address.wrapping_sub(file_offset) & (self.align - 1);
        let within = if within < PAGE_BYTES_MAX {
            within
        } else {
            self.address & (PAGE_BYTES - 1)
        };
        self.address.checked_sub(within)
    }
}

impl Places {
    pub fn new(file: &File<'_>) -> Places {
        let mut segments: Vec<Segment> = file
            .elf
            .segments()
            .map(|segment| {
                let (file_start, file_size) = segment.file_range();
                let flags = segment.flags();
                Segment {
                    address: segment.address(),
                    file_start,
                    file_size,
                    memory_size: segment.size(),
                    align: alignment(segment.align()),
                    has_code: matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0),
                }
            })
            .collect();
        segments.sort_by_key(|segment| !segment.has_code);
        let code = segments.first().filter(|segment| segment.has_code);
        Places {
            is_separate: code.is_some_and(|code| code.file_size == 0),
            segments,
        }
    }

    pub fn of(&self, address: Address<'_>) -> u64 {
        let mapping = address.mapping;
        let in_mapping = address.value.wrapping_sub(mapping.start);
        let in_file = in_mapping.wrapping_add(mapping.file_offset);
        let own = self.segments.iter().find(|segment| segment.holds(in_file));
        let holder = own.or_else(|| {
            let page = page_of(mapping);
            self.segments.iter().find(|segment| {
                let pages = segment.first_page(page)..segment.end_page(page);
                segment.file_size > 0 && pages.contains(&in_file)
            })
        });
        if let Some(segment) = holder.filter(|_| !self.is_separate) {
            return in_file
                .wrapping_sub(segment.file_start)
                .wrapping_add(segment.address);
        }
        // A separate debug file has segments without contents. Where the mapping shows the start of
        // the file, it is that of the lowest segment, else that of the code. Large pages of code
        // begin at the start of the file, too.
        let lowest = self.segments.iter().min_by_key(|segment| segment.address);
        let code = self.segments.first().filter(|segment| segment.has_code);
        let is_of_code = |code: &Segment| {
            mapping.file_offset != 0 || page_of(mapping) > PAGE_BYTES && code.has_size_of(mapping)
        };
        let mapped = if code.is_some_and(is_of_code) {
            code
        } else {
            lowest
        };
        let mapped_from = mapped.and_then(|segment| segment.mapped_from(mapping.file_offset));
        match mapped_from {
            Some(address) => in_mapping.wrapping_add(address),
            None => in_file,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The segments of a file for AArch64, which is linked for pages of up to 64 KiB; without
    /// contents, those of its separate debug file.
    fn linked_for_large_pages(is_separate: bool) -> Places {
        let segment = |file_start, address, size, has_code| Segment {
            address,
            file_start: if is_separate { 0 } else { file_start },
            file_size: if is_separate { 0 } else { size },
            memory_size: size,
            align: 0x10000,
            has_code,
        };
        Places {
            segments: vec![
                segment(0x1240, 0x1_1240, 0x5000, true),
                segment(0, 0, 0x1230, false),
            ],
            is_separate,
        }
    }

    #[test]
    fn an_address_is_found_whatever_the_pages_of_the_system_that_recorded_it() {
        const BASE: u64 = 0xaaaa_0001_0000;
        for (page, file_offset) in [(0x1000, 0x1000), (0x4000, 0), (0x1_0000, 0)] {
            let mapping = Mapping {
                start: BASE + (0x1_1240 & !(page - 1)),
                limit: BASE + 0x1_6240_u64.next_multiple_of(page),
                file_offset,
                ..Mapping::default()
            };
            for is_separate in [false, true] {
                let address = Address {
                    mapping: &mapping,
                    value: BASE + 0x1_2345,
                };
                let found = linked_for_large_pages(is_separate).of(address);
                assert_eq!(found, 0x1_2345, "pages of {page:#x}, {is_separate}");
            }
        }
    }

    #[test]
    fn a_mapping_or_an_alignment_that_no_linker_makes_is_no_failure() {
        let segment = Segment {
            address: 0x1000,
            file_start: 0,
            file_size: 0,
            memory_size: 0x5000,
            align: 0x20_0000,
            has_code: true,
        };
        let places = Places {
            segments: vec![segment],
            is_separate: true,
        };
        let mapping = Mapping {
            start: 0x7000_0000,
            limit: 0x7000_1000,
            file_offset: 0x1f_8000,
            ..Mapping::default()
        };
        let address = Address {
            mapping: &mapping,
            value: 0x7000_0123,
        };
        assert_eq!(places.of(address), 0x1f_8123, "the place in the file");
        assert_eq!(alignment(u64::MAX), 1 << 63);
        assert_eq!(alignment(0), PAGE_BYTES);
        assert_eq!(alignment(0x1_0001), 0x2_0000);
    }
}
