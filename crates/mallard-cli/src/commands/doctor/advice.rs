//! What a person does with a finding: a sentence for each kind of bug.

use super::report::{Kind, Report};

/// What is wrong, with figures.
pub fn sentence(report: &Report) -> String {
    let place = place(report);
    match report.bytes.filter(|_| !report.is_exact()) {
        Some(changed) => format!("{place}: {} changed", bytes(changed)),
        None => place,
    }
}

fn place(report: &Report) -> String {
    let name = report.name();
    let Some(block) = report.block else {
        return format!("{name} of {:#x}", report.address);
    };
    let size = bytes(block.size);
    let (start, end) = (block.address, block.address.wrapping_add(block.size));
    let at = report.address;
    match report.kind() {
        Kind::DoubleFree => format!("{name} of a block of {size}"),
        Kind::Mismatch => format!("{name}: the block has {size}"),
        Kind::InvalidFree | Kind::ForeignFree if (start + 1..end).contains(&at) => {
            format!("{name}, {} into a block of {size}", bytes(at - start))
        }
        _ if at < start => format!("{name}, {} before a block of {size}", bytes(start - at)),
        _ if at >= end => match at - end {
            0 => format!("{name}, right behind a block of {size}"),
            behind => format!("{name}, {} behind a block of {size}", bytes(behind)),
        },
        _ => format!("{name}, {} into a block of {size}", bytes(at - start)),
    }
}

/// `1 byte`, `40 bytes`.
pub fn bytes(number: u64) -> String {
    let noun = if number == 1 { "byte" } else { "bytes" };
    format!("{number} {noun}")
}

/// What to look for.
pub fn look_for(report: &Report) -> &'static str {
    let behind = report.block.map_or(0, |block| {
        (report
            .address
            .wrapping_sub(block.address.wrapping_add(block.size))) as i64
    });
    match report.kind() {
        Kind::Overflow if !report.is_exact() => {
            "a write behind the end, between the allocation and the call that found it. Which bytes \
             changed says what was written: a single zero is a string's end"
        }
        Kind::Overflow if behind == 0 => {
            "a length without the zero at a string's end, a loop with <= in place of <, or an index \
             that is one too large"
        }
        Kind::Overflow if behind >= 1024 => {
            "an index or a length that is not checked, or is in the wrong unit: the first access is \
             far behind the end"
        }
        Kind::Overflow => {
            "a length that is computed in two places, where the block is allocated and where it is \
             filled"
        }
        Kind::Underflow => {
            "an index that becomes negative, or a pointer that is moved back in front of the first \
             element"
        }
        Kind::AfterFree => {
            "a pointer, reference or iterator that is kept across the free: who owns the block, and \
             does a container move its elements or another thread free it meanwhile?"
        }
        Kind::DoubleFree => {
            "two owners of one block, such as a copied struct or class with a pointer in it: one of \
             both frees has to go, or the block needs a count of its owners"
        }
        Kind::InvalidFree => {
            "a pointer that was moved on since the allocation, or one into the middle of another \
             block: free takes the address that malloc gave"
        }
        Kind::ForeignFree => {
            "a free of a local variable, of static memory, or of a buffer that belongs to a library: \
             its manual says by which function it is released, if at all"
        }
        Kind::Mismatch => {
            "the pair of allocation and free: new with delete, new[] with delete[], malloc with \
             free; and the same type or size in both"
        }
        Kind::Other => "the stacks: which of both threads may use the block at that time?",
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Block;
    use super::*;

    #[test]
    fn a_sentence_says_where_the_address_lies_beside_the_block() {
        let of = |kind: &str, address| {
            sentence(&Report {
                kind: kind.to_owned(),
                address,
                block: Some(Block {
                    address: 1000,
                    size: 40,
                }),
                ..Report::default()
            })
        };
        for (kind, address, expected) in [
            (
                "overflow (write)",
                1040,
                "overflow (write), right behind a block of 40 bytes",
            ),
            (
                "overflow (write)",
                1041,
                "overflow (write), 1 byte behind a block of 40 bytes",
            ),
            (
                "underflow (read)",
                996,
                "underflow (read), 4 bytes before a block of 40 bytes",
            ),
            (
                "write after free",
                1008,
                "write after free, 8 bytes into a block of 40 bytes",
            ),
            ("double free", 1000, "double free of a block of 40 bytes"),
            (
                "invalid free",
                1001,
                "invalid free, 1 byte into a block of 40 bytes",
            ),
        ] {
            assert_eq!(of(kind, address), expected);
        }
        let none = Report {
            kind: "foreign free".to_owned(),
            address: 16,
            ..Report::default()
        };
        assert_eq!(sentence(&none), "foreign free of 0x10");
    }
}
