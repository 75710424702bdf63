//! The strings with fixed numbers of a profile for pprof.

use mallard_formats::profile;

/// In the order of their numbers. The first is empty.
const STRINGS: [&str; 18] = [
    "",
    profile::ALLOC_OBJECTS,
    profile::COUNT,
    profile::ALLOC_SPACE,
    profile::BYTES,
    profile::INUSE_OBJECTS,
    profile::INUSE_SPACE,
    profile::PEAK_SPACE,
    profile::WASTE_SPACE,
    profile::SPACE,
    profile::THREAD,
    profile::ARENA,
    profile::FREED_OBJECTS,
    profile::LIFETIME,
    profile::NANOSECONDS,
    profile::THREAD_NAME,
    profile::FRAG_SPACE,
    profile::BY_STACK_ALONE,
];

pub const COUNT: u64 = STRINGS.len() as u64;

/// What stands between the strings of [`TEXT`].
pub const BETWEEN: u8 = b',';
/// The strings in one text: a table would hold addresses that need relocation.
pub static TEXT: [u8; TEXT_BYTES] = text();

const TEXT_BYTES: usize = {
    let (mut bytes, mut i) = (STRINGS.len() - 1, 0);
    while i < STRINGS.len() {
        bytes += STRINGS[i].len();
        i += 1;
    }
    bytes
};

const fn text() -> [u8; TEXT_BYTES] {
    let mut text = [BETWEEN; TEXT_BYTES];
    let (mut at, mut i) = (0, 0);
    while i < STRINGS.len() {
        let string = STRINGS[i].as_bytes();
        let (_, rest) = text.split_at_mut(at);
        rest.split_at_mut(string.len()).0.copy_from_slice(string);
        at += string.len() + 1;
        i += 1;
    }
    text
}

/// The number of a string. One that has none does not compile.
pub const fn number_of(string: &str) -> u64 {
    let mut i = 0;
    while !is_same(STRINGS[i].as_bytes(), string.as_bytes()) {
        i += 1;
    }
    i as u64
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut i = 0;
    while i < one.len() && i < other.len() && one[i] == other[i] {
        i += 1;
    }
    i == one.len() && i == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_strings_by_their_numbers() {
        let strings: std::vec::Vec<&[u8]> = TEXT.split(|&byte| byte == BETWEEN).collect();
        assert_eq!(strings.len() as u64, COUNT);
        for (number, string) in STRINGS.iter().enumerate() {
            assert_eq!(strings[number], string.as_bytes());
            assert_eq!(number_of(string), number as u64);
        }
    }
}
