//! Requests and responses of the meta protocol read back as they were written.

extern crate std;

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use quickcheck::{Arbitrary, Gen, TestResult, quickcheck};

use super::reply::{Code, MetaResponse, encode};
use super::request::{MetaRequest, decode};
use super::{Flag, KeyBuffer, MetaEnvelope, Verb};
use crate::command::{Command, ItemCommand, Lease};
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::output::Output;
use crate::reply::{Hit, Refusal, Reply, TtlTrace, Win};
use crate::time::Exptime;
use crate::value::Value;
use crate::wire::line::Line;
use crate::wire::scan::Tokens;
use crate::wire::{Envelope, Malformed, Operation, Step, WireLimits};

/// The numbers and bytes of a request: its flags, in their order.
#[derive(Clone, Debug)]
struct Draft {
    verb: u8,
    key: Vec<u8>,
    letters: Vec<u8>,
    number: u64,
    small: u32,
    exptime: i32,
    value: Vec<u8>,
    truth: bool,
}

impl Arbitrary for Draft {
    fn arbitrary(g: &mut Gen) -> Self {
        let key: Vec<u8> = Vec::<u8>::arbitrary(g).into_iter().take(187).collect();
        // The letters in an order of their own, and as many of them as a request may have.
        let mut letters: Vec<(u8, u8)> = b"cCDEfFhIJklMNOqRstTuvxP"
            .iter()
            .map(|letter| (u8::arbitrary(g), *letter))
            .collect();
        letters.sort_unstable();
        letters.truncate(usize::arbitrary(g) % 17);
        Self {
            verb: u8::arbitrary(g),
            key: if key.is_empty() { vec![b'k'] } else { key },
            letters: letters.into_iter().map(|(_, letter)| letter).collect(),
            number: Arbitrary::arbitrary(g),
            small: Arbitrary::arbitrary(g),
            exptime: Arbitrary::arbitrary(g),
            value: Arbitrary::arbitrary(g),
            truth: Arbitrary::arbitrary(g),
        }
    }
}

impl Draft {
    fn flags(&self, mode: u8) -> Vec<Flag<'static>> {
        let exptime = Exptime::from_wire(i64::from(self.exptime));
        let flag = |letter: &u8| match letter {
            b'c' => Flag::ShowCas,
            b'C' => Flag::Cas(self.number),
            b'D' => Flag::Delta(self.number),
            b'E' => Flag::NewCas(self.number),
            b'f' => Flag::ShowClientFlags,
            b'F' => Flag::ClientFlags(self.small),
            b'h' => Flag::ShowFetched,
            b'I' => Flag::Invalidate,
            b'J' => Flag::Initial(self.number),
            b'k' => Flag::ShowKey,
            b'l' => Flag::ShowLastAccess,
            b'M' => Flag::Mode(mode),
            b'N' => Flag::Vivify(exptime),
            b'O' => Flag::Opaque(b"opaque"),
            b'q' => Flag::Quiet,
            b'R' => Flag::Recache(exptime),
            b's' => Flag::ShowSize,
            b't' => Flag::ShowTtl,
            b'T' => Flag::Touch(exptime),
            b'u' => Flag::NoBump,
            b'v' => Flag::Value,
            b'x' => Flag::Clear,
            _ => Flag::Proxy,
        };
        self.letters.iter().map(flag).collect()
    }

    fn has(&self, letter: u8) -> bool {
        self.letters.contains(&letter)
    }

    fn verb(&self) -> (Verb, u8) {
        match self.verb % 4 {
            0 => (Verb::Get, b'S'),
            1 => (Verb::Set, b'S'),
            2 => (Verb::Delete, b'S'),
            _ => (Verb::Arithmetic, b'D'),
        }
    }

    fn hit(&self) -> Hit<'_> {
        Hit {
            key: &self.key,
            key_form: KeyForm::Binary,
            value: Value::Borrowed(&self.value),
            cas: Cas::new(self.number.max(1)).unwrap(),
            client_flags: self.small,
            ttl: TtlTrace([Some(1), Some(2), Some(3), None]),
            last_access_s: self.small,
            fetched: self.truth,
            stale: false,
            win: if self.truth { Win::Sent } else { Win::None },
            unchanged: false,
            lock: None,
            memory_bytes: 1,
        }
    }
}

fn decoded<'a>(verb: Verb, bytes: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Step<'a> {
    let line_bytes = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let line = Line::new(bytes, line_bytes).unwrap();
    decode(
        verb,
        &line.text[2..],
        line,
        &WireLimits::default(),
        key_buffer,
    )
}

quickcheck! {
    /// Each flag reads back as itself, and the request as one with this key, value and envelope.
    fn a_request_that_is_written_reads_back(draft: Draft) -> bool {
        let (verb, mode) = draft.verb();
        let (flags, key) = (draft.flags(mode), Key::new(&draft.key).unwrap());
        let value = if verb == Verb::Set { &draft.value[..] } else { b"" };
        let mut bytes = Vec::new();
        MetaRequest { verb, key, flags: &flags, value }.encode(&mut bytes);
        let mut key_buffer = KeyBuffer::new();
        let Step { consumed, operation: Operation::Execute { command, envelope: Envelope::Meta(envelope) } } =
            decoded(verb, &bytes, &mut key_buffer)
        else {
            return false;
        };
        let mut read: Vec<Flag<'_>> = Tokens::new(envelope.flags)
            .map(|word| Flag::decode(verb, word).unwrap())
            .collect();
        if envelope.key_form == KeyForm::Binary {
            assert_eq!(read.remove(0), Flag::BinaryKey);
        }
        // Flags that show nothing need not be kept for the reply, and a get without such flags keeps none.
        if read.is_empty() && verb == Verb::Get {
            assert!(draft.letters.iter().all(|letter| b"quv".contains(letter)), "{flags:?}");
        } else {
            assert_eq!(read, flags);
        }
        if let Command::Item(ItemCommand::Set(set)) = command {
            assert_eq!(set.value, value);
        }
        assert_eq!(consumed, bytes.len());
        command.key() == Some(key)
            && (envelope.key, envelope.verb) == (key, verb)
            && (envelope.quiet, envelope.with_value) == (draft.has(b'q'), draft.has(b'v'))
    }

    /// The fields of a hit are those of the item, word by word.
    fn a_hit_that_is_written_reads_back(draft: Draft) -> TestResult {
        if draft.has(b'C') {
            return TestResult::discard();
        }
        let (flags, key) = (draft.flags(b'S'), Key::new(&draft.key).unwrap());
        let mut request = Vec::new();
        MetaRequest { verb: Verb::Get, key, flags: &flags, value: b"" }.encode(&mut request);
        let mut key_buffer = KeyBuffer::new();
        let Step { operation: Operation::Execute { envelope: Envelope::Meta(envelope), .. }, .. } =
            decoded(Verb::Get, &request, &mut key_buffer)
        else {
            return TestResult::failed();
        };
        let (hit, mut out) = (draft.hit(), Output::new());
        encode(&envelope, &Reply::Hit(hit), &mut out);
        let bytes = Vec::from(out);
        let Ok(Some((response, consumed))) = MetaResponse::decode(&bytes) else {
            return TestResult::failed();
        };
        assert_eq!(consumed, bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(MetaResponse::decode(&bytes[..cut]), Ok(None), "at {cut}");
        }
        let number = |letter| {
            response.flag(letter).map(|token| std::str::from_utf8(token).unwrap().to_string())
        };
        let shown = |letter, number: u64| draft.has(letter).then(|| number.to_string());
        assert_eq!(response.code == Code::Value, draft.has(b'v'));
        assert_eq!(response.value, if draft.has(b'v') { hit.value.as_bytes() } else { b"" });
        assert_eq!(number(b'c'), shown(b'c', hit.cas.number()));
        assert_eq!(number(b'f'), shown(b'f', u64::from(hit.client_flags)));
        assert_eq!(number(b's'), shown(b's', hit.value.len() as u64));
        assert_eq!(number(b'l'), shown(b'l', u64::from(hit.last_access_s)));
        assert_eq!(number(b'h'), shown(b'h', u64::from(hit.fetched)));
        assert_eq!(response.flag(b'O'), draft.has(b'O').then_some(&b"opaque"[..]));
        assert_eq!(response.flag(b'Z'), draft.truth.then_some(&b""[..]));
        if let Some(key) = response.flag(b'k') {
            assert_eq!(KeyBuffer::new().decode(key).map(|key| key.as_bytes().to_vec()), Some(draft.key.clone()));
        }
        if let Some(place) = draft.letters.iter().position(|letter| *letter == b't') {
            let steps =
                draft.letters[..place].iter().filter(|letter| b"TNR".contains(letter)).count();
            let ttl = hit.ttl.0[steps].map_or("-1".to_string(), |ttl| ttl.to_string());
            assert_eq!(number(b't'), Some(ttl));
        }
        TestResult::passed()
    }

    fn any_bytes_are_an_answer_or_not(bytes: Vec<u8>) -> bool {
        match MetaResponse::decode(&bytes) {
            Ok(Some((_, consumed))) => consumed <= bytes.len(),
            Ok(None) | Err(Malformed) => true,
        }
    }

    /// A get that only shows fields is read in fewer steps, with the same result: one blank more has it read in
    /// all steps.
    fn a_bare_get_is_read_as_any_other(letters: Vec<u8>) -> bool {
        let words = |letters: &[u8]| -> Vec<u8> {
            let letter = |number: &u8| b"cfhklqstuvcvbCx"[usize::from(*number) % 15];
            letters.iter().flat_map(|number| [b' ', letter(number)]).collect()
        };
        let letters = &letters[..letters.len() % 12];
        let short = [b" k", words(letters).as_slice()].concat();
        let long = [b" k ", words(letters).as_slice()].concat();
        let (mut one, mut other) = (KeyBuffer::new(), KeyBuffer::new());
        let read = |text, key_buffer| {
            let line = Line { text, bytes: 100, behind: b"" };
            let step = decode(Verb::Get, text, line, &WireLimits::default(), key_buffer);
            if let Step { consumed, operation: Operation::Execute { command, envelope: Envelope::Meta(envelope) } } = step {
                let envelope = Envelope::Meta(MetaEnvelope { flags: b"", ..envelope });
                Operation::Execute { command, envelope }.consuming(consumed)
            } else {
                step
            }
        };
        read(&short, &mut one) == read(&long, &mut other)
    }

    fn any_flags_are_a_request_or_not(verb: u8, line: Vec<u8>) -> bool {
        let verb = match verb % 7 {
            0 => Verb::Get,
            1 => Verb::Set,
            2 => Verb::Delete,
            3 => Verb::Arithmetic,
            4 => Verb::Lock,
            5 => Verb::Unlock,
            _ => Verb::Debug,
        };
        let mut key_buffer = KeyBuffer::new();
        let line = Line { text: &line, bytes: line.len() + 1, behind: b"" };
        let step = decode(verb, line.text, line, &WireLimits::default(), &mut key_buffer);
        match step.operation {
            Operation::Incomplete { at_least } => at_least > line.bytes,
            Operation::Execute { .. } | Operation::ExecuteAs { .. } | Operation::Send { .. } => {
                step.consumed >= line.bytes
            }
            Operation::Skip
            | Operation::Session { .. }
            | Operation::Close { .. }
            | Operation::Authenticate { .. }
            | Operation::Watch { .. }
            | Operation::Hold
            | Operation::Cluster
            | Operation::ReadCertificates { .. }
            | Operation::LimitMemory { .. }
            | Operation::ShutDown => false,
        }
    }
}

/// The command of a line, without its body.
fn command<'a>(line: &'a str, body: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Command<'a> {
    let (word, rest) = line.split_at(2);
    let verb = Verb::from_word(word.as_bytes()).unwrap();
    let line_of = Line {
        text: line.as_bytes(),
        bytes: line.len(),
        behind: body,
    };
    let step = decode(
        verb,
        rest.as_bytes(),
        line_of,
        &WireLimits::default(),
        key_buffer,
    );
    let Step {
        operation: Operation::Execute { command, .. },
        ..
    } = step
    else {
        panic!("{line:?} is a request")
    };
    command
}

#[test]
fn debug_reply_reads_back_its_code() {
    let envelope = MetaEnvelope {
        verb: Verb::Debug,
        key: Key::new(b"k").unwrap(),
        key_form: KeyForm::Plain,
        flags: b"",
        quiet: false,
        with_value: false,
        value_bytes: 0,
    };
    let mut out = Output::new();
    encode(&envelope, &Reply::Miss, &mut out);
    let bytes = Vec::from(out);
    let miss = MetaResponse {
        code: Code::Miss,
        flags: b"",
        value: b"",
    };
    assert_eq!(MetaResponse::decode(&bytes), Ok(Some((miss, 4))));
    assert_eq!(MetaResponse::decode(b"ERROR\r\n"), Err(Malformed));
    assert_eq!(MetaResponse::decode(b"VA x\r\n"), Err(Malformed));
}

#[test]
fn a_lease_is_seconds_with_up_to_three_decimals() {
    let lease = |line| match command(line, b"", &mut KeyBuffer::new()) {
        Command::Item(ItemCommand::Acquire(acquire)) => acquire.lease,
        other @ (Command::Item(_) | Command::Global(_)) => panic!("{other:?}"),
    };
    for (line, ms) in [
        ("ml k T30", 30_000),
        ("ml k T0.25", 250),
        ("ml k T0.01", 10),
        ("ml k T1.005", 1_005),
        ("ml k T1.5", 1_500),
    ] {
        assert_eq!(lease(line), Some(Lease::For { ms }), "{line}");
        let mut out = Vec::new();
        Flag::Lease(Lease::For { ms }).encode(&mut out);
        let word = out.get(1..).unwrap();
        assert_eq!(
            Flag::decode(Verb::Lock, word),
            Ok(Flag::Lease(Lease::For { ms }))
        );
    }
    assert_eq!(lease("ml k T-1"), Some(Lease::Off));
    assert_eq!(lease("ml k"), None);
    for word in [
        "T",
        "T0",
        "T0.009",
        "T0.0001",
        "T-2",
        "T1.",
        "T.5",
        "Tx",
        "T4294967296",
    ] {
        assert!(Flag::decode(Verb::Lock, word.as_bytes()).is_err(), "{word}");
    }
}

/// As in memcached, each verb has its own message for that.
#[test]
fn out_of_memory_reply_fits_the_verb() {
    let said = |verb| {
        let envelope = MetaEnvelope {
            verb,
            key: Key::new(b"k").unwrap(),
            key_form: KeyForm::Plain,
            flags: b"",
            quiet: true,
            with_value: false,
            value_bytes: 0,
        };
        let mut out = Output::new();
        encode(&envelope, &Reply::Refused(Refusal::OutOfMemory), &mut out);
        Vec::from(out)
    };
    for verb in [Verb::Arithmetic, Verb::Delete] {
        assert_eq!(said(verb), b"SERVER_ERROR out of memory\r\n");
    }
    for verb in [Verb::Set, Verb::Get] {
        let storing = b"SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(said(verb), storing);
    }
}
