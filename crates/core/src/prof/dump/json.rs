//! Single samples as jemalloc's JSON: the log (`prof.log_stop`) and the recent ones
//! (`experimental.prof_recent.alloc_dump`).

use super::file::{Sink, Text};
use crate::prof::history::{self, Moment, Records};
use crate::prof::sites::Site;
use crate::prof::sort::Numbers;
use crate::sys::time;
use core::fmt::Write;

/// What turns times of the monotonic clock into nanoseconds since 1970.
fn wall_offset() -> u64 {
    time::wall_ns().wrapping_sub(time::now_ns())
}

fn number_of(site: Option<&'static Site>) -> usize {
    site.map_or(0, |site| core::ptr::from_ref(site).addr())
}

/// Writes `text`, which comes before a number, and the number.
#[inline(never)]
fn number(out: &mut Text<'_>, text: &str, n: u64) {
    let _ = write!(out, "{text}{n}");
}

/// Commas between the members of lists.
#[derive(Clone, Copy)]
struct Comma(bool);

impl Comma {
    fn next(&mut self) -> &'static str {
        if core::mem::replace(&mut self.0, true) {
            ","
        } else {
            ""
        }
    }
}

/// Writes `["0x…",…]`.
#[inline(never)]
fn trace(text: &mut Text<'_>, site: Option<&Site>) {
    let mut comma = Comma(false);
    text.0.put(b"[");
    for frame in site.map_or(&[][..], Site::frames) {
        let _ = write!(text, "{}\"{frame:#x}\"", comma.next());
    }
    text.0.put(b"]");
}

/// Writes a string; names have no other characters that need care.
#[inline(never)]
fn string(text: &mut Text<'_>, thread: u32) {
    text.0.put(b"\"");
    for &byte in history::trimmed(&history::name_of(thread)) {
        match byte {
            b'"' | b'\\' => text.0.put(&[b'\\', byte]),
            // The system's names may have any bytes.
            b' '..=b'~' => text.0.put(&[byte]),
            _ => text.0.put(b"?"),
        }
    }
    text.0.put(b"\"");
}

/// Writes the log of samples. `ENOMEM` when memory is out.
#[inline(never)]
pub fn log(
    out: &mut dyn Sink,
    records: &Records,
    lg_sample: u32,
    precise: bool,
) -> Result<(), i32> {
    let mut text = Text(out);
    let (mut threads, mut sites) = (Numbers::new(), Numbers::new());
    let mut done = true;
    for record in records.iter() {
        for moment in [Some(record.born), record.freed].into_iter().flatten() {
            done &= threads.push(moment.thread as usize) & sites.push(number_of(moment.site));
        }
    }
    if !done {
        return Err(libc::ENOMEM);
    }
    threads.make_unique();
    sites.make_unique();
    info(&mut text, records, lg_sample, precise);
    text.0.put(b"},\"threads\":[");
    let mut comma = Comma(false);
    for &thread in threads.get() {
        text.0.put(comma.next().as_bytes());
        number(&mut text, "{\"thr_uid\":", thread as u64);
        text.0.put(b",\"thr_name\":");
        string(&mut text, thread as u32);
        text.0.put(b"}");
    }
    text.0.put(b"],\"stack_traces\":[");
    comma = Comma(false);
    for &site in sites.get() {
        text.0.put(comma.next().as_bytes());
        // SAFETY: 0, or the address of a site, which lives for ever.
        trace(&mut text, unsafe { (site as *const Site).as_ref() });
    }
    text.0.put(b"],\"allocations\":[");
    allocations(&mut text, records, &threads, &sites);
    text.0.put(b"]}");
    Ok(())
}

/// Begins the log with `{"info":{…`.
#[inline(always)]
fn info(text: &mut Text<'_>, records: &Records, lg_sample: u32, precise: bool) {
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() };
    let duration = time::now_ns().saturating_sub(records.began_ns);
    number(text, "{\"info\":{\"duration\":", duration);
    text.0
        .put(concat!(",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"").as_bytes());
    number(text, ",\"lg_sample_rate\":", lg_sample.into());
    text.0.put(if precise {
        b",\"prof_time_resolution\":\"high\""
    } else {
        b",\"prof_time_resolution\":\"default\""
    });
    number(text, ",\"pid\":", pid as u64);
}

/// Writes the members of the list of blocks, which name threads and sites by their places.
#[inline(always)]
fn allocations(text: &mut Text<'_>, records: &Records, threads: &Numbers, sites: &Numbers) {
    let offset = wall_offset();
    let mut comma = Comma(false);
    for record in records.iter() {
        let (born, freed) = (record.born, record.freed.unwrap_or(record.born));
        let at = |moment: &Moment| moment.ns.wrapping_add(offset);
        let thread = |moment: &Moment| threads.place(moment.thread as usize) as u64;
        let site = |moment: &Moment| sites.place(number_of(moment.site)) as u64;
        text.0.put(comma.next().as_bytes());
        number(text, "{\"alloc_thread\":", thread(&born));
        number(text, ",\"free_thread\":", thread(&freed));
        number(text, ",\"alloc_trace\":", site(&born));
        number(text, ",\"free_trace\":", site(&freed));
        number(text, ",\"alloc_timestamp\":", at(&born));
        number(text, ",\"free_timestamp\":", at(&freed));
        number(text, ",\"usize\":", record.usable as u64);
        text.0.put(b"}");
    }
}

/// Writes the recent samples.
#[inline(never)]
pub fn recent(out: &mut dyn Sink, records: &Records, lg_sample: u32) {
    let mut text = Text(out);
    let offset = wall_offset();
    let max = history::recent_max();
    number(&mut text, "{\"sample_interval\":", 1 << lg_sample.min(63));
    let _ = write!(text, ",\"recent_alloc_max\":{max}");
    text.0.put(b",\"recent_alloc\":[");
    let mut comma = Comma(false);
    for record in records.iter() {
        text.0.put(comma.next().as_bytes());
        number(&mut text, "{\"size\":", record.requested as u64);
        number(&mut text, ",\"usize\":", record.usable as u64);
        text.0.put(match record.freed {
            Some(_) => b",\"released\":true",
            None => b",\"released\":false",
        });
        moment(&mut text, "alloc", &record.born, offset);
        if let Some(freed) = &record.freed {
            moment(&mut text, "dalloc", freed, offset);
        }
        text.0.put(b"}");
    }
    text.0.put(b"]}");
}

#[inline(never)]
fn moment(text: &mut Text<'_>, what: &str, moment: &Moment, offset: u64) {
    let thread = moment.thread;
    let _ = write!(text, ",\"{what}_thread_uid\":{thread}");
    if history::name_of(thread) != [0; history::NAME_MAX] {
        let _ = write!(text, ",\"{what}_thread_name\":");
        string(text, thread);
    }
    let ns = moment.ns.wrapping_add(offset);
    let _ = write!(text, ",\"{what}_time\":{ns},\"{what}_trace\":");
    trace(text, moment.site);
}
