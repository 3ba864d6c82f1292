//! New connections in the log (`-v`), and the text of requests and replies (`-vv`).

use latchd_core::Output;

/// The most bytes logged of a request or a reply.
const LOGGED_BYTES_MAX: usize = 200;

/// The requests as they are logged, without passwords and without tokens of sessions.
pub(super) fn loggable(requests: &[u8], is_known: bool) -> &[u8] {
    if !requests.is_empty() && (!is_known || may_tell_a_password(requests)) {
        b"(authentication)"
    } else if may_tell_a_token(requests) {
        b"(session)"
    } else {
        requests
    }
}

/// Whether these requests may contain an authentication of the binary protocol.
fn may_tell_a_password(requests: &[u8]) -> bool {
    requests
        .windows(2)
        .any(|pair| matches!(pair, [0x80, 0x21 | 0x22]))
}

/// Whether these requests may contain the token of a session: `mo`, or a flag `j`.
fn may_tell_a_token(requests: &[u8]) -> bool {
    let has_flag = || requests.windows(2).any(|pair| pair == b" j");
    requests.starts_with(b"m") && (requests.starts_with(b"mo ") || has_flag())
}

/// The bytes behind the first `bytes` ones. One more than is logged shows that there is more.
pub(super) fn tail(output: &Output, bytes: usize) -> Vec<u8> {
    let all = output.chunks().flatten().skip(bytes);
    all.take(LOGGED_BYTES_MAX + 1).copied().collect()
}

/// Logs a new connection.
pub(super) fn log_connect(conn: u64, peer: &str) {
    tracing::info!(event = "connect", conn, peer = %peer, "<{conn} new connection");
}

/// Logs a request or a reply, unless it is empty.
pub(super) fn log_bytes(event: &'static str, direction: char, number: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        let shown = shown(bytes);
        tracing::info!(event, conn = number, "{direction}{number} {shown}");
    }
}

/// A request or a reply in one line of the log.
fn shown(bytes: &[u8]) -> String {
    let (shown, cut) = match bytes.get(..LOGGED_BYTES_MAX) {
        Some(first) if first.len() < bytes.len() => (first, "…"),
        Some(_) | None => (bytes, ""),
    };
    let shown = shown.strip_suffix(b"\r\n").unwrap_or(shown);
    format!("{}{cut}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_logged() {
        for (requests, is_known, expected) in [
            (
                &b"set x 0 0 9\r\nfred pass\r\n"[..],
                false,
                "(authentication)",
            ),
            (
                b"\x80\x21\0\x05\0\0PLAIN\0fred\0pass",
                true,
                "(authentication)",
            ),
            (
                b"\x80\x22\0\x05\0\0PLAIN\0fred\0pass",
                true,
                "(authentication)",
            ),
            (b"mo a-token T60\r\n", true, "(session)"),
            (b"ml k ja-token\r\n", true, "(session)"),
            (b"ml k T60\r\n", true, "ml k T60"),
            (b"get k j\r\n", true, "get k j"),
            (b"", false, ""),
        ] {
            assert_eq!(shown(loggable(requests, is_known)), expected);
        }
    }

    #[test]
    fn long_replies_are_cut_in_the_log() {
        for (value, cut) in [(192, ""), (193, "…")] {
            let mut output = Output::from(format!("HD\r\nVA {value}\r\n").into_bytes());
            output.push_shared(vec![b'v'; value].into());
            let expected = format!("VA {value}\\r\\n{}{cut}", "v".repeat(192));
            assert_eq!(shown(&tail(&output, 4)), expected);
        }
    }
}
