//! What a session says as a whole, for programs that read the JSON: the sentences of every other
//! form, and each allocator over all rows.

use serde::Serialize;

use crate::arithmetic::analysis::Analysed;
use crate::arithmetic::{stats, suite};
use crate::model::{Kind, Results};

/// One allocator over all rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    pub allocator: String,
    pub rows: usize,
    /// Of the geometric means: to glibc, or for the full suite to the best of the others.
    pub time: Analysed,
    pub peak_rss: Analysed,
    /// RSS at the end; of the full suite only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_rss: Option<Analysed>,
    /// The number of rows in which it is marked.
    pub fastest: usize,
    pub smallest: usize,
}

/// What a session says as a whole: the same sentences as in every other form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conclusion {
    pub sentence: Option<String>,
    pub lines: Vec<String>,
    pub notes: Vec<String>,
    pub allocators: Vec<Total>,
}

pub fn conclusion(r: &Results) -> Conclusion {
    let closing = crate::closing::conclusion(r);
    Conclusion {
        sentence: closing.as_ref().map(|closing| closing.sentence.clone()),
        lines: closing.map(|closing| closing.lines).unwrap_or_default(),
        notes: crate::closing::notes(r),
        allocators: if r.kind == Kind::Suite {
            suite::means(r).into_iter().map(of_suite).collect()
        } else {
            let ranking = stats::ranking(r).allocators;
            ranking.into_iter().map(of_all_rows).collect()
        },
    }
}

fn of_suite(mean: suite::Mean) -> Total {
    Total {
        allocator: mean.allocator,
        rows: mean.rows,
        time: Analysed::of(mean.time),
        peak_rss: Analysed::of(mean.peak_rss),
        end_rss: Some(Analysed::of(mean.end_rss)),
        fastest: mean.fastest,
        smallest: mean.smallest,
    }
}

fn of_all_rows(all: stats::Overall) -> Total {
    Total {
        time: Analysed::of(all.time_to_glibc),
        peak_rss: Analysed::of(all.rss_to_glibc),
        end_rss: None,
        allocator: all.allocator,
        rows: all.rows,
        fastest: all.fastest,
        smallest: all.smallest,
    }
}
