//! Each row of the tables of docs/PROTOCOL.md is checked: by a scenario that is played against latchd, or by tests.
//!
//! A scenario names its rows, `@row SECTION | FIRST CELL`. That it checks every part of them is for people to judge.

mod document;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use latchd_harness::transcript::Dialect;

use super::transcripts;

/// The rows that scenarios cannot play: they need a certificate, a clock, a full memory, or another process. Unit tests
/// and tests of the program check them.
const WITHOUT_SCENARIO: &[&str] = &[
    "Time | resolution",
    "Items, keys and CAS | memory is full, and no item can be evicted",
    "Classic text | `refresh_certs`",
    "Classic text | `shutdown`, `shutdown graceful`",
    "Classic text | with `-Y`, before a client has authenticated",
    "Classic text | `watch [fetchers] [mutations] [deletions] [evictions] [connevents] [locks]`",
    "Watching | `fetchers`",
    "Watching | `mutations`",
    "Watching | `deletions`",
    "Watching | `evictions`",
    "Watching | `connevents`",
    "Watching | `locks`",
    "Watching | `rawcmds`, `sysevents`, `proxyreqs`, `proxyevents`, `proxyuser`",
    "Watching | any, while over 256 KiB wait for the watcher (`-o watcher_logbuf_size`)",
    "Watching | any but `connevents`, with `-X`",
    "Bound wins | 1,024 wins bound to the connection, or the memory limit of locks is reached",
    "Waiting gets | the win is given to a waiting get",
    "Waiting gets | the item expires, or is evicted, or is removed at the end of its lock's lease",
    "Waiting gets | more waits than \"Waiting for a lock\" permits, counted together per shard",
    "Locks | with `-o locked_reply=not_stored`, on a connection that has used no lock command",
    "Locks | eviction",
    "Locks | too many locks by one connection, or locked items pin too much memory",
    "Locks of keys | the server [withholds locks](OPERATIONS.md#locks-after-a-restart), and no connection holds the key",
    "Locks of keys | too many locks, or waits",
    "Shared locks | the 1,025th holder of a share",
    "Metadata of locks | longer metadata, and no memory for it",
    "Waiting for a lock | the lock is free, but would be one too many for this connection",
    "Waiting for a lock | a second wait of a connection, over 16,384 waits per key, over 65,536 per shard, or over the memory limit of locks",
    "Waiting for a lock | a deadlock check that visits over 2,048 locks and shares, from holder to awaited key",
    "Sessions | `mo` for a session that another user opened",
    "Sessions | more than 16,384 sessions of one address, or 65,536 in all",
    "Sessions | the session's time cannot be [recorded](OPERATIONS.md#locks-after-a-restart), as on a full disk",
    "Clusters | the hold: `H<ms>` of `mn H`, `ml … H`",
    "Clusters | any request but `quit`, while the server is not primary",
    "Clusters | a request for a key of another partition",
    "Clusters | `config get cluster`",
    "Clusters | `stats cluster`",
    "Leased locks | value",
    "Leased locks | client flags",
    "Leased locks | exptime",
    "Binary | 2–3, 4, 8–11",
    "Statuses | 0x0007",
    "Statuses | 0x0020",
    "Statuses | 0x0021",
    "Statuses | 0x0082",
    "Statuses | 0x0084",
    "Statuses | 0x0086",
];

#[test]
fn each_row_of_the_protocol_is_checked() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/PROTOCOL.md");
    let text = fs::read_to_string(path).expect("the document can be read");
    let rows = document::rows(&text);
    let rows: BTreeSet<_> = rows
        .iter()
        .map(|row| format!("{} | {}", row.section, row.cell))
        .collect();
    let (mut checked, mut faults) = (BTreeSet::new(), Vec::new());
    for transcript in transcripts::all() {
        for scenario in &transcript.scenarios {
            let place = format!("{}:{}", transcript.file, scenario.line);
            for row in &scenario.rows {
                if !rows.contains(row) {
                    faults.push(format!("{place}: no row {row}"));
                } else if !scenario.admits(Dialect::Latchd) {
                    faults.push(format!(
                        "{place}: not played against latchd, and checks {row}"
                    ));
                }
                checked.insert(row.clone());
            }
        }
    }
    for row in WITHOUT_SCENARIO {
        if checked.contains(*row) || !rows.contains(*row) {
            faults.push(format!(
                "{row} has a scenario or is no row: remove it from the list"
            ));
        }
    }
    let is_checked =
        |row: &&String| checked.contains(*row) || WITHOUT_SCENARIO.contains(&row.as_str());
    let unchecked = rows.iter().filter(|row| !is_checked(row));
    faults.extend(unchecked.map(|row| format!("no scenario has @row {row}")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
