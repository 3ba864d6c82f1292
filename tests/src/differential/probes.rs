//! Short scripts that go where the servers are known or likely to part: bad input, and every row
//! of the protocol page that says "we do not". Each run of one uses a key of its own.

use latchd_harness::transcript::Dialect;

use super::PairedRequest;
use crate::generate::Random;

/// A script, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Script {
    lines: &'static [&'static str],
    /// It uses what memcached has had from 1.6.40 on only.
    is_new: bool,
    /// The entry of the [allow list](super::allow) that holds within it alone.
    allows: Option<&'static str>,
}

const fn any(lines: &'static [&'static str]) -> Script {
    Script {
        lines,
        is_new: false,
        allows: None,
    }
}

const fn new(lines: &'static [&'static str]) -> Script {
    Script {
        lines,
        is_new: true,
        allows: None,
    }
}

impl Script {
    const fn allowing(mut self, id: &'static str) -> Self {
        self.allows = Some(id);
        self
    }
}

/// The scripts for both text protocols; `@` stands for the key, `~` for a value of a megabyte and
/// one byte, `^` for one of 600 000, `#` for a key that is too long.
const SCRIPTS: &[Script] = &[
    // Bad numbers.
    any(&["set @ x 0 1\r\nv\r\n", "get @\r\n"]),
    any(&["set @ -1 0 1\r\nv\r\n", "get @\r\n"]),
    any(&["set @ 4294967296 0 1\r\nv\r\n", "get @\r\n"]),
    any(&["set @ 0 x 1\r\nv\r\n", "get @\r\n"]),
    any(&["set @ 0 99999999999 1\r\nv\r\n", "get @\r\n"]).allowing("exptime-beyond-32-bits"),
    any(&["set @ 0 0 x\r\n", "get @\r\n"]),
    any(&["set @ 0 0 -1\r\n", "get @\r\n"]),
    new(&["set @ 0 0 99999999999\r\n", "get @\r\n"]),
    any(&["set @ 0 0\r\n", "get @\r\n"]),
    any(&["set @\r\n", "set\r\n"]),
    any(&[
        "cas @ 0 0 1\r\nv\r\n",
        "cas @ 0 0 1 x\r\nv\r\n",
        "cas @ 0 0 1 -1\r\nv\r\n",
    ]),
    any(&["set @ 0 0 1 noreplyx\r\nv\r\n", "get @\r\n"]),
    any(&[
        "incr @\r\n",
        "incr @ x\r\n",
        "incr @ -1\r\n",
        "incr @ 18446744073709551616\r\n",
    ]),
    any(&[
        "set @ 0 0 1\r\nx\r\n",
        "incr @ 1\r\n",
        "decr @ 1\r\n",
        "get @\r\n",
    ]),
    any(&["set @ 0 0 2\r\n-1\r\n", "incr @ 1\r\n"]),
    any(&["set @ 0 0 2\r\n+1\r\n", "incr @ 1\r\n", "get @\r\n"]),
    any(&["set @ 0 0 3\r\n7 8\r\n", "incr @ 1\r\n", "get @\r\n"]),
    any(&["set @ 0 0 20\r\n99999999999999999999\r\n", "incr @ 1\r\n"]),
    any(&[
        "set @ 0 0 25\r\n0000000000000000000000001\r\n",
        "incr @ 1\r\n",
        "get @\r\n",
    ]),
    any(&["touch @\r\n", "touch @ x\r\n", "touch @ 1 x\r\n"]),
    any(&["gat\r\n", "gat 0\r\n", "gat x @\r\n", "gats x @\r\n"]),
    any(&["flush_all x\r\n", "flush_all 0 x\r\n"]),
    any(&["verbosity\r\n", "verbosity x\r\n", "verbosity 0 0 0\r\n"]),
    // Bodies.
    any(&["set @ 0 0 3\r\nab\r\n\r\n", "get @\r\n"]),
    any(&["set @ 0 0 1\r\nabc\r\n", "get @\r\n"]),
    any(&["ms @ 1\r\nabc\r\n", "mg @ v\r\n"]),
    any(&["ms @ x\r\n", "ms @ -1\r\n", "ms @\r\n", "ms\r\n"]),
    any(&["ms @ 1 q\r\nabc\r\n"]),
    any(&["ms @ 2 c k O9\r\nab\r\n", "mg @ v c\r\n"]),
    // Keys.
    any(&[
        "get #\r\n",
        "gets #\r\n",
        "gat 0 #\r\n",
        "get @ #\r\n",
        "get # @\r\n",
    ]),
    any(&["delete #\r\n", "touch # 0\r\n", "incr # 1\r\n"]),
    any(&[
        "set # 0 0 1\r\nv\r\n",
        "mg # v\r\n",
        "md #\r\n",
        "ma #\r\n",
        "ms # 1\r\nv\r\n",
        "me #\r\n",
    ]),
    // Unknown commands, empty lines.
    any(&[
        "nonsense\r\n",
        "get\r\n",
        "gets\r\n",
        "mg\r\n",
        "md\r\n",
        "ma\r\n",
        "me\r\n",
    ]),
    any(&["\r\n", " \r\n", "  get @\r\n", "GET @\r\n", "getx @\r\n"]),
    any(&[
        "delete\r\n",
        "incr\r\n",
        "touch\r\n",
        "decr\r\n",
        "append\r\n",
    ]),
    any(&["set @ 0 0 1\r\nv\r\n", "delete @ 5\r\n"]),
    any(&["set @ 0 0 1\r\nv\r\n", "delete @ b\r\n"]),
    any(&["set @ 0 0 1\r\nv\r\n", "delete @ 0\r\n", "get @\r\n"]),
    any(&[
        "delete @ b c\r\n",
        "delete @ 0 noreply\r\n",
        "delete @ 0 0 0\r\n",
    ]),
    // Too large.
    any(&[
        "set @ 0 0 1\r\nv\r\n",
        "set @ 0 0 1048577\r\n~\r\n",
        "get @\r\n",
    ]),
    any(&["ms @ 1\r\nv\r\n", "ms @ 1048577\r\n~\r\n", "mg @ v\r\n"]),
    any(&[
        "set @ 0 0 600000\r\n^\r\n",
        "append @ 0 0 600000\r\n^\r\n",
        "gets @\r\n",
    ]),
    // Meta flags.
    any(&[
        "mg @ v v\r\n",
        "mg @ !\r\n",
        "mg @ Tx\r\n",
        "mg @ T\r\n",
        "mg @ Nx\r\n",
        "mg @ R\r\n",
    ]),
    any(&[
        "mg @ O1234567890123456789012345678901\r\n",
        "mg @ O12345678901234567890123456789012\r\n",
    ]),
    any(&["mg @ O123456789012345678901234567890123 k\r\n"]),
    any(&[
        "ms @ 1 Fx\r\nv\r\n",
        "ms @ 1 Tx\r\nv\r\n",
        "ms @ 1 Cx\r\nv\r\n",
        "mg @ v\r\n",
    ]),
    any(&["ms @ 1 MX\r\nv\r\n", "ms @ 1 M\r\nv\r\n", "mg @ v\r\n"]),
    any(&[
        "ma @ MX\r\n",
        "ma @ M\r\n",
        "ma @ Dx\r\n",
        "ma @ Jx N0\r\n",
        "ma @ Nx\r\n",
        "ma @ q q\r\n",
    ]),
    any(&["md @ Cx\r\n", "md @ Tx I\r\n", "md @ q q\r\n", "md @ !\r\n"]),
    any(&["mg @ a b c d e f g h i j k l m n o p q r s t u v w x y z\r\n"]),
    any(&["mg @ k s t f c l h u v q O1 T30 N30 R30 P1 L1 Z W X\r\n"]),
    any(&[
        "mg @ P1 L2\r\n",
        "ms @ 1 P1 L2\r\nv\r\n",
        "md @ P1 L2\r\n",
        "ma @ P1 L2\r\n",
    ]),
    any(&[
        "mg b b\r\n",
        "ms b 1 b\r\nv\r\n",
        "md b b\r\n",
        "ma b b\r\n",
    ]),
    any(&[
        "ms QUJD 1 b k\r\nv\r\n",
        "mg QUJD b k v\r\n",
        "mg ABC v\r\n",
        "md QUJD b k\r\n",
    ]),
    // Rows of the protocol page that say "we do not", or that are new.
    any(&[
        "ms @ 1 T30\r\nv\r\n",
        "mg @ T60 t\r\n",
        "mg @ t T90\r\n",
        "mg @ t\r\n",
    ]),
    any(&[
        "mg @ t N30 v\r\n",
        "mg @ N30 t v\r\n",
        "get @\r\n",
        "add @ 0 0 1\r\nv\r\n",
    ]),
    any(&["mg @ N-1 t v\r\n", "mg @ v\r\n"]),
    any(&["mg @ N0 t\r\n", "mg @ t\r\n"]),
    any(&["ms @ 1\r\n1\r\n", "md @ I\r\n", "ma @\r\n", "mg @ v\r\n"])
        .allowing("counting-ends-staleness"),
    any(&[
        "ms @ 1\r\n1\r\n",
        "md @ I\r\n",
        "mg @\r\n",
        "incr @ 1\r\n",
        "mg @ v\r\n",
    ])
    .allowing("counting-ends-staleness"),
    any(&[
        "ms @ 1\r\n9\r\n",
        "mg @ v h\r\n",
        "incr @ 1\r\n",
        "mg @ h v\r\n",
    ])
    .allowing("counting-is-no-fetch"),
    any(&[
        "ms @ 2\r\n10\r\n",
        "mg @ v h\r\n",
        "incr @ 1\r\n",
        "mg @ h v\r\n",
    ]),
    any(&["ms @ 1\r\n9\r\n", "ma @ T100 t\r\n", "mg @ t v\r\n"]).allowing("counting-loses-flags"),
    any(&["ms @ 1\r\n8\r\n", "ma @ T100 t\r\n", "mg @ t v\r\n"]),
    new(&[
        "ms @ 1\r\n9\r\n",
        "ma @ E500000004444 c\r\n",
        "mg @ v C500000004444\r\n",
    ])
    .allowing("counting-loses-flags"),
    new(&[
        "ms @ 1\r\n8\r\n",
        "ma @ E500000004444 c\r\n",
        "mg @ v C500000004444\r\n",
    ]),
    any(&[
        "ms @ 1\r\nv\r\n",
        "md @ I\r\n",
        "get @\r\n",
        "me @\r\n",
        "mg @\r\n",
        "mg @\r\n",
    ]),
    any(&[
        "ms @ 1\r\nv\r\n",
        "md @ I T30\r\n",
        "mg @ t\r\n",
        "md @ I\r\n",
        "mg @ t\r\n",
        "mg @\r\n",
    ]),
    new(&["ms @ 1 F7 T30\r\nv\r\n", "md @ x\r\n", "mg @ s t f v h\r\n"]),
    new(&[
        "ms @ 1 F7 T30\r\nv\r\n",
        "md @ x F9 T60\r\n",
        "mg @ s t f v h\r\n",
    ]),
    new(&[
        "ms @ 1 T30\r\nv\r\n",
        "mg @ R60\r\n",
        "md @ x\r\n",
        "mg @ s\r\n",
    ])
    .allowing("clear-keeps-win"),
    new(&[
        "ms @ 1\r\nv\r\n",
        "md @ x I\r\n",
        "mg @ v\r\n",
        "mg @ v\r\n",
    ]),
    new(&[
        "ms @ 1 E5000000077777\r\nv\r\n",
        "mg @ c\r\n",
        "ms @ 1 C5000000077777 E5000000088888\r\nw\r\n",
        "mg @ c v\r\n",
    ]),
    new(&[
        "ms @ 1 E5000000077777\r\nv\r\n",
        "mg @ C5000000077777 v\r\n",
        "mg @ C1 v\r\n",
    ]),
    new(&[
        "ms @ 1 E5000000077777\r\nv\r\n",
        "ms @ 1 C5000000070000 I T360\r\nw\r\n",
        "mg @ t v\r\n",
        "mg @ t v\r\n",
    ]),
    new(&[
        "ms @ 1 E5000000077777\r\nv\r\n",
        "ms @ 1 C5000000080000 I\r\nw\r\n",
        "ms @ 1 C0\r\nw\r\n",
        "mg @ v\r\n",
    ]),
    any(&[
        "ms @ 1 C0\r\nw\r\n",
        "ms @ 1 C5 ME\r\nw\r\n",
        "mg @ v\r\n",
        "ms @ 1 C5 MA\r\nw\r\n",
    ]),
    new(&[
        "ms @ 1 MA\r\nw\r\n",
        "ms @ 1 MA N30 c s\r\nw\r\n",
        "ms @ 1 MP s\r\nx\r\n",
        "mg @ t v\r\n",
    ]),
    any(&[
        "ms @ 1\r\nv\r\n",
        "md @ C0\r\n",
        "md @ C0 q\r\n",
        "md @\r\n",
        "md @ C0\r\n",
    ]),
    new(&[
        "ma @\r\n",
        "ma @ N30 J5 v t\r\n",
        "ma @ N30 J5 v t q\r\n",
        "ma @ C0 v\r\n",
        "ma @ q\r\n",
    ]),
    any(&["ma @ N30 q\r\n", "mg @ v\r\n"]),
    any(&["ms @ 0\r\n\r\n", "ma @ C999999999999\r\n", "ma @\r\n"]),
    new(&["ms @ 1 S5\r\nv\r\n", "mg @ v\r\n"]),
    any(&["mg RUZH b N30 k\r\n", "mg RUZH b k\r\n", "md RUZH b\r\n"]).allowing("binary-key-mark"),
    any(&["ma SElK b N30 k\r\n", "mg SElK b k\r\n", "md SElK b\r\n"]).allowing("binary-key-mark"),
];

/// A script, with the `number`th key.
pub fn draw(random: &mut Random, dialect: Dialect, number: u64) -> Vec<PairedRequest> {
    let key = format!("p{number}");
    let long = "L".repeat(251);
    let mut script = random.choose(SCRIPTS);
    // A megabyte takes its time: one in a few hundred is enough.
    let is_large = script.lines.iter().any(|line| line.contains(['~', '^']));
    while is_large && random.chance(9, 10) || script.is_new && dialect != Dialect::Memcached1645 {
        script = random.choose(&SCRIPTS[..10]);
    }
    script
        .lines
        .iter()
        .map(|line| {
            let mut text = line.replace('@', &key).replace('#', &long);
            if text.contains('~') {
                text = text.replace('~', &"x".repeat((1 << 20) + 1));
            }
            if text.contains('^') {
                text = text.replace('^', &"x".repeat(600_000));
            }
            let alone = must_be_alone(&text);
            PairedRequest {
                key: Some(key.clone()),
                made_up_cas: true,
                alone,
                allows: script.allows,
                ..PairedRequest::new(text)
            }
        })
        .collect()
}

/// Counting (see [`PairedRequest::alone`]); and a classic get of a key that is too long, since memcached
/// then forgets the answers that wait to be sent (`proto_text.c`, `process_get_command_err`).
fn must_be_alone(line: &str) -> bool {
    let is_get = ["get ", "gets ", "gat ", "gats "]
        .iter()
        .any(|verb| line.starts_with(verb));
    let counts = ["incr ", "decr ", "ma "]
        .iter()
        .any(|verb| line.starts_with(verb));
    counts || is_get && line.len() > 250
}

/// What ends a connection.
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
