//! Numbers of variable length: seven bits a byte, the lowest first, the highest bit set in all but
//! the last byte.

use crate::{Error, Result};

/// The longest form of a number.
pub const BYTES_MAX: usize = 10;

#[inline]
pub fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a number from the front of `bytes`, and removes it.
#[inline]
pub fn read(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for index in 0..BYTES_MAX {
        let Some(&byte) = bytes.get(index) else {
            return Err(Error::Damaged("a number ends early"));
        };
        let part = u64::from(byte & 0x7f);
        if index == BYTES_MAX - 1 && part > 1 {
            break;
        }
        value |= part << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(Error::Damaged("a number is too long"))
}

/// Small numbers of either sign become small numbers.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(value: u64, signed: i64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            write(value, &mut bytes);
            prop_assert!(bytes.len() <= BYTES_MAX);
            bytes.extend(&rest);
            let mut left = &bytes[..];
            prop_assert_eq!(read(&mut left).unwrap(), value);
            prop_assert_eq!(left, &rest[..]);
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }
    }

    #[test]
    fn a_number_that_ends_early_or_never_is_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0x80; 20]] {
            assert!(read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
