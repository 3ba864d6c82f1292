//! The mistakes of the usual recipes, planted between the shipped client and the world: on the
//! bytes that it sends and hears, or in its belief as the world reads it.

use super::world::LeaseClient;

/// A mistake of the recipes, planted between the client and the world.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trap {
    /// The ttl counts from the answer, as in redislock.
    CountsFromAnswer,
    /// A client that has obtained believes until it releases, as redis-lock's `IsLocked`.
    BelievesForEver,
    /// The server is asked for the ttl only.
    NoMargin,
    /// A release deletes the item unconditionally, as redis-lock's `Unlock`.
    ReleasesBlindly,
    /// A renewal stores unconditionally, as redis-lock's refresh extends it.
    RenewsBlindly,
    /// An obtain stores unconditionally.
    ObtainsBlindly,
    /// A token is compared with the beginning of the value, as in redislock.
    ComparesPrefix,
    /// A lost answer to an add is taken for a success.
    GuessesDone,
    /// A release goes by the version of an earlier connection, without a check of the owner: a
    /// server that has restarted may have given that version to the next holder.
    TrustsOldVersion,
}

/// Every trap, and the number of steps into it.
pub const TRAPS: &[(Trap, usize)] = &[
    (Trap::CountsFromAnswer, 6),
    (Trap::BelievesForEver, 7),
    (Trap::NoMargin, 4),
    (Trap::ReleasesBlindly, 10),
    (Trap::RenewsBlindly, 10),
    (Trap::ObtainsBlindly, 5),
    (Trap::ComparesPrefix, 8),
    (Trap::GuessesDone, 2),
    (Trap::TrustsOldVersion, 10),
];

/// A request as a client with a trap in it sends it.
pub(super) fn trapped(trap: Option<Trap>, bytes: &[u8]) -> Vec<u8> {
    let line_end = bytes.iter().position(|byte| *byte == b'\r');
    let (line, rest) = bytes.split_at(line_end.unwrap_or(bytes.len()));
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let verb = words[0];
    let words = words.iter().filter_map(|word| match (trap, word.first()) {
        (Some(Trap::ReleasesBlindly), Some(b'C')) if verb == b"md" => None,
        (Some(Trap::RenewsBlindly), Some(b'C')) | (Some(Trap::ObtainsBlindly), Some(b'M'))
            if verb == b"ms" =>
        {
            None
        }
        (Some(Trap::NoMargin), Some(b'T')) => Some(&b"T1"[..]),
        _ => Some(*word),
    });
    let mut line = words.collect::<Vec<_>>().join(&b' ');
    line.extend_from_slice(rest);
    line
}

/// The answer that a client with a trap assumes for a question that it does not ask.
pub(super) fn forged(
    trap: Option<Trap>,
    client: &LeaseClient,
    token: &[u8],
    request: &[u8],
) -> Option<Vec<u8>> {
    let gives_back = !client.owes_release && client.heard_cas.is_some();
    if trap != Some(Trap::TrustsOldVersion) || !gives_back || !request.starts_with(b"mg") {
        return None;
    }
    let (length, token) = (token.len(), String::from_utf8_lossy(token));
    let cas = client.heard_cas?;
    Some(format!("VA {length} c{cas} t1\r\n{token}\r\n").into_bytes())
}

/// The version that an answer shows.
pub(super) fn version_in(answer: &[u8]) -> Option<u64> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let word = line
        .split(|byte| *byte == b' ')
        .find(|word| word.first() == Some(&b'c'))?;
    str::from_utf8(word.get(1..)?).ok()?.parse().ok()
}

/// An answer as a client with a trap in it reads it.
pub(super) fn heard(trap: Option<Trap>, token: &[u8], bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    match text.split_once("\r\n") {
        Some((line, value))
            if trap == Some(Trap::ComparesPrefix)
                && line.starts_with("VA")
                && value.as_bytes().starts_with(token) =>
        {
            let flags = line.splitn(3, ' ').nth(2).unwrap_or_default();
            let token = String::from_utf8_lossy(token);
            format!("VA {} {flags}\r\n{token}\r\n", token.len()).into_bytes()
        }
        Some(_) | None => bytes.to_vec(),
    }
}
