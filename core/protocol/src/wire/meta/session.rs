//! `mo`: opens, resumes and ends sessions.
//!
//! The request is `mo <token> T<seconds> [x]`. Any other flag is an error, so that a later one fails safe.

use alloc::vec::Vec;

use crate::owner::Owner;
use crate::session::{
    SESSION_S_MAX, SessionAction, SessionRefusal, SessionReply, SessionRequest, Token,
};
use crate::wire::Malformed;
use crate::wire::line::Line;
use crate::wire::scan::{Tokens, reply_line_bytes, u32_from, u64_from, without_line_end};
use crate::wire::status_line::{self, put_line, put_number};
use crate::wire::step::{Operation, Step};

const BAD_TOKEN: &str = "CLIENT_ERROR invalid session token";
const BAD_TIME: &str = "CLIENT_ERROR invalid session time";
const BAD_FLAG: &str = "CLIENT_ERROR invalid flag";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";

/// Reads the request of a line, with `rest` behind its verb.
#[must_use]
pub fn decode<'a>(rest: &'a [u8], line: Line<'a>) -> Step<'a> {
    match request(rest) {
        Ok(request) => Operation::Session { request }.consuming(line.bytes),
        Err(text) => line.respond(text),
    }
}

fn request(rest: &[u8]) -> Result<SessionRequest<'_>, &'static str> {
    let mut words = Tokens::new(rest);
    let token = words.next().and_then(Token::new).ok_or(BAD_TOKEN)?;
    let (mut seconds, mut only_resumes) = (None, false);
    for word in words {
        match word.split_first() {
            Some((b'T', digits)) => {
                let read = Some(digits).filter(|digits| !digits.is_empty());
                let read = read.and_then(u32_from);
                let read = read.filter(|seconds| *seconds <= SESSION_S_MAX);
                if seconds.replace(read.ok_or(BAD_TIME)?).is_some() {
                    return Err(DUPLICATE);
                }
            }
            Some((b'x', [])) => {
                if core::mem::replace(&mut only_resumes, true) {
                    return Err(DUPLICATE);
                }
            }
            Some(_) | None => return Err(BAD_FLAG),
        }
    }
    let action = match seconds.ok_or(BAD_TIME)? {
        0 => SessionAction::End,
        seconds => SessionAction::Open {
            seconds,
            only_resumes,
        },
    };
    Ok(SessionRequest { token, action })
}

/// Appends the request's bytes to `out`.
pub fn encode(request: &SessionRequest<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"mo ");
    out.extend_from_slice(request.token.as_bytes());
    out.extend_from_slice(b" T");
    let (seconds, only_resumes) = match request.action {
        SessionAction::Open {
            seconds,
            only_resumes,
        } => (seconds, only_resumes),
        SessionAction::End => (0, false),
    };
    put_number(out, seconds);
    put_line(out, if only_resumes { " x" } else { "" });
}

/// Appends the reply's bytes to `out`.
pub fn encode_reply(reply: &SessionReply, out: &mut Vec<u8>) {
    let (owner, end) = match reply {
        SessionReply::Opened(owner) => (owner, " N"),
        SessionReply::Resumed(owner) => (owner, " R"),
        SessionReply::Ended(_) => return put_line(out, "HD"),
        SessionReply::NotFound => return put_line(out, "NF"),
        SessionReply::Refused(refusal) => return put_line(out, refusal_line(*refusal)),
    };
    out.extend_from_slice(b"HD n");
    put_number(out, owner.number());
    put_line(out, end);
}

const fn refusal_line(refusal: SessionRefusal) -> &'static str {
    match refusal {
        SessionRefusal::Off => "SERVER_ERROR sessions are off",
        SessionRefusal::OtherUser => "CLIENT_ERROR session of another user",
        SessionRefusal::Attached => "CLIENT_ERROR attached to another session",
        SessionRefusal::Lost => "SERVER_ERROR connection is closed",
        SessionRefusal::Holds => "CLIENT_ERROR connection holds locks of its own",
        SessionRefusal::TooMany => "SERVER_ERROR too many sessions",
        SessionRefusal::NoSession => "CLIENT_ERROR no such session",
        SessionRefusal::Unrecorded => status_line::UNRECORDED,
    }
}

/// The response to `mo` at the front of `input`, as a client reads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionResponse<'a> {
    /// The connection is attached to a new session.
    Opened(Owner),
    /// The connection is attached to the session that was there.
    Resumed(Owner),
    /// The session has ended, by this request.
    Ended,
    /// There is no such session: everything that it had acquired is lost.
    NotFound,
    /// This error; nothing has changed.
    Failed(&'a [u8]),
}

impl<'a> SessionResponse<'a> {
    /// Reads the response, and its length in bytes; `None` while a part of it is to come.
    ///
    /// # Errors
    /// [`Malformed`] if no server sends that.
    pub fn decode(input: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(bytes) = reply_line_bytes(input)? else {
            return Ok(None);
        };
        let line = without_line_end(input.get(..bytes).unwrap_or_default());
        let mut words = Tokens::new(line);
        let code = words.next();
        let owner = words
            .next()
            .and_then(|word| u64_from(word.strip_prefix(b"n")?))
            .map(Owner::of_session);
        let response = match (code, owner, words.next()) {
            (Some(b"HD"), Some(owner), Some(b"N")) => Self::Opened(owner),
            (Some(b"HD"), Some(owner), Some(b"R")) => Self::Resumed(owner),
            (Some(b"HD"), None, None) => Self::Ended,
            (Some(b"NF"), None, None) => Self::NotFound,
            (Some(b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR"), ..) => Self::Failed(line),
            _ => return Err(Malformed),
        };
        Ok(Some((response, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn said(rest: &str) -> Result<SessionRequest<'_>, &'static str> {
        request(rest.as_bytes())
    }

    #[test]
    fn a_session_has_a_token_and_a_time() {
        let token = Token::new(TOKEN.as_bytes()).unwrap();
        for (flags, action) in [
            ("T1", open(1, false)),
            ("T3600 x", open(3_600, true)),
            ("x T30", open(30, true)),
            ("T0", SessionAction::End),
        ] {
            let request = SessionRequest { token, action };
            let rest = alloc::format!(" {TOKEN} {flags}");
            assert_eq!(said(&rest), Ok(request), "{rest}");
            let mut out = Vec::new();
            encode(&request, &mut out);
            let written = out.strip_prefix(b"mo ").unwrap();
            let written = written.strip_suffix(b"\r\n").unwrap();
            assert_eq!(super::request(written), Ok(request));
        }
    }

    fn open(seconds: u32, only_resumes: bool) -> SessionAction {
        SessionAction::Open {
            seconds,
            only_resumes,
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let long = "x".repeat(65);
        for (rest, text) in [
            ("", BAD_TOKEN),
            (" 0123456789abcde T5", BAD_TOKEN),
            (&*alloc::format!(" {long} T5"), BAD_TOKEN),
            (" 0123456789abc\u{7}ef T5", BAD_TOKEN),
            (" 0123456789abcdef", BAD_TIME),
            (" 0123456789abcdef x", BAD_TIME),
            (" 0123456789abcdef T", BAD_TIME),
            (" 0123456789abcdef T3601", BAD_TIME),
            (" 0123456789abcdef T-1", BAD_TIME),
            (" 0123456789abcdef T5 T5", DUPLICATE),
            (" 0123456789abcdef T5 x x", DUPLICATE),
            (" 0123456789abcdef T5 q", BAD_FLAG),
            (" 0123456789abcdef T5 xy", BAD_FLAG),
        ] {
            assert_eq!(said(rest), Err(text), "{rest}");
        }
    }

    #[test]
    fn a_client_reads_the_replies() {
        let owner = Owner::of_session(7);
        for (reply, response) in [
            (SessionReply::Opened(owner), SessionResponse::Opened(owner)),
            (
                SessionReply::Resumed(owner),
                SessionResponse::Resumed(owner),
            ),
            (SessionReply::Ended(owner), SessionResponse::Ended),
            (SessionReply::NotFound, SessionResponse::NotFound),
            (
                SessionReply::Refused(SessionRefusal::TooMany),
                SessionResponse::Failed(b"SERVER_ERROR too many sessions"),
            ),
        ] {
            let mut out = Vec::new();
            encode_reply(&reply, &mut out);
            let bytes = out.len();
            assert_eq!(SessionResponse::decode(&out), Ok(Some((response, bytes))));
            assert_eq!(SessionResponse::decode(&out[..bytes - 1]), Ok(None));
        }
        assert_eq!(SessionResponse::decode(b"VA 5\r\n"), Err(Malformed));
    }
}
