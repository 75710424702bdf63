//! The factor by which hash tables spread their keys.

/// 2⁶⁴ divided by the golden ratio, made odd: the upper bits of a product with it depend on all
/// bits of the key, and no two keys share a product.
pub const SPREAD_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
