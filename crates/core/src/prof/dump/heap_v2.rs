//! jemalloc's text form of a heap profile, `heap_v2`, which `jeprof` reads.
//!
//! `jeprof` scales what it reads: it takes N blocks of S bytes, sampled every R bytes, for
//! N / (1 − e^(−x/R)) blocks, with x = S/N. Our sums are unbiased already, for any mix of sizes. So
//! the file has N' = N (1 − e^(−x/R)) blocks and S' = N' x bytes, from which that formula gives
//! back N and S.

use super::file::{Sink, Text};
use super::text::HEX_DIGITS;
use crate::prof::gap::{is_biased, one_minus_exp};
use crate::prof::history;
use crate::prof::samples::{self, SampleGroup, SampleGroups};
use crate::prof::sites::{self, Amount};
use crate::sys::proc;
use core::fmt::Write;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 512;

/// Writes the profile. With `accum`, also what was allocated since the beginning.
#[inline(never)]
pub fn write(out: &mut dyn Sink, lg_sample: u32, accum: bool) {
    let (live, ever) = sites::table().totals();
    let mut text = Text(out);
    // Writing to a sink does not fail.
    let _ = write!(text, "heap_v2/{}\n  t*: ", 1u64 << lg_sample.min(63));
    line(&mut text, live, ever, lg_sample, accum);
    let mut groups = samples::groups(samples::resets());
    if let Some(groups) = &mut groups {
        groups.sort_by_thread();
        threads(&mut text, groups.get(), lg_sample, true);
        groups.sort_by_site();
    }
    let groups = groups.as_ref().map_or(&[][..], SampleGroups::get);
    sites::each(&mut |site, figures| {
        if figures.live.is_none() && (!accum || figures.ever.is_none()) {
            return;
        }
        let _ = text.write_char('@');
        for frame in site.frames() {
            address(text.0, *frame);
        }
        let _ = text.write_str("\n  t*: ");
        line(&mut text, figures.live, figures.ever, lg_sample, accum);
        let of = |group: &SampleGroup| core::ptr::from_ref(group.site).addr();
        let at = core::ptr::from_ref(site).addr();
        let (first, end) = (
            groups.partition_point(|group| of(group) < at),
            groups.partition_point(|group| of(group) <= at),
        );
        threads(
            &mut text,
            groups.get(first..end).unwrap_or(&[]),
            lg_sample,
            false,
        );
    });
    let _ = text.write_str("\nMAPPED_LIBRARIES:\n");
    proc::read_mappings(&mut [0; PIECE_BYTES], |piece| out.put(piece));
}

/// Writes ` 0x…`. Most of a profile is addresses, and `write!` would take half of its time.
#[inline(never)]
fn address(out: &mut dyn Sink, address: usize) {
    let mut text = *b" 0x0000000000000000";
    let count = (usize::BITS - (address | 1).leading_zeros()).div_ceil(4) as usize;
    let mut rest = address;
    for digit in text.iter_mut().skip(3).take(count).rev() {
        *digit = HEX_DIGITS[rest & 15];
        rest >>= 4;
    }
    out.put(text.get(..3 + count).unwrap_or(&text));
}

/// A line for each thread of these samples in use, which are sorted by it.
#[inline(never)]
fn threads(text: &mut Text<'_>, groups: &[SampleGroup], lg_sample: u32, named: bool) {
    for groups in groups.chunk_by(|a, b| a.thread == b.thread) {
        let thread = groups.first().map_or(0, |group| group.thread);
        let mut sum = Amount::NONE;
        for group in groups {
            let one = Amount::of(group.weight, group.usable);
            sum = sum.plus(one.times(group.count.into()));
        }
        let (blocks, bytes) = biased(sum, lg_sample);
        let _ = write!(text, "  t{thread}: {blocks}: {bytes} [0: 0]");
        if named {
            let name = history::name_of(thread);
            let name = history::trimmed(&name);
            if !name.is_empty() {
                text.0.put(b" ");
                text.0.put(name);
            }
        }
        let _ = text.write_char('\n');
    }
}

#[inline(never)]
fn line(text: &mut Text<'_>, live: Amount, ever: Amount, lg_sample: u32, accum: bool) {
    let (live, live_bytes) = biased(live, lg_sample);
    let (ever, ever_bytes) = if accum {
        biased(ever, lg_sample)
    } else {
        (0, 0)
    };
    let _ = writeln!(text, "{live}: {live_bytes} [{ever}: {ever_bytes}]");
}

/// The numbers from which `jeprof` computes this amount.
#[inline(never)]
fn biased(amount: Amount, lg_sample: u32) -> (u64, u64) {
    let (n, s) = (amount.blocks() as f64, amount.bytes() as f64);
    if n < 0.5 || lg_sample == 0 || is_biased() {
        return (amount.blocks(), amount.bytes());
    }
    let x = s / n;
    let p = match x / (1u64 << lg_sample.min(63)) as f64 {
        ratio if ratio < 16.0 => one_minus_exp(ratio),
        _ => 1.0,
    };
    let blocks = ((n * p + 0.5) as u64).max(1);
    (blocks, (blocks as f64 * x + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prof::gap::Weight;

    /// What `jeprof` makes of a line.
    fn as_jeprof(n: u64, s: u64, lg: u32) -> (f64, f64) {
        let (n, s) = (n as f64, s as f64);
        let scale = 1.0 / -(-(s / n) / (1u64 << lg) as f64).exp_m1();
        (n * scale, s * scale)
    }

    #[test]
    fn addresses_are_hexadecimal() {
        struct Bytes(Vec<u8>);
        impl Sink for Bytes {
            fn put(&mut self, bytes: &[u8]) {
                self.0.extend(bytes);
            }
        }
        for at in [0, 9, 0x10, 0x7fff_1234_abcd, usize::MAX] {
            let mut out = Bytes(Vec::new());
            address(&mut out, at);
            assert_eq!(out.0, std::format!(" {at:#x}").as_bytes());
        }
    }

    #[test]
    fn jeprof_gets_the_sums_back() {
        for lg in [12, 19] {
            for size in [16usize, 1000, 100_000, 10_000_000] {
                let samples = 5000;
                let one = Amount::of(Weight::of(size, lg), size);
                let sum = (0..samples).fold(Amount::NONE, |sum, _| sum.plus(one));
                let (n, s) = biased(sum, lg);
                let (n, s) = as_jeprof(n, s, lg);
                let near = |a: f64, b: u64| (a / b as f64 - 1.0).abs() < 0.001;
                assert!(
                    near(n, sum.blocks()) && near(s, sum.bytes()),
                    "{size}: {n} {s}"
                );
            }
        }
        assert_eq!(biased(Amount::NONE, 19), (0, 0));
    }
}
