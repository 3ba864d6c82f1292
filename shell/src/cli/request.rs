//! Parses typed text into a request: the bytes to send, and the end of the reply.
//!
//! - T1: A request is sent as typed, except that a value in place of its length is converted. So every command of
//!   every server can be typed, except this program's own commands.
//! - T2: One line is one request: only a value can contain a line end, and a value is sent only behind words that every
//!   server understands. Otherwise the server would read the value as commands.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`.

use std::time::Duration;

use super::answer::{Answer, BARRIER};
use super::readable::quoted;
use crate::output::Failure;

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 250;

/// The meaning of a typed line.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Asked {
    /// A blank line.
    Nothing,
    /// A request for help about a command, or about all commands if it is empty.
    Help(String),
    /// The end of the session.
    Leave,
    /// A request to the server.
    Request(Request),
    /// A request to the server whose value follows.
    WithValue(Head),
}

/// A complete request.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Request {
    /// The bytes to send.
    pub(super) bytes: Vec<u8>,
    /// The end of the reply.
    pub(super) answer: Answer,
    /// The wait that the request asks of the server before it replies.
    pub(super) wait: Duration,
}

/// A request whose value follows its line, as in the protocol.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// The words before the value's length.
    before: Vec<u8>,
    /// The length of the value; `None` if the value is all of standard input.
    pub(super) value_bytes: Option<usize>,
    /// The words behind the length, each after a blank.
    after: Vec<u8>,
    answer: Answer,
}

impl Request {
    /// A request without a value.
    fn plain(words: &[&[u8]]) -> Self {
        Self {
            wait: wait(words),
            ..Self::ended(words.join(&b' '), answer(words))
        }
    }

    /// Ends a request, with a barrier if it is quiet.
    fn ended(mut bytes: Vec<u8>, answer: Answer) -> Self {
        bytes.extend_from_slice(b"\r\n");
        if answer == Answer::Quiet {
            bytes.extend_from_slice(BARRIER);
        }
        Self {
            bytes,
            answer,
            wait: Duration::ZERO,
        }
    }
}

impl Head {
    /// # Errors
    /// The words are wrong: a server that cannot parse the line does not know where the value ends (T2). memcached
    /// 1.6.45 `proto_text.c`, `process_update_command`, skips no value then.
    fn new(before: &[&[u8]], value_bytes: Option<usize>, after: &[&[u8]]) -> Result<Self, Failure> {
        if before.get(1).is_some_and(|key| key.len() > KEY_BYTES_MAX) {
            return Err(Failure::usage(format!(
                "the key is too long; at most {KEY_BYTES_MAX} bytes are allowed"
            )));
        }
        if let [verb, _, flags, exptime] = before {
            let exptime = exptime.strip_prefix(b"-").unwrap_or(exptime);
            if number(flags).is_err() || !is_number(exptime) || !is_number(flags) {
                let verb = String::from_utf8_lossy(verb);
                return Err(Failure::usage(format!(
                    "FLAGS and EXPTIME must be numbers; see `help {verb}`"
                )));
            }
        }
        Ok(Self {
            before: before.join(&b' '),
            value_bytes,
            after: after
                .iter()
                .flat_map(|word| [b" ", *word].concat())
                .collect(),
            answer: answer(&[before, after].concat()),
        })
    }

    /// The request with this value.
    ///
    /// # Errors
    /// The value's length differs from the given length.
    pub(super) fn with_all(&self, value: &[u8]) -> Result<Request, Failure> {
        let length = value.len();
        if let Some(expected) = self.value_bytes.filter(|expected| *expected != length) {
            return Err(Failure::usage(format!(
                "the value has {length} bytes instead of {expected}: nothing was sent; correct the length"
            )));
        }
        let length = format!(" {length}").into_bytes();
        let bytes = [&self.before, &length[..], &self.after, b"\r\n", value].concat();
        Ok(Request::ended(bytes, self.answer))
    }
}

/// Parses a line without its line end.
///
/// # Errors
/// A message for the user. Nothing is sent then.
pub(super) fn of_line(line: &[u8]) -> Result<Asked, Failure> {
    let line = line.trim_ascii_start();
    if line.contains(&b'\n') || line.contains(&b'\r') {
        return Err(line_end());
    }
    let words = words(line);
    if let Some(asked) = own(&words) {
        return Ok(asked);
    }
    let Some((before @ [verb, ..], [word, after @ ..])) = split(&words) else {
        return Ok(Asked::Request(Request::plain(&words)));
    };
    let behind = before.iter().fold(line, |line, _| behind_word(line));
    if behind.starts_with(b"\"") {
        let (value, length) = quoted(behind).map_err(Failure::usage)?;
        let rest = behind.get(length..).unwrap_or_default();
        if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(Failure::usage(
                "expected a blank or the end of the line after the closing quote",
            ));
        }
        return with_value(before, &value, &self::words(rest));
    }
    if is_number(word) && is_protocols_own(verb, after) {
        return Head::new(before, Some(number(word)?), after).map(Asked::WithValue);
    }
    match (*verb, after) {
        (b"ms", after) => with_value(before, word, after),
        (b"cas", [.., cas]) if is_number(cas) => {
            let value = behind.trim_ascii_end().strip_suffix(*cas);
            with_value(before, value.unwrap_or_default().trim_ascii_end(), &[cas])
        }
        (b"cas", _) => Err(cas_form()),
        (_, _) => with_value(before, behind, &[]),
    }
}

/// Parses program arguments. Each is one word, and a value needs no quotes.
///
/// # Errors
/// A message for the user. Nothing is sent then.
pub(super) fn of_words(words: &[&[u8]]) -> Result<Asked, Failure> {
    if let Some(asked) = own(words) {
        return Ok(asked);
    }
    let Some((before @ [verb, ..], values)) = split(words) else {
        check(words)?;
        return Ok(Asked::Request(Request::plain(words)));
    };
    let (value, after) = match (*verb, values) {
        (b"ms", [value, after @ ..]) => (value.to_vec(), after),
        (b"cas", [value @ .., cas]) if !value.is_empty() && is_number(cas) => {
            (value.join(&b' '), std::slice::from_ref(cas))
        }
        (b"cas", _) => return Err(cas_form()),
        (_, values) => (values.join(&b' '), &[][..]),
    };
    check(&[before, after].concat())?;
    if value == b"-" {
        return Head::new(before, None, after).map(Asked::WithValue);
    }
    with_value(before, &value, after)
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect()
}

/// The line behind its first word.
fn behind_word(line: &[u8]) -> &[u8] {
    let end = line.iter().position(u8::is_ascii_whitespace);
    let rest = end.and_then(|end| line.get(end..));
    rest.unwrap_or_default().trim_ascii_start()
}

/// The commands of this program. No server knows `exit`, `help` or `?`.
fn own(words: &[&[u8]]) -> Option<Asked> {
    match words {
        [] => Some(Asked::Nothing),
        [b"help" | b"?", topic @ ..] => {
            let topic = topic.first().copied().unwrap_or_default();
            Some(Asked::Help(String::from_utf8_lossy(topic).into_owned()))
        }
        [b"quit" | b"exit"] => Some(Asked::Leave),
        _ => None,
    }
}

/// The words of a line.
type Words<'w> = [&'w [u8]];

/// Splits words before the value's length; `None` if the request has no value.
fn split<'a, 'w>(words: &'a Words<'w>) -> Option<(&'a Words<'w>, &'a Words<'w>)> {
    let place = match *words.first()? {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => 4,
        b"ms" => 2,
        _ => return None,
    };
    let halves = words.split_at_checked(place);
    halves.filter(|(_, values)| !values.is_empty())
}

/// Whether the words `after` a number make it a length, as in the protocol, so that the value follows.
fn is_protocols_own(verb: &[u8], after: &[&[u8]]) -> bool {
    match verb {
        b"ms" => true,
        b"cas" => matches!(after, [cas] | [cas, b"noreply"] if is_number(cas)),
        _ => matches!(after, [] | [b"noreply"]),
    }
}

fn is_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

fn number(digits: &[u8]) -> Result<usize, Failure> {
    let text = String::from_utf8_lossy(digits);
    // A server refuses larger values, and the program would have to read them first.
    match text.parse::<u32>() {
        Ok(number) => Ok(number as usize),
        Err(_) => Err(Failure::usage(format!(
            "{text} exceeds the largest length; put it in quotes to store it as a value"
        ))),
    }
}

fn cas_form() -> Failure {
    Failure::usage("cas needs a version; write cas KEY FLAGS EXPTIME VALUE CAS, with CAS from gets")
}

fn line_end() -> Failure {
    Failure::usage("line ends are allowed only in values; write \\n in quotes")
}

/// T2.
fn check(words: &[&[u8]]) -> Result<(), Failure> {
    let is_cut = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if words.iter().any(|word| word.iter().any(is_cut)) {
        return Err(line_end());
    }
    let is_value = |word: &&[u8]| word.contains(&b' ') || word.is_empty();
    if words.iter().any(is_value) {
        return Err(Failure::usage(
            "only values can be empty or contain blanks; for such a key use base64 and the flag b",
        ));
    }
    Ok(())
}

fn with_value(before: &[&[u8]], value: &[u8], after: &[&[u8]]) -> Result<Asked, Failure> {
    let head = Head::new(before, None, after)?;
    head.with_all(value).map(Asked::Request)
}

/// The wait that these words ask of the server: `w<ms>` of `ml`.
fn wait(words: &[&[u8]]) -> Duration {
    let [b"ml", _, flags @ ..] = words else {
        return Duration::ZERO;
    };
    let waits = flags.iter().filter_map(|flag| flag.strip_prefix(b"w"));
    let ms = waits.filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Duration::from_millis(ms.max().unwrap_or_default())
}

/// The end of the reply to a request of these words, without its value.
fn answer(words: &[&[u8]]) -> Answer {
    let is_meta = |verb: &[u8]| matches!(verb, b"mg" | b"ms" | b"md" | b"ma" | b"ml" | b"mu");
    let is_quiet = match words {
        [verb, _, flags @ ..] if is_meta(verb) => flags.contains(&&b"q"[..]),
        [
            b"get" | b"gets" | b"gat" | b"gats" | b"keys" | b"lock" | b"unlock",
            ..,
        ] => false,
        words => words.last() == Some(&&b"noreply"[..]),
    };
    match words {
        _ if is_quiet => Answer::Quiet,
        [b"get" | b"gets" | b"gat" | b"gats", ..] => Answer::Items,
        [b"keys", ..] => Answer::Names,
        [b"lru_crawler", b"metadump" | b"mgdump", ..] => Answer::Dump,
        [b"watch", ..] => Answer::Endless,
        [b"shutdown" | b"quit", ..] => Answer::Close,
        _ => Answer::Line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(asked: Result<Asked, Failure>) -> String {
        let Ok(Asked::Request(request)) = asked else {
            panic!("{asked:?}");
        };
        String::from_utf8(request.bytes).unwrap()
    }

    fn line(text: &str) -> Result<Asked, Failure> {
        of_line(text.as_bytes())
    }

    fn args(words: &[&str]) -> Result<Asked, Failure> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        of_words(&words)
    }

    #[test]
    fn a_value_replaces_its_length() {
        for (typed, expected) in [
            ("set k 0 60 hello world", "set k 0 60 11\r\nhello world\r\n"),
            ("  set  k 0 60 a  b ", "set k 0 60 5\r\na  b \r\n"),
            (r#"set k 0 0 "5""#, "set k 0 0 1\r\n5\r\n"),
            (r#"set k 0 0 """#, "set k 0 0 0\r\n\r\n"),
            (
                r#"set k 0 0 "a\r\n" noreply"#,
                "set k 0 0 3 noreply\r\na\r\n\r\nversion\r\n",
            ),
            ("append k 0 0 5 apples", "append k 0 0 8\r\n5 apples\r\n"),
            ("set k 0 0 größe", "set k 0 0 7\r\ngröße\r\n"),
            (
                "cas k 0 0 hello world 17",
                "cas k 0 0 11 17\r\nhello world\r\n",
            ),
            (r#"cas k 0 0 "5" 17"#, "cas k 0 0 1 17\r\n5\r\n"),
            ("ms k hello T60 c", "ms k 5 T60 c\r\nhello\r\n"),
            (
                r#"ms k "hello world" T60"#,
                "ms k 11 T60\r\nhello world\r\n",
            ),
            ("get a  b", "get a b\r\n"),
            ("md k q", "md k q\r\nversion\r\n"),
            ("noreply", "noreply\r\nversion\r\n"),
        ] {
            assert_eq!(sent(line(typed)), expected, "{typed}");
        }
    }

    #[test]
    fn the_protocols_own_form_is_taken_too() {
        for (typed, value, expected) in [
            ("set k 0 60 5", "hello", "set k 0 60 5\r\nhello\r\n"),
            (
                "set k 0 60 5 noreply",
                "hello",
                "set k 0 60 5 noreply\r\nhello\r\nversion\r\n",
            ),
            ("cas k 0 60 2 17", "\r\n", "cas k 0 60 2 17\r\n\r\n\r\n"),
            ("ms k 5 T60", "hello", "ms k 5 T60\r\nhello\r\n"),
        ] {
            let Ok(Asked::WithValue(head)) = line(typed) else {
                panic!("{typed}");
            };
            assert_eq!(head.value_bytes, Some(value.len()));
            let request = head.with_all(value.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(request.bytes).unwrap(), expected);
            assert!(head.with_all(b"another").is_err());
        }
    }

    #[test]
    fn an_argument_of_the_program_is_a_word() {
        for (words, expected) in [
            (&["set", "k", "0", "60", "5"][..], "set k 0 60 1\r\n5\r\n"),
            (&["set", "k", "0", "60", "a  b"], "set k 0 60 4\r\na  b\r\n"),
            (
                &["set", "k", "0", "60", "a", "b"],
                "set k 0 60 3\r\na b\r\n",
            ),
            (&["set", "k", "0", "60", ""], "set k 0 60 0\r\n\r\n"),
            (
                &["cas", "k", "0", "0", "5", "17"],
                "cas k 0 0 1 17\r\n5\r\n",
            ),
            (&["ms", "k", "a\nb", "T60"], "ms k 3 T60\r\na\nb\r\n"),
            (&["get", "k"], "get k\r\n"),
        ] {
            assert_eq!(sent(args(words)), expected, "{words:?}");
        }
        let Ok(Asked::WithValue(head)) = args(&["set", "k", "0", "60", "-"]) else {
            panic!("- is standard input");
        };
        assert_eq!(head.value_bytes, None);
    }

    #[test]
    fn one_request_stays_one() {
        for words in [
            &["get", "k\r\nflush_all"][..],
            &["set", "k\nflush_all", "0", "0", "v"],
            &["ms", "k", "v", "T60\r\nflush_all"],
            &["get", "a b"],
            &["cas", "k", "0", "0", "v", "new"],
        ] {
            assert!(args(words).is_err(), "{words:?}");
        }
        for typed in [
            "get k\rflush_all",
            "cas k 0 0 hello",
            r#"set k 0 0 "a"b"#,
            "cas k 0 0 a b",
            "set k now 60 flush_all",
            "set k 0 soon flush_all",
            "set k 4294967296 60 flush_all",
        ] {
            assert!(line(typed).is_err(), "{typed}");
        }
        let long = "k".repeat(251);
        assert!(line(&format!("set {long} 0 0 flush_all")).is_err());
        assert!(line(&format!("ms {long} flush_all")).is_err());
    }

    #[test]
    fn incomplete_requests_are_sent_unchanged() {
        assert_eq!(sent(line("set k 0")), "set k 0\r\n");
        assert_eq!(sent(line("ms k")), "ms k\r\n");
        assert_eq!(line("   "), Ok(Asked::Nothing));
        assert_eq!(line("help set"), Ok(Asked::Help("set".into())));
        assert_eq!(line("quit"), Ok(Asked::Leave));
    }

    #[test]
    fn the_request_determines_the_end_of_its_reply() {
        for (typed, expected) in [
            ("get k", Answer::Items),
            ("get noreply", Answer::Items),
            ("keys", Answer::Names),
            ("delete k noreply", Answer::Quiet),
            ("mg k v q", Answer::Quiet),
            ("mg q v", Answer::Line),
            ("lru_crawler metadump all", Answer::Dump),
            ("watch fetchers", Answer::Endless),
            ("shutdown", Answer::Close),
            ("stats", Answer::Line),
        ] {
            let Ok(Asked::Request(request)) = line(typed) else {
                panic!("{typed}");
            };
            assert_eq!(request.answer, expected, "{typed}");
        }
    }

    #[test]
    fn the_wait_of_ml_is_found() {
        for (line, ms) in [
            ("ml k w60000", 60_000),
            ("ml k F w5 q", 5),
            ("ml w7 F", 0),
            ("ml k w", 0),
            ("ml k wx", 0),
            ("ml k w99999999999999999999", 0),
            ("mg k w5", 0),
            ("ml", 0),
        ] {
            let Ok(Asked::Request(request)) = of_line(line.as_bytes()) else {
                panic!("{line}");
            };
            assert_eq!(request.wait, Duration::from_millis(ms), "{line}");
        }
    }
}
