//! The requests and replies of etcd's JSON gateway.
//!
//! - M1: A reply is understood whole, or it is an error: no field is guessed.
//!
//! The gateway writes numbers of 64 bits as strings, bytes in Base64, and leaves out each field that is 0, false or
//! empty.
//!
//! Source: etcd 3.4 `etcdserver/etcdserverpb/rpc.proto`, `etcdserver/api/v3rpc/rpctypes/error.go` and, for the common
//! name, `embed/serve.go`.

use crate::election::{Answer, Found, distinct};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use super::error::AuthorityError;

/// The longest part of a message of etcd that an error shows, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

/// The longest token, in bytes: a JWT with a certificate's signature has a few hundred.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// gRPC's codes. Source: `google.golang.org/grpc/codes`.
const INVALID_ARGUMENT: u64 = 3;
const PERMISSION_DENIED: u64 = 7;
const RESOURCE_EXHAUSTED: u64 = 8;
const FAILED_PRECONDITION: u64 = 9;
const UNAVAILABLE: u64 = 14;
const UNAUTHENTICATED: u64 = 16;

/// Asks for one record. A range is linearizable unless it says otherwise.
pub(super) fn range(key: &str) -> String {
    format!("{{\"key\":\"{}\"}}", STANDARD.encode(key))
}

/// Asks for the first records whose keys begin with a prefix.
pub(super) fn list(prefix: &str, records_max: usize) -> String {
    let mut end = prefix.as_bytes().to_vec();
    // The last byte of UTF-8 is less than 255.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    format!(
        "{{\"key\":\"{}\",\"range_end\":\"{}\",\"limit\":\"{records_max}\"}}",
        STANDARD.encode(prefix),
        STANDARD.encode(end)
    )
}

/// Writes a record if it is as expected, in revision and value, else reads it.
pub(super) fn swap(key: &str, expected: Option<&Found>, value: &str) -> String {
    let key = STANDARD.encode(key);
    let compare = |target: &str, field: &str, value: &str| {
        format!(
            "{{\"key\":\"{key}\",\"target\":\"{target}\",\"result\":\"EQUAL\",\"{field}\":\"{value}\"}}"
        )
    };
    let compares = match expected {
        None => compare("CREATE", "create_revision", "0"),
        Some(found) => {
            let revision = compare("MOD", "mod_revision", &found.revision.to_string());
            let value = compare("VALUE", "value", &STANDARD.encode(&found.value));
            format!("{revision},{value}")
        }
    };
    format!(
        "{{\"compare\":[{compares}],\"success\":[{{\"request_put\":{{\"key\":\"{key}\",\"value\":\"{}\"}}}}],\
         \"failure\":[{{\"request_range\":{{\"key\":\"{key}\"}}}}]}}",
        STANDARD.encode(value)
    )
}

/// Asks for a token.
pub(super) fn authenticate(user: &str, password: &str) -> String {
    #[derive(Serialize)]
    struct Login<'a> {
        name: &'a str,
        password: &'a str,
    }
    // An escape has at most 6 bytes. So the text stays in one place, which the caller wipes.
    let mut text = Vec::with_capacity(32 + 6 * (user.len() + password.len()));
    let login = Login {
        name: user,
        password,
    };
    serde_json::to_writer(&mut text, &login).expect("a vector takes all bytes");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// A reply with status 200.
pub(super) struct Reply {
    value: Value,
    /// The id of the etcd cluster.
    pub(super) cluster: u64,
    /// The revision of the store.
    revision: u64,
}

impl Reply {
    /// Reads the text and its header.
    ///
    /// # Errors
    /// [`AuthorityError::Malformed`].
    pub(super) fn read(text: &str) -> Result<Self, AuthorityError> {
        let value = distinct::parse(text).map_err(|_| malformed("no JSON"))?;
        let header = value.get("header").ok_or(malformed("header"))?;
        let cluster = number(header, "cluster_id")?.ok_or(malformed("cluster_id"))?;
        let revision = number(header, "revision")?.ok_or(malformed("revision"))?;
        Ok(Self {
            value,
            cluster,
            revision,
        })
    }

    /// The record with this key; `None` if there is none.
    ///
    /// # Errors
    /// [`AuthorityError::Malformed`].
    pub(super) fn record(&self, key: &str) -> Result<Option<Found>, AuthorityError> {
        self.record_of(&self.value, key)
    }

    fn record_of(&self, range: &Value, key: &str) -> Result<Option<Found>, AuthorityError> {
        match self.records_of(range)?.as_mut_slice() {
            [] => Ok(None),
            [(own, found)] if own == key => Ok(Some(std::mem::replace(
                found,
                Found {
                    revision: 0,
                    value: String::new(),
                },
            ))),
            _ => Err(malformed("key")),
        }
    }

    /// The records of a list, with their keys.
    ///
    /// # Errors
    /// [`AuthorityError::Malformed`]; [`AuthorityError::TooMany`] if there are more than `records_max`.
    pub(super) fn records(
        &self,
        prefix: &str,
        records_max: usize,
    ) -> Result<Vec<(String, Found)>, AuthorityError> {
        if is_true(&self.value, "more")? {
            return Err(AuthorityError::TooMany(records_max));
        }
        let records = self.records_of(&self.value)?;
        let is_foreign = |(key, _): &(String, Found)| !key.starts_with(prefix);
        if records.len() > records_max || records.iter().any(is_foreign) {
            return Err(malformed("kvs"));
        }
        Ok(records)
    }

    fn records_of(&self, range: &Value) -> Result<Vec<(String, Found)>, AuthorityError> {
        let records = match range.get("kvs") {
            None => &[],
            Some(list) => list.as_array().ok_or(malformed("kvs"))?.as_slice(),
        };
        let record = |record: &Value| {
            let key = bytes(record, "key")?.ok_or(malformed("key"))?;
            let revision = number(record, "mod_revision")?.ok_or(malformed("mod_revision"))?;
            if revision == 0 || revision > self.revision {
                return Err(malformed("mod_revision"));
            }
            let value = bytes(record, "value")?.unwrap_or_default();
            Ok((key, Found { revision, value }))
        };
        records.iter().map(record).collect()
    }

    /// The outcome of a swap of this record.
    ///
    /// # Errors
    /// [`AuthorityError::Malformed`].
    pub(super) fn outcome(
        &self,
        key: &str,
        expected: Option<&Found>,
    ) -> Result<Answer, AuthorityError> {
        let responses = self.value.get("responses").and_then(Value::as_array);
        let Some([response]) = responses.map(Vec::as_slice) else {
            return Err(malformed("responses"));
        };
        if is_true(&self.value, "succeeded")? {
            let before = expected.map_or(0, |found| found.revision);
            if response.get("response_put").is_none() || self.revision <= before {
                return Err(malformed("response_put"));
            }
            return Ok(Answer::Swapped {
                revision: self.revision,
            });
        }
        let range = response
            .get("response_range")
            .ok_or(malformed("response_range"))?;
        self.record_of(range, key).map(Answer::Found)
    }

    /// The token of a login.
    ///
    /// # Errors
    /// [`AuthorityError::Malformed`].
    pub(super) fn token(&self) -> Result<&str, AuthorityError> {
        let token = self.value.get("token").and_then(Value::as_str);
        let is_legal = |token: &&str| {
            let is_graphic = token.bytes().all(|byte| byte.is_ascii_graphic());
            is_graphic && (1..=TOKEN_BYTES_MAX).contains(&token.len())
        };
        token.filter(is_legal).ok_or(malformed("token"))
    }
}

/// The meaning of a reply with another status than 200.
pub(super) fn refusal(status: u16, text: &str) -> Refusal {
    let value = distinct::parse(text).unwrap_or(Value::Null);
    let member = |name| value.get(name).and_then(Value::as_str);
    let message = member("message").or(member("error")).unwrap_or(text);
    let code = value.get("code").and_then(Value::as_u64);
    let says = |part: &str| message.contains(part);
    let is_old = says("invalid auth token") || says("revision of auth store is old");
    let is_unnamed = says("user name is empty");
    let error = match (status, code) {
        (404, None) => AuthorityError::NoGateway,
        (400, None) if says("HTTP request to an HTTPS server") => {
            AuthorityError::Unreachable("etcd requires TLS; write https:// in the URL".into())
        }
        // Its gateway cannot pass on the certificate, so the name in it could be taken for a user.
        (400, _) if says("CommonName of client") => AuthorityError::Authentication(
            "an etcd with users refuses a client certificate with a common name; use one without, and \
             --authority-user"
                .into(),
        ),
        (401 | 403, None) | (_, Some(UNAUTHENTICATED | PERMISSION_DENIED)) => {
            AuthorityError::Authentication(shown(message))
        }
        (_, Some(INVALID_ARGUMENT)) if is_unnamed => {
            AuthorityError::Authentication(format!("{}; set --authority-user", shown(message)))
        }
        (_, Some(INVALID_ARGUMENT)) if is_old || says("authentication failed") => {
            AuthorityError::Authentication(shown(message))
        }
        (_, Some(RESOURCE_EXHAUSTED)) if says("space exceeded") => AuthorityError::NoSpace,
        (_, Some(UNAVAILABLE)) if says("no leader") => AuthorityError::NoLeader,
        _ => AuthorityError::Refused {
            status,
            message: shown(message),
        },
    };
    Refusal {
        error,
        wants_token: is_old || is_unnamed,
        is_without_auth: code == Some(FAILED_PRECONDITION) && says("authentication is not enabled"),
    }
}

/// A refused request.
pub(super) struct Refusal {
    pub(super) error: AuthorityError,
    /// The token is missing or not valid any more.
    pub(super) wants_token: bool,
    /// etcd has no users.
    pub(super) is_without_auth: bool,
}

impl From<AuthorityError> for Refusal {
    fn from(error: AuthorityError) -> Self {
        Self {
            error,
            wants_token: false,
            is_without_auth: false,
        }
    }
}

/// The beginning of a text of the peer, without control characters.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for letter in text.trim().chars().take(MESSAGE_CHARS_MAX) {
        out.push(if letter.is_control() { ' ' } else { letter });
    }
    if out.is_empty() {
        "no message".into()
    } else {
        out
    }
}

const fn malformed(place: &'static str) -> AuthorityError {
    AuthorityError::Malformed(place)
}

/// A number of 64 bits, in quotes.
fn number(value: &Value, name: &'static str) -> Result<Option<u64>, AuthorityError> {
    let Some(value) = value.get(name) else {
        return Ok(None);
    };
    let digits = value.as_str().unwrap_or_default();
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_plain);
    number.map(Some).ok_or(malformed(name))
}

/// A text in Base64. Keys and values of latchd are UTF-8.
fn bytes(value: &Value, name: &'static str) -> Result<Option<String>, AuthorityError> {
    let Some(value) = value.get(name) else {
        return Ok(None);
    };
    let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(Some).ok_or(malformed(name))
}

fn is_true(value: &Value, name: &'static str) -> Result<bool, AuthorityError> {
    match value.get(name) {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(_) => Err(malformed(name)),
    }
}
