//! Short scripts for cases in which the servers are known or likely to differ, from `probes.txt`:
//! bad input, and every row of the protocol page that says "we do not". Each run of one uses a key
//! of its own.

use std::sync::LazyLock;

use latchd_harness::random::Random;
use latchd_harness::transcript::parse::pieces;
use latchd_harness::transcript::{Dialect, Piece};

use super::PairedRequest;

/// A script, and its properties.
#[derive(Clone, Debug, Default)]
struct Script {
    requests: Vec<&'static str>,
    /// It uses only commands of memcached from 1.6.40 on.
    is_new: bool,
    /// The entry of the [allow list](super::allow) that holds within it alone.
    allows: Option<&'static str>,
}

static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let lines = include_str!("probes.txt").lines();
    let scripts = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    scripts.map(Script::parse).collect()
});

impl Script {
    fn parse(mut line: &'static str) -> Self {
        let mut script = Self::default();
        while let Some((word, rest)) = line.strip_prefix('!').and_then(|line| line.split_once(' '))
        {
            line = rest;
            match word.split_once('=') {
                Some(("allows", id)) => script.allows = Some(id),
                None if word == "new" => script.is_new = true,
                _ => panic!("there is no !{word}"),
            }
        }
        script.requests = line.split(" | ").collect();
        script
    }
}

/// A script, with the `number`th key.
///
/// # Panics
/// If a line of it is none.
pub fn draw(random: &mut Random, dialect: Dialect, number: u64) -> Vec<PairedRequest> {
    let key = format!("p{number}");
    let mut script = random.choose(&SCRIPTS);
    // A megabyte takes its time: one in a few hundred is enough.
    let is_large = script
        .requests
        .iter()
        .any(|request| request.contains("{600000*") || request.contains("{1048577*"));
    while is_large && random.chance(9, 10) || script.is_new && dialect != Dialect::Memcached1645 {
        script = random.choose(&SCRIPTS[..10]);
    }
    let request = |line: &&str| {
        let line = pieces(&line.replace('@', &key)).expect("escapes and repeats only");
        let [Piece::Literal(line)] = line.as_slice() else {
            panic!("a script has no wildcards");
        };
        let mut request = PairedRequest::new(line);
        request.push("\r\n");
        PairedRequest {
            key: Some(key.clone()),
            made_up_cas: true,
            alone: must_be_alone(line),
            allows: script.allows,
            ..request
        }
    };
    script.requests.iter().map(request).collect()
}

/// Counting (see [`PairedRequest::alone`]); and a classic get of a key that is too long, since memcached
/// then forgets the answers that wait to be sent (`proto_text.c`, `process_get_command_err`).
fn must_be_alone(line: &[u8]) -> bool {
    let verb = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    match verb {
        b"incr" | b"decr" | b"ma" => verb.len() < line.len(),
        b"get" | b"gets" | b"gat" | b"gats" => line.len() > 250,
        _ => false,
    }
}

/// Requests that end a connection.
#[must_use]
pub fn last_words() -> Vec<Vec<u8>> {
    vec![
        b"quit\r\n".to_vec(),
        b"quit now\r\n".to_vec(),
        b"get k0\r\nquit\r\nget k1\r\n".to_vec(),
        // A line that is too long and has no end.
        vec![b'a'; 5_000],
    ]
}
