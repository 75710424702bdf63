//! Maps by address. A multiplication spreads addresses well enough: a hostile recording can only
//! slow its own analysis.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub type Addresses<T> = HashMap<u64, T, BuildHasherDefault<Multiply>>;

#[derive(Debug, Default, Clone, Copy)]
pub struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.0 ^ value).wrapping_mul(MULTIPLIER);
        // The map takes the lowest bits and the highest seven.
        self.0 = mixed ^ mixed >> 32;
    }
}
