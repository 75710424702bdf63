//! Numbers for what is loaded at a place, under which the cache files the rules of modules.

use super::cache::RuleCache;
use super::memory::bytes_now;
use super::modules::Module;
use super::table::packed::PackedRules;
use crate::sys::spread::SPREAD_FACTOR;

/// What a module's own entry in the cache is filed under, beside its tag.
const CHECK: u64 = 0x5bd1_e995_97f4_a7c5;

/// A number for what is loaded at a place. Another module that is loaded there later has another
/// one, so its walks do not find the rules of the first: the start of the table, which has the
/// number of functions, is part of it. Checks the module, too.
pub fn tag_of(module: &mut Module, cache: Option<&RuleCache>) -> u64 {
    let mix = |tag: u64, part: u64| (tag ^ part).wrapping_mul(SPREAD_FACTOR).rotate_left(29);
    let parts = [module.start, module.end, module.unwind];
    let place = parts.iter().fold(0, |tag, &part| mix(tag, part as u64));
    let Some(cache) = cache.filter(|_| module.unwind != 0) else {
        return place;
    };
    // The table must be within the module before it is read from here.
    if cache.get(module.unwind, place ^ CHECK).is_none() {
        if !module.is_sound() {
            return place;
        }
        cache.put(module.unwind, place ^ CHECK, PackedRules::CHECKED.bits());
    }
    module.is_checked = true;
    // Of a module that may have been unloaded, the kernel reads the words.
    let parts = if module.is_doubtful {
        [bytes_now(module.unwind), bytes_now(module.unwind + 8)]
            .map(|bytes| bytes.map_or(0, u64::from_le_bytes))
    } else {
        // SAFETY: the table has these words (`is_sound`), and is loaded.
        unsafe { core::ptr::with_exposed_provenance::<[u64; 2]>(module.unwind).read_unaligned() }
    };
    parts.iter().fold(place, |tag, &part| mix(tag, part))
}
