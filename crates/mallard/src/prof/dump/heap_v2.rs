//! jemalloc's text form of a heap profile, `heap_v2`, which `jeprof` reads.
//!
//! `jeprof` scales what it reads: it takes N blocks of S bytes, sampled every R bytes, for
//! N / (1 − e^(−x/R)) blocks, with x = S/N. Our sums are unbiased already, for any mix of sizes. So
//! the file has N' = N (1 − e^(−x/R)) blocks and S' = N' x bytes, from which that formula gives back
//! N and S.

use super::file::{Sink, Text};
use crate::prof::gap::one_minus_exp;
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
    sites::each(&mut |site, figures| {
        if figures.live.is_none() && (!accum || figures.ever.is_none()) {
            return;
        }
        let _ = text.write_char('@');
        for frame in site.frames() {
            let _ = write!(text, " {frame:#x}");
        }
        let _ = text.write_str("\n  t*: ");
        line(&mut text, figures.live, figures.ever, lg_sample, accum);
    });
    let _ = text.write_str("\nMAPPED_LIBRARIES:\n");
    proc::read(c"/proc/self/maps", &mut [0; PIECE_BYTES], |piece| {
        out.put(piece)
    });
}

#[inline(never)]
fn line(text: &mut Text<'_>, live: Amount, ever: Amount, lg_sample: u32, accum: bool) {
    let (live, live_bytes) = biased(live, lg_sample);
    let (ever, ever_bytes) = match accum {
        true => biased(ever, lg_sample),
        false => (0, 0),
    };
    let _ = writeln!(text, "{live}: {live_bytes} [{ever}: {ever_bytes}]");
}

/// The numbers from which `jeprof` computes this amount.
#[inline(never)]
fn biased(amount: Amount, lg_sample: u32) -> (u64, u64) {
    let (n, s) = (amount.blocks() as f64, amount.bytes() as f64);
    if n < 0.5 || lg_sample == 0 {
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
