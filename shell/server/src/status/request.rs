//! A request: its path, and whether its host name is the server's.
//!
//! A page of another site can make a browser request anything from this machine, if the name of that site
//! resolves to this address. But the browser sends that name. If it is not the server's, the port refuses the
//! pages that show keys (U2).

use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::percent_decode_str;

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Request<'a> {
    /// The path, without a query.
    pub(super) path: &'a str,
    /// The query; empty if there is none.
    pub(super) query: &'a str,
    /// Whether the reply has a body: GET, and not HEAD.
    pub(super) wants_body: bool,
    /// Whether the host that it names is this server, or it names none.
    pub(super) is_ours: bool,
}

/// The reason for refusing a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// It is not HTTP.
    Malformed,
    /// Its head is too long.
    TooLong,
    /// Its method is not GET or HEAD.
    NotReading,
    /// Its host is not this server.
    WrongHost,
    /// The path does not exist.
    NoSuchPath,
}

/// The host names of the port, besides addresses and `localhost`.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// The configured name, the machine's name, and the `others` that are allowed.
    pub(super) fn new(configured: &str, others: &[String]) -> Self {
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy();
        let mut names = vec![configured.to_owned(), machine.into_owned()];
        names.extend_from_slice(others);
        Self(names)
    }

    /// Whether this is one of the names: `HOST`, `HOST:PORT` or `[V6]:PORT`.
    fn has(&self, host: &str) -> bool {
        if let Some(rest) = host.strip_prefix('[') {
            let address = rest.split_once(']').map(|(address, _)| address);
            return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        }
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        name.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|ours| name.eq_ignore_ascii_case(ours))
    }
}

impl<'a> Request<'a> {
    /// Whether the head of a request is there, or it will be refused as it is.
    pub(super) fn is_complete(bytes: &[u8]) -> bool {
        end_of_head(bytes).is_some() || has_stray_byte(bytes)
    }

    /// Reads the head of a request.
    pub(super) fn parse(bytes: &'a [u8], hosts: &Hosts) -> Result<Self, Refusal> {
        let head = end_of_head(bytes).map_or(bytes, |end| &bytes[..end]);
        let text = str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
        if has_stray_byte(head) {
            return Err(Refusal::Malformed);
        }
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let (Some(method), Some(target), Some(version), None) =
            (method, target, version, words.next())
        else {
            return Err(Refusal::Malformed);
        };
        let needs_host = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ => return Err(Refusal::Malformed),
        };
        let mut host = None;
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
            // The next server may read a name with a blank, or a folded line, as another field.
            if name.contains(|byte: char| byte.is_whitespace() || byte.is_control()) {
                return Err(Refusal::Malformed);
            }
            if name.eq_ignore_ascii_case("host") && host.replace(value.trim()).is_some() {
                return Err(Refusal::Malformed);
            }
        }
        let is_ours = match host {
            Some(host) => hosts.has(host),
            None if needs_host => return Err(Refusal::Malformed),
            None => true,
        };
        let wants_body = match method {
            "GET" => true,
            "HEAD" => false,
            _ => return Err(Refusal::NotReading),
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Self {
            path,
            query,
            wants_body,
            is_ours,
        })
    }

    /// The value of a field of the query, as a form sends it.
    pub(super) fn field(&self, name: &str) -> Vec<u8> {
        let mut fields = self
            .query
            .split('&')
            .filter_map(|field| field.split_once('='));
        let value = fields.find_map(|(field, value)| (field == name).then_some(value));
        let value = value.unwrap_or_default().replace('+', " ");
        percent_decode_str(&value).collect()
    }
}

/// The length of the head, without the empty line that ends it.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|end| end == b"\r\n\r\n")
}

/// Whether there is a NUL, or a line feed without a carriage return, which servers read in different ways.
fn has_stray_byte(head: &[u8]) -> bool {
    let mut before = 0;
    head.iter().any(|&byte| {
        let before = std::mem::replace(&mut before, byte);
        byte == 0 || byte == b'\n' && before != b'\r'
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<Request<'_>, Refusal> {
        let hosts = Hosts(vec!["cache.example".into()]);
        Request::parse(head.as_bytes(), &hosts)
    }

    #[test]
    fn a_browser_and_a_probe_are_understood() {
        let page = Request {
            path: "/locks.json",
            query: "x=1",
            wants_body: true,
            is_ours: true,
        };
        let asked = "GET /locks.json?x=1 HTTP/1.1\r\nAccept: */*\r\nHOST: localhost:9150\r\n\r\n";
        assert_eq!(parse(asked), Ok(page));
        let asked = "HEAD / HTTP/1.0\r\n\r\n";
        assert!(!parse(asked).unwrap().wants_body);
        let asked = "GET /?a=b&prefix=j+o%2Bb%ff%2&prefix=no HTTP/1.0\r\n\r\n";
        assert_eq!(parse(asked).unwrap().field("prefix"), b"j o+b\xff%2");
        assert_eq!(parse(asked).unwrap().field("x"), b"");
    }

    #[test]
    fn foreign_host_name_is_recognized() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9150",
            "[::1]:9150",
            "[::1]",
            "LocalHost",
            "cache.example:1",
        ] {
            let asked = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert!(parse(&asked).unwrap().is_ours, "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:9150",
            "[evil]",
            "[::1",
            "",
        ] {
            let asked = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert!(!parse(&asked).unwrap().is_ours, "{host}");
        }
        // Also in HTTP/1.0, which does not require a host name.
        let asked = "GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n";
        assert!(!parse(asked).unwrap().is_ours);
    }

    #[test]
    fn request_other_than_get_is_refused() {
        for (asked, refusal) in [
            (
                "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                Refusal::NotReading,
            ),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            (
                "GET / HTTP/1.1\r\nHost: localhost\r\nHost: ::1\r\n\r\n",
                Refusal::Malformed,
            ),
            ("GET / HTTP/2\r\n\r\n", Refusal::Malformed),
            ("GET /a b HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("set a 0 0 1\r\nb\r\n\r\n", Refusal::Malformed),
            ("\r\n\r\n", Refusal::Malformed),
        ] {
            assert_eq!(parse(asked), Err(refusal), "{asked}");
        }
    }

    #[test]
    fn ambiguous_fields_are_refused() {
        let head = |fields: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        for fields in [
            "Host : evil\r\n",
            "Host\t: evil\r\n",
            " Host: evil\r\n",
            "\tHost: evil\r\n",
            "Accept: a\r\n b: c\r\n",
            "Accept: a\r\n b\r\n",
            "Ho\rst: evil\r\n",
            "Accept: \0\r\n",
            "Accept: a\nHost: evil\r\n",
        ] {
            assert_eq!(parse(&head(fields)), Err(Refusal::Malformed), "{fields:?}");
        }
        for fields in ["Accept:\ta:b \r\n", "X-\u{e9}: y\r\n", "Accept:\r\n"] {
            assert!(parse(&head(fields)).is_ok(), "{fields:?}");
        }
        // The bytes behind the head are not read.
        assert!(parse(&(head("") + "a\n\0")).is_ok());
    }

    #[test]
    fn hopeless_head_is_not_waited_for() {
        for (bytes, is_complete) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("GET / HTTP/1.1\n", true),
            ("\n", true),
            ("GET /\0", true),
            ("GET / HTTP/1.1\r", false),
        ] {
            assert_eq!(
                Request::is_complete(bytes.as_bytes()),
                is_complete,
                "{bytes:?}"
            );
        }
    }
}
