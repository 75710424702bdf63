//! Collects mdBook's warnings and errors from `tracing`, such as unclosed tags and questionable
//! settings, so that they count as errors in the book.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The warnings so far.
#[derive(Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

/// Starts to collect warnings.
pub fn listen() -> Warnings {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone())
        .expect("this process has no other subscriber");
    warnings
}

impl Warnings {
    pub fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("nothing panics under this lock"))
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{}: ", event.metadata().target()));
        event.record(&mut text);
        self.0
            .lock()
            .expect("nothing panics under this lock")
            .push(text.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
