//! jemalloc's `heap_v2`, which Mallard writes as well.
//!
//! ```text
//! heap_v2/524288
//!   t*: 28106: 56637512 [0: 0]           live blocks, bytes [ever blocks, bytes]
//!   t3: 28106: 56637512 [0: 0] worker    those of thread 3, and its name if it has one
//! @ 0x7fcb880a2630 0x5562c38d278e        a stack of return addresses, the innermost first
//!   t*: 13: 6688 [0: 0]
//!   t0: 13: 6688 [0: 0]
//! MAPPED_LIBRARIES:
//! /proc/self/maps
//! ```
//!
//! The figures are those of the samples. A block of x bytes is sampled with the probability
//! 1 − e^(−x/R), where R is the number in the first line. `Counts::weight` divides by that, with
//! the mean size of the stack as x, as `AdjustSamples` of jeprof does. The lines of threads share
//! the weight of their stack, so that they sum up to it.

use std::collections::HashMap;
use std::sync::Arc;

use mallard_procfs::mapping::hexadecimal;

use super::Error;
use super::maps::{self, shown};
use crate::model::{
    INUSE_SPACE_INDEX, Label, LabelValue, Location, LocationIndex, MappingIndex, Profile, Sample,
    SampleType, TYPES, Text, Texts,
};

pub const MAGIC: &[u8] = b"heap_v2/";
const MAPPED_LIBRARIES: &str = "MAPPED_LIBRARIES:";
/// No profiler records deeper stacks.
const FRAMES_MAX: usize = 1 << 12;

pub fn read(bytes: &[u8]) -> Result<Profile, Error> {
    let text = String::from_utf8_lossy(bytes);
    let (stacks, mapped) = split(&text)?;
    let mut lines = stacks.lines().enumerate();
    let (_, first) = lines.next().ok_or(Error::Empty)?;
    let period = first["heap_v2/".len()..].trim();
    let period: u64 = period.parse().map_err(|_| {
        at(
            0,
            format!("no sampling period after heap_v2/: {}", shown(period)),
        )
    })?;
    let mut reader = Reader {
        profile: empty_profile(period),
        places: HashMap::new(),
        texts: Texts::default(),
        threads: HashMap::new(),
        stack: None,
    };
    for (place, line) in lines {
        reader.line(line).map_err(|what| at(place, what))?;
    }
    reader.finish_stack();
    let from = stacks.lines().count() + 1;
    let mappings = maps::executable(mapped).map_err(|(place, what)| at(from + place, what))?;
    let mut profile = reader.profile;
    for location in &mut profile.locations {
        let next = mappings.partition_point(|mapping| mapping.start <= location.address);
        let holder = next.checked_sub(1);
        let holder = holder.filter(|&index| location.address < mappings[index].limit);
        location.mapping = holder.map(|index| MappingIndex(index as u32));
    }
    profile.mappings = mappings;
    Ok(profile)
}

/// The stacks, and what stands behind `MAPPED_LIBRARIES:`. A whole file has both and ends with a
/// line's end.
fn split(text: &str) -> Result<(&str, &str), Error> {
    let start = if text.starts_with(MAPPED_LIBRARIES) {
        Some(0)
    } else {
        text.find("\nMAPPED_LIBRARIES:").map(|at| at + 1)
    };
    let start = start.ok_or_else(|| Error::Short("it has no MAPPED_LIBRARIES".to_owned()))?;
    let mapped = &text[start + MAPPED_LIBRARIES.len()..];
    let mapped = mapped.strip_prefix('\r').unwrap_or(mapped);
    let lines = mapped.strip_prefix('\n');
    match lines {
        Some(lines) if lines.is_empty() || lines.ends_with('\n') => Ok((&text[..start], lines)),
        _ => Err(Error::Short("its last line has no end".to_owned())),
    }
}

fn at(place: usize, what: String) -> Error {
    Error::Line {
        line: place + 1,
        what,
    }
}

fn empty_profile(period: u64) -> Profile {
    Profile {
        types: TYPES[..=INUSE_SPACE_INDEX]
            .iter()
            .map(|(kind, unit)| SampleType::new(kind, unit))
            .collect(),
        default_type: Some(INUSE_SPACE_INDEX),
        period,
        period_type: Some(SampleType::new("space", "bytes")),
        ..Profile::default()
    }
}

struct Reader {
    profile: Profile,
    places: HashMap<u64, LocationIndex>,
    texts: Texts,
    /// The names of threads, which the summary at the head has.
    threads: HashMap<Text, Text>,
    /// The stack whose lines are being read; none in the summary.
    stack: Option<Stack>,
}

struct Stack {
    locations: Arc<[LocationIndex]>,
    all: Option<Counts>,
    threads: Vec<(Text, Counts)>,
}

/// Blocks and bytes, ever and live.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts([u64; 4]);

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if let Some(addresses) = line.strip_prefix('@') {
            self.finish_stack();
            let locations = self.locations(addresses)?.into();
            self.stack = Some(Stack {
                locations,
                all: None,
                threads: Vec::new(),
            });
            return Ok(());
        }
        if line.is_empty() {
            return Ok(());
        }
        let (thread, counts, name) = figures(line).ok_or_else(|| {
            format!(
                "neither a stack (`@ 0x…`) nor figures (`t*: 1: 2 [3: 4]`): {}",
                shown(line)
            )
        })?;
        let thread_text = self.texts.get(thread);
        let Some(stack) = &mut self.stack else {
            if !name.is_empty() {
                self.threads.insert(thread_text, self.texts.get(name));
            }
            return Ok(());
        };
        if thread != "*" {
            stack.threads.push((thread_text, counts));
        } else if stack.all.replace(counts).is_some() {
            return Err("a second line `t*` of one stack".to_owned());
        }
        Ok(())
    }

    fn locations(&mut self, addresses: &str) -> Result<Vec<LocationIndex>, String> {
        let mut stack = Vec::new();
        for address in addresses.split_ascii_whitespace() {
            let digits = address.strip_prefix("0x").unwrap_or(address);
            let address =
                hexadecimal(digits).ok_or_else(|| format!("no address: {}", shown(address)))?;
            if stack.len() == FRAMES_MAX {
                return Err(format!("a stack of more than {FRAMES_MAX} addresses"));
            }
            stack.push(self.place(address.saturating_sub(1))?);
        }
        Ok(stack)
    }

    fn place(&mut self, address: u64) -> Result<LocationIndex, String> {
        if let Some(&place) = self.places.get(&address) {
            return Ok(place);
        }
        let index = u32::try_from(self.profile.locations.len());
        let place = LocationIndex(index.map_err(|_| "too many addresses".to_owned())?);
        self.places.insert(address, place);
        self.profile.locations.push(Location {
            address,
            ..Location::default()
        });
        Ok(place)
    }

    /// Turns the lines of a stack into samples: one for each thread, and one for what no thread
    /// claims. A stack without a line `t*` counts nothing, as in jeprof.
    fn finish_stack(&mut self) {
        let Some(Stack {
            locations,
            all: Some(all),
            threads,
        }) = self.stack.take()
        else {
            return;
        };
        let period = self.profile.period;
        let mut rest = Some(all);
        for (_, counts) in &threads {
            rest = rest.and_then(|rest| rest.without(*counts));
        }
        // Threads that claim more than the stack has are not to be believed.
        let (rest, threads) = match rest {
            Some(rest) => (rest, threads),
            None => (all, Vec::new()),
        };
        let mut add = |counts: Counts, labels: Vec<Label>| {
            if counts != Counts::default() {
                self.profile.samples.push(Sample {
                    stack: Arc::clone(&locations),
                    values: counts.estimate(all, period).to_vec(),
                    labels,
                });
            }
        };
        let key = self.texts.get("thread");
        for (thread, counts) in threads {
            let label = Label {
                key: Arc::clone(&key),
                value: LabelValue::Text(self.threads.get(&thread).cloned().unwrap_or(thread)),
            };
            add(counts, vec![label]);
        }
        add(rest, Vec::new());
    }
}

impl Counts {
    fn without(self, other: Counts) -> Option<Counts> {
        let mut rest = [0; 4];
        for (place, rest) in rest.iter_mut().enumerate() {
            *rest = self.0[place].checked_sub(other.0[place])?;
        }
        Some(Counts(rest))
    }

    /// The figures of the process, from those of the samples, by the weights of the whole stack.
    fn estimate(self, stack: Counts, period: u64) -> [i64; 4] {
        let ever = weight(stack.0[0], stack.0[1], period);
        let live = weight(stack.0[2], stack.0[3], period);
        let scaled = |value: u64, weight: f64| (value as f64 * weight).round() as i64;
        [
            scaled(self.0[0], ever),
            scaled(self.0[1], ever),
            scaled(self.0[2], live),
            scaled(self.0[3], live),
        ]
    }
}

/// One over the probability that a block of the mean size is sampled.
fn weight(blocks: u64, bytes: u64, period: u64) -> f64 {
    if blocks == 0 || bytes == 0 || period <= 1 {
        return 1.0;
    }
    let mean = bytes as f64 / blocks as f64;
    // 1 − e^−x, which stays exact where x is small.
    1.0 / -(-mean / period as f64).exp_m1()
}

/// `t3: 13: 6688 [14: 7000] worker`: the thread, its counts, and its name if it has one.
fn figures(line: &str) -> Option<(&str, Counts, &str)> {
    let (thread, rest) = line.strip_prefix('t')?.split_once(':')?;
    if thread != "*" && (thread.is_empty() || !thread.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let (counts, name) = rest.split_once(']')?;
    let (live, ever) = counts.split_once('[')?;
    let pair = |text: &str| -> Option<(u64, u64)> {
        let (blocks, bytes) = text.split_once(':')?;
        Some((decimal(blocks)?, decimal(bytes)?))
    };
    let ((live_blocks, live_bytes), (blocks, bytes)) = (pair(live)?, pair(ever)?);
    let counts = Counts([blocks, bytes, live_blocks, live_bytes]);
    Some((thread, counts, name.trim()))
}

fn decimal(text: &str) -> Option<u64> {
    let digits = text.trim();
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
heap_v2/4096
  t*: 3: 300 [4: 500]
  t0: 3: 300 [4: 500]
@ 0x1001 0x2001
  t*: 100: 8192000 [100: 8192000]
  t1: 60: 4915200 [60: 4915200]
  t2: 40: 3276800 [40: 3276800]
@ 0x1001 0x3001
  t*: 4: 400 [8: 800]
  t1: 1: 100 [0: 0]

MAPPED_LIBRARIES:
1000-2000 r--p 00000000 fe:00 9 /x/prog
2000-3000 r-xp 00001000 fe:00 9 /x/prog
";

    fn read_text(text: &str) -> Result<Profile, Error> {
        read(text.as_bytes())
    }

    #[test]
    fn stacks_threads_and_modules_are_read() {
        let profile = read_text(FILE).unwrap();
        assert_eq!(profile.period, 4096);
        let addresses: Vec<u64> = profile.locations.iter().map(|l| l.address).collect();
        assert_eq!(
            addresses,
            [0x1000, 0x2000, 0x3000],
            "one byte before the return address"
        );
        let mappings: Vec<_> = profile.locations.iter().map(|l| l.mapping).collect();
        assert_eq!(
            mappings,
            [None, Some(MappingIndex(0)), None],
            "code alone counts"
        );
        let threads: Vec<String> = profile
            .samples
            .iter()
            .map(|s| {
                s.labels
                    .first()
                    .map_or_else(String::new, |l| l.value.to_string())
            })
            .collect();
        assert_eq!(threads, ["1", "2", "1", ""]);
    }

    #[test]
    fn sampling_is_undone_by_the_mean_size_of_the_stack() {
        let profile = read_text(FILE).unwrap();
        // Blocks of 80 KiB at a period of 4 KiB are always sampled.
        assert_eq!(profile.samples[0].values, [60, 4_915_200, 60, 4_915_200]);
        // Blocks of 100 bytes are sampled once in 41.46.
        let weight = 1.0 / (1.0 - (-100.0f64 / 4096.0).exp());
        let rest = &profile.samples[3].values;
        assert_eq!(rest[0], (8.0 * weight).round() as i64);
        assert_eq!(
            rest[3],
            (300.0 * weight).round() as i64,
            "less what thread 1 has"
        );
        let live = profile.total(3) - 8_192_000;
        assert!((live as f64 - 400.0 * weight).abs() <= 1.0, "{live}");
    }

    #[test]
    fn threads_have_the_names_that_the_summary_tells() {
        let named = "  t0: 3: 300 [4: 500]\n  t2: 1: 2 [3: 4] pool ] worker\n";
        let text = FILE.replace("  t0: 3: 300 [4: 500]\n", named);
        let profile = read_text(&text).unwrap();
        let label = |place: usize| profile.samples[place].labels[0].value.to_string();
        assert_eq!((label(0), label(1)), ("1".into(), "pool ] worker".into()));
    }

    #[test]
    fn a_period_of_one_means_that_every_block_was_recorded() {
        let profile = read_text(&FILE.replace("heap_v2/4096", "heap_v2/1")).unwrap();
        assert_eq!(profile.samples[3].values, [8, 800, 3, 300]);
    }

    #[test]
    fn threads_that_claim_more_than_the_stack_are_left_out() {
        let profile = read_text(&FILE.replace("t1: 1: 100 [0: 0]", "t1: 9: 100 [0: 0]")).unwrap();
        assert_eq!(profile.samples.len(), 3);
        assert!(profile.samples[2].labels.is_empty());
    }

    #[test]
    fn a_file_that_is_cut_short_is_refused() {
        let maps = FILE.find("MAPPED_LIBRARIES").unwrap();
        for end in 0..FILE.len() {
            // At the end of a line of /proc/self/maps nothing shows that more lines followed.
            let whole_lines = end > maps && FILE[..end].ends_with('\n');
            let cut = crate::read::profile(&FILE.as_bytes()[..end]);
            assert_eq!(cut.is_ok(), whole_lines, "{end}");
        }
        let no_maps = &FILE[..FILE.find("MAPPED").unwrap()];
        assert!(matches!(read_text(no_maps), Err(Error::Short(_))));
        let in_maps = &FILE[..FILE.len() - 3];
        assert!(matches!(read_text(in_maps), Err(Error::Short(_))));
    }

    #[test]
    fn a_wrong_line_is_named_by_its_number() {
        let wrong = |from: &str, to: &str| read_text(&FILE.replacen(from, to, 1)).unwrap_err();
        assert_eq!(
            wrong("@ 0x1001 0x2001", "@ 0x1001 zz").to_string(),
            "line 4: no address: `zz`"
        );
        assert_eq!(
            wrong("t1: 60: 4915200 [60: 4915200]", "t1: 60: -1 [60: 4915200]").to_string(),
            "line 6: neither a stack (`@ 0x…`) nor figures (`t*: 1: 2 [3: 4]`): `t1: 60: -1 [60: 4915200]`"
        );
        assert!(
            wrong("heap_v2/4096", "heap_v2/x")
                .to_string()
                .starts_with("line 1: no sampling period")
        );
        assert!(
            wrong("2000-3000", "2000=3000")
                .to_string()
                .starts_with("line 14: not a line of")
        );
    }
}
