//! The order of all numbers as integers, so that a search can halve what is between two of them.

/// A number's place in the order of all numbers.
pub fn key(value: f64) -> i128 {
    let bits = (value + 0.0).to_bits() as i64;
    i128::from(if bits < 0 { i64::MIN - bits } else { bits })
}

/// The number at a place.
pub fn number(key: i128) -> f64 {
    let key = key as i64;
    f64::from_bits((if key < 0 { i64::MIN - key } else { key }) as u64)
}
