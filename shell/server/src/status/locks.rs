//! `/locks.json`: the locks, their holders and their waiting clients.

use super::snapshot::{LockShown, Snapshot};

/// The locks as JSON, each on a line.
pub(super) fn json(snapshot: &Snapshot) -> String {
    let gauges = &snapshot.stats.gauges;
    let line = |lock: &LockShown| {
        let lock = serde_json::to_string(lock).expect("each name of a lock is a text");
        format!("\n{lock}")
    };
    let locks: Vec<_> = snapshot.locks.iter().map(line).collect();
    format!(
        "{{\"locks_held\":{},\"lock_holders\":{},\"locked_bytes\":{},\"lock_waiting\":{},\"keys_told\":{},\"locks\":[{}]}}\n",
        gauges.locks_held,
        gauges.lock_holders,
        gauges.locked_bytes,
        gauges.lock_waiting,
        snapshot.tells_keys,
        locks.join(",")
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::snapshot::tests::{lock, snapshot};
    use super::super::snapshot::{HolderSession, WaiterShown, readable};
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
            attached: None,
            left_s: 30,
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
