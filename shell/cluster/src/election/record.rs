//! The two records of a cluster in its authority: the ring, and the primary of a partition.
//!
//! - R1: A record that is read back is the record that was written.
//! - R2: A record of a newer format, a malformed one and one beyond a bound are refused; the error names the field.
//!
//! A name that this version does not know is ignored, so that a field can be added within a format. Numbers of 64
//! bits are strings, since many readers of JSON keep only 53 bits.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use latchd_protocol::address::HostPort;
use latchd_protocol::ring::Ring;
use serde::Serialize;
use serde_json::Value;

use super::distinct;
use super::timing::{Timing, TimingError};

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u64 = 1;

/// The longest record, in bytes: the ring of [`PARTITIONS_MAX`] longest names has 80 KiB.
pub const RECORD_BYTES_MAX: usize = 128 << 10;

/// The most partitions of a ring.
pub const PARTITIONS_MAX: usize = 256;

/// The greatest weight of a partition; the least is 1.
pub const WEIGHT_MAX: u32 = 65_535;

/// The longest `HOST:PORT`, in bytes: a host name has at most 253, and IPv6 brackets 2.
pub const ADDRESS_BYTES_MAX: usize = 261;

/// The longest version, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;

/// The longest name of a cluster, in bytes.
pub const CLUSTER_BYTES_MAX: usize = 64;

/// The name of a process or of a ring: 128 random bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Id(pub u128);

impl Id {
    /// Reads 32 hexadecimal digits in lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(u128::from_str_radix(text, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// Why a record cannot be used.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RecordError {
    /// It has more than [`RECORD_BYTES_MAX`] bytes.
    TooLong,
    /// It is no JSON, or an object in it has a doubled name or too many names.
    Malformed {
        /// The byte at which the reader stopped, from 0.
        at: usize,
    },
    /// A newer version has written it, in this format.
    Newer(u64),
    /// A field is missing or has no legal value.
    Field {
        /// The field.
        name: &'static str,
        /// The partition of a ring that has it, from 0.
        partition: Option<usize>,
    },
    /// The times of a ring do not go together.
    Timing(TimingError),
}

impl fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(formatter, "more than {RECORD_BYTES_MAX} bytes"),
            Self::Malformed { at } => write!(formatter, "no JSON at byte {at}"),
            Self::Newer(format) => write!(
                formatter,
                "format {format}, and this version reads {FORMAT}; run a newer latchd"
            ),
            Self::Field { name, partition } => {
                if let Some(partition) = partition {
                    write!(formatter, "partitions[{partition}].")?;
                }
                write!(formatter, "{name}: missing or no legal value")
            }
            Self::Timing(error) => error.fmt(formatter),
        }
    }
}

impl core::error::Error for RecordError {}

/// A partition of the ring.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
pub struct Partition {
    /// `HOST:PORT`, as clients write it. It never changes.
    pub name: String,
    /// Its part of the keys, in proportion to those of the others: 1 to [`WEIGHT_MAX`].
    pub weight: u32,
}

/// The record `ring`, which `latchd cluster init` writes once.
///
/// ```
/// use latchd_cluster::election::{Id, Partition, RingRecord, Timing};
///
/// let partition = |name: &str| Partition { name: name.into(), weight: 1 };
/// let partitions = ["cache-a:11211", "cache-b:11211"].map(partition).into();
/// let ring = RingRecord::new(Id(7), partitions, Timing::default()).unwrap();
/// assert_eq!(RingRecord::parse(&ring.to_json()), Ok(ring.clone()));
/// assert_eq!(ring.partitions()[ring.ring().place(b"user:8")].name, "cache-b:11211");
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RingRecord {
    id: Id,
    partitions: Vec<Partition>,
    timing: Timing,
}

impl RingRecord {
    /// Checks the partitions: 1 to [`PARTITIONS_MAX`], each with a name of its own.
    ///
    /// # Errors
    /// [`RecordError::Field`] with the field and the partition.
    pub fn new(id: Id, partitions: Vec<Partition>, timing: Timing) -> Result<Self, RecordError> {
        if partitions.is_empty() || partitions.len() > PARTITIONS_MAX {
            return Err(field("partitions"));
        }
        for (place, one) in partitions.iter().enumerate() {
            let wrong = |name| RecordError::Field {
                name,
                partition: Some(place),
            };
            let is_known = partitions
                .iter()
                .take(place)
                .any(|known| known.name == one.name);
            if is_known || !is_address(&one.name) {
                return Err(wrong("name"));
            }
            if one.weight == 0 || one.weight > WEIGHT_MAX {
                return Err(wrong("weight"));
            }
        }
        Ok(Self {
            id,
            partitions,
            timing,
        })
    }

    /// Reads the value of the record.
    ///
    /// # Errors
    /// [`RecordError`], with the field (R2).
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let value = parse(text)?;
        let list = value.get("partitions").and_then(Value::as_array);
        let mut partitions = Vec::new();
        for (place, one) in list.ok_or(field("partitions"))?.iter().enumerate() {
            let wrong = |name| RecordError::Field {
                name,
                partition: Some(place),
            };
            let name = one.get("name").and_then(Value::as_str);
            let weight = one.get("weight").and_then(Value::as_u64);
            let weight = weight.and_then(|weight| u32::try_from(weight).ok());
            partitions.push(Partition {
                name: name.ok_or(wrong("name"))?.to_owned(),
                weight: weight.ok_or(wrong("weight"))?,
            });
        }
        let [hold, wait] = [long(&value, "hold_ms")?, long(&value, "wait_ms")?];
        let timing = Timing::new(hold, wait).map_err(RecordError::Timing)?;
        Self::new(id(&value)?, partitions, timing)
    }

    /// The value of the record.
    #[must_use]
    pub fn to_json(&self) -> String {
        written(&RingFields {
            format: FORMAT,
            id: self.id.to_string(),
            partitions: &self.partitions,
            hold_ms: self.timing.hold_ms().to_string(),
            wait_ms: self.timing.wait_ms().to_string(),
        })
    }

    /// The name of the ring: two clusters that were made apart differ in it.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.id
    }

    /// The partitions, in the order in which they were given.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The times of its elections.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        self.timing
    }

    /// The ring as clients compute it: the index of the partition of a key.
    #[must_use]
    pub fn ring(&self) -> Ring {
        let named = self.partitions.iter().map(|one| (&*one.name, one.weight));
        Ring::new(&named.collect::<Vec<_>>())
    }
}

/// The fields of a [`RingRecord`] in the order in which they are written.
#[derive(Serialize)]
struct RingFields<'a> {
    format: u64,
    id: String,
    partitions: &'a [Partition],
    hold_ms: String,
    wait_ms: String,
}

/// The state of a partition's primary.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum State {
    /// It serves, as far as its hold reaches.
    Serving,
    /// It has got SIGTERM and closes.
    Leaving,
    /// It has closed: any standby may claim the partition at once.
    Free,
    /// There was no record, and a standby has written this one. The process that it names serves nothing.
    Vacant,
}

impl State {
    const ALL: [Self; 4] = [Self::Serving, Self::Leaving, Self::Free, Self::Vacant];

    /// The word in the record.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Leaving => "leaving",
            Self::Free => "free",
            Self::Vacant => "vacant",
        }
    }
}

/// The record `partition/<name>`, which the primary writes, and a standby that claims the partition or misses the record.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PartitionRecord {
    /// Counts the primaries of the partition.
    pub term: u64,
    /// The primary, or the standby that has written a vacant record.
    pub id: Id,
    /// Counts its heartbeats.
    pub beat: u64,
    /// Whether it serves.
    pub state: State,
    /// `HOST:PORT`, at which it serves.
    pub address: String,
    /// Greater than every fence and CAS number of the partition so far.
    pub floor: u64,
    /// The version of its program.
    pub version: String,
}

impl PartitionRecord {
    /// Reads the value of the record.
    ///
    /// # Errors
    /// [`RecordError`], with the field (R2).
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let value = parse(text)?;
        let text = |name| {
            let text = value.get(name).and_then(Value::as_str);
            text.ok_or(field(name))
        };
        let state = text("state")?;
        let state = State::ALL.into_iter().find(|one| one.word() == state);
        let (address, version) = (text("address")?, text("version")?);
        if !is_address(address) {
            return Err(field("address"));
        }
        if version.len() > VERSION_BYTES_MAX || !is_graphic(version) {
            return Err(field("version"));
        }
        Ok(Self {
            term: long(&value, "term")?,
            id: id(&value)?,
            beat: long(&value, "beat")?,
            state: state.ok_or(field("state"))?,
            address: address.to_owned(),
            floor: long(&value, "floor")?,
            version: version.to_owned(),
        })
    }

    /// The value of the record.
    #[must_use]
    pub fn to_json(&self) -> String {
        written(&PartitionFields {
            format: FORMAT,
            term: self.term.to_string(),
            id: self.id.to_string(),
            beat: self.beat.to_string(),
            state: self.state.word(),
            address: &self.address,
            floor: self.floor.to_string(),
            version: &self.version,
        })
    }
}

/// The fields of a [`PartitionRecord`] in the order in which they are written.
#[derive(Serialize)]
struct PartitionFields<'a> {
    format: u64,
    term: String,
    id: String,
    beat: String,
    state: &'static str,
    address: &'a str,
    floor: String,
    version: &'a str,
}

/// The key of the ring; `None` if `cluster` is no name of a cluster.
#[must_use]
pub fn ring_key(cluster: &str) -> Option<String> {
    is_cluster(cluster).then(|| format!("/latchd/{cluster}/ring"))
}

/// The key of a partition; `None` if `cluster` is no name of a cluster, or `partition` none of a partition.
///
/// ```
/// use latchd_cluster::election::partition_key;
///
/// let key = partition_key("shop", "cache-a:11211").unwrap();
/// assert_eq!(key, "/latchd/shop/partition/cache-a:11211");
/// assert_eq!(partition_key("shop/", "cache-a:11211"), None);
/// ```
#[must_use]
pub fn partition_key(cluster: &str, partition: &str) -> Option<String> {
    let is_legal = is_cluster(cluster) && is_address(partition);
    is_legal.then(|| format!("/latchd/{cluster}/partition/{partition}"))
}

/// Whether this can be the name of a cluster: 1 to [`CLUSTER_BYTES_MAX`] letters, digits, `-`, `_` and `.`.
fn is_cluster(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=CLUSTER_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_legal)
}

/// Whether this is `HOST:PORT` as it is printed, so that equal addresses are equal texts.
fn is_address(text: &str) -> bool {
    let is_short = text.len() <= ADDRESS_BYTES_MAX && is_graphic(text) && !text.contains('/');
    let printed = HostPort::parse(text, 0).map(|address| (address.port, address.to_string()));
    is_short && printed.is_ok_and(|(port, printed)| port > 0 && printed == text)
}

fn is_graphic(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn parse(text: &str) -> Result<Value, RecordError> {
    if text.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLong);
    }
    let value = distinct::parse(text).map_err(|at| RecordError::Malformed { at })?;
    match value.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => Ok(value),
        Some(format) if format > FORMAT => Err(RecordError::Newer(format)),
        Some(_) | None => Err(field("format")),
    }
}

const fn field(name: &'static str) -> RecordError {
    RecordError::Field {
        name,
        partition: None,
    }
}

fn id(value: &Value) -> Result<Id, RecordError> {
    let text = value.get("id").and_then(Value::as_str);
    text.and_then(Id::parse).ok_or(field("id"))
}

/// A number of 64 bits, in quotes.
fn long(value: &Value, name: &'static str) -> Result<u64, RecordError> {
    let text = value.get(name).and_then(Value::as_str);
    let is_plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.filter(is_plain).and_then(|text| text.parse().ok());
    number.ok_or(field(name))
}

fn written(fields: &impl Serialize) -> String {
    serde_json::to_string(fields).expect("each name in a record is a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "{\"format\":1,\"term\":\"18446744073709551615\",\"id\":\"000000000000000000000000000000ff\",\
                          \"beat\":\"7\",\"state\":\"leaving\",\"address\":\"[::1]:11211\",\"floor\":\"4294967296\",\
                          \"version\":\"1.2.3\"}";

    const RING: &str = "{\"format\":1,\"id\":\"000000000000000000000000000000ff\",\"partitions\":[{\"name\":\"a:1\",\
                        \"weight\":1},{\"name\":\"b:2\",\"weight\":3}],\"hold_ms\":\"3600\",\"wait_ms\":\"4000\"}";

    #[test]
    fn a_record_is_written_as_it_is_read() {
        let record = PartitionRecord::parse(RECORD).unwrap();
        assert_eq!((record.term, record.state), (u64::MAX, State::Leaving));
        assert_eq!(record.to_json(), RECORD);
        assert_eq!(RingRecord::parse(RING).unwrap().to_json(), RING);
        let added = RECORD.replace("\"term\"", "\"added\":[null],\"term\"");
        assert_eq!(PartitionRecord::parse(&added), Ok(record));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let message = |text: &str, was: &str, is: &str| {
            assert!(text.contains(was), "{was}");
            let text = text.replacen(was, is, 1);
            let error = if text.contains("partitions") {
                RingRecord::parse(&text).unwrap_err()
            } else {
                PartitionRecord::parse(&text).unwrap_err()
            };
            error.to_string()
        };
        for (was, is, field) in [
            (
                "\"18446744073709551615\"",
                "\"18446744073709551616\"",
                "term",
            ),
            ("\"7\"", "7", "beat"),
            ("\"7\"", "\"+7\"", "beat"),
            ("00ff", "00FF", "id"),
            ("0000ff", "ff", "id"),
            ("leaving", "Leaving", "state"),
            ("[::1]:11211", "[::1]", "address"),
            ("[::1]:11211", "a b:1", "address"),
            ("[::1]:11211", "a:0", "address"),
            ("[::1]:11211", "a:01", "address"),
            ("1.2.3", "", "version"),
            ("floor", "flour", "floor"),
            ("\"format\":1", "\"format\":0", "format"),
        ] {
            let expected = format!("{field}: missing or no legal value");
            assert_eq!(message(RECORD, was, is), expected);
        }
        for (was, is, expected) in [
            (
                "b:2",
                "a:1",
                "partitions[1].name: missing or no legal value",
            ),
            ("a:1", "a", "partitions[0].name: missing or no legal value"),
            (
                "\"weight\":3",
                "\"weight\":0",
                "partitions[1].weight: missing or no legal value",
            ),
            (
                "\"weight\":3",
                "\"weight\":65536",
                "partitions[1].weight: missing or no legal value",
            ),
            (
                "\"format\":1",
                "\"format\":2",
                "format 2, and this version reads 1; run a newer latchd",
            ),
            ("{", "[", "no JSON at byte 9"),
        ] {
            assert_eq!(message(RING, was, is), expected);
        }
        assert!(message(RING, "4000", "3600").starts_with("wait_ms 3600"));
    }

    #[test]
    fn a_record_is_used_up_to_its_bounds() {
        let version = |bytes| RECORD.replace("1.2.3", &"v".repeat(bytes));
        let longest = version(VERSION_BYTES_MAX);
        let record = PartitionRecord::parse(&longest).unwrap();
        assert_eq!(record.to_json(), longest);
        let longer = PartitionRecord::parse(&version(VERSION_BYTES_MAX + 1));
        assert_eq!(longer, Err(field("version")));
        let padded = |bytes| longest.clone() + &" ".repeat(bytes - longest.len());
        assert_eq!(
            PartitionRecord::parse(&padded(RECORD_BYTES_MAX)),
            Ok(record)
        );
        let longer = PartitionRecord::parse(&padded(RECORD_BYTES_MAX + 1));
        assert_eq!(longer, Err(RecordError::TooLong));
    }

    #[test]
    fn each_legal_character_is_kept() {
        let graphic: String = ('!'..='~').collect();
        let (first, second) = graphic.split_at(VERSION_BYTES_MAX);
        for version in [first, second] {
            let escaped = version.replace('\\', "\\\\").replace('"', "\\\"");
            let text = RECORD.replace("1.2.3", &escaped);
            let record = PartitionRecord::parse(&text).unwrap();
            assert_eq!(record.version, version);
            assert_eq!(record.to_json(), text);
        }
    }

    #[test]
    fn a_doubled_name_is_refused() {
        for doubled in [
            "\"beat\":\"7\"",
            "\"beat\":null",
            "\"added\":1,\"added\":1",
            "\"added\":1,\"\\u0061dded\":1",
            "\"added\":[{\"in\":{\"a\":1,\"b\":2,\"a\":1}}]",
        ] {
            let text = RECORD.replace("\"term\"", &format!("{doubled},\"term\""));
            let error = PartitionRecord::parse(&text).unwrap_err();
            assert!(
                matches!(error, RecordError::Malformed { .. }),
                "{text}: {error}"
            );
        }
        let nested = RECORD.replace("\"term\"", "\"added\":{\"term\":{\"term\":0}},\"term\"");
        assert!(PartitionRecord::parse(&nested).is_ok());
    }

    #[test]
    fn the_format_is_judged_first() {
        for text in [
            "{\"format\":2}",
            "{\"term\":7,\"format\":2,\"partitions\":0}",
        ] {
            assert_eq!(PartitionRecord::parse(text), Err(RecordError::Newer(2)));
            assert_eq!(RingRecord::parse(text), Err(RecordError::Newer(2)));
        }
        for text in [
            "{}",
            "[]",
            "1",
            "null",
            "{\"format\":\"1\"}",
            "{\"format\":1.0}",
        ] {
            assert_eq!(RingRecord::parse(text), Err(field("format")), "{text}");
        }
    }

    #[test]
    fn keys_are_of_legal_names() {
        let longest = "c".repeat(CLUSTER_BYTES_MAX);
        for cluster in ["a", "Shop-1_b.c", &longest] {
            assert_eq!(ring_key(cluster), Some(format!("/latchd/{cluster}/ring")));
            assert!(partition_key(cluster, "a:1").is_some());
            assert_eq!(partition_key(cluster, "a"), None);
        }
        for cluster in ["", "a b", "a/b", "é", &"c".repeat(CLUSTER_BYTES_MAX + 1)] {
            assert_eq!(ring_key(cluster), None);
            assert_eq!(partition_key(cluster, "a:1"), None);
        }
    }

    #[test]
    fn the_longest_ring_fits_a_record() {
        let name = |place: usize| format!("{place:0>253}:65535");
        let partitions = |count| {
            let all = (0..count).map(|place| Partition {
                name: name(place),
                weight: WEIGHT_MAX,
            });
            RingRecord::new(Id(0), all.collect(), Timing::default())
        };
        let longest = partitions(PARTITIONS_MAX).unwrap();
        assert_eq!(RingRecord::parse(&longest.to_json()), Ok(longest));
        assert_eq!(partitions(PARTITIONS_MAX + 1), Err(field("partitions")));
        assert_eq!(partitions(0), Err(field("partitions")));
    }
}
