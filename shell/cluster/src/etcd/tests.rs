//! Endpoints against a scripted server: the requests they send, and their reading of each answer and each fault.
//! `shell/tests/server/etcd.rs` runs them against etcd.

mod scripted;

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::Receiver;

use super::*;
use scripted::{Act, Seen, scripted};

const HEADER: &str =
    r#""header":{"cluster_id":"77","member_id":"1","revision":"9","raft_term":"2"}"#;

fn etcd(addresses: &[SocketAddr], login: Option<AuthorityLogin>) -> Etcd {
    let urls = addresses
        .iter()
        .map(|address| format!("http://{address}").parse().unwrap());
    let mut options = AuthorityOptions::new(urls.collect());
    options.login = login;
    Etcd::new(&options).unwrap()
}

/// An endpoint that gets these answers, and its requests.
fn endpoint(acts: Vec<Act>) -> (Endpoint, Receiver<Seen>) {
    let (address, requests) = scripted(acts);
    (etcd(&[address], None).endpoints().remove(0), requests)
}

/// A successful reply with these members behind the header.
fn ok(members: &str) -> Act {
    Act::Reply(200, text(members))
}

/// The text of such a reply.
fn text(members: &str) -> String {
    format!("{{{HEADER}{members}}}")
}

fn refused(status: u16, code: u64, message: &str) -> Act {
    Act::Reply(
        status,
        format!(r#"{{"error":"{message}","message":"{message}","code":{code}}}"#),
    )
}

/// The error of a read that meets this act.
fn error(act: Act) -> AuthorityError {
    endpoint(vec![act]).0.read("k").unwrap_err()
}

fn found(revision: u64, value: &str) -> Found {
    Found {
        revision,
        value: value.into(),
    }
}

#[test]
fn a_read_is_one_range() {
    let record = r#","kvs":[{"key":"aw==","create_revision":"2","mod_revision":"9","version":"1","value":"djE="}],"count":"1""#;
    let empty = record.replace(r#","value":"djE=""#, "");
    let (mut endpoint, requests) = endpoint(vec![ok(""), ok(record), ok(&empty)]);
    assert_eq!(endpoint.read("k"), Ok(None));
    assert_eq!(endpoint.read("k"), Ok(Some(found(9, "v1"))));
    assert_eq!(endpoint.read("k"), Ok(Some(found(9, ""))));
    let range = (
        "/v3/kv/range".to_owned(),
        None,
        r#"{"key":"aw=="}"#.to_owned(),
    );
    assert_eq!(
        requests.try_iter().collect::<Vec<_>>(),
        [range.clone(), range.clone(), range]
    );
}

#[test]
fn a_swap_compares_revision_and_value() {
    let put = r#","succeeded":true,"responses":[{"response_put":{"header":{"revision":"9"}}}]"#;
    let other = r#","responses":[{"response_range":{"header":{"revision":"9"},"kvs":[{"key":"aw==","mod_revision":"4","value":"djE="}],"count":"1"}}]"#;
    let none = r#","responses":[{"response_range":{"header":{"revision":"9"}}}]"#;
    let (mut endpoint, requests) = endpoint(vec![ok(put), ok(put), ok(other), ok(none)]);
    let swapped = Ok(Answer::Swapped { revision: 9 });
    assert_eq!(endpoint.swap("k", None, "v1"), swapped);
    assert_eq!(endpoint.swap("k", Some(&found(4, "v1")), "v2"), swapped);
    let answer = endpoint.swap("k", Some(&found(3, "v0")), "v2");
    assert_eq!(answer, Ok(Answer::Found(Some(found(4, "v1")))));
    assert_eq!(
        endpoint.swap("k", Some(&found(3, "v0")), "v2"),
        Ok(Answer::Found(None))
    );
    let texts: Vec<_> = requests
        .try_iter()
        .map(|(path, _, text)| (path, text))
        .collect();
    assert_eq!(
        texts[0].1,
        r#"{"compare":[{"key":"aw==","target":"CREATE","result":"EQUAL","create_revision":"0"}],"success":[{"request_put":{"key":"aw==","value":"djE="}}],"failure":[{"request_range":{"key":"aw=="}}]}"#
    );
    assert_eq!(
        texts[1],
        (
            "/v3/kv/txn".to_owned(),
            r#"{"compare":[{"key":"aw==","target":"MOD","result":"EQUAL","mod_revision":"4"},{"key":"aw==","target":"VALUE","result":"EQUAL","value":"djE="}],"success":[{"request_put":{"key":"aw==","value":"djI="}}],"failure":[{"request_range":{"key":"aw=="}}]}"#
                .to_owned()
        )
    );
}

#[test]
fn a_list_has_the_records_of_its_prefix() {
    let records = r#","kvs":[{"key":"YS9i","mod_revision":"3","value":"MQ=="},{"key":"YS9j","mod_revision":"4"}],"count":"2""#;
    let foreign = records.replace("YS9j", "YjA=");
    let (mut endpoint, requests) = endpoint(vec![
        ok(records),
        ok(&format!(r#"{records},"more":true"#)),
        ok(&foreign),
    ]);
    let listed = vec![
        ("a/b".to_owned(), found(3, "1")),
        ("a/c".to_owned(), found(4, "")),
    ];
    assert_eq!(endpoint.list("a/"), Ok(listed));
    assert_eq!(
        endpoint.list("a/"),
        Err(AuthorityError::TooMany(RECORDS_MAX))
    );
    assert_eq!(endpoint.list("a/"), Err(AuthorityError::Malformed("kvs")));
    let text = r#"{"key":"YS8=","range_end":"YTA=","limit":"512"}"#;
    assert_eq!(requests.try_recv().unwrap().2, text);
}

/// A1: no fault is taken for a fact.
#[test]
fn a_fault_is_named_in_words() {
    let said = |act| error(act).to_string();
    let refusals = [
        (
            Act::Reply(404, "404 page not found\n".into()),
            "etcd runs without its gRPC gateway",
        ),
        (
            refused(401, 16, "etcdserver: invalid auth token"),
            "authentication: etcdserver: invalid auth token",
        ),
        (
            refused(400, 3, "etcdserver: user name is empty"),
            "authentication: etcdserver: user name is empty",
        ),
        (
            refused(403, 7, "etcdserver: permission denied"),
            "authentication: etcdserver: permission denied",
        ),
        (Act::Reply(401, String::new()), "authentication: no message"),
        (Act::Close, "authentication: empty reply"),
        (
            refused(429, 8, "etcdserver: mvcc: database space exceeded"),
            "etcd has no space left",
        ),
        (
            refused(429, 8, "etcdserver: too many requests"),
            "etcd refused the request (HTTP 429): etcdserver: too many",
        ),
        (
            refused(503, 14, "etcdserver: no leader"),
            "etcd has no leader",
        ),
        (
            refused(503, 14, "etcdserver: request timed out"),
            "etcd refused the request (HTTP 503)",
        ),
        (
            Act::Reply(307, String::new()),
            "etcd refused the request (HTTP 307): no message",
        ),
        (
            Act::Reply(502, "<html>\x07".repeat(99)),
            "etcd refused the request (HTTP 502): <html> <html>",
        ),
        (
            Act::Reply(
                400,
                "Client sent an HTTP request to an HTTPS server.\n".into(),
            ),
            "unreachable: etcd requires TLS",
        ),
        (
            Act::Reply(
                400,
                "CommonName of client sending a request against gateway will be ignored and not used as expected".into(),
            ),
            "authentication: an etcd with users refuses a client certificate with a common name",
        ),
        (
            Act::Bytes(b"ERROR\r\n".to_vec()),
            "the answer is malformed (no HTTP)",
        ),
        (
            Act::Bytes([&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; 20_000]].concat()),
            "the answer is longer than 8192 bytes",
        ),
        (
            Act::Reply(200, " ".repeat(link::REPLY_BYTES_MAX + 1)),
            "the answer is longer than 1048576 bytes",
        ),
        (
            Act::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff".to_vec()),
            "the answer is malformed (no UTF-8)",
        ),
        (Act::Stall, "no answer in time"),
    ];
    for (act, start) in refusals {
        let said = said(act);
        assert!(said.starts_with(start), "{start}: {said}");
    }
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut endpoint = etcd(&[closed], None).endpoints().remove(0);
    let said = endpoint.read("k").unwrap_err().to_string();
    assert!(
        said.starts_with("unreachable: connection refused"),
        "{said}"
    );
    let mut options = AuthorityOptions::new(vec!["http://no-such-host.invalid".parse().unwrap()]);
    options.login = None;
    let said = Etcd::new(&options).unwrap().endpoints().remove(0).read("k");
    assert!(
        matches!(
            said,
            Err(AuthorityError::Unreachable(_) | AuthorityError::Late)
        ),
        "{said:?}"
    );
}

#[test]
fn a_reply_is_understood_whole_or_not() {
    for (text, place) in [
        (String::new(), "no JSON"),
        (format!(r#"{{{HEADER},"kvs":[],"kvs":[]}}"#), "no JSON"),
        (format!(r#"{{{HEADER},"x":{{"a":1,"a":1}}}}"#), "no JSON"),
        ("{}".into(), "header"),
        (r#"{"header":{"cluster_id":"77"}}"#.into(), "revision"),
        (
            r#"{"header":{"cluster_id":77,"revision":"9"}}"#.into(),
            "cluster_id",
        ),
        (
            r#"{"header":{"cluster_id":"77","revision":"+9"}}"#.into(),
            "revision",
        ),
        (
            r#"{"header":{"cluster_id":"77","revision":"18446744073709551616"}}"#.into(),
            "revision",
        ),
        (format!(r#"{{{HEADER},"kvs":{{}}}}"#), "kvs"),
        (
            format!(r#"{{{HEADER},"kvs":[{{"mod_revision":"9"}}]}}"#),
            "key",
        ),
        (format!(r#"{{{HEADER},"kvs":[{{"key":"aw"}}]}}"#), "key"),
        (
            format!(r#"{{{HEADER},"kvs":[{{"key":"aw=="}}]}}"#),
            "mod_revision",
        ),
        (
            format!(r#"{{{HEADER},"kvs":[{{"key":"aw==","mod_revision":"0"}}]}}"#),
            "mod_revision",
        ),
        (
            format!(r#"{{{HEADER},"kvs":[{{"key":"aw==","mod_revision":"10"}}]}}"#),
            "mod_revision",
        ),
        (
            format!(r#"{{{HEADER},"kvs":[{{"key":"ag==","mod_revision":"9"}}]}}"#),
            "key",
        ),
        (
            format!(r#"{{{HEADER},"kvs":[{{"key":"aw==","mod_revision":"9","value":"/w=="}}]}}"#),
            "value",
        ),
    ] {
        assert_eq!(
            error(Act::Reply(200, text.clone())),
            AuthorityError::Malformed(place),
            "{text}"
        );
    }
    for (members, place) in [
        ("", "responses"),
        (r#","succeeded":true"#, "responses"),
        (r#","succeeded":"true","responses":[{}]"#, "succeeded"),
        (r#","succeeded":true,"responses":[{}]"#, "response_put"),
        (r#","responses":[{}]"#, "response_range"),
        (r#","responses":[{},{}]"#, "responses"),
    ] {
        let answer = endpoint(vec![ok(members)]).0.swap("k", None, "v");
        assert_eq!(answer, Err(AuthorityError::Malformed(place)), "{members}");
    }
    // A put has a higher revision than the record that it replaces.
    let put = r#","succeeded":true,"responses":[{"response_put":{}}]"#;
    let answer = endpoint(vec![ok(put)])
        .0
        .swap("k", Some(&found(9, "")), "v");
    assert_eq!(answer, Err(AuthorityError::Malformed("response_put")));
}

#[test]
fn a_connection_is_kept_and_opened_anew() {
    let (mut endpoint, requests) = endpoint(vec![ok(""), Act::Close, ok("")]);
    assert_eq!(endpoint.read("k"), Ok(None));
    let said = endpoint.read("k").unwrap_err();
    assert_eq!(
        said,
        AuthorityError::Unreachable("the connection was closed".into())
    );
    assert_eq!(endpoint.read("k"), Ok(None));
    assert_eq!(requests.try_iter().count(), 3);
}

quickcheck::quickcheck! {
    fn a_login_is_one_object(user: String, password: String) -> bool {
        let text = message::authenticate(&user, &password);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let member = |name| value.get(name).and_then(serde_json::Value::as_str);
        (member("name"), member("password")) == (Some(&*user), Some(&*password))
    }
}

fn login() -> AuthorityLogin {
    AuthorityLogin::new("latchd", "p\"w").unwrap()
}

#[test]
fn a_token_is_renewed_once() {
    let token = |text: &str| ok(&format!(r#","token":"{text}""#));
    let old = refused(401, 16, "etcdserver: invalid auth token");
    let (address, requests) = scripted(vec![
        token("one"),
        ok(""),
        old.clone(),
        token("two"),
        ok(""),
        old.clone(),
        token("three"),
        old,
        token("four"),
        ok(""),
    ]);
    let mut endpoint = etcd(&[address], Some(login())).endpoints().remove(0);
    assert_eq!(endpoint.read("k"), Ok(None));
    assert_eq!(endpoint.read("k"), Ok(None));
    assert!(matches!(
        endpoint.read("k"),
        Err(AuthorityError::Authentication(_))
    ));
    let seen: Vec<_> = requests.try_iter().collect();
    assert_eq!(seen[0].2, r#"{"name":"latchd","password":"p\"w"}"#);
    let steps: Vec<_> = seen
        .iter()
        .map(|(path, token, _)| (path.as_str(), token.as_deref()))
        .collect();
    let (login, range) = (("/v3/auth/authenticate", None), "/v3/kv/range");
    assert_eq!(
        steps,
        [
            login,
            (range, Some("one")),
            (range, Some("one")),
            login,
            (range, Some("two")),
            (range, Some("two")),
            login,
            (range, Some("three")),
        ]
    );
}

/// Otherwise a slow etcd would compute one login after the other in vain.
#[test]
fn a_login_may_take_longer_than_a_request() {
    let token = Act::Late(text(r#","token":"one""#));
    let (address, requests) = scripted(vec![token, ok(""), Act::Late(text(""))]);
    let mut endpoint = etcd(&[address], Some(login())).endpoints().remove(0);
    assert_eq!(endpoint.read("k"), Ok(None));
    assert_eq!(endpoint.read("k"), Err(AuthorityError::Late));
    assert_eq!(requests.try_iter().count(), 3);
}

#[test]
fn a_login_needs_no_users_in_etcd() {
    let (address, requests) = scripted(vec![
        refused(412, 9, "etcdserver: authentication is not enabled"),
        ok(""),
        // Users are created meanwhile.
        refused(400, 3, "etcdserver: user name is empty"),
        ok(r#","token":"one""#),
        ok(""),
    ]);
    let mut endpoint = etcd(&[address], Some(login())).endpoints().remove(0);
    assert_eq!(endpoint.read("k"), Ok(None));
    assert_eq!(endpoint.read("k"), Ok(None));
    assert_eq!(requests.try_iter().count(), 5);

    for (act, said) in [
        (
            refused(
                400,
                3,
                "etcdserver: authentication failed, invalid user ID or password",
            ),
            "authentication: etcdserver: auth",
        ),
        (ok(r#","token":"a\nb""#), "the answer is malformed (token)"),
        (ok(""), "the answer is malformed (token)"),
        (Act::Stall, "no answer in time"),
    ] {
        let (address, _requests) = scripted(vec![act]);
        let mut endpoint = etcd(&[address], Some(login())).endpoints().remove(0);
        endpoint.login_limit = endpoint.limit;
        let error = endpoint.read("k").unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
    }
}

#[test]
fn another_etcd_cluster_is_no_answer() {
    let (one, _) = scripted(vec![ok("")]);
    let (other, _) = scripted(vec![Act::Reply(200, text("").replace("77", "78"))]);
    let etcd = etcd(&[one, other], None);
    let mut endpoints = etcd.endpoints();
    assert_eq!(endpoints[0].read("k"), Ok(None));
    let error = endpoints[1].read("k").unwrap_err();
    assert_eq!(
        error,
        AuthorityError::OtherCluster {
            first: 77,
            this: 78
        }
    );
    assert_eq!(endpoints[0].read("k"), Ok(None));
}

#[test]
fn endpoints_are_asked_in_turn() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (full, full_requests) = scripted(vec![refused(429, 8, "mvcc: database space exceeded")]);
    let (good, good_requests) = scripted(vec![ok("")]);
    let mut in_turn = etcd(&[closed, full, good], None).in_turn();
    assert_eq!(in_turn.read("k"), Ok(None));
    // The one that answered is asked first.
    assert_eq!(in_turn.read("k"), Ok(None));
    assert_eq!(
        (
            full_requests.try_iter().count(),
            good_requests.try_iter().count()
        ),
        (1, 2)
    );
    // The scripted server has one connection at a time.
    drop(in_turn);
    let error = etcd(&[closed, full], None)
        .in_turn()
        .list("k/")
        .unwrap_err();
    assert_eq!(error.errors().len(), 2);
    let said = error.to_string();
    assert!(
        said.contains(&format!("http://{closed}: unreachable: connection refused")),
        "{said}"
    );
    assert!(
        said.contains(&format!("; http://{full}: etcd has no space left")),
        "{said}"
    );
}
