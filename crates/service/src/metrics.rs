//! Figures in the output of a load: found by a regular expression, in a column of CSV, or by a
//! pointer into JSON.

use regex_lite::Regex;
use serde::Deserialize;

/// How much of an output is searched for metrics.
pub const SEARCHED_BYTES_MAX: usize = 4 << 20;

/// The direction in which a figure is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// Where a figure is in the output.
#[derive(Debug, Clone)]
pub enum Source {
    /// The first group of the first match is the number. A second group is its unit of time, and
    /// the figure is then in milliseconds.
    Regex(Regex),
    /// A column by its title, in the first row that has this field, or in the first row.
    Column { title: String, row: Option<String> },
    /// A pointer (RFC 6901), such as `/latency/p99`.
    Json(String),
}

#[derive(Debug, Clone)]
pub struct Metric {
    pub name: String,
    pub source: Source,
    pub unit: String,
    pub better: Better,
    /// The number in the output times this is the figure.
    pub scale: f64,
}

/// Why a figure could not be read: what was looked for, and the line that is nearest to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the metric `{name}` ({looked_for}) {problem}{}", line(.read))]
pub struct Mismatch {
    pub name: String,
    pub looked_for: String,
    pub problem: String,
    pub read: Option<String>,
}

fn line(read: &Option<String>) -> String {
    match read {
        Some(read) => format!("; the line that was read: {read}"),
        None => String::new(),
    }
}

impl Metric {
    /// The direction and the unit that a metric of this name usually has.
    pub fn usual(name: &str) -> (Better, &'static str) {
        let rates = ["qps", "rps", "tps", "ops", "throughput"];
        if rates.iter().any(|rate| name.contains(rate)) {
            (Better::Higher, "/s")
        } else if name.starts_with('p') && name[1..].starts_with(|c: char| c.is_ascii_digit()) {
            (Better::Lower, "ms")
        } else {
            (Better::Lower, "")
        }
    }

    /// Reads the figure from the output of a load.
    ///
    /// # Errors
    /// It is not there, or is not a number.
    pub fn read(&self, output: &str) -> Result<f64, Mismatch> {
        let found = match &self.source {
            Source::Regex(regex) => by_regex(regex, output),
            Source::Column { title, row } => by_column(title, row.as_deref(), output),
            Source::Json(pointer) => by_pointer(pointer, output),
        };
        let scaled = found.map(|number| number * self.scale);
        scaled.map_err(|(problem, read)| Mismatch {
            name: self.name.clone(),
            looked_for: self.source.shown(),
            problem,
            read,
        })
    }
}

impl Source {
    fn shown(&self) -> String {
        match self {
            Source::Regex(regex) => format!("regex '{regex}'"),
            Source::Column { title, row: None } => format!("column '{title}'"),
            Source::Column {
                title,
                row: Some(row),
            } => format!("column '{title}' of row '{row}'"),
            Source::Json(pointer) => format!("JSON '{pointer}'"),
        }
    }
}

type Found = Result<f64, (String, Option<String>)>;

fn by_regex(regex: &Regex, output: &str) -> Found {
    let Some(found) = regex.captures(output) else {
        return Err(("matches nothing".to_owned(), nearest(regex, output)));
    };
    let whole = found.get(0).map_or("", |group| group.as_str());
    let text = found.get(1).map_or(whole, |group| group.as_str());
    let number = number(text).ok_or_else(|| {
        (
            format!("finds no number in '{text}'"),
            Some(whole.to_owned()),
        )
    })?;
    let Some(unit) = found.get(2) else {
        return Ok(number);
    };
    let factor = match unit.as_str() {
        "ns" => 1e-6,
        "us" | "µs" | "μs" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        other => {
            let problem = format!("finds the unit '{other}', not ns, us, ms, s or m");
            return Err((problem, Some(whole.to_owned())));
        }
    };
    Ok(number * factor)
}

/// The line of the output that shares the most words with the expression; else the last that has a
/// number.
fn nearest(regex: &Regex, output: &str) -> Option<String> {
    let pattern = regex.as_str();
    let words: Vec<String> = pattern
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 1)
        .map(str::to_lowercase)
        .collect();
    let lines = || output.lines().filter(|line| !line.trim().is_empty());
    let shared = |line: &&str| {
        let line = line.to_lowercase();
        words.iter().filter(|word| line.contains(*word)).count()
    };
    let best = lines().max_by_key(shared).filter(|line| shared(line) > 0);
    let numbered = || lines().rfind(|line| line.contains(|c: char| c.is_ascii_digit()));
    let line = best.or_else(numbered).or_else(|| lines().next_back());
    Some(
        line.map_or("(the load wrote nothing)", str::trim)
            .to_owned(),
    )
}

fn by_column(title: &str, row: Option<&str>, output: &str) -> Found {
    let lines: Vec<Vec<String>> = output.lines().map(fields).collect();
    let Some(head) = lines
        .iter()
        .position(|line| line.iter().any(|f| f == title))
    else {
        let last = output.lines().find(|line| line.contains(','));
        let read = last.or(output.lines().last());
        let read = read.unwrap_or("(the load wrote nothing)").to_owned();
        return Err(("is in no line".to_owned(), Some(read)));
    };
    let column = lines[head].iter().position(|field| field == title);
    let column = column.expect("the title is in the line");
    let wanted = |line: &&Vec<String>| match row {
        Some(row) => line.iter().any(|field| field == row),
        None => line.len() > column,
    };
    let Some(line) = lines[head + 1..].iter().find(wanted) else {
        let read = lines.get(head + 1).map_or(&lines[head], |line| line);
        return Err(("has no such row".to_owned(), Some(read.join(","))));
    };
    let field = line.get(column).map_or("", String::as_str);
    number(field).ok_or_else(|| {
        (
            format!("finds no number in '{field}'"),
            Some(line.join(",")),
        )
    })
}

/// The fields of a line of CSV.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            c => field.push(c),
        }
    }
    fields.push(field.trim().to_owned());
    fields
}

/// The pointer into the whole output, or into the last line that is JSON.
fn by_pointer(pointer: &str, output: &str) -> Found {
    let mut documents = std::iter::once(output).chain(output.lines().rev());
    let document = documents.find_map(|text| {
        let value: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
        (value.is_object() || value.is_array()).then_some(value)
    });
    let Some(document) = document else {
        let last = output.lines().rfind(|line| !line.trim().is_empty());
        let read = last.unwrap_or("(the load wrote nothing)").to_owned();
        return Err(("has no JSON to look in".to_owned(), Some(read)));
    };
    let shown = |value: &serde_json::Value| {
        let text = value.to_string();
        text.chars().take(200).collect::<String>()
    };
    let Some(value) = document.pointer(pointer) else {
        return Err(("points to nothing".to_owned(), Some(shown(&document))));
    };
    let text = value.as_str().map(str::to_owned);
    let found = value.as_f64().or_else(|| number(text.as_deref()?));
    found.ok_or_else(|| ("is not a number".to_owned(), Some(shown(value))))
}

/// A number as programs write it: with commas in thousands, or a k or M behind it.
fn number(text: &str) -> Option<f64> {
    let text: String = text.trim().chars().filter(|c| *c != ',').collect();
    let (digits, factor) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 1e3),
        'M' => (&text[..text.len() - 1], 1e6),
        _ => (text.as_str(), 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(source: Source) -> Metric {
        Metric {
            name: "p99".to_owned(),
            source,
            unit: String::new(),
            better: Better::Lower,
            scale: 1.0,
        }
    }

    fn regex(text: &str) -> Metric {
        metric(Source::Regex(Regex::new(text).unwrap()))
    }

    fn column(title: &str, row: Option<&str>) -> Metric {
        metric(Source::Column {
            title: title.to_owned(),
            row: row.map(str::to_owned),
        })
    }

    const WRK: &str = "  Latency Distribution\n     50%  635.00us\n     99%    1.52ms\n\
        Requests/sec:  12,345.67\n";
    const CSV: &str = "\"test\",\"rps\",\"p99_latency_ms\"\n\"SET\",\"50000.00\",\"0.9\"\n\
        \"GET, fast\",\"60000.00\",\"0.7\"\n";

    #[test]
    fn a_regular_expression_finds_a_number_and_its_unit() {
        assert_eq!(
            regex(r"Requests/sec:\s+(\S+)").read(WRK).unwrap(),
            12_345.67
        );
        let p50 = regex(r"50%\s+([0-9.]+)(us|ms|s)").read(WRK).unwrap();
        assert!((p50 - 0.635).abs() < 1e-12);
        assert_eq!(regex(r"99%\s+([0-9.]+)(us|ms|s)").read(WRK).unwrap(), 1.52);
    }

    #[test]
    fn a_column_is_found_by_its_title_and_row() {
        assert_eq!(column("rps", None).read(CSV).unwrap(), 50_000.0);
        let get = column("p99_latency_ms", Some("GET, fast"));
        assert_eq!(get.read(CSV).unwrap(), 0.7);
    }

    #[test]
    fn a_pointer_finds_a_number_in_the_whole_or_in_the_last_line() {
        let p99 = metric(Source::Json("/latency/p99".to_owned()));
        assert_eq!(p99.read("{\"latency\":\n{\"p99\": 1.5}}").unwrap(), 1.5);
        let lines = "starting\n{\"latency\": {\"p99\": \"2.5\"}}\ndone\n";
        assert_eq!(p99.read(lines).unwrap(), 2.5);
    }

    #[test]
    fn what_does_not_match_shows_the_line_that_was_read() {
        for (metric, output, part) in [
            (
                regex(r"Requests/s: (\d+)"),
                WRK,
                "the line that was read: Requests/sec:  12,345.67",
            ),
            (regex(r"qps (\d+)"), "", "the load wrote nothing"),
            (regex(r"(Latency)"), WRK, "no number in 'Latency'"),
            (
                column("p50", None),
                CSV,
                "the line that was read: \"test\",\"rps\"",
            ),
            (
                column("rps", Some("LPUSH")),
                CSV,
                "row 'LPUSH') has no such row",
            ),
            (metric(Source::Json("/a".into())), "{\"b\": 1}", "{\"b\":1}"),
            (metric(Source::Json("/a".into())), "oops\n", "read: oops"),
        ] {
            let error = metric.read(output).unwrap_err().to_string();
            assert!(error.contains("`p99`") && error.contains(part), "{error}");
        }
    }
}
