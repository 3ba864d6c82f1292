//! How a client of the binary protocol shows who it is: SASL, by its mechanism PLAIN.
//!
//! Before it has, a client may ask for the version and for nothing else: any other packet closes. Name and
//! password come with the request that names the mechanism, or, if it brings nothing, with a step after it.
//!
//! - Whoever begins anew is a stranger again until that has succeeded.
//!
//! Source: memcached 1.6.45 `proto_bin.c`, `process_bin_sasl_auth`, `process_bin_complete_sasl_auth`,
//! `authenticated`; RFC 4616.

use super::StatusPacket;
use super::header::{HEADER_BYTES, RequestHeader, Status};
use super::opcode::{Opcode, Verb};
use crate::wire::authenticate::{Stranger, TOKEN_BYTES_MAX};
use crate::wire::local::LocalResponse;
use crate::wire::step::{Claim, Step};

/// The mechanisms that there are.
const MECHANISMS: &str = "PLAIN";

/// The longest name of a mechanism that is looked at, in bytes. Source: memcached 1.6.45 `memcached.h`,
/// `MAX_SASL_MECH_LEN`.
const MECHANISM_BYTES_MAX: u16 = 32;

/// Whether somebody whom nobody knows yet may send a packet with this opcode.
pub(super) fn is_for_strangers(opcode: u8) -> bool {
    let verb = Opcode::from_byte(opcode).map(Opcode::verb);
    verb == Some(Verb::Version) || verb.is_some_and(is_sasl)
}

/// Whether this is how one shows who one is.
pub(super) fn is_sasl(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::SaslListMechanisms | Verb::SaslAuth | Verb::SaslStep
    )
}

/// The step of a packet with such a verb and lengths that belong to it.
pub(super) fn decode<'a>(
    verb: Verb,
    header: &RequestHeader,
    input: &'a [u8],
    stranger: &mut Option<Stranger>,
) -> Step<'a> {
    let packet_bytes = HEADER_BYTES + header.body_bytes as usize;
    let respond = |status, body| Step::Send {
        consumed: packet_bytes,
        response: packet(header, status, body),
        unstored: None,
    };
    if verb == Verb::SaslListMechanisms {
        return respond(Status::SUCCESS, MECHANISMS);
    }
    if header.key_bytes > MECHANISM_BYTES_MAX {
        return respond(Status::INVALID, Status::INVALID.text());
    }
    if header.body_bytes > TOKEN_BYTES_MAX {
        return respond(Status::AUTH_FAILURE, Status::AUTH_FAILURE.text());
    }
    let Some(body) = input.get(HEADER_BYTES..packet_bytes) else {
        return Step::Incomplete {
            at_least: packet_bytes,
        };
    };
    let (mechanism, token) = body
        .split_at_checked(usize::from(header.key_bytes))
        .unwrap_or((body, b""));
    let is_step = verb == Verb::SaslStep;
    let begun = stranger.get_or_insert_default();
    let is_plain = if is_step {
        // The mechanism is that of the beginning.
        begun.has_begun
    } else {
        mechanism.eq_ignore_ascii_case(MECHANISMS.as_bytes())
    };
    begun.has_begun = is_plain && !is_step && token.is_empty();
    if begun.has_begun {
        return respond(Status::AUTH_CONTINUE, "");
    }
    Step::Authenticate {
        consumed: packet_bytes,
        claim: if is_plain { claim(token) } else { None },
        welcome: packet(header, Status::SUCCESS, "Authenticated"),
        refusal: packet(header, Status::AUTH_FAILURE, Status::AUTH_FAILURE.text()),
    }
}

/// Who that is in whose name it is acted, who it is, and the password, with a zero byte between each. The
/// first is left out, or the same as the second: nobody acts for others here.
fn claim(token: &[u8]) -> Option<Claim<'_>> {
    let mut parts = token.splitn(3, |byte| *byte == 0);
    let (acts_for, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_himself = acts_for.is_empty() || acts_for == name;
    is_himself.then_some(Claim { name, password })
}

fn packet(header: &RequestHeader, status: Status, body: &'static str) -> LocalResponse<'static> {
    LocalResponse::Packet(StatusPacket {
        opcode: header.opcode,
        opaque: header.opaque,
        status,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_a_name_and_a_password() {
        let fred = Claim {
            name: b"fred",
            password: b"pass",
        };
        assert_eq!(claim(b"\0fred\0pass"), Some(fred));
        assert_eq!(claim(b"fred\0fred\0pass"), Some(fred));
        for token in [&b""[..], b"fred", b"fred\0pass", b"ann\0fred\0pass"] {
            assert_eq!(claim(token), None, "{token:?}");
        }
    }

    #[test]
    fn a_stranger_may_ask_who_he_talks_to_and_say_who_he_is() {
        let open: alloc::vec::Vec<u8> = (0..=u8::MAX).filter(|op| is_for_strangers(*op)).collect();
        assert_eq!(open, [0x0b, 0x20, 0x21, 0x22]);
    }

    /// What is longer than it may be is refused by its lengths, before any of it is there.
    #[test]
    fn a_mechanism_and_a_token_are_as_long_as_they_may_be() {
        let said = |key_bytes, body_bytes| {
            let header = RequestHeader {
                key_bytes,
                body_bytes,
                opcode: 0x21,
                extras_bytes: 0,
                opaque: 0,
                cas: 0,
            };
            decode(Verb::SaslAuth, &header, &[0; HEADER_BYTES], &mut None)
        };
        let status = |step| {
            let Step::Send {
                response: LocalResponse::Packet(packet),
                ..
            } = step
            else {
                panic!("{step:?}")
            };
            packet.status
        };
        let waits = Step::Incomplete {
            at_least: HEADER_BYTES + TOKEN_BYTES_MAX as usize,
        };
        assert_eq!(said(MECHANISM_BYTES_MAX, TOKEN_BYTES_MAX), waits);
        assert_eq!(status(said(MECHANISM_BYTES_MAX + 1, 40)), Status::INVALID);
        assert_eq!(status(said(0, TOKEN_BYTES_MAX + 1)), Status::AUTH_FAILURE);
    }
}
