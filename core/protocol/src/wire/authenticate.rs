//! Authentication before any other request: memcached's authentication in text. In the binary protocol it is
//! SASL (`binary/sasl.rs`).
//!
//! The request is a set of any key, with a name, a blank and a password as its value; latchd also accepts an
//! `ms`. The only other command is `quit`. After [`FAILURES_MAX`] failures the connection is closed, so
//! guessing needs a new connection for every few guesses.
//!
//! Source: memcached 1.6.45 `proto_text.c`, `try_read_command_asciiauth`.

use super::line::Line;
use super::local::LocalResponse;
use super::scan::{Tokens, u32_from};
use super::step::{Claim, Operation, Step};

/// The state of an unauthenticated connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Unauthenticated {
    /// The number of failures.
    pub(crate) failures: u8,
    /// It has begun to authenticate, in a way that takes several requests.
    pub(crate) has_begun: bool,
}

/// The longest name and password together, in bytes, including the separator.
pub const LOGIN_BYTES_MAX: u32 = 16_384;

/// The shortest request line, in bytes without its line end. A shorter line closes the connection.
const LINE_BYTES_MIN: usize = 5;

/// The failures after which a connection is closed.
pub(crate) const FAILURES_MAX: u8 = 8;

/// The step of a line of an unauthenticated client.
pub(crate) fn decode(line: Line<'_>) -> Step<'_> {
    let silently = Operation::Close {
        response: LocalResponse::Nothing,
    }
    .consuming(0);
    if line.text.len() < LINE_BYTES_MIN {
        return silently;
    }
    let mut words = Tokens::new(line.text);
    let (bytes, welcome) = match words.next() {
        Some(b"set") => (words.nth(3), "STORED"),
        Some(b"ms") => (words.nth(1), "HD"),
        Some(_) | None => (None, ""),
    };
    let Some(bytes) = bytes.and_then(u32_from) else {
        return line.respond("CLIENT_ERROR unauthenticated");
    };
    if bytes > LOGIN_BYTES_MAX {
        return line.respond("CLIENT_ERROR auth token too long");
    }
    let body_bytes = bytes as usize + 2;
    let Some(body) = line.behind.get(..body_bytes) else {
        return line.await_body(body_bytes);
    };
    let refuse = |text| line.respond_past(body_bytes, LocalResponse::Line(text));
    let Some(token) = body.strip_suffix(b"\r\n") else {
        return refuse("CLIENT_ERROR bad command line termination");
    };
    let mut halves = token.splitn(2, |byte| *byte == b' ');
    let (Some(name), Some(password)) = (halves.next(), halves.next()) else {
        return refuse("CLIENT_ERROR bad authentication token format");
    };
    Operation::Authenticate {
        claim: Some(Claim { name, password }),
        welcome: LocalResponse::Line(welcome),
        refusal: LocalResponse::Line("CLIENT_ERROR authentication failure"),
    }
    .consuming(line.bytes + body_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(input: &[u8]) -> Step<'_> {
        let bytes = input.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        decode(Line::new(input, bytes).unwrap())
    }

    fn said(input: &[u8]) -> &str {
        let Step {
            operation:
                Operation::Send {
                    response: LocalResponse::Line(line),
                    ..
                },
            ..
        } = step(input)
        else {
            panic!("{:?}", step(input))
        };
        line
    }

    #[test]
    fn set_and_ms_of_any_key_authenticate() {
        for (input, welcome) in [
            (&b"set any 0 0 9\r\nfred pass\r\nget a\r\n"[..], "STORED"),
            (b"ms any 9\r\nfred pass\r\n", "HD"),
        ] {
            assert!(matches!(
                step(input),
                Step { operation: Operation::Authenticate { claim: Some(Claim {
                        name: b"fred",
                        password: b"pass",
                    }), welcome: LocalResponse::Line(said), .. }, .. } if said == welcome
            ));
        }
        assert_eq!(
            step(b"set any 0 0 9\r\nfred pas"),
            Operation::Incomplete { at_least: 26 }.consuming(0)
        );
    }

    #[test]
    fn nothing_else_is_let_through() {
        assert_eq!(said(b"get foo\r\n"), "CLIENT_ERROR unauthenticated");
        assert_eq!(said(b"set a 0 0 x\r\n"), "CLIENT_ERROR unauthenticated");
        assert_eq!(said(b"add a 0 0 3\r\n"), "CLIENT_ERROR unauthenticated");
        assert_eq!(
            step(b"set a 0 0 16384\r\n"),
            Operation::Incomplete { at_least: 16_403 }.consuming(0)
        );
        assert_eq!(
            said(b"set a 0 0 16385\r\n"),
            "CLIENT_ERROR auth token too long"
        );
        assert_eq!(
            said(b"set a 0 0 3\r\nabcde"),
            "CLIENT_ERROR bad command line termination"
        );
        assert_eq!(
            said(b"set a 0 0 3\r\nabc\r\n"),
            "CLIENT_ERROR bad authentication token format"
        );
        assert!(matches!(
            step(b"quit\r\n"),
            Step {
                operation: Operation::Close { .. },
                ..
            }
        ));
    }
}
