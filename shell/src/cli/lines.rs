//! Reads requests from a pipe: one per line, with values in either form.
//!
//! A wrong line is reported with its number, and the next line is read. If the end of a value cannot be found, reading
//! stops, because values could be taken for commands.

use std::io::{self, BufRead, Read};

use super::request::{self, Asked, Head, Mistake, Request};
use super::{Failure, Outcome, Session, complain, help};

/// Sends the request of each line, until the input ends, the server is unavailable or the output cannot be written.
pub(super) fn run(mut session: Session, input: &mut impl BufRead) -> Outcome {
    let mut worst = Outcome::Done;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                complain(&format!("cannot read standard input: {error}"));
                return Outcome::Refused;
            }
        }
        let done = match request::of_line(without_end(&line)) {
            Ok(Asked::Nothing) => Ok(Outcome::Done),
            Ok(Asked::Leave) => break,
            Ok(Asked::Help(topic)) => Ok(help(&mut session, &topic)),
            Ok(Asked::Request(request)) => ask(&mut session, &request),
            Ok(Asked::WithValue(head)) => match value(input, &head) {
                Ok(request) => ask(&mut session, &request),
                Err(mistake) => {
                    complain(&format!("line {number}: {mistake}"));
                    return Outcome::Refused;
                }
            },
            Err(mistake) => {
                complain(&format!("line {number}: {mistake}"));
                Ok(Outcome::Refused)
            }
        };
        match done {
            Ok(outcome) => worst = worst.max(outcome),
            Err(last) => return worst.max(last),
        }
    }
    worst
}

/// Sends a request. A refusal is shown among the replies. The error is the outcome of the last request.
fn ask(session: &mut Session, request: &Request) -> Result<Outcome, Outcome> {
    match session.ask(request) {
        Ok(verdict) => Ok(verdict.into()),
        Err(Failure::Broken(broken)) => {
            complain(&format!("{}: {broken}", session.client.address()));
            Err(Outcome::Unavailable)
        }
        Err(Failure::Unwritten(error)) => Err(Outcome::of_output(error)),
    }
}

/// Reads a value in the protocol's form: the given number of bytes and a line end.
fn value(input: &mut impl BufRead, head: &Head) -> Result<Request, Mistake> {
    let mistake = |error: io::Error| Mistake(format!("cannot read standard input: {error}"));
    let length = head.value_bytes.unwrap_or_default();
    let mut value = Vec::new();
    let mut front = input.by_ref().take(length as u64);
    front.read_to_end(&mut value).map_err(mistake)?;
    let request = head.with_all(&value)?;
    let mut end = Vec::new();
    let read = input.read_until(b'\n', &mut end).map_err(mistake)?;
    if read > 0 && !without_end(&end).is_empty() {
        return Err(Mistake(format!(
            "the value is longer than {length} bytes: neither it nor later lines were sent; correct the length"
        )));
    }
    Ok(request)
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
