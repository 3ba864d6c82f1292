//! The runner accepts the replies as written, and no others.

use super::*;
use crate::memory::{Arrival, MemoryPeer};
use crate::transcript::parse::parse;

/// The line at which a scenario of this text fails against an empty core, and the reply there.
fn failure(text: &str) -> Option<(usize, String)> {
    let transcript = parse("f.txt", &format!("== t\n{text}")).unwrap();
    let scenario = &transcript.scenarios[0];
    let mut peer = MemoryPeer::new(Arrival::Whole);
    let failure = play("f.txt", scenario, Dialect::Latchd, &mut peer).err()?;
    assert!(
        failure
            .to_string()
            .starts_with(&format!("f.txt:{}: t", failure.line))
    );
    Some((failure.line, failure.got))
}

#[test]
fn an_expected_reply_passes() {
    assert_eq!(failure("> mn\n< MN\n"), None);
    assert_eq!(
        failure("> ms a 1 c\n> x\n< HD c{x}\n> mg a c\n< HD c{x}\n"),
        None
    );
    assert_eq!(failure(">bin noop opaque=7\n<bin noop opaque=7\n"), None);
    assert_eq!(
        failure("> version\n< VERSION {line}\n> mn\n< {any}\n"),
        None
    );
    assert_eq!(failure("> stats\n< ...\n< END\n"), None);
    assert_eq!(failure("> quit\n< closed\n"), None);
    assert_eq!(failure("> mg a q\n< nothing\n"), None);
}

#[test]
fn an_unexpected_reply_fails_at_its_line() {
    assert_eq!(failure("> mn\n< MX\n"), Some((3, "MN\\r\\n".to_owned())));
    assert_eq!(failure("> mn\n> mn\n< MN\n< M\n").unwrap().0, 5);
    assert_eq!(
        failure("> mg a v q\n< EN\n"),
        Some((3, "nothing".to_owned()))
    );
    assert_eq!(failure("> mn\n< nothing\n").unwrap().0, 3);
    assert_eq!(failure("> mn\n< MN\n< closed\n").unwrap().0, 4);
    assert_eq!(failure("> stats\n< ...\n< STAT none 1\n").unwrap().0, 4);
    assert_eq!(
        failure(">bin noop opaque=7\n<bin noop opaque=8\n")
            .unwrap()
            .0,
        3
    );
    assert_eq!(failure(">bin noop\n<bin noop key=a\n").unwrap().0, 3);
    assert_eq!(failure("> mn\n<bin noop\n").unwrap().0, 3);
}

#[test]
fn a_variable_is_compared_once_it_has_a_value() {
    let set = "> ms a 1 c\n> x\n< HD c{x}\n";
    assert_eq!(
        failure(&format!("{set}> mg a c\n< HD c{{x+1}}\n"))
            .unwrap()
            .0,
        6
    );
    assert_eq!(
        failure(&format!("{set}> mg a c\n< HD c{{>x}}\n"))
            .unwrap()
            .0,
        6
    );
    assert_eq!(
        failure(&format!("{set}{}", set.replace("{x}", "{>x}"))),
        None
    );
    assert_eq!(
        failure("> mg a C{x}\n").unwrap().0,
        2,
        "it has no value to send"
    );
}

#[test]
fn unexpected_bytes_fail_at_the_end() {
    assert_eq!(failure("> mn\n"), Some((2, "MN\\r\\n".to_owned())));
    assert_eq!(failure("> mn\n< MN\nB> mn\n").unwrap().1, "MN\\r\\n");
}

#[test]
fn time_passes_only_where_a_transcript_says_so() {
    let set = "> ms a 1 T30\n> x\n< HD\n";
    assert_eq!(failure(&format!("{set}> mg a t\n< HD t{{~30}}\n")), None);
    assert_eq!(
        failure(&format!("{set}wait 3s\n> mg a t\n< HD t{{~27}}\n")),
        None
    );
    assert_eq!(
        failure(&format!("{set}wait 3s\n> mg a t\n< HD t{{~28}}\n"))
            .unwrap()
            .0,
        7
    );
    assert_eq!(failure(&format!("{set}wait 31s\n> mg a\n< EN\n")), None);
}
