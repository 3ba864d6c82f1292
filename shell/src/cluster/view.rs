//! The state of each partition, as a table and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use latchd_cluster::election::{self, Partition, PartitionRecord, RingRecord};
use serde::Serialize;

use crate::output;

/// A partition and its record.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) partition: Partition,
    pub(super) state: State,
    record: Option<PartitionRecord>,
    /// The age of the last heartbeat, at most; `None` if none was seen.
    age: Option<Duration>,
    /// The time for which the record was watched.
    watched: Duration,
    /// The time for which the primary may serve without etcd, in milliseconds; `None` if it did not answer.
    pub(super) hold_left_ms: Option<u64>,
}

/// The state of a partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// The primary serves.
    Serving,
    /// The primary closes.
    Leaving,
    /// The primary sends no heartbeat.
    Silent,
    /// The last primary has left.
    Free,
    /// No process has claimed the partition, or its record was deleted since.
    Unclaimed,
    /// The record is not usable: the reason.
    Unreadable(String),
}

impl State {
    /// Whether a primary has the partition.
    pub(super) const fn is_primary(&self) -> bool {
        match self {
            Self::Serving | Self::Leaving => true,
            Self::Silent | Self::Free | Self::Unclaimed | Self::Unreadable(_) => false,
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Leaving => "leaving",
            Self::Silent => "silent",
            Self::Free => "free",
            Self::Unclaimed => "unclaimed",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl Row {
    /// Reads the record of a partition, if it has one. `age` is that of the last heartbeat, if one was seen within
    /// `watched`.
    pub(super) fn new(
        partition: &Partition,
        value: Option<&str>,
        age: Option<Duration>,
        watched: Duration,
    ) -> Self {
        let (state, record) = match value.map(PartitionRecord::parse) {
            None => (State::Unclaimed, None),
            Some(Err(error)) => (State::Unreadable(error.to_string()), None),
            Some(Ok(record)) => {
                let state = match (record.state, age) {
                    (election::State::Vacant, _) => State::Unclaimed,
                    (election::State::Free, _) => State::Free,
                    (election::State::Serving | election::State::Leaving, None) => State::Silent,
                    (election::State::Serving, Some(_)) => State::Serving,
                    (election::State::Leaving, Some(_)) => State::Leaving,
                };
                let record = (state != State::Unclaimed).then_some(record);
                (state, record)
            }
        };
        Self {
            partition: partition.clone(),
            state,
            record,
            age,
            watched,
            hold_left_ms: None,
        }
    }

    /// The address of the primary, if there is one.
    pub(super) fn primary(&self) -> Option<&str> {
        let record = self.record.as_ref().filter(|_| self.state.is_primary());
        record.map(|record| &*record.address)
    }

    /// The time left of the hold for a person.
    fn hold_left(&self) -> String {
        let text = |ms: u64| format!("{:.1} s", Duration::from_millis(ms).as_secs_f64());
        self.hold_left_ms.map_or("-".into(), text)
    }

    /// The age of the heartbeat for a person; empty without a primary that could send one.
    fn heartbeat(&self) -> String {
        match (&self.state, self.age) {
            (State::Serving | State::Leaving, Some(age)) => {
                format!("{:.1} s ago", age.as_secs_f64())
            }
            (State::Silent, _) => format!("over {:.1} s ago", self.watched.as_secs_f64()),
            (
                State::Serving
                | State::Leaving
                | State::Free
                | State::Unclaimed
                | State::Unreadable(_),
                _,
            ) => "-".into(),
        }
    }
}

/// The headings of the table.
const HEADINGS: [&str; 7] = [
    "PARTITION",
    "STATE",
    "PRIMARY",
    "TERM",
    "HEARTBEAT",
    "HOLD LEFT",
    "VERSION",
];

/// A table with a line for each partition, and the reason behind each unreadable record.
pub(super) fn table(cluster: &str, rows: &[Row]) -> String {
    let mut cells = vec![HEADINGS.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let of_record =
            |text: fn(&PartitionRecord) -> String| row.record.as_ref().map_or("-".into(), text);
        [
            row.partition.name.clone(),
            row.state.word().to_owned(),
            of_record(|record| record.address.clone()),
            of_record(|record| record.term.to_string()),
            row.heartbeat(),
            row.hold_left(),
            of_record(|record| record.version.clone()),
        ]
    }));
    let mut text = output::table(&cells);
    for row in rows {
        if let State::Unreadable(why) = &row.state {
            let name = &row.partition.name;
            // Writing into a string does not fail.
            let _ = writeln!(
                text,
                "the record of {name} in cluster {cluster} is not usable: {why}"
            );
        }
    }
    text
}

/// The members of the JSON object.
#[derive(Serialize)]
struct Status<'a> {
    cluster: &'a str,
    id: String,
    hold_ms: u64,
    wait_ms: u64,
    partitions: Vec<PartitionStatus<'a>>,
}

/// The members of a partition. Numbers of 64 bits are strings, as in etcd.
#[derive(Serialize)]
struct PartitionStatus<'a> {
    name: &'a str,
    weight: u32,
    state: &'static str,
    #[serde(flatten)]
    primary: Option<PrimaryStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_ms: Option<u128>,
    hold_left_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// The members of a partition with a record.
#[derive(Serialize)]
struct PrimaryStatus<'a> {
    primary: &'a str,
    id: String,
    term: String,
    version: &'a str,
}

impl<'a> From<&'a Row> for PartitionStatus<'a> {
    fn from(row: &'a Row) -> Self {
        let primary = row.record.as_ref().map(|record| PrimaryStatus {
            primary: &record.address,
            id: record.id.to_string(),
            term: record.term.to_string(),
            version: &record.version,
        });
        let age = row.age.filter(|_| row.state.is_primary());
        let error = match &row.state {
            State::Unreadable(why) => Some(&**why),
            State::Serving | State::Leaving | State::Silent | State::Free | State::Unclaimed => {
                None
            }
        };
        Self {
            name: &row.partition.name,
            weight: row.partition.weight,
            state: row.state.word(),
            primary,
            heartbeat_ms: age.map(|age| age.as_millis()),
            hold_left_ms: row.hold_left_ms,
            error,
        }
    }
}

/// One JSON object, on a line.
pub(super) fn json(cluster: &str, ring: &RingRecord, rows: &[Row]) -> String {
    let status = Status {
        cluster,
        id: ring.id().to_string(),
        hold_ms: ring.timing().hold_ms(),
        wait_ms: ring.timing().wait_ms(),
        partitions: rows.iter().map(PartitionStatus::from).collect(),
    };
    let mut text = serde_json::to_string(&status).expect("each name of a status is a text");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use latchd_cluster::election::{Id, Timing};

    use super::*;

    fn rows() -> Vec<Row> {
        let partition = |name: &str| Partition {
            name: name.into(),
            weight: 1,
        };
        let record = |state| PartitionRecord {
            term: 7,
            id: Id(255),
            beat: 3,
            state,
            address: "10.0.0.1:11211".into(),
            floor: 9,
            version: "1.2.3".into(),
        };
        let json = |state| Some(record(state).to_json());
        let (age, watched) = (
            Some(Duration::from_millis(240)),
            Duration::from_millis(1600),
        );
        let newer = Some("{\"format\":2}".to_owned());
        let rows = [
            ("a:1", json(election::State::Serving), age),
            ("cache-b:1", json(election::State::Leaving), age),
            ("c:1", json(election::State::Serving), None),
            ("d:1", json(election::State::Free), age),
            ("v:1", json(election::State::Vacant), age),
            ("e:1", None, None),
            ("f:1", newer, age),
        ];
        let row = |(name, value, age): (_, Option<String>, _)| {
            Row::new(&partition(name), value.as_deref(), age, watched)
        };
        let mut rows: Vec<_> = rows.into_iter().map(row).collect();
        rows[0].hold_left_ms = Some(3_060);
        rows
    }

    #[test]
    fn a_table_has_a_line_for_each_partition() {
        let expected = "\
PARTITION  STATE       PRIMARY         TERM  HEARTBEAT       HOLD LEFT  VERSION
a:1        serving     10.0.0.1:11211  7     0.2 s ago       3.1 s      1.2.3
cache-b:1  leaving     10.0.0.1:11211  7     0.2 s ago       -          1.2.3
c:1        silent      10.0.0.1:11211  7     over 1.6 s ago  -          1.2.3
d:1        free        10.0.0.1:11211  7     -               -          1.2.3
v:1        unclaimed   -               -     -               -          -
e:1        unclaimed   -               -     -               -          -
f:1        unreadable  -               -     -               -          -
the record of f:1 in cluster shop is not usable: format 2, and this version reads 1; run a newer latchd
";
        assert_eq!(table("shop", &rows()), expected);
        let rows = rows();
        let with_primary = rows.iter().filter(|row| row.state.is_primary());
        assert_eq!(with_primary.count(), 2);
    }

    #[test]
    fn json_has_the_same() {
        let rows = rows();
        let partitions = rows.iter().map(|row| row.partition.clone()).collect();
        let ring = RingRecord::new(Id(1), partitions, Timing::default()).unwrap();
        let text = json("shop", &ring, &rows);
        let record = r#""primary":"10.0.0.1:11211","id":"000000000000000000000000000000ff","term":"7","version":"1.2.3""#;
        let expected = [
            r#"{"cluster":"shop","id":"00000000000000000000000000000001","hold_ms":3600,"wait_ms":4000,"partitions":["#,
            r#"{"name":"a:1","weight":1,"state":"serving",RECORD,"heartbeat_ms":240,"hold_left_ms":3060},"#,
            r#"{"name":"cache-b:1","weight":1,"state":"leaving",RECORD,"heartbeat_ms":240,"hold_left_ms":null},"#,
            r#"{"name":"c:1","weight":1,"state":"silent",RECORD,"hold_left_ms":null},"#,
            r#"{"name":"d:1","weight":1,"state":"free",RECORD,"hold_left_ms":null},"#,
            r#"{"name":"v:1","weight":1,"state":"unclaimed","hold_left_ms":null},"#,
            r#"{"name":"e:1","weight":1,"state":"unclaimed","hold_left_ms":null},"#,
            r#"{"name":"f:1","weight":1,"state":"unreadable","hold_left_ms":null,"#,
            r#""error":"format 2, and this version reads 1; run a newer latchd"}]}"#,
            "\n",
        ];
        assert_eq!(text, expected.concat().replace("RECORD", record));
        let primaries: Vec<_> = rows.iter().map(Row::primary).collect();
        let address = Some("10.0.0.1:11211");
        assert_eq!(primaries, [address, address, None, None, None, None, None]);
    }
}
