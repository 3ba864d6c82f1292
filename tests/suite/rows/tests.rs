//! A comparison fails for each possible mistake, over documents made up for it.

use super::check::Files;
use super::{Named, Report, compare};

const DOCUMENT: &str = "# Title\n\n## Time\n| case | answer |\n| --- | --- |\n| 0 | never |\n\
                        | 1 | later |\n| 1 | later still |\n";

const LIST: &str = "# For people.\n## Time\n| 0\n  transcripts/time.txt: never: 0\n| 1\n  core/protocol/src/time.rs: later\n\
                    | 1\n  core/protocol/src/time.rs: all_numbers\n  but not: the clock's drift, nobody can say\n";

/// Two files.
struct MadeUp;

impl Files for MadeUp {
    fn read(&self, path: &str) -> Option<String> {
        Some(match path {
            "tests/transcripts/time.txt" => "== never: 0\n> get a\n< END\n\n== twice\n> mn\n< MN\n\n== twice\n> mn\n< MN\n\n\
                 == of others\n@memcached: it is said\n> mn\n< MN\n"
                .to_owned(),
            "tests/transcripts/unreadable.txt" => "no scenario\n".to_owned(),
            "core/protocol/src/time.rs" => "#[test]\n// Why.\n#[ignore]\nfn later() {\n}\n\nfn beside(number: u8) {\n}\n\n\
                 quickcheck! {\n    /// All.\n    fn all_numbers(number: u8) -> bool {\n        true\n    }\n}\n\n\
                 mod deeper {\n    fn helper() {}\n}\n"
                .to_owned(),
            _ => return None,
        })
    }
}

fn report(document: &str, list: &str) -> Report {
    compare(
        Named {
            name: "doc.md",
            text: document,
        },
        Named {
            name: "list.txt",
            text: list,
        },
        &MadeUp,
    )
}

/// The faults of the document above with a list in which `from` is `to`.
fn faults(from: &str, to: &str) -> Vec<String> {
    assert!(LIST.contains(from), "{from} is not there");
    report(DOCUMENT, &LIST.replacen(from, to, 1)).faults
}

/// There is one fault, at this place, and it has these words.
#[track_caller]
fn is_one(faults: &[String], place: &str, words: &[&str]) {
    let [fault] = faults else {
        panic!("one fault was expected: {faults:#?}");
    };
    assert!(fault.starts_with(&format!("{place}: ")), "{fault}");
    for word in words {
        assert!(fault.contains(word), "{word}: {fault}");
    }
}

#[test]
fn a_matching_list_has_no_faults() {
    let report = report(DOCUMENT, LIST);
    assert_eq!(report.faults, Vec::<String>::new());
    assert_eq!((report.rows, report.unchecked.len()), (3, 0));
    assert_eq!(
        report.partly,
        ["doc.md:8: the clock's drift, nobody can say"]
    );
}

#[test]
fn a_row_without_an_entry_is_a_fault() {
    let more =
        format!("{DOCUMENT}| 2 | as 1 |\n\n## Space\n| what | is |\n| --- | --- |\n| 1 | here |\n");
    let faults = report(&more, LIST).faults;
    assert_eq!(faults.len(), 2, "{faults:#?}");
    is_one(
        &faults[..1],
        "doc.md:9",
        &["write a scenario or a test", "## Time\n    | 2\n"],
    );
    is_one(&faults[1..], "doc.md:14", &["## Space\n    | 1\n"]);
}

#[test]
fn an_entry_without_a_row_is_a_fault() {
    let fewer = DOCUMENT.replace("| 1 | later still |\n", "");
    let gone = "\"Time\" has no row \"1\" any more";
    is_one(
        &report(&fewer, LIST).faults,
        "list.txt:7",
        &[gone, "take the entry out"],
    );
    let elsewhere = report(&DOCUMENT.replace("## Time", "## Space"), LIST).faults;
    assert_eq!(elsewhere.len(), 6, "{elsewhere:#?}");
}

#[test]
fn a_missing_scenario_is_a_fault() {
    let scenario = "transcripts/time.txt: never: 0";
    let asked = |to| faults(scenario, to);
    let is_fault = |to, words: &[&str]| is_one(&asked(to), "list.txt:4", words);
    is_fault(
        "transcripts/time.txt: never",
        &["has no scenario \"never\"", "name one"],
    );
    is_fault(
        "transcripts/none.txt: never: 0",
        &["no file tests/transcripts/none.txt"],
    );
    is_fault(
        "transcripts/time.txt: twice",
        &["two scenarios", "time.txt:9", "another title"],
    );
    is_fault(
        "transcripts/time.txt: of others",
        &["not played against latchd"],
    );
    is_fault("transcripts/unreadable.txt: it", &["unreadable.txt:1: "]);
}

#[test]
fn a_missing_test_is_a_fault() {
    let asked = |to| faults("core/protocol/src/time.rs: later", to);
    let is_fault = |to, words: &[&str]| is_one(&asked(to), "list.txt:6", words);
    is_fault(
        "core/protocol/src/time.rs: late",
        &[
            "late in core/protocol/src/time.rs is not there",
            "name a test",
        ],
    );
    is_fault("core/src/space.rs: later", &["no file core/src/space.rs"]);
    is_fault(
        "core/protocol/src/time.rs: beside",
        &["no test or property"],
    );
    is_fault(
        "core/protocol/src/time.rs: helper",
        &["no test or property"],
    );
    assert_eq!(
        asked("core/protocol/src/time.rs: all_numbers"),
        Vec::<String>::new()
    );
}

#[test]
fn a_missing_difference_or_attack_is_a_fault() {
    let asked = |to| faults("core/protocol/src/time.rs: later", to);
    is_one(
        &asked("differential: none"),
        "list.txt:6",
        &["allow.rs has the ids"],
    );
    is_one(
        &asked("abuse: none"),
        "list.txt:6",
        &["attacks/ has the names"],
    );
    for there in [
        "differential: opaque-32",
        "differential: past-ttl",
        "abuse: quiet",
    ] {
        assert_eq!(asked(there), Vec::<String>::new());
    }
}

#[test]
fn unchecked_rows_are_counted() {
    let said = LIST.replace(
        "core/protocol/src/time.rs: later",
        "nothing: it is a promise of somebody else's",
    );
    let counted = report(DOCUMENT, &said);
    assert_eq!(counted.faults, Vec::<String>::new());
    assert_eq!(
        counted.unchecked,
        ["doc.md:7: it is a promise of somebody else's"]
    );
    let beside = faults("  but not: ", "  nothing: ");
    is_one(
        &beside,
        "list.txt:7",
        &["stands beside what checks", "\"but not\""],
    );
    let alone = faults("  core/protocol/src/time.rs: all_numbers\n", "");
    is_one(&alone, "list.txt:7", &["say \"nothing\""]);
    let empty = faults("  core/protocol/src/time.rs: later\n", "");
    is_one(&empty, "list.txt:5", &["say what checks it"]);
}

#[test]
fn a_line_that_cannot_be_read_is_a_fault() {
    is_one(&report("", "| 0\n").faults, "list.txt:1", &["## SECTION"]);
    is_one(
        &report("", "## Time\n  abuse: quiet\n").faults,
        "list.txt:2",
        &["| FIRST CELL"],
    );
    is_one(
        &report("", "words\n").faults,
        "list.txt:1",
        &["\"words\"", "two blanks"],
    );
    let unknown = faults(
        "  core/protocol/src/time.rs: later\n",
        "  core/protocol/src/time.rs: later\n  by eye\n",
    );
    is_one(&unknown, "list.txt:7", &["\"by eye\"", "FILE.rs: TEST"]);
}

#[test]
fn all_faults_are_told_at_once() {
    let list = LIST.replace("never: 0", "ever").replace("later", "soon");
    let faults = report(
        &format!("{DOCUMENT}| 9 | |\n"),
        &format!("{list}| 8\nwords\n"),
    )
    .faults;
    let places: Vec<_> = faults
        .iter()
        .filter_map(|fault| fault.split(": ").next())
        .collect();
    assert_eq!(
        places,
        [
            "list.txt:11",
            "list.txt:4",
            "list.txt:6",
            "doc.md:9",
            "list.txt:10"
        ]
    );
}
