//! Reads requests from a pipe: one per line, with values in either form.
//!
//! A wrong line is reported with its number, and the next line is read. If the end of a value cannot be found, reading
//! stops, because values could be taken for commands.

use std::io::{self, BufRead, Read};

use super::readable::without_end;
use super::request::{self, Asked, Head, Request};
use super::{Session, help};
use crate::output::Failure;

/// Sends the request of each line, until the input ends, the server is unavailable or the output cannot be written.
/// Returns the highest exit code of all.
pub(super) fn run(mut session: Session, input: &mut impl BufRead) -> u8 {
    let mut worst = 0;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return unread(&error).report(),
        }
        let wrong = |failure: Failure| failure.at(format_args!("line {number}")).report();
        // The error is the exit code of the last line that is read.
        let done = match request::of_line(without_end(&line)) {
            Ok(Asked::Nothing) => Ok(0),
            Ok(Asked::Leave) => break,
            Ok(Asked::Help(topic)) => Ok(help(&mut session, &topic)),
            Ok(Asked::Request(request)) => code(&mut session, &request),
            Ok(Asked::WithValue(head)) => value(input, &head)
                .map_err(wrong)
                .and_then(|request| code(&mut session, &request)),
            Err(mistake) => Ok(wrong(mistake)),
        };
        match done {
            Ok(code) => worst = worst.max(code),
            Err(last) => return worst.max(last),
        }
    }
    worst
}

/// Sends a request. A refusal is shown among the replies.
fn code(session: &mut Session, request: &Request) -> Result<u8, u8> {
    let asked = session.ask(request);
    asked
        .map(|verdict| verdict.code())
        .map_err(|broken| session.failed(broken))
}

/// Reads a value in the protocol's form: the given number of bytes and a line end.
fn value(input: &mut impl BufRead, head: &Head) -> Result<Request, Failure> {
    let length = head.value_bytes.unwrap_or_default();
    let mut value = Vec::new();
    let mut front = input.by_ref().take(length as u64);
    let unread = |error| unread(&error);
    front.read_to_end(&mut value).map_err(unread)?;
    let request = head.with_all(&value)?;
    let mut end = Vec::new();
    input.read_until(b'\n', &mut end).map_err(unread)?;
    if !without_end(&end).is_empty() {
        return Err(Failure::usage(format!(
            "the value is longer than {length} bytes: neither it nor later lines were sent; correct the length"
        )));
    }
    Ok(request)
}

pub(super) fn unread(error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read standard input: {error}"))
}
