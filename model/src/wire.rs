//! What a verb is on the wire: the lines or the packet that a client would send.

use crate::action::{CHOSEN_CAS, FUTURE_CAS, RECACHE_S, Verb};

/// The limit on values of a server by default, which [`Verb::SetTooLarge`] goes beyond.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 20;

/// What is known when a request is written.
pub(crate) struct Request<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: String,
    pub(crate) version: u64,
    pub(crate) ttl_s: u32,
}

impl Request<'_> {
    /// Whether a verb can be asked in binary only.
    pub(crate) const fn is_binary_only(verb: Verb) -> bool {
        matches!(
            verb,
            Verb::LockAndGet | Verb::ReplaceAndUnlock | Verb::CasAndUnlock
        )
    }

    /// Lines of text; `None` if there is no such command in text.
    pub(crate) fn text(&self, verb: Verb) -> Option<Vec<String>> {
        let Self {
            key,
            value,
            version,
            ttl_s,
        } = self;
        let bytes = value.len();
        let with_value = |line: String| vec![line, value.clone()];
        let line = |line: String| vec![line];
        Some(match verb {
            Verb::Lock => line(format!("lock {key}")),
            Verb::Unlock => line(format!("unlock {key}")),
            Verb::UnlockAll => line("unlock_all".to_owned()),
            Verb::Gets => line(format!("gets {key}")),
            Verb::Touch => line(format!("touch {key} {ttl_s}")),
            Verb::Set | Verb::Pressure => with_value(format!("set {key} 0 0 {bytes}")),
            Verb::SetExpiring => with_value(format!("set {key} 0 {ttl_s} {bytes}")),
            Verb::Add => with_value(format!("add {key} 0 0 {bytes}")),
            Verb::Replace => with_value(format!("replace {key} 0 0 {bytes}")),
            Verb::Append => vec![format!("append {key} 0 0 0"), String::new()],
            Verb::Cas => with_value(format!("cas {key} 0 0 {bytes} {version}")),
            Verb::SetTooLarge => {
                let bytes = VALUE_BYTES_MAX + 1;
                vec![format!("set {key} 0 0 {bytes}"), format!("{{{bytes}*x}}")]
            }
            Verb::Increment => line(format!("incr {key} 1")),
            Verb::Delete => line(format!("delete {key}")),
            Verb::DeleteVersion => line(format!("md {key} C{version}")),
            Verb::MarkStale => line(format!("md {key} I")),
            Verb::Clear => line(format!("md {key} x")),
            Verb::ClearAndMarkStale => line(format!("md {key} x I")),
            Verb::MetaGet => line(format!("mg {key} c v")),
            Verb::Vivify => line(format!("mg {key} c v N{ttl_s}")),
            Verb::Recache => line(format!("mg {key} c v R{RECACHE_S}")),
            Verb::StaleSet => with_value(format!("ms {key} {bytes} C{version} I")),
            Verb::StaleSetAhead => with_value(format!("ms {key} {bytes} C{FUTURE_CAS} I")),
            Verb::SetVersion => with_value(format!("ms {key} {bytes} E{CHOSEN_CAS}")),
            Verb::Flush => line("flush_all".to_owned()),
            Verb::FlushLater => line("flush_all 1".to_owned()),
            Verb::LockAndGet
            | Verb::ReplaceAndUnlock
            | Verb::CasAndUnlock
            | Verb::Open
            | Verb::Close
            | Verb::Walk
            | Verb::LateLock
            | Verb::Pass
            | Verb::Tick
            | Verb::StepBack => return None,
        })
    }

    /// A packet; `None` if there is no such command in binary.
    pub(crate) fn binary(&self, verb: Verb) -> Option<String> {
        let Self {
            key,
            value,
            version,
            ttl_s,
        } = self;
        Some(match verb {
            Verb::Lock => format!("lock key={key}"),
            Verb::LockAndGet => format!("lag key={key}"),
            Verb::Unlock => format!("unlock key={key}"),
            Verb::UnlockAll => "unlock-all".to_owned(),
            Verb::Gets => format!("get key={key}"),
            Verb::Touch => format!("touch exptime={ttl_s} key={key}"),
            Verb::Set | Verb::Pressure => format!("set flags=0 exptime=0 key={key} value={value}"),
            Verb::SetExpiring => format!("set flags=0 exptime={ttl_s} key={key} value={value}"),
            Verb::Add => format!("add flags=0 exptime=0 key={key} value={value}"),
            Verb::Replace => format!("replace flags=0 exptime=0 key={key} value={value}"),
            Verb::Append => format!("append key={key}"),
            Verb::Cas => format!("set flags=0 exptime=0 key={key} value={value} cas={version}"),
            Verb::ReplaceAndUnlock => format!("rau flags=0 exptime=0 key={key} value={value}"),
            Verb::CasAndUnlock => {
                format!("rau flags=0 exptime=0 key={key} value={value} cas={version}")
            }
            Verb::Increment => {
                format!("increment delta=1 initial=0 exptime=0xffffffff key={key}")
            }
            Verb::Delete => format!("delete key={key}"),
            Verb::DeleteVersion => format!("delete key={key} cas={version}"),
            Verb::Flush => "flush".to_owned(),
            Verb::FlushLater => "flush exptime=1".to_owned(),
            Verb::SetTooLarge
            | Verb::MarkStale
            | Verb::Clear
            | Verb::ClearAndMarkStale
            | Verb::MetaGet
            | Verb::Vivify
            | Verb::Recache
            | Verb::StaleSet
            | Verb::StaleSetAhead
            | Verb::SetVersion
            | Verb::Open
            | Verb::Close
            | Verb::Walk
            | Verb::LateLock
            | Verb::Pass
            | Verb::Tick
            | Verb::StepBack => return None,
        })
    }
}

/// The bytes that a line of text stands for.
pub(crate) fn expand(line: &str) -> Vec<u8> {
    let repeated = line
        .strip_prefix('{')
        .and_then(|line| line.strip_suffix("*x}"));
    let mut bytes = match repeated.map(str::parse) {
        Some(Ok(count)) => vec![b'x'; count],
        Some(Err(_)) | None => line.as_bytes().to_vec(),
    };
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use latchd_core::Connection;
    use latchd_core::connection::{KeyBuffer, Step};
    use latchd_core::item::Cas;
    use latchd_core::wire::WireLimits;
    use latchd_tests::transcript::binary::Packet;

    use super::*;
    use crate::action::key;

    /// What a verb is on the wire and what it is in the model are the same command.
    #[test]
    fn a_verb_is_written_as_what_it_means() {
        let verbs = crate::all().flat_map(|setup| setup.verbs().collect::<Vec<_>>());
        let (value, version, ttl_s) = ("1001", 7, 2);
        let mut seen = 0;
        for verb in verbs {
            let known = Cas::new(version);
            let Some(meant) = verb.command(key(0), known, ttl_s, value.as_bytes()) else {
                continue;
            };
            if matches!(verb, Verb::LateLock | Verb::SetTooLarge) {
                continue;
            }
            let request = Request {
                key: "a",
                value: value.to_owned(),
                version,
                ttl_s,
            };
            let text = request.text(verb).map(|lines| {
                lines
                    .iter()
                    .flat_map(|line| expand(line))
                    .collect::<Vec<u8>>()
            });
            let binary = request.binary(verb).map(|packet| {
                let packet = Packet::parse(&packet).unwrap();
                packet.request(&|_| Err(String::new())).unwrap()
            });
            for bytes in [text, binary].into_iter().flatten() {
                let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
                let mut key_buffer = KeyBuffer::new();
                let step = connection.next(&bytes, &mut key_buffer);
                let Step::Request {
                    command, consumed, ..
                } = step
                else {
                    panic!("{verb:?} is not a request: {step:?}");
                };
                assert_eq!(command, meant, "{verb:?}");
                assert_eq!(consumed, bytes.len(), "{verb:?}");
                seen += 1;
            }
        }
        assert!(seen > 20, "only {seen} verbs were looked at");
    }
}
