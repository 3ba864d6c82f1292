//! Authentication of a client, before any other request on a connection.
//!
//! | request | answer | |
//! | --- | --- | --- |
//! | `version` | `CLIENT_ERROR unauthenticated` | the server asks who we are |
//! | | `VERSION …`, `ERROR` | it asks nobody |
//! | `set login 0 0 <len>`, and name, blank, password | `STORED` | we are in |
//! | | `CLIENT_ERROR …` | we are not |
//!
//! - A1: A password is sent only to a server that asks for it. A server without authentication would store it
//!   as an item that every client can read.
//!
//! The server's side is `wire/authenticate.rs`. Source: memcached 1.6.45 `doc/protocol.txt`, "Authentication";
//! `proto_text.c`, `try_read_command_asciiauth`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use latchd_protocol::command::{Command, Set};
use latchd_protocol::key::Key;
use latchd_protocol::wire::LOGIN_BYTES_MAX;
use latchd_protocol::wire::classic::reply::ClassicResponse;
use latchd_protocol::wire::classic::{ClassicEnvelope, request};

use super::session::AnyResponse;
use super::terms::TermsError;

/// The longest name and password together, in bytes, with the blank between them: the servers' bound.
const CREDENTIALS_BYTES_MAX: usize = LOGIN_BYTES_MAX as usize;

/// The longest answer to wait for, in bytes.
const ANSWER_BYTES_MAX: usize = 1024;

/// A client's name and password.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    name: Box<[u8]>,
    /// Name, blank and password, as they are sent.
    token: Box<[u8]>,
}

/// The result of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LoginStep {
    /// Nothing yet: more bytes are needed.
    Incomplete,
    /// Send the bytes that were appended to the output; the input begins anew.
    Send,
    /// The connection is authenticated.
    In,
    /// The server refused the credentials, with this message.
    Refused(Box<str>),
    /// The server refused the client altogether, with this message; or the answer is not one of a cache server.
    Unexpected(Option<Box<str>>),
}

/// A new connection.
#[derive(Debug)]
pub struct Login<'a> {
    credentials: &'a Credentials,
    is_shown: bool,
}

impl Credentials {
    /// A name without blanks, and a password of any bytes.
    ///
    /// # Errors
    /// [`TermsError`] if no server could know them.
    pub fn new(name: impl AsRef<[u8]>, password: impl AsRef<[u8]>) -> Result<Self, TermsError> {
        let (name, password) = (name.as_ref(), password.as_ref());
        if name.is_empty() || name.contains(&b' ') {
            return Err(TermsError::LoginName);
        }
        let token = [name, b" ", password].concat();
        if token.len() > CREDENTIALS_BYTES_MAX {
            return Err(TermsError::LoginLength);
        }
        Ok(Self {
            name: name.into(),
            token: token.into(),
        })
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &[u8] {
        &self.name
    }
}

impl<'a> Login<'a> {
    /// Begins: appends the first request to `out`.
    pub fn new(credentials: &'a Credentials, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(b"version\r\n");
        Self {
            credentials,
            is_shown: false,
        }
    }

    /// Reads the answer to the last request, of which `input` is all that has arrived. Appends the next request
    /// to `out`.
    pub fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> LoginStep {
        let response = match ClassicResponse::decode(input) {
            Ok(Some((response, consumed))) if consumed == input.len() => response,
            Ok(None) if input.len() < ANSWER_BYTES_MAX => return LoginStep::Incomplete,
            Ok(Some(_) | None) | Err(_) => return LoginStep::Unexpected(None),
        };
        let words = || AnyResponse::Classic(response).refusal();
        match (response, self.is_shown) {
            (ClassicResponse::Version(_) | ClassicResponse::Error(b""), false)
            | (ClassicResponse::Stored, true) => LoginStep::In,
            (ClassicResponse::ClientError(b"unauthenticated"), false) => {
                self.show(out);
                LoginStep::Send
            }
            (ClassicResponse::ClientError(_), true) => {
                LoginStep::Refused(words().unwrap_or_default())
            }
            _ => LoginStep::Unexpected(words()),
        }
    }

    fn show(&mut self, out: &mut Vec<u8>) {
        self.is_shown = true;
        let key = Key::new(b"login").expect("it is short, and not empty");
        let set = Command::from(Set::new(key, &self.credentials.token));
        request::encode(&set, ClassicEnvelope::Change { noreply: false }, out)
            .expect("a key without blanks can be written");
    }
}

/// A password must not appear in a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({}, …)", self.name.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fred() -> Credentials {
        Credentials::new("fred", "pass word").unwrap()
    }

    /// The results of these answers, one after the other, and all bytes sent.
    fn play(answers: &[&[u8]]) -> (LoginStep, Vec<u8>) {
        let (credentials, mut out) = (fred(), Vec::new());
        let mut login = Login::new(&credentials, &mut out);
        let mut step = LoginStep::Incomplete;
        for answer in answers {
            for cut in 0..answer.len() {
                let early = login.receive(&answer[..cut], &mut out);
                assert_eq!(early, LoginStep::Incomplete, "{cut}");
            }
            step = login.receive(answer, &mut out);
        }
        (step, out)
    }

    #[test]
    fn a_server_that_asks_is_told() {
        let asks = &b"CLIENT_ERROR unauthenticated\r\n"[..];
        let (step, sent) = play(&[asks]);
        assert_eq!(step, LoginStep::Send);
        assert_eq!(sent, b"version\r\nset login 0 0 14\r\nfred pass word\r\n");
        assert_eq!(play(&[asks, b"STORED\r\n"]).0, LoginStep::In);
        let failure = b"CLIENT_ERROR authentication failure\r\n";
        let words = "CLIENT_ERROR authentication failure";
        assert_eq!(play(&[asks, failure]).0, LoginStep::Refused(words.into()));
    }

    #[test]
    fn a_server_that_does_not_ask_is_told_nothing() {
        for answer in [
            &b"VERSION 1.6.45\r\n"[..],
            b"ERROR\r\n",
            b"ERROR Too many open connections\r\n",
            b"SERVER_ERROR out of memory\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
        ] {
            let (step, sent) = play(&[answer]);
            assert_eq!(sent, b"version\r\n");
            let is_in = answer.starts_with(b"VERSION") || answer == b"ERROR\r\n";
            assert_eq!(step == LoginStep::In, is_in, "{step:?}");
        }
        let full = play(&[b"ERROR Too many open connections\r\n"]).0;
        let words = "ERROR Too many open connections";
        assert_eq!(full, LoginStep::Unexpected(Some(words.into())));
    }

    #[test]
    fn an_answer_has_an_end() {
        let (credentials, mut out) = (fred(), Vec::new());
        let mut login = Login::new(&credentials, &mut out);
        let endless = [b'V'; ANSWER_BYTES_MAX];
        assert_eq!(
            login.receive(&endless, &mut out),
            LoginStep::Unexpected(None)
        );
    }

    /// A server that sends more than one answer has not waited for our request.
    #[test]
    fn nothing_stands_behind_an_answer() {
        let (step, sent) = play(&[b"CLIENT_ERROR unauthenticated\r\n"]);
        assert_eq!((step, sent.len()), (LoginStep::Send, 43));
        let (credentials, mut out) = (fred(), Vec::new());
        let mut login = Login::new(&credentials, &mut out);
        assert_eq!(
            login.receive(b"VERSION 1.6.45\r\nSTORED\r\n", &mut out),
            LoginStep::Unexpected(None)
        );
    }

    #[test]
    fn invalid_names_and_passwords_are_refused() {
        assert_eq!(Credentials::new("", "p"), Err(TermsError::LoginName));
        assert_eq!(Credentials::new("a b", "p"), Err(TermsError::LoginName));
        let long = "p".repeat(CREDENTIALS_BYTES_MAX - 2);
        assert!(Credentials::new("a", &long).is_ok());
        assert_eq!(Credentials::new("ab", &long), Err(TermsError::LoginLength));
        assert!(!alloc::format!("{:?}", fred()).contains("pass"));
    }
}
