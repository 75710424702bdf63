//! Metrics for Rust programs: figures of the process, and their text for Prometheus.

use crate::stats::metrics::{self, Format, MetricSource, Section};
use crate::stats::page::Words;
use crate::upkeep::export::page::{OfClass, Total};
use core::fmt;

/// Returns the figures of this moment.
///
/// This takes some ten microseconds, allocates nothing and stops no thread. The figures are
/// exact while the process's threads are idle, and else within a batch of blocks for each thread.
///
/// ```
/// let figures = mallard_core::metrics();
/// assert!(figures.allocated() <= figures.active());
/// assert!(figures.active() <= figures.resident());
///
/// // The body of an answer to Prometheus, with the type
/// // `application/openmetrics-text; version=1.0.0; charset=utf-8`.
/// let text = figures.to_string();
/// assert!(text.contains("# TYPE mallard_allocated_bytes gauge\n"));
/// assert!(text.ends_with("# EOF\n"));
/// ```
///
/// An example that serves them is in `examples/rust-metrics`.
pub fn metrics() -> Metrics {
    super::start();
    Metrics(Words::now())
}

/// Figures of the process at one moment; see [`mod@metrics`].
///
/// They are those that `mallard top` and `mallard export` show of a process. As text
/// ([`Display`](fmt::Display)) they are in OpenMetrics 1.0; [`Metrics::write`] also writes the
/// older text format.
#[derive(Clone)]
pub struct Metrics(Words);

macro_rules! totals {
    ($($(#[doc = $doc:literal])* $name:ident: $total:ident;)*) => {
        impl Metrics {
            $(
                $(#[doc = $doc])*
                pub fn $name(&self) -> u64 {
                    self.0.word(Section::Totals, Total::$total as usize, 0)
                }
            )*
        }
    };
}

totals! {
    /// Bytes of blocks that the program holds, with the sizes of their classes.
    allocated: Allocated;
    /// The most of these at any publication, or call of [`mod@metrics`].
    peak_allocated: Peak;
    /// Bytes of pages with slabs and large blocks. What exceeds [`Metrics::allocated`] is
    /// fragmentation, and free blocks in caches.
    active: Active;
    /// Bytes of free pages that wait for reuse or their return to the system.
    dirty: Dirty;
    /// Bytes of free pages that the system may take.
    muzzy: Muzzy;
    /// Bytes of addresses without memory that are kept for later use.
    retained: Retained;
    /// Bytes of addresses with memory, and of those of the allocator's records.
    mapped: Mapped;
    /// An upper bound of the bytes of memory behind active, dirty and muzzy pages and metadata.
    resident: Resident;
    /// Bytes of the allocator's own records.
    metadata: Metadata;
    /// Bytes of free blocks in thread caches.
    thread_cached: ThreadCached;
    /// Bytes of free blocks in transfer caches.
    transfer_cached: TransferCached;
    /// The number of threads with a cache.
    threads: Threads;
    /// The number of arenas.
    arenas: Arenas;
    /// Rounds so far that returned free pages to the system.
    purges: Purges;
    /// Bytes of dirty pages that were returned so far.
    purged: Purged;
    /// Samples that the heap profiler has of blocks that the program holds.
    samples: Samples;
}

impl Metrics {
    /// Whether the heap profiler samples.
    pub fn is_sampling(&self) -> bool {
        self.0.word(Section::Totals, Total::IsSampling as usize, 0) != 0
    }

    /// The size classes in use, by size. Blocks above 256 KiB come last and together, with the size
    /// 0.
    pub fn classes(&self) -> impl Iterator<Item = ClassMetrics> {
        (0..self.0.rows(Section::Classes)).filter_map(|row| {
            let word = |word: OfClass| self.0.word(Section::Classes, row, word as usize);
            let class = ClassMetrics {
                size: word(OfClass::Size),
                blocks: word(OfClass::Blocks),
                allocated: word(OfClass::Allocated),
                active: word(OfClass::Pages),
            };
            (class.blocks > 0 || class.active > 0).then_some(class)
        })
    }

    /// Writes the figures as text for Prometheus.
    ///
    /// # Errors
    /// Only those of `out`.
    pub fn write(&self, out: &mut dyn fmt::Write, format: Format) -> fmt::Result {
        let mut out = out;
        metrics::process(&mut out, format, &self.0)
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Format::OpenMetrics)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("allocated", &self.allocated())
            .field("active", &self.active())
            .field("resident", &self.resident())
            .finish_non_exhaustive()
    }
}

/// Figures of a size class; see [`Metrics::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassMetrics {
    /// Bytes of a block; 0 for all blocks above 256 KiB.
    pub size: u64,
    /// Blocks that the program holds, and their bytes.
    pub blocks: u64,
    pub allocated: u64,
    /// Bytes of the pages of this class.
    pub active: u64,
}
