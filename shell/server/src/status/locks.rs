//! `/locks.json`: the locks, their holders and their waiting clients.

use std::fmt::Write;
use std::time::Duration;

use super::snapshot::{HolderSession, Snapshot, WaiterShown};

/// The locks as JSON. No text has control characters. A fence is text: most JSON readers keep 53 bits of a
/// number.
pub(super) fn json(snapshot: &Snapshot) -> String {
    let gauges = &snapshot.stats.gauges;
    let mut text = format!(
        "{{\"locks_held\":{},\"lock_holders\":{},\"locked_bytes\":{},\"lock_waiting\":{},\"keys_told\":{},\"locks\":[",
        gauges.locks_held,
        gauges.lock_holders,
        gauges.locked_bytes,
        gauges.lock_waiting,
        snapshot.tells_keys
    );
    for (index, lock) in snapshot.locks.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let waiters: Vec<_> = lock.first_waiters.iter().map(waiter).collect();
        // Writing to a string never fails.
        let _ = write!(
            text,
            "{comma}\n{{\"key\":\"{}\",\"connection\":{},\"peer\":\"{}\",\"metadata\":{},\"fence\":\"{}\",\"held_s\":{},\"silent_s\":{},\"mode\":\"{}\",\"holders\":{},\"permits\":{},\"lease_s\":{},\"session\":{},\"waiting\":{},\"waiters\":[{}]}}",
            quoted(&lock.key),
            lock.owner,
            quoted(&lock.peer),
            lock.metadata
                .as_deref()
                .map_or("null".to_owned(), |text| format!("\"{}\"", quoted(text))),
            lock.fence,
            lock.held.as_secs(),
            lock.silent.as_secs(),
            mode(lock.is_shared),
            lock.holders,
            lock.permits
                .map_or("null".to_owned(), |most| most.to_string()),
            lock.lease
                .map_or("null".to_owned(), |lease| seconds_left(lease).to_string()),
            lock.session.map_or("null".to_owned(), session),
            lock.waiting,
            waiters.join(",")
        );
    }
    text.push_str("]}\n");
    text
}

/// The `connection` of a lock is the number of the session then.
fn session(session: HolderSession) -> String {
    let conn = session
        .conn
        .map_or("null".to_owned(), |conn| conn.to_string());
    let left = seconds_left(session.left);
    format!("{{\"attached\":{conn},\"left_s\":{left}}}")
}

fn waiter(waiter: &WaiterShown) -> String {
    format!(
        "{{\"connection\":{},\"peer\":\"{}\",\"mode\":\"{}\"}}",
        waiter.conn,
        quoted(&waiter.peer),
        mode(waiter.is_shared)
    )
}

/// The mode as in `stats locks`.
pub(super) const fn mode(is_shared: bool) -> char {
    if is_shared { 's' } else { 'x' }
}

/// The remaining time in whole seconds, as in `stats locks`.
pub(super) fn seconds_left(span: Duration) -> u128 {
    span.as_millis().div_ceil(1000)
}

/// The content of a JSON string.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::readable;
    use super::super::snapshot::tests::{lock, snapshot};
    use super::*;

    #[test]
    fn a_key_ends_no_string() {
        let key = readable(b"a\"b\\c\x01\xff\xc3\xa9</script>");
        let mut one = lock(&key);
        one.metadata = Some(readable(b"\"host\\1\xff\n"));
        let text = json(&snapshot(vec![one, lock("two")]));
        let expected = r#"{"key":"a\"b\\\\c\\u{1}\\xffé</script>","connection":7,"#;
        assert!(text.contains(expected), "{text}");
        assert!(text.starts_with("{\"locks_held\":2,"), "{text}");
        let expected = r#""metadata":"\"host\\\\1\\xff\\n","fence":"#;
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("\"metadata\":null,"), "{text}");
        let held = "\"fence\":\"1152921504606846976\",\"held_s\":3601,\"silent_s\":61,\"mode\":\"x\",\"holders\":1,\"permits\":1,\"lease_s\":null,\"session\":null,\"waiting\":0,\"waiters\":[]}";
        assert_eq!(text.matches(held).count(), 2);
    }

    #[test]
    fn json_has_leases_and_waiters() {
        let mut leased = lock("k");
        leased.lease = Some(Duration::from_millis(1_001));
        leased.waiting = 40;
        leased.session = Some(HolderSession {
            conn: None,
            left: Duration::from_millis(29_001),
        });
        leased.first_waiters = vec![WaiterShown {
            conn: 9,
            peer: "tcp:10.0.0.2:1".into(),
            is_shared: true,
        }];
        let expected = "\"lease_s\":2,\"session\":{\"attached\":null,\"left_s\":30},\"waiting\":40,\"waiters\":[{\"connection\":9,\"peer\":\"tcp:10.0.0.2:1\",\"mode\":\"s\"}]}";
        let text = json(&snapshot(vec![leased]));
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn no_locks_are_an_empty_list() {
        assert!(json(&snapshot(Vec::new())).ends_with("\"locks\":[]}\n"));
    }
}
