//! Random streams of classic and meta text.
//!
//! Keys beginning with `k` hold words, those with `n` numbers. Some behaviour of memcached and
//! latchd differs for good: counting in a stale item, and `md x` on one that was won. The stream
//! avoids it, since nothing after it could be compared; [`probes`] cover it, with keys that are
//! used once.
//!
//! TTLs are so far apart that a second more or less changes no answer.

use latchd_harness::random::Random;
use latchd_harness::transcript::Dialect;

use super::cas::CasBook;
use super::{PairedRequest, probes};

const WORD_KEYS: u64 = 24;
const NUMBER_KEYS: u64 = 8;
/// The longest key (memcached 1.6.45 `memcached.h`, `KEY_MAX_LENGTH`).
pub(super) const KEY_BYTES_MAX: usize = 250;
/// How many keys of each kind are [as long as allowed](KEY_BYTES_MAX).
pub(super) const LONG_KEYS: u64 = 2;

/// The key of a kind and a number: the first few have the greatest length, and differ at their ends
/// only.
pub(super) fn long_or_short(kind: char, number: u64) -> String {
    let short = format!("{kind}{number}");
    if number < LONG_KEYS {
        let filling = "_".repeat(KEY_BYTES_MAX - short.len());
        format!("{kind}{filling}{number}")
    } else {
        short
    }
}

/// A source of requests.
#[derive(Debug)]
pub struct TextStream {
    random: Random,
    dialect: Dialect,
    probes: u64,
}

impl TextStream {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64, dialect: Dialect) -> Self {
        Self {
            random: Random::new(seed),
            dialect,
            probes: 0,
        }
    }

    /// The next requests: about `size` of them.
    pub fn batch(&mut self, book: &CasBook, size: usize) -> Vec<PairedRequest> {
        let mut batch = Vec::new();
        while batch.len() < size {
            if self.random.chance(1, 25) {
                self.probes += 1;
                batch.extend(probes::draw(&mut self.random, self.dialect, self.probes));
            } else {
                batch.push(self.request(book));
            }
        }
        batch
    }

    fn request(&mut self, book: &CasBook) -> PairedRequest {
        match self.random.below(100) {
            0..=11 => self.get(),
            12..=15 => self.get_and_touch(),
            16..=33 => self.store(book),
            34..=38 => self.delete(),
            39..=44 => self.count(),
            45..=47 => self.touch(),
            48..=68 => self.meta_get(book),
            69..=80 => self.meta_set(book),
            81..=87 => self.meta_delete(book),
            88..=95 => self.meta_arithmetic(book),
            96 => self.debug(),
            97..=98 => self.trifle(),
            _ => self.flush(),
        }
    }

    fn is_old(&self) -> bool {
        self.dialect == Dialect::Memcached1618
    }

    fn word_key(&mut self) -> String {
        long_or_short('k', self.random.below(WORD_KEYS))
    }

    fn number_key(&mut self) -> String {
        long_or_short('n', self.random.below(NUMBER_KEYS))
    }

    fn key(&mut self) -> String {
        if self.random.chance(1, 4) {
            self.number_key()
        } else {
            self.word_key()
        }
    }

    fn exptime(&mut self) -> &'static str {
        const EXPTIMES: [&str; 9] = [
            "0",
            "0",
            "0",
            "100",
            "1000",
            "10000",
            "2592000",
            "-1",
            "1000000000",
        ];
        self.random.choose::<&str>(&EXPTIMES)
    }

    fn noreply(&mut self) -> &'static str {
        if self.random.chance(1, 10) {
            " noreply"
        } else {
            ""
        }
    }

    fn flags(&mut self) -> &'static str {
        self.random
            .choose::<&str>(&["0", "0", "5", "65535", "4294967295"])
    }

    /// A value that fits the key.
    fn value(&mut self, key: &str) -> Vec<u8> {
        const WORDS: [&[u8]; 7] = [
            b"",
            b"v",
            b"hello",
            b"END",
            b"with blanks in it",
            b"a\r\nb",
            b"HD\r\nVALUE x 0 0\r\n",
        ];
        const NUMBERS: [&[u8]; 10] = [
            b"0",
            b"1",
            b"9",
            b"10",
            b"99",
            b"18446744073709551615",
            b"007",
            b"5 ",
            b" 7",
            b"12x",
        ];
        if key.starts_with('n') {
            return self.random.choose(&NUMBERS).to_vec();
        }
        if self.random.chance(1, 30) {
            return vec![b'z'; 1_000 + usize::try_from(self.random.below(9_000)).unwrap_or(0)];
        }
        self.random.choose(&WORDS).to_vec()
    }

    /// The data of an `append` or a `prepend`: a word does not become a number by it.
    fn addition(&mut self, key: &str) -> Vec<u8> {
        let other: &[u8] = if key.starts_with('n') { b"1" } else { b"y" };
        (*self.random.choose(&[&b""[..], other, b"x"])).to_vec()
    }

    fn get(&mut self) -> PairedRequest {
        let verb = *self.random.choose(&["get", "gets"]);
        let first = self.key();
        let several = self.random.chance(1, 4);
        // Versions are requested for one key only:
        let mut request = PairedRequest::about(&first, format!("{verb} {first}"));
        if several {
            request.key = None;
            for _ in 0..=self.random.below(3) {
                request.push(format!(" {}", self.key()));
            }
        }
        request.push("\r\n");
        request
    }

    fn get_and_touch(&mut self) -> PairedRequest {
        let verb = *self.random.choose(&["gat", "gats"]);
        let key = self.key();
        PairedRequest::about(&key, format!("{verb} {} {key}\r\n", self.exptime()))
    }

    fn touch(&mut self) -> PairedRequest {
        let key = self.key();
        PairedRequest::about(
            &key,
            format!("touch {key} {}{}\r\n", self.exptime(), self.noreply()),
        )
    }

    fn store(&mut self, book: &CasBook) -> PairedRequest {
        const VERBS: [&str; 9] = [
            "set", "set", "set", "add", "replace", "append", "prepend", "cas", "cas",
        ];
        let verb = *self.random.choose(&VERBS);
        let key = self.key();
        let value = match verb {
            "append" | "prepend" => self.addition(&key),
            _ => self.value(&key),
        };
        let mut request = PairedRequest::about(
            &key,
            format!(
                "{verb} {key} {} {} {}",
                self.flags(),
                self.exptime(),
                value.len()
            ),
        );
        if verb == "cas" {
            request.push(" ");
            self.push_cas(&mut request, &key, book);
        }
        request
            .push(self.noreply())
            .push("\r\n")
            .push(&value)
            .push("\r\n");
        request
    }

    /// A version of the key, or one that no item has.
    fn push_cas(&mut self, request: &mut PairedRequest, key: &str, book: &CasBook) {
        let known = book.any(key, &mut self.random);
        match known {
            Some(pair) if !self.random.chance(1, 8) => request.push_cas(pair),
            Some(_) | None => {
                request.push(self.one_of(&["0", "18446744073709551615", "999999999999999"]))
            }
        };
    }

    fn delete(&mut self) -> PairedRequest {
        let key = self.key();
        let rest = *self.random.choose(&["", "", "", " 0", " noreply"]);
        PairedRequest::about(&key, format!("delete {key}{rest}\r\n"))
    }

    fn count(&mut self) -> PairedRequest {
        let verb = *self.random.choose(&["incr", "decr"]);
        let key = if self.random.chance(1, 8) {
            self.word_key()
        } else {
            self.number_key()
        };
        let delta = *self
            .random
            .choose(&["1", "0", "5", "10", "100", "18446744073709551615"]);
        let line = format!("{verb} {key} {delta}{}\r\n", self.noreply());
        PairedRequest {
            alone: true,
            ..PairedRequest::about(&key, line)
        }
    }

    /// Flags in any order, each as likely as not.
    fn push_some_of(&mut self, request: &mut PairedRequest, flags: &[String]) {
        let mut chosen: Vec<_> = flags.iter().filter(|_| self.random.chance(1, 2)).collect();
        for last in (1..chosen.len()).rev() {
            let with = usize::try_from(self.random.below(last as u64 + 1)).unwrap_or(0);
            chosen.swap(last, with);
        }
        for flag in chosen {
            request.push(" ").push(flag);
        }
    }

    fn one_of(&mut self, tokens: &[&str]) -> String {
        (*self.random.choose(tokens)).to_owned()
    }

    fn opaque(&mut self) -> String {
        self.one_of(&["O1", "Oabc", "O12345678901234567890", "O"])
    }

    fn meta_get(&mut self, book: &CasBook) -> PairedRequest {
        let key = self.key();
        let is_word = key.starts_with('k');
        let mut request = PairedRequest::about(&key, format!("mg {key}"));
        let mut flags = ["k", "s", "t", "f", "c", "l", "u"]
            .map(str::to_owned)
            .to_vec();
        flags.push(self.opaque());
        if is_word {
            flags.push("h".into());
        }
        if self.random.chance(1, 6) {
            flags.push(format!("T{}", self.exptime()));
        }
        if is_word && self.random.chance(1, 4) {
            flags.push(self.one_of(&["N0", "N100", "N1000", "N10000"]));
        }
        if is_word && self.random.chance(1, 3) {
            flags.push(self.one_of(&["R0", "R50", "R500", "R5000", "R50000", "R-1"]));
        }
        self.push_some_of(&mut request, &flags);
        if self.dialect == Dialect::Memcached1645 && self.random.chance(1, 10) {
            request.push(" C");
            self.push_cas(&mut request, &key, book);
        }
        if self.random.chance(1, 2) {
            request.push(" v");
        }
        if self.random.chance(1, 8) {
            request.push(" q");
        }
        request.push("\r\n");
        request
    }

    fn meta_set(&mut self, book: &CasBook) -> PairedRequest {
        let key = self.key();
        // Before 1.6.40 a mode of several letters was an error of its own.
        let mode = *self.random.choose(if self.is_old() {
            &["", "", "", "MS", "ME", "MA", "MP", "MR", "Ma", "Me"][..]
        } else {
            &["", "", "", "MS", "MSet", "ME", "MA", "MP", "MR", "Ma", "Me"][..]
        });
        let joins = mode.starts_with("MA") || mode.starts_with("MP") || mode == "Ma";
        let value = if joins {
            self.addition(&key)
        } else {
            self.value(&key)
        };
        let mut request = PairedRequest::about(&key, format!("ms {key} {}", value.len()));
        let mut flags = vec!["k".to_owned(), "c".to_owned(), self.opaque()];
        flags.push(format!("T{}", self.exptime()));
        flags.push(format!("F{}", self.flags()));
        if self.dialect == Dialect::Memcached1645 {
            flags.push("s".into());
        }
        // Before 1.6.40 no append made an item.
        let creates = joins && !self.is_old() && self.random.chance(1, 2);
        let compares = self.random.chance(1, 3);
        if creates {
            flags.push("N100".into());
        }
        self.push_some_of(&mut request, &flags);
        if !mode.is_empty() {
            request.push(format!(" {mode}"));
        }
        if compares {
            request.push(" C");
            self.push_cas(&mut request, &key, book);
            // A stale number would be counted in.
            if key.starts_with('k') && self.random.chance(1, 3) {
                request.push(" I");
            }
        }
        self.push_made_up(&mut request);
        if self.random.chance(1, 8) {
            request.push(" q");
        }
        request.push("\r\n").push(&value).push("\r\n");
        request
    }

    /// `E`, sometimes: a number that no server assigns on its own.
    fn push_made_up(&mut self, request: &mut PairedRequest) {
        if self.dialect == Dialect::Memcached1645 && self.random.chance(1, 15) {
            let cas = 1_000_000_000_000 + self.random.below(1 << 40);
            request.push(format!(" E{cas}"));
            request.made_up_cas = true;
        }
    }

    fn meta_delete(&mut self, book: &CasBook) -> PairedRequest {
        let key = self.key();
        let is_word = key.starts_with('k');
        let mut request = PairedRequest::about(&key, format!("md {key}"));
        let mut flags = vec!["k".to_owned(), "q".to_owned(), self.opaque()];
        if is_word {
            flags.push("I".into());
            flags.push(format!("T{}", self.exptime()));
        }
        self.push_some_of(&mut request, &flags);
        if self.random.chance(1, 3) {
            request.push(" C");
            self.push_cas(&mut request, &key, book);
        }
        request.push("\r\n");
        request
    }

    fn meta_arithmetic(&mut self, book: &CasBook) -> PairedRequest {
        let key = self.number_key();
        let mut request = PairedRequest::about(&key, format!("ma {key}"));
        let mut flags = ["k", "t", "c", "v"].map(str::to_owned).to_vec();
        flags.push(self.opaque());
        let mode = *self.random.choose(if self.is_old() {
            &["MI", "M+", "MD", "M-"][..]
        } else {
            &["MI", "M+", "MD", "M-", "Mincr", "MDecr"][..]
        });
        flags.push(mode.to_owned());
        flags.push(self.one_of(&["D1", "D0", "D7", "D1000"]));
        flags.push(self.one_of(&["J0", "J13", "J18446744073709551615"]));
        flags.push(self.one_of(&["N0", "N100", "N1000"]));
        self.push_some_of(&mut request, &flags);
        if self.random.chance(1, 4) {
            request.push(" C");
            self.push_cas(&mut request, &key, book);
        }
        request.alone = true;
        request.push("\r\n");
        request
    }

    fn debug(&mut self) -> PairedRequest {
        let key = self.key();
        PairedRequest::about(&key, format!("me {key}\r\n"))
    }

    /// A request that neither reads nor changes an item.
    fn trifle(&mut self) -> PairedRequest {
        const TRIFLES: [&str; 9] = [
            "mn\r\n",
            "mn foo\r\n",
            "verbosity 0\r\n",
            "verbosity 0 noreply\r\n",
            "get nothing-there\r\n",
            "mg nothing-there v k O9\r\n",
            "touch nothing-there 0\r\n",
            "get  k0  k1 \r\n",
            "incr nothing-there 1\n",
        ];
        PairedRequest::new(*self.random.choose(&TRIFLES))
    }

    fn flush(&mut self) -> PairedRequest {
        if self.random.chance(1, 4) {
            let text =
                *self
                    .random
                    .choose(&["flush_all\r\n", "flush_all 0\r\n", "flush_all noreply\r\n"]);
            PairedRequest::new(text)
        } else {
            self.get()
        }
    }
}
