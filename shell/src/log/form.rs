//! The format of a log line: text for people, or JSON for programs that collect logs.
//!
//! - A JSON line is one object with `time` (RFC 3339, UTC), `level` and `message`. It is a single line for every
//!   message. The fields of an event are members: numbers as numbers, others as strings.

use std::fmt;

use serde::Serializer;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Form {
    /// Text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Form {
    /// A line, including its line end.
    pub(super) fn line(self, level: &str, message: &str) -> String {
        match self {
            Self::Text => format!("{message}\n"),
            Self::Json => json(level, message, Vec::new()),
        }
    }
}

/// Formats the events of `tracing` as JSON.
#[derive(Debug)]
pub(crate) struct JsonEvents;

impl<S, N> FormatEvent<S, N> for JsonEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let level = event.metadata().level().as_str();
        writer.write_str(&json(level, &message.text, message.fields))
    }
}

/// An event: its message, and its fields.
#[derive(Debug, Default)]
struct Message {
    text: String,
    fields: Vec<(&'static str, Value)>,
}

impl Visit for Message {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return self.text.push_str(value);
        }
        self.fields.push((field.name(), value.into()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn json(level: &str, message: &str, fields: Vec<(&'static str, Value)>) -> String {
    let mut time = String::new();
    // A time that cannot be formatted is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let own = [
        ("time", time.into()),
        ("level", level.into()),
        ("message", message.into()),
    ];
    let mut line = Vec::new();
    let written = serde_json::Serializer::new(&mut line).collect_map(own.into_iter().chain(fields));
    written.expect("each name of a field is a text");
    line.push(b'\n');
    String::from_utf8(line).expect("JSON is UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_message_is_one_line() {
        let line = Form::Json.line("INFO", "a \"b\" \\ c\nd \u{1b}[1m é");
        let (time, rest) = line.split_once("\",\"level\":").unwrap();
        assert!(
            time.starts_with("{\"time\":\"20") && time.ends_with('Z'),
            "{line}"
        );
        assert_eq!(
            rest,
            "\"INFO\",\"message\":\"a \\\"b\\\" \\\\ c\\nd \\u001b[1m é\"}\n"
        );
        assert_eq!(Form::Text.line("INFO", "a \"b\""), "a \"b\"\n");
    }
}
