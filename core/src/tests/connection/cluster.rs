//! Requests about the cluster, and keys of another partition.

use std::sync::Arc;

use latchd_protocol::session::{SessionReply, SessionRequest};
use latchd_protocol::wire::classic::reply::ClassicResponse;
use latchd_protocol::wire::cluster::{ClusterConfig, ClusterServer};

use super::*;

/// A server of a cluster whose keys all belong to another partition.
struct Elsewhere(Arc<str>);

impl Execute for Elsewhere {
    fn execute(&mut self, _: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
        answer(&Reply::KeyOf("cache-b:11211"));
    }

    fn session(&mut self, _: SessionRequest<'_>) -> SessionReply {
        SessionReply::Ended(Owner::of_session(1))
    }

    fn cluster(&mut self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.0))
    }
}

fn says(request: &[u8]) -> Vec<u8> {
    let server = |name: &str, ip: &str| ClusterServer {
        name: name.into(),
        ip: ip.into(),
        port: 11211,
    };
    let servers = vec![server("cache-a", "10.0.0.1"), server("cache-b", "10.0.0.2")];
    let config = ClusterConfig {
        version: 12,
        servers,
    };
    let mut server = Elsewhere(config.encode().into());
    let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
    let mut out = Output::new();
    let driven = connection.drive(request, &mut server, &mut out, usize::MAX);
    assert_eq!(driven.0, request.len());
    out.into()
}

#[test]
fn config_get_cluster_has_elasticaches_form() {
    let reply = says(b"config get cluster\r\n");
    let text = "12\ncache-a|10.0.0.1|11211 cache-b|10.0.0.2|11211\n";
    let expected = format!("CONFIG cluster 0 {}\r\n{text}\r\nEND\r\n", text.len());
    assert_eq!(reply, expected.as_bytes());
    let (response, consumed) = ClassicResponse::decode(&reply).unwrap().unwrap();
    assert_eq!(response, ClassicResponse::Cluster(text.as_bytes()));
    assert_eq!(reply[consumed..], *b"END\r\n");
    for cut in 0..consumed {
        assert_eq!(ClassicResponse::decode(&reply[..cut]), Ok(None), "{cut}");
    }
    assert!(ClassicResponse::decode(b"CONFIG cluster 0 262145\r\n").is_err());
    assert!(ClassicResponse::decode(b"CONFIG other 0 1\r\n").is_err());
}

#[test]
fn other_config_commands_are_unknown() {
    for request in [
        "config",
        "config get",
        "config get other",
        "config get cluster x",
        "config set cluster",
        "config delete cluster",
    ] {
        assert_eq!(says(format!("{request}\r\n").as_bytes()), b"ERROR\r\n");
    }
    check(&[("config get cluster\r\n", "ERROR\r\n")]);
}

#[test]
fn key_of_another_partition_is_named() {
    let line = b"SERVER_ERROR key of cache-b:11211\r\n";
    for request in [
        &b"ml k q F H\r\n"[..],
        b"mg k B N30 v q\r\n",
        b"lock k\r\n",
        b"get k\r\n",
        b"ms k 1 U\r\nx\r\n",
        b"incr k 1\r\n",
    ] {
        assert_eq!(says(request), line, "{}", request.escape_ascii());
    }
    assert_eq!(says(b"set k 0 0 1 noreply\r\nx\r\n"), b"");
    // The name is not known any more when the body has been skipped.
    let large = [&b"set k 0 0 2000\r\n"[..], &[b'x'; 2000], b"\r\n"].concat();
    let reply = says(&large);
    assert_eq!(reply, b"SERVER_ERROR key of cache-b:11211\r\n");
    let lock = b"\x80\x40\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x07\0\0\0\0\0\0\0\0k";
    let reply = says(lock);
    let header = b"\x81\x40\0\0\0\0\0\x07\0\0\0\x14\0\0\0\x07\0\0\0\0\0\0\0\0";
    assert_eq!(reply, [&header[..], b"key of cache-b:11211"].concat());
}

#[test]
fn name_is_left_out_after_a_skipped_body() {
    let mut server = Elsewhere("".into());
    let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
    let mut out = Output::new();
    let driven = connection.drive(b"set k 0 0 2000\r\n", &mut server, &mut out, usize::MAX);
    assert_eq!(driven, (16, Progress::NeedsInput { at_least: 1 }));
    assert!(out.is_empty());
    connection.drive(&[b'x'; 2002], &mut server, &mut out, usize::MAX);
    assert_eq!(Vec::from(out), b"SERVER_ERROR key of another partition\r\n");
}
