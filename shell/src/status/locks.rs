//! `/locks.json`: who holds what.

use std::fmt::Write;

use super::snapshot::Snapshot;

/// The locks as JSON. All text is ASCII by now, and holds no control characters. A fence is text: most
/// readers of JSON keep 53 bits of a number.
pub(super) fn json(snapshot: &Snapshot) -> String {
    let gauges = &snapshot.stats.gauges;
    let mut text = format!(
        "{{\"locks_held\":{},\"lock_holders\":{},\"locked_bytes\":{},\"keys_told\":{},\"locks\":[",
        gauges.locks_held, gauges.lock_holders, gauges.locked_bytes, snapshot.tells_keys
    );
    for (index, lock) in snapshot.locks.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // A string has no end.
        let _ = write!(
            text,
            "{comma}\n{{\"key\":\"{}\",\"connection\":{},\"peer\":\"{}\",\"fence\":\"{}\",\"held_s\":{},\"silent_s\":{},\"mode\":\"{}\",\"holders\":{}}}",
            quoted(&lock.key),
            lock.owner,
            quoted(&lock.peer),
            lock.fence,
            lock.held.as_secs(),
            lock.silent.as_secs(),
            if lock.is_shared { 's' } else { 'x' },
            lock.holders
        );
    }
    text.push_str("]}\n");
    text
}

/// The inside of a string.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{lock, snapshot};
    use super::*;

    #[test]
    fn a_key_ends_no_string() {
        let key = b"a\"b\\c\x01\xff</script>".escape_ascii().to_string();
        let text = json(&snapshot(vec![lock(&key), lock("two")]));
        assert!(text.is_ascii(), "{text}");
        let expected = r#"{"key":"a\\\"b\\\\c\\x01\\xff</script>","connection":7,"#;
        assert!(text.contains(expected), "{text}");
        assert!(text.starts_with("{\"locks_held\":2,"), "{text}");
        let held = "\"fence\":\"1152921504606846976\",\"held_s\":3601,\"silent_s\":61,\"mode\":\"x\",\"holders\":1}";
        assert_eq!(text.matches(held).count(), 2);
    }

    #[test]
    fn no_locks_are_an_empty_list() {
        assert!(json(&snapshot(Vec::new())).ends_with("\"locks\":[]}\n"));
    }
}
