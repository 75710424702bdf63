//! The page of statistics that other processes read, as this process writes it.
//!
//! [`mallard_formats::page`] has the layout. Readers take the figures by the protocol of
//! [`crate::sys::seqlock`].

use crate::class::CACHED_CLASSES;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::seqlock;
use mallard_formats::page::{self, CLASSES, FIGURES, MAGIC, RequestStatus, layout_word};

const _: () = assert!(CLASSES.rows == CACHED_CLASSES + 1);

/// The page; all zeros before [`StatsPage::begin`].
#[repr(transparent)]
pub struct StatsPage(page::StatsPage<AtomicU64>);

impl StatsPage {
    /// Makes a page of zeros one that readers accept. What its figures are of comes first.
    pub fn begin(&self, pid: u32) {
        self.0.pid.store(pid.into(), Ordering::Relaxed);
        let layout = layout_word(size_of::<StatsPage>());
        self.0.layout.store(layout, Ordering::Relaxed);
        self.0.magic.store(MAGIC, Ordering::Release);
    }

    /// The process whose page this is; 0 if it lies in its own memory.
    pub fn pid(&self) -> u32 {
        self.0.pid.load(Ordering::Relaxed) as u32
    }

    /// Replaces the figures.
    pub fn publish(&self, figures: &[u64; FIGURES]) {
        seqlock::write(&self.0.sequence, &self.0.figures, figures);
    }

    /// A request that was not carried out yet.
    pub fn request(&self) -> Option<u64> {
        let request = self.0.request.load(Ordering::Acquire);
        (request != self.0.done.load(Ordering::Relaxed)).then_some(request)
    }

    /// Asks for something, as a reader does.
    #[cfg(test)]
    pub fn ask(&self, request: u64) {
        self.0.request.store(request, Ordering::Release);
    }

    /// Takes on a request that no thread has taken on.
    pub fn take_request(&self) -> Option<u64> {
        let taken = self.0.taken.load(Ordering::Relaxed);
        let request = self.request().filter(|&request| request != taken)?;
        let taken =
            (self.0.taken).compare_exchange(taken, request, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok().then_some(request)
    }

    /// Reports to the reader that its request was carried out.
    pub fn answer(&self, request: u64, answer: RequestStatus) {
        self.0.answer.store(answer as u64, Ordering::Relaxed);
        self.0.done.store(request, Ordering::Release);
    }
}
