//! A report as a line of JSON.

use super::finding::{Event, Finding};
use super::text::{Form, Text};

/// Writes the line.
#[inline(never)]
pub fn write(text: &mut Text, finding: &Finding<'_>, now: &Event<'_>) {
    text.text("{\"kind\":\"");
    text.text(finding.kind);
    text.text("\",\"found_by\":\"");
    text.text(finding.found_by.name());
    text.text("\",\"address\":\"");
    text.address(finding.at);
    text.text("\",\"process\":");
    // SAFETY: getpid has no preconditions.
    text.number(unsafe { libc::getpid() } as usize);
    if let Some(block) = &finding.block {
        text.text(",\"block\":{\"address\":\"");
        text.address(block.at);
        text.text("\",\"size\":");
        text.number(block.size);
        text.text("}");
    }
    if let Some(damage) = &finding.damage {
        text.text(",\"offset\":");
        text.signed(damage.offset);
        text.text(",\"bytes\":");
        text.number(damage.bytes);
    }
    event(text, ",\"now\":{", now);
    event(text, ",\"allocated\":{", &finding.allocated);
    event(text, ",\"freed\":{", &finding.freed);
    text.text("}\n");
}

#[inline(never)]
fn event(text: &mut Text, begins: &str, event: &Event<'_>) {
    if !event.is_known() {
        return;
    }
    text.text(begins);
    if event.thread != 0 {
        text.text("\"thread\":");
        text.number(event.thread as usize);
        text.text(",");
    }
    text.text("\"stack\":[");
    let mut comma = "";
    for &frame in event.frames {
        text.text(core::mem::replace(&mut comma, ","));
        text.frame(frame, Form::Json);
    }
    text.text("]}");
}
