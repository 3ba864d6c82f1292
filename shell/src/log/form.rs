//! The form of a line of the log: words for people, or JSON for whoever collects logs.
//!
//! - A line of JSON is an object with `time` (RFC 3339, UTC), `level` and `message`, and one line whatever the
//!   message holds.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// What lines look like.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Form {
    /// Words.
    #[default]
    Text,
    /// A JSON object each.
    Json,
}

impl Form {
    /// A line, its end included.
    pub(super) fn line(self, level: &str, message: &str) -> String {
        match self {
            Self::Text => format!("{message}\n"),
            Self::Json => json(level, message),
        }
    }
}

/// How `tracing` is to write events as JSON.
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
        writer.write_str(&json(event.metadata().level().as_str(), &message.0))
    }
}

/// What an event says: its message, and fields behind it.
#[derive(Debug, Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A string has no end.
        let _ = if field.name() == "message" {
            write!(self.0, "{value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}

fn json(level: &str, message: &str) -> String {
    let mut time = String::new();
    // What cannot be told is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut line = format!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"message\":\"");
    for letter in message.chars() {
        match letter {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            letter if letter.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(letter));
            }
            letter => line.push(letter),
        }
    }
    line.push_str("\"}\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_it_holds() {
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
