//! Values that are shared with the store, in every protocol that sends them.

use bytes::Bytes;

use alloc::vec;
use alloc::vec::Vec;

use crate::connection::*;
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::output::Output;
use crate::reply::{Hit, TtlTrace, Win};
use crate::value::{SHARED_VALUE_BYTES_MIN, Value};
use crate::wire::binary::{BinaryEnvelope, Opcode};
use crate::wire::classic::ClassicEnvelope;
use crate::wire::meta::{MetaEnvelope, Verb};

fn hit(value: Value<'_>) -> Reply<'_> {
    Reply::Hit(Hit {
        key: b"k",
        key_form: KeyForm::Plain,
        value,
        cas: Cas::FIRST,
        client_flags: 7,
        ttl: TtlTrace::default(),
        last_access_s: 0,
        fetched: false,
        stale: false,
        win: Win::None,
        unchanged: false,
        lock: None,
        memory_bytes: 1,
    })
}

/// One envelope of each protocol that shows a value, and some that do not.
fn envelopes() -> Vec<(Envelope<'static>, bool)> {
    let meta = |with_value| {
        Envelope::Meta(MetaEnvelope {
            verb: Verb::Get,
            key: Key::new(b"k").unwrap(),
            key_form: KeyForm::Plain,
            flags: b"v s k",
            quiet: false,
            with_value,
            value_bytes: 0,
        })
    };
    let binary = |opcode| {
        Envelope::Binary(BinaryEnvelope {
            opcode,
            opaque: 1,
            key: b"k",
        })
    };
    let get = ClassicEnvelope::Get {
        with_cas: true,
        last: true,
    };
    vec![
        (Envelope::Classic(get), true),
        (meta(true), true),
        (binary(Opcode::GetK), true),
        (
            Envelope::Classic(ClassicEnvelope::Touch { noreply: false }),
            false,
        ),
        (meta(false), false),
        (binary(Opcode::Touch), false),
    ]
}

#[test]
fn large_shared_values_are_not_copied() {
    for value_bytes in [
        0,
        1,
        SHARED_VALUE_BYTES_MIN - 1,
        SHARED_VALUE_BYTES_MIN,
        1 << 20,
    ] {
        let value = Bytes::from(vec![b'v'; value_bytes]);
        for (envelope, shows) in envelopes() {
            let encoded = |value: Value<'_>| {
                let mut out = Output::new();
                out.extend_from_slice(b"before");
                let mut connection = Connection::new(WireLimits::default());
                connection.reply(&envelope, &hit(value), &mut out);
                out
            };
            let shared = encoded(Value::Shared(&value));
            let is_shared = shared
                .chunks()
                .any(|chunk| chunk.as_ptr() == value.as_ptr());
            let is_large = value_bytes >= SHARED_VALUE_BYTES_MIN;
            assert_eq!(is_shared, shows && is_large, "{envelope:?}");
            let copied = encoded(Value::Borrowed(&value));
            assert_eq!(copied.chunks().count(), 1);
            assert_eq!(Vec::from(shared), Vec::from(copied), "{envelope:?}");
        }
    }
}
