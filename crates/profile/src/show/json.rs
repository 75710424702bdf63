//! The answer as JSON, for programs. Its keys stay; later versions may add some.

use serde_json::{Map, Value, json};

use super::ProfilePage;
use crate::model::Profile;
use crate::view::rows::{Origin, StackFrame, rows};
use crate::view::summary::Summary;
use crate::view::{Absent, View, diff};

/// The number of this layout. It changes when a key changes its meaning or goes.
const SCHEMA: u32 = 1;

/// The answer as one JSON object, with a line's end.
///
/// # Errors
/// The profile lacks the figures.
pub fn json(page: &ProfilePage<'_>) -> Result<String, Absent> {
    let profile = page.subject.profile;
    let figures = page.view.figures(profile)?;
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("schema", json!(SCHEMA));
    put("file", json!(page.subject.name));
    put("view", json!(page.view.name()));
    put("by", json!(page.by.name()));
    put("unit", json!(&*profile.types[figures.main].unit));
    put("period", json!(profile.period));
    put("allocated", json!(profile.allocated().map(|of| of.bytes)));
    put("summary", summary(profile, page.view)?);
    let lacks = page.names.lacks.iter().map(|lack| {
        json!({ "module": lack.module, "why": lack.to_string(), "addresses": lack.addresses })
    });
    put("lacks", lacks.collect());
    put("notes", json!(page.notes));
    if let Some(apart) = page.apart {
        put("seconds", json!(apart.as_secs_f64()));
    }
    if let Some(before) = page.before {
        put("before_file", json!(before.name));
        put("before_summary", summary(before.profile, page.view)?);
        put("rows", changes(page, before.profile)?);
    } else {
        put("rows", sites(page)?);
    }
    let mut text = serde_json::to_string_pretty(&Value::Object(object)).expect("keys are texts");
    text.push('\n');
    Ok(text)
}

fn summary(profile: &Profile, view: View) -> Result<Value, Absent> {
    let summary = Summary::of(profile, view, view.figures(profile)?);
    Ok(json!({
        "total": number(summary.total),
        "blocks": summary.blocks.map(number),
        "samples": summary.samples,
        "error": summary.error,
        "named": summary.named,
    }))
}

fn sites(page: &ProfilePage<'_>) -> Result<Value, Absent> {
    let profile = page.subject.profile;
    let figures = page.view.figures(profile)?;
    let rows = rows(profile, figures, page.by);
    let rows = rows.into_iter().map(|row| {
        let of_types = profile.types.iter().zip(&row.sums);
        let sums: Map<String, Value> = of_types
            .map(|(of_type, sum)| (of_type.kind.to_string(), number(*sum)))
            .collect();
        json!({
            "key": row.key,
            "value": number(row.main(figures)),
            "blocks": row.blocks(figures).map(number),
            "sums": sums,
            "site": row.heaviest.site.as_ref().map(place),
            "callers": callers(&row.heaviest),
        })
    });
    Ok(rows.collect())
}

fn changes(page: &ProfilePage<'_>, before: &Profile) -> Result<Value, Absent> {
    let changes = diff::changes(before, page.subject.profile, page.view, page.by)?;
    let changes = changes.into_iter().map(|change| {
        json!({
            "key": change.key,
            "growth": number(change.growth()),
            "before": number(change.before),
            "after": number(change.after),
            "blocks_before": change.blocks_before.map(number),
            "blocks_after": change.blocks_after.map(number),
            "site": change.heaviest.site.as_ref().map(place),
            "callers": callers(&change.heaviest),
        })
    });
    Ok(changes.collect())
}

fn place(place: &StackFrame) -> Value {
    json!({
        "function": &*place.function,
        "file": place.file,
        "line": place.line,
        "inlined": place.inlined,
        "module": place.module,
    })
}

fn callers(origin: &Origin) -> Value {
    origin.callers.iter().map(place).collect()
}

/// A sum; beyond 64 bits the nearest number that JSON's readers hold.
fn number(sum: i128) -> Value {
    match i64::try_from(sum) {
        Ok(sum) => json!(sum),
        Err(_) => json!(sum as f64),
    }
}
