//! A response: its status code, and headers that restrict it to display.

use super::request::Refusal;

/// The kind of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The page for people.
    Page,
    /// Prometheus' text format.
    Metrics,
    /// The locks as JSON.
    Json,
    /// A line of text.
    Text,
    /// The failed health check.
    Unwell,
    /// A refused request.
    Refused(Refusal),
}

/// The bytes of a response.
pub(super) fn response(kind: Kind, wants_body: bool, text: &str) -> Vec<u8> {
    let (code, said, media) = match kind {
        Kind::Page => ("200 OK", text, "text/html; charset=utf-8"),
        Kind::Metrics => ("200 OK", text, "text/plain; version=0.0.4; charset=utf-8"),
        Kind::Json => ("200 OK", text, "application/json"),
        Kind::Text => ("200 OK", text, "text/plain; charset=utf-8"),
        Kind::Unwell => ("503 Service Unavailable", text, "text/plain; charset=utf-8"),
        Kind::Refused(refusal) => {
            let (code, said) = refused(refusal);
            (code, said, "text/plain; charset=utf-8")
        }
    };
    let allow = if kind == Kind::Refused(Refusal::NotReading) {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let length = said.len();
    let mut bytes = format!(
        "HTTP/1.1 {code}\r\n\
         Content-Type: {media}\r\n\
         Content-Length: {length}\r\n\
         {allow}\
         Connection: close\r\n\
         Cache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n\
         Referrer-Policy: no-referrer\r\n\
         X-Content-Type-Options: nosniff\r\n\r\n"
    )
    .into_bytes();
    if wants_body {
        bytes.extend_from_slice(said.as_bytes());
    }
    bytes
}

/// The status line and text of a refusal.
fn refused(refusal: Refusal) -> (&'static str, &'static str) {
    match refusal {
        Refusal::Malformed => ("400 Bad Request", "malformed request\n"),
        Refusal::TooLong => ("431 Request Header Fields Too Large", "request too long\n"),
        Refusal::NotReading => ("405 Method Not Allowed", "only GET and HEAD are allowed\n"),
        Refusal::WrongHost => (
            "421 Misdirected Request",
            "unknown host name; use an IP address or a name from --status or --status-host\n",
        ),
        Refusal::NoSuchPath => (
            "404 Not Found",
            "not found; try /, /metrics, /locks.json or /healthz\n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_has_the_length_of_the_body() {
        let whole = response(Kind::Text, true, "ok\n");
        let head = response(Kind::Text, false, "ok\n");
        assert_eq!(whole.strip_suffix(b"ok\n"), Some(&head[..]));
        let head = String::from_utf8(head).unwrap();
        assert!(head.contains("\r\nContent-Length: 3\r\n"), "{head}");
        assert!(
            head.ends_with("\r\n\r\n") && !head.contains("\r\n "),
            "{head}"
        );
    }
}
