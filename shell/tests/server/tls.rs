//! TLS over real sockets: clients that are served, clients that are not, and the effect on others.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latchd_server::{
    Address, ClientCertificate, Config, KeyFormat, ListenAddress, ListenTls, Server, TlsSettings,
    TlsVersion,
};

use crate::certificates::{Authority, TlsStream, connect};
use crate::client::{TestClient, address, start};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CipherSuite, ClientConfig, HandshakeKind};

fn friend(stream: TlsStream) -> TestClient<TlsStream> {
    TestClient::new(stream)
}

/// A server with TLS, and the authority to trust.
fn secure(change: impl FnOnce(&mut TlsSettings)) -> (Authority, Server) {
    let authority = Authority::new();
    let server = start(|config| {
        authority.secure(config);
        change(config.tls.as_mut().unwrap());
    });
    (authority, server)
}

/// Whether the server accepts this client, and answers it.
fn is_served(stream: TlsStream) -> bool {
    let mut stream = stream;
    let mut answer = [0; 4];
    stream
        .write_all(b"mn\r\n")
        .and_then(|()| stream.read_exact(&mut answer))
        .is_ok_and(|()| answer == *b"MN\r\n")
}

#[test]
fn requests_and_answers_go_under_tls() {
    let (authority, server) = secure(|_| {});
    let mut client = friend(authority.connect(address(&server)));
    client.send("set k 5 0 5\r\nhello\r\nget k\r\n");
    for line in ["STORED", "VALUE k 5 5", "hello", "END"] {
        assert_eq!(client.line(), line);
    }
    assert_eq!(client.stat("ssl_handshake_errors"), "0");
    assert_eq!(client.ask("quit"), "", "closed, and said so");
    let mut client = friend(authority.connect(address(&server)));
    assert_eq!(client.ask("mn"), "MN");
    server.shutdown();
    assert_eq!(client.line(), "", "a server that ends says goodbye");
}

#[test]
fn large_values_arrive_whole_however_slowly_they_are_read() {
    let (authority, server) = secure(|_| {});
    let mut client = friend(authority.connect(address(&server)));
    let value: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut request = format!("set large 0 0 {}\r\n", value.len()).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    client.send(&request);
    assert_eq!(client.line(), "STORED");
    // More than a turn sends, than sockets hold, and than one record carries; between small
    // answers.
    client.send("get large\r\nmn\r\n".repeat(8));
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..8 {
        assert_eq!(client.line(), "VALUE large 0 1000000");
        assert!(client.bytes(value.len()) == value, "the bytes differ");
        for line in ["", "END", "MN"] {
            assert_eq!(client.line(), line);
        }
    }
}

#[test]
fn many_requests_at_once_are_answered_in_order() {
    let (authority, server) = secure(|_| {});
    let mut client = friend(authority.connect(address(&server)));
    let requests: Vec<_> = (0..20_000).map(|n| format!("mg k{n} k O{n}\r\n")).collect();
    let requests = requests.concat();
    let writer = std::thread::spawn(move || {
        client.send(requests);
        client
    });
    let mut client = writer.join().unwrap();
    for n in 0..20_000 {
        assert_eq!(client.line(), format!("EN kk{n} O{n}"));
    }
}

#[test]
fn locks_end_with_the_connection_however_it_ends() {
    let (authority, server) = secure(|_| {});
    let mut other = friend(authority.connect(address(&server)));
    other.send("set k 0 0 1\r\nv\r\n");
    assert_eq!(other.line(), "STORED");
    let ends: [fn(TestClient<TlsStream>); 5] = [
        |mut client| assert_eq!(client.ask("quit"), ""),
        drop,
        |client| {
            let mut stream = client.into_socket();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            // The socket stays open: the message alone counts.
            std::mem::forget(stream);
        },
        |client| {
            let mut stream = client.into_socket();
            stream.conn.writer().write_all(b"mn\r\n").unwrap();
            stream.conn.send_close_notify();
            // Behind a request, in one piece with it.
            let mut records = Vec::new();
            while stream.conn.wants_write() {
                stream.conn.write_tls(&mut records).unwrap();
            }
            stream.sock.write_all(&records).unwrap();
            std::mem::forget(stream);
        },
        |client| {
            let stream = client.into_socket();
            stream.sock.shutdown(Shutdown::Both).unwrap();
        },
    ];
    for end in ends {
        let mut client = friend(authority.connect(address(&server)));
        assert_eq!(client.ask("lock k"), "OK");
        assert_eq!(other.ask("lock k"), "LOCKED");
        end(client);
        let begun = Instant::now();
        while other.ask("lock k") != "OK" {
            assert!(begun.elapsed() < Duration::from_secs(10), "it is held");
        }
        assert_eq!(other.ask("unlock k"), "OK");
    }
}

#[test]
fn a_lock_is_waited_for_under_tls() {
    let (authority, server) = secure(|_| {});
    let connect = || friend(authority.connect(address(&server)));
    let (mut holder, mut first, mut waiter) = (connect(), connect(), connect());
    assert_eq!(holder.ask("ml k"), "HD");
    for (before, client) in [&mut first, &mut waiter].into_iter().enumerate() {
        client.send("mn\r\nml k w60000\r\nmn\r\n");
        assert_eq!(client.line(), "MN");
        while holder.stat("lock_waiting") != (before + 1).to_string() {}
    }
    drop(first);
    while holder.stat("lock_waiting") != "1" {}
    assert_eq!(holder.ask("mu k"), "HD");
    assert_eq!(waiter.line(), "HD");
    assert_eq!(waiter.line(), "MN");
    assert_eq!(waiter.ask("mu k"), "HD");
}

#[test]
fn client_certificates_follow_the_setting() {
    use ClientCertificate::{Asked, Required, Unasked};
    let stranger = Authority::new();
    // No certificate, a good one, one of another authority.
    for (mode, expected) in [
        (Unasked, [true, true, true]),
        (Asked, [true, true, false]),
        (Required, [false, true, false]),
    ] {
        let (authority, server) = secure(|tls| tls.client_certificate = mode);
        let good = authority.certify("ann");
        let bad = stranger.certify("eve");
        let let_in = [None, Some(&good), Some(&bad)]
            .map(|shown| is_served(connect(authority.client(shown), address(&server))));
        assert_eq!(let_in, expected, "{mode:?}");
        let failures = expected.iter().filter(|is_served| !**is_served).count();
        let mut client = friend(connect(authority.client(Some(&good)), address(&server)));
        assert_eq!(client.stat("ssl_handshake_errors"), failures.to_string());
    }
}

#[test]
fn an_address_may_have_its_own_kind_of_tls() {
    let authority = Authority::new();
    let good = authority.certify("ann");
    let server = start(|config| {
        authority.secure(config);
        let kinds = [ListenTls::Never, ListenTls::Basic, ListenTls::Mutual];
        config.listen = kinds
            .map(|tls| {
                let mut address = ListenAddress::loopback(0);
                address.tls = tls;
                address
            })
            .into();
    });
    let addresses: Vec<SocketAddr> = server
        .addresses()
        .iter()
        .map(|address| match address {
            Address::Tcp(address) => *address,
            Address::Unix(_) => unreachable!("it was asked for TCP"),
        })
        .collect();
    assert_eq!(TestClient::connect(addresses[0]).ask("mn"), "MN");
    assert!(is_served(authority.connect(addresses[1])));
    assert!(!is_served(authority.connect(addresses[2])));
    assert!(is_served(connect(
        authority.client(Some(&good)),
        addresses[2]
    )));
}

#[test]
fn new_certificates_are_for_new_connections() {
    let (authority, server) = secure(|_| {});
    let mut old = friend(authority.connect(address(&server)));
    assert_eq!(old.ask("mn"), "MN");
    let next = Authority::new();
    let (theirs, place) = (next.certify("next"), server_files(&authority));
    std::fs::copy(&theirs.chain, &place.0).unwrap();
    // A chain and a key that do not belong together: nothing changes, and the log says why.
    let refused = old.ask("refresh_certs");
    assert!(
        refused.starts_with("Error ") && refused.contains("server.key"),
        "{refused}"
    );
    assert!(server.reload().is_err());
    assert!(is_served(authority.connect(address(&server))));
    std::fs::copy(&theirs.key, &place.1).unwrap();
    assert_eq!(old.ask("refresh_certs"), "OK");
    assert_eq!(old.stat("time_since_server_cert_refresh"), "0");
    // rcgen's certificates end with the year 4095.
    assert_eq!(old.stat("server_cert_not_after"), "67090118400");
    assert!(!is_served(authority.connect(address(&server))));
    assert!(is_served(next.connect(address(&server))));
    assert_eq!(old.ask("mn"), "MN", "an accepted client stays");
}

/// Where the server's certificate and key are.
fn server_files(authority: &Authority) -> (std::path::PathBuf, std::path::PathBuf) {
    let folder = authority.folder();
    (folder.join("server.pem"), folder.join("server.key"))
}

#[test]
fn unusable_tls_files_fail_at_start() {
    let authority = Authority::new();
    let certified = authority.certify("server");
    let other = authority.certify("other");
    let empty = authority.folder().join("empty");
    std::fs::write(&empty, "").unwrap();
    let refused = |change: &dyn Fn(&mut TlsSettings)| {
        let mut settings = authority.settings(&certified);
        change(&mut settings);
        let mut config = Config::default();
        config.listen = vec![ListenAddress::loopback(0)];
        config.tls = Some(settings);
        Server::start(config).unwrap_err().to_string()
    };
    let missing = Path::new("/nowhere/at.all");
    for (said, expected) in [
        (
            refused(&|tls| tls.chain_cert = missing.into()),
            "/nowhere/at.all",
        ),
        (
            refused(&|tls| tls.chain_cert = empty.clone()),
            "no certificate",
        ),
        (
            refused(&|tls| tls.key = Some(missing.into())),
            "/nowhere/at.all",
        ),
        (
            refused(&|tls| tls.key = Some(certified.chain.clone())),
            "no private key",
        ),
        (
            refused(&|tls| tls.key = Some(other.key.clone())),
            "other.key",
        ),
        (
            refused(&|tls| tls.key_format = KeyFormat::Der),
            "server.key",
        ),
        (
            refused(&|tls| tls.ca_cert = Some(empty.clone())),
            "no certificate",
        ),
        (
            refused(&|tls| tls.ciphers = Some(vec!["RC4".into()])),
            "`RC4`",
        ),
        (
            refused(&|tls| {
                (tls.ca_cert, tls.client_certificate) = (None, ClientCertificate::Required);
            }),
            "ssl_ca_cert",
        ),
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn old_tls_versions_are_refused() {
    let (authority, server) = secure(|tls| tls.min_version = TlsVersion::V1_3);
    assert!(!is_served(connect(older(&authority), address(&server))));
    assert!(is_served(authority.connect(address(&server))));
    let (authority, server) = secure(|_| {});
    assert!(is_served(connect(older(&authority), address(&server))));
}

#[test]
fn plain_text_on_a_tls_port_is_closed() {
    let (authority, server) = secure(|_| {});
    let mut beside = friend(authority.connect(address(&server)));
    assert_eq!(beside.ask("mn"), "MN");
    let garbage: Vec<u8> = (0..100_000u32).map(|n| (n * 7919 % 251) as u8).collect();
    // A handshake record that announces a message of 16 MiB less one, in pieces without end.
    let mut endless = Vec::new();
    for piece in 0..32 {
        endless.extend_from_slice(&[22, 3, 1, 0x3f, 0xff]);
        let head: &[u8] = if piece == 0 {
            &[1, 0xff, 0xff, 0xff]
        } else {
            &[]
        };
        endless.extend_from_slice(head);
        endless.resize(endless.len() + 0x3fff - head.len(), b'x');
    }
    let attacks: [&[u8]; 6] = [
        b"get a\r\n",
        b"\x80\x0b",
        &garbage,
        &endless,
        &[0; 5],
        &[22, 3, 3, 0, 0],
    ];
    for bytes in attacks {
        let mut socket = TcpStream::connect(address(&server)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let sent = socket.write_all(bytes);
        socket.shutdown(Shutdown::Write).ok();
        let mut answer = Vec::new();
        // A reset is an end as well.
        let read = socket.read_to_end(&mut answer);
        assert!(sent.is_ok() || read.is_ok() || read.is_err());
        assert!(answer.len() < 100, "an alert at most: {answer:?}");
        assert_eq!(beside.ask("mn"), "MN");
    }
    let errors: u32 = beside.stat("ssl_handshake_errors").parse().unwrap();
    assert!(errors >= 4, "{errors}");
    assert_eq!(beside.stat("curr_connections"), "1");
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let (authority, server) = secure(|tls| tls.handshake_max = Duration::from_millis(500));
    let mut beside = friend(authority.connect(address(&server)));
    assert_eq!(beside.ask("mn"), "MN");
    let begun = Instant::now();
    let mut silent = TcpStream::connect(address(&server)).unwrap();
    let mut half = TcpStream::connect(address(&server)).unwrap();
    half.write_all(&client_hello(&authority)[..100]).unwrap();
    for socket in [&mut silent, &mut half] {
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        assert_eq!(socket.read(&mut [0; 16]).unwrap(), 0, "it is closed");
    }
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(beside.ask("mn"), "MN", "an accepted client may be silent");
}

/// The first flight of a handshake.
fn client_hello(authority: &Authority) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(authority.client(None), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn a_thousand_half_handshakes_delay_no_client() {
    let (authority, server) = secure(|_| {});
    let address = address(&server);
    let mut beside = friend(authority.connect(address));
    assert_eq!(beside.ask("mn"), "MN");
    let hello = client_hello(&authority);
    // All of them send a hello at once, and nothing more; the server has to sign for each.
    let mut knocking: Vec<_> = (0..1000)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let storm_begun = Instant::now();
    let storm = std::thread::spawn(move || {
        for socket in &mut knocking {
            socket.write_all(&hello).unwrap();
        }
        for socket in &mut knocking {
            socket.read_exact(&mut [0]).unwrap();
        }
        (knocking, storm_begun.elapsed())
    });
    let mut slowest = Duration::ZERO;
    let mut asked = 0;
    while !storm.is_finished() || asked < 200 {
        let begun = Instant::now();
        assert_eq!(beside.ask("mg k v"), "EN");
        slowest = slowest.max(begun.elapsed());
        asked += 1;
    }
    let (knocking, signing) = storm.join().unwrap();
    // If the workers signed for all of them before the next request, it would take about as long as the storm.
    println!(
        "{asked} requests beside 1,000 half handshakes, of {signing:?}: the slowest took {slowest:?}"
    );
    assert!(slowest < signing / 2);
    assert_eq!(beside.stat("curr_connections"), "1001");
    drop(knocking);
    let begun = Instant::now();
    while beside.stat("curr_connections") != "1" {
        assert!(begun.elapsed() < Duration::from_secs(10), "they stay");
    }
}

#[test]
fn tls_records_may_arrive_byte_by_byte() {
    let (authority, server) = secure(|_| {});
    let mut beside = friend(authority.connect(address(&server)));
    let mut stream = authority.connect(address(&server));
    stream.write_all(b"mn\r\n").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    // One record of 16 KiB: a value, and the line around it.
    let value = vec![b'v'; (16 << 10) - 30];
    let mut request = format!("set slow 0 0 {}\r\n", value.len()).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    assert!(request.len() <= 16 << 10);
    stream.conn.writer().write_all(&request).unwrap();
    let mut record = Vec::new();
    stream.conn.write_tls(&mut record).unwrap();
    let (last, most) = record.split_last().unwrap();
    for byte in most {
        stream.sock.write_all(std::slice::from_ref(byte)).unwrap();
    }
    assert_eq!(beside.ask("mg slow v"), "EN", "it is not whole");
    let begun = Instant::now();
    while beside.stat("read_buf_bytes") == "0" {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it is not counted"
        );
    }
    stream.sock.write_all(std::slice::from_ref(last)).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n");
    assert_eq!(beside.ask("mg slow s"), format!("HD s{}", value.len()));
    // Another stops in the middle of one, and goes.
    stream.conn.writer().write_all(b"delete slow\r\n").unwrap();
    let mut record = Vec::new();
    stream.conn.write_tls(&mut record).unwrap();
    stream.sock.write_all(&record[..record.len() / 2]).unwrap();
    drop(stream);
    assert_eq!(beside.ask("mg slow s"), format!("HD s{}", value.len()));
}

#[test]
fn a_tampered_handshake_affects_no_other_client() {
    let (authority, server) = secure(|tls| tls.client_certificate = ClientCertificate::Asked);
    let good = authority.certify("ann");
    let mut beside = friend(authority.connect(address(&server)));
    assert_eq!(beside.ask("mn"), "MN");
    for seed in 0..300u32 {
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let config = authority.client((seed % 2 == 0).then_some(&good));
        let mut session = rustls::ClientConnection::new(config, name).unwrap();
        let mut socket = TcpStream::connect(address(&server)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        session.writer().write_all(b"mn\r\n").unwrap();
        // One byte of one flight is changed; sometimes the flight is cut, or comes twice.
        for flight in 0..3u32 {
            let mut records = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut records).unwrap();
            }
            if records.is_empty() {
                break;
            }
            if flight == seed % 3 {
                let place = (seed as usize).wrapping_mul(7919) % records.len();
                match seed % 5 {
                    0 => records.truncate(place),
                    1 => records.extend_from_within(..),
                    _ => records[place] ^= 1 << (seed % 8),
                }
            }
            let middle = records.len() / 2;
            if socket.write_all(&records[..middle]).is_err()
                || socket.write_all(&records[middle..]).is_err()
            {
                break;
            }
            if flight == seed % 3 && seed % 5 == 0 {
                break;
            }
            let is_over = !matches!(session.read_tls(&mut socket), Ok(1..));
            if is_over || session.process_new_packets().is_err() {
                break;
            }
        }
        drop(socket);
        assert_eq!(beside.ask("mn"), "MN", "seed {seed}");
    }
}

#[test]
fn a_tampered_record_ends_the_connection() {
    let (authority, server) = secure(|_| {});
    let mut beside = friend(authority.connect(address(&server)));
    let mut stream = authority.connect(address(&server));
    stream.write_all(b"set k 0 0 1\r\nv\r\n").unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    stream.conn.writer().write_all(b"delete k\r\n").unwrap();
    let mut record = Vec::new();
    stream.conn.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    stream.sock.write_all(&record).unwrap();
    let ended = stream.read(&mut answer);
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    if let Err(error) = ended {
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "it is open");
    }
    assert_eq!(beside.ask("mg k v"), "VA 1");
    assert_eq!(beside.line(), "v");
    assert_eq!(beside.stat("ssl_proto_errors"), "1");
}

/// A client that knows TLS 1.2 and nothing newer.
fn older(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(
        ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

/// A client that has got an answer, and the result of its handshake.
fn answered(client: &Arc<ClientConfig>, server: &Server) -> TlsStream {
    let mut stream = connect(Arc::clone(client), address(server));
    let mut answer = [0; 4];
    stream.write_all(b"mn\r\n").unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"MN\r\n");
    stream
}

#[test]
fn keys_may_be_der_or_beside_the_chain() {
    let (authority, server) = secure(|tls| {
        let file = tls.key.as_ref().unwrap();
        let key = PrivateKeyDer::from_pem_file(file).unwrap();
        std::fs::write(file, key.secret_der()).unwrap();
        tls.key_format = KeyFormat::Der;
    });
    assert!(is_served(authority.connect(address(&server))));
    let (authority, server) = secure(|tls| {
        let key = std::fs::read(tls.key.take().unwrap()).unwrap();
        let mut chain = std::fs::read(&tls.chain_cert).unwrap();
        chain.extend_from_slice(&key);
        std::fs::write(&tls.chain_cert, chain).unwrap();
    });
    assert!(is_served(authority.connect(address(&server))));
}

#[test]
fn tls12_uses_only_the_named_ciphers() {
    for (name, suite) in [
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ] {
        let (authority, server) = secure(|tls| tls.ciphers = Some(vec![name.into()]));
        let stream = answered(&older(&authority), &server);
        let taken = stream.conn.negotiated_cipher_suite().unwrap();
        assert_eq!(taken.suite(), suite);
        // They are about TLS 1.2 alone.
        assert!(is_served(authority.connect(address(&server))));
    }
}

#[test]
fn sessions_are_resumed_where_the_operator_says_so() {
    for (session_cache, second) in [(false, HandshakeKind::Full), (true, HandshakeKind::Resumed)] {
        let (authority, server) = secure(|tls| tls.session_cache = session_cache);
        for client in [authority.client(None), older(&authority)] {
            for expected in [HandshakeKind::Full, second] {
                let stream = answered(&client, &server);
                assert_eq!(stream.conn.handshake_kind(), Some(expected));
            }
        }
    }
}
