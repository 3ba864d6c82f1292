//! Authentication in the binary protocol: SASL, with its mechanism PLAIN.
//!
//! An unauthenticated client may ask for the version and for nothing else: any other packet closes the
//! connection. Name and password come with the request that names the mechanism. If that request is empty, they
//! come with a step after it.
//!
//! - A client that begins anew is unauthenticated until that has succeeded.
//!
//! Source: memcached 1.6.45 `proto_bin.c`, `process_bin_sasl_auth`, `process_bin_complete_sasl_auth`,
//! `authenticated`; RFC 4616.

use super::StatusPacket;
use super::header::{HEADER_BYTES, RequestHeader, Status};
use super::opcode::{Opcode, Verb};
use crate::wire::authenticate::{LOGIN_BYTES_MAX, Unauthenticated};
use crate::wire::local::LocalResponse;
use crate::wire::step::{Claim, Operation, Step};

/// The supported mechanisms.
const MECHANISMS: &str = "PLAIN";

/// The longest name of a mechanism that is read, in bytes. Source: memcached 1.6.45 `memcached.h`,
/// `MAX_SASL_MECH_LEN`.
const MECHANISM_BYTES_MAX: u16 = 32;

/// Whether an unauthenticated client may send a packet with this opcode.
pub(super) fn precedes_authentication(opcode: u8) -> bool {
    let verb = Opcode::from_byte(opcode).map(Opcode::verb);
    verb == Some(Verb::Version) || verb.is_some_and(is_sasl)
}

/// Whether this verb belongs to authentication.
pub(super) fn is_sasl(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::SaslListMechanisms | Verb::SaslAuth | Verb::SaslStep
    )
}

/// The step of a packet with such a verb and the right lengths.
pub(super) fn decode<'a>(
    verb: Verb,
    header: &RequestHeader,
    input: &'a [u8],
    unauthenticated: &mut Option<Unauthenticated>,
) -> Step<'a> {
    let packet_bytes = HEADER_BYTES + header.body_bytes as usize;
    let respond = |status, body| {
        Operation::Send {
            response: packet(header, status, body),
            unstored: None,
        }
        .consuming(packet_bytes)
    };
    if verb == Verb::SaslListMechanisms {
        return respond(Status::SUCCESS, MECHANISMS);
    }
    if header.key_bytes > MECHANISM_BYTES_MAX {
        return respond(Status::INVALID, Status::INVALID.text());
    }
    if header.body_bytes > LOGIN_BYTES_MAX {
        return respond(Status::AUTH_FAILURE, Status::AUTH_FAILURE.text());
    }
    let Some(body) = input.get(HEADER_BYTES..packet_bytes) else {
        return Operation::Incomplete {
            at_least: packet_bytes,
        }
        .consuming(0);
    };
    let (mechanism, token) = body
        .split_at_checked(usize::from(header.key_bytes))
        .unwrap_or((body, b""));
    let is_step = verb == Verb::SaslStep;
    let begun = unauthenticated.get_or_insert_default();
    let is_plain = if is_step {
        // The mechanism is the one of the first request.
        begun.has_begun
    } else {
        mechanism.eq_ignore_ascii_case(MECHANISMS.as_bytes())
    };
    begun.has_begun = is_plain && !is_step && token.is_empty();
    if begun.has_begun {
        return respond(Status::AUTH_CONTINUE, "");
    }
    Operation::Authenticate {
        claim: if is_plain { claim(token) } else { None },
        welcome: packet(header, Status::SUCCESS, "Authenticated"),
        refusal: packet(header, Status::AUTH_FAILURE, Status::AUTH_FAILURE.text()),
    }
    .consuming(packet_bytes)
}

/// The token has three parts, with a zero byte between each: the client to act for, the client itself, and the
/// password. The first is empty or the same as the second: no client can act for another.
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
    fn unauthenticated_clients_get_version_and_sasl() {
        let open: alloc::vec::Vec<u8> = (0..=u8::MAX)
            .filter(|op| precedes_authentication(*op))
            .collect();
        assert_eq!(open, [0x0b, 0x20, 0x21, 0x22]);
    }

    /// A token that is too long is refused by its lengths, before any of it arrives.
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
            let Step {
                operation:
                    Operation::Send {
                        response: LocalResponse::Packet(packet),
                        ..
                    },
                ..
            } = step
            else {
                panic!("{step:?}")
            };
            packet.status
        };
        let waits = Operation::Incomplete {
            at_least: HEADER_BYTES + LOGIN_BYTES_MAX as usize,
        }
        .consuming(0);
        assert_eq!(said(MECHANISM_BYTES_MAX, LOGIN_BYTES_MAX), waits);
        assert_eq!(status(said(MECHANISM_BYTES_MAX + 1, 40)), Status::INVALID);
        assert_eq!(status(said(0, LOGIN_BYTES_MAX + 1)), Status::AUTH_FAILURE);
    }
}
