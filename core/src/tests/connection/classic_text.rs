//! Classic text, byte for byte.
//!
//! Source of every answer: memcached 1.6.45 as seen on a live server, `delete` 1.6.18; for locks
//! yrmcds 1.1.

use super::*;

#[test]
fn line_feed_ends_a_line_and_stays_in_a_value() {
    check(&[
        ("set b 0 0 0\n\r\n", "STORED\r\n"),
        ("get a\nget  b  \n", "END\r\nVALUE b 0 0\r\n\r\nEND\r\n"),
        (
            "set a 0 0 4\r\na\r\nb\r\nget a\r\n",
            "STORED\r\nVALUE a 0 4\r\na\r\nb\r\nEND\r\n",
        ),
    ]);
}

#[test]
fn numbers_count() {
    check(&[
        ("incr n 1\r\n", "NOT_FOUND\r\n"),
        ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
        ("decr n 1\r\n", "9\r\n"),
        ("get n\r\n", "VALUE n 0 2\r\n9 \r\nEND\r\n"),
        ("incr n 18446744073709551615\r\n", "8\r\n"),
        ("incr n 5 whatever\r\n", "13\r\n"),
        ("incr n 1 noreply\r\nincr n 0\r\n", "14\r\n"),
        (
            "incr n x\r\n",
            "CLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        (
            "incr n -1\r\n",
            "CLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        (
            "incr n 18446744073709551616\r\n",
            "CLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        ("incr n\r\n", BAD_LINE),
        ("incr n noreply\r\n", ""),
        ("set n 0 0 1\r\nx\r\n", "STORED\r\n"),
        (
            "incr n 1\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
    ]);
}

#[test]
fn noreply_hides_every_answer() {
    check(&[
        ("set a 0 0 1 noreply\r\nx\r\n", ""),
        ("set a 0 0 1 whatever noreply \r\nx\r\n", ""),
        ("add a 0 0 1 noreply\r\nx\r\n", ""),
        ("set a 0 0 4 noreply\r\nabcdef", ""),
        ("set a x 0 1 noreply\r\nx\r\n", ""),
        (
            &format!("set a 0 0 9999 noreply\r\n{}", "x".repeat(10_001)),
            "",
        ),
        ("cas a 0 0 1 noreply\r\nx\r\n", ""),
        ("touch a 0 noreply\r\n", ""),
        ("touch a x noreply\r\n", ""),
        ("delete a noreply\r\n", ""),
        ("delete a 0 noreply\r\n", ""),
        ("delete a b noreply\r\n", ""),
        ("flush_all noreply\r\n", ""),
        ("flush_all 0 noreply\r\n", ""),
        ("flush_all x noreply\r\n", ""),
        ("verbosity 1 noreply\r\n", ""),
        ("verbosity noreply\r\n", ""),
        ("shutdown noreply\r\n", ""),
        ("whatever noreply\r\n", ""),
        ("mn\r\n", "MN\r\n"),
        // Without a length the body cannot be distinguished from requests, and the error is shown.
        ("set a 0 0 noreply\r\n", BAD_LINE),
    ]);
}

#[test]
fn bad_storage_line_skips_its_body() {
    let long = "k".repeat(251);
    check(&[
        ("set a 0 0\r\n", BAD_LINE),
        ("set a 0 0 -1\r\n", BAD_LINE),
        ("set a 0 0 2147483646\r\n", BAD_LINE),
        ("set a 0 0 x\r\nhi\r\n", &format!("{BAD_LINE}ERROR\r\n")),
        (
            "set a x 0 5\r\nmn\r\nx\r\nmn\r\n",
            &format!("{BAD_LINE}MN\r\n"),
        ),
        ("set a -1 0 1\r\nx\r\n", BAD_LINE),
        ("set a 0 1x 1\r\nx\r\n", BAD_LINE),
        ("cas a 0 0 1\r\nx\r\n", BAD_LINE),
        ("cas a 0 0 1 x\r\nx\r\n", BAD_LINE),
        (&format!("set {long} 0 0 1\r\nx\r\n"), BAD_LINE),
        (&format!("ms {long} 1\r\nx\r\n"), BAD_LINE),
        ("mn\r\n", "MN\r\n"),
    ]);
}

#[test]
fn a_value_over_the_limit_is_skipped_and_the_old_one_goes() {
    const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
    let body = "x".repeat(VALUE_BYTES_MAX + 1);
    let hit = "VALUE a 0 1\r\nx\r\nEND\r\n";
    let set = |verb: &str| format!("{verb} a 0 0 {}\r\n{body}\r\n", body.len());
    check(&[
        ("set a 0 0 1\r\nx\r\n", "STORED\r\n"),
        (&set("add"), TOO_LARGE),
        ("get a\r\n", hit),
        (&set("set"), TOO_LARGE),
        ("get a\r\n", "END\r\n"),
        ("set a 0 0 1\r\nx\r\n", "STORED\r\n"),
        (
            &format!("ms a {} ME q\r\n{body}\r\n", body.len()),
            TOO_LARGE,
        ),
        ("get a\r\n", "END\r\n"),
        // W6: the reply comes behind the body, and the body is not kept.
        ("set a 0 0 2147483645\r\n", ""),
        ("mn\r\n", ""),
    ]);
}

#[test]
fn lines_that_are_no_command_are_errors() {
    let long = "k".repeat(251);
    check(&[
        ("\r\n", BAD_LINE),
        ("\n", BAD_LINE),
        ("a\r\n", BAD_LINE),
        ("mn\n", BAD_LINE),
        ("   \r\n", "ERROR\r\n"),
        ("abc\n", "ERROR\r\n"),
        (" get a\r\n", "ERROR\r\n"),
        ("mnx\r\n", "ERROR\r\n"),
        ("mx a\r\n", "ERROR\r\n"),
        ("get\r\n", BAD_LINE),
        ("get \r\n", BAD_LINE),
        ("gat\r\n", BAD_LINE),
        ("gat 0\r\n", BAD_LINE),
        ("gat x\r\n", BAD_LINE),
        ("gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("touch a\r\n", BAD_LINE),
        ("touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        (
            "touch a 2147483648\r\n",
            "CLIENT_ERROR invalid exptime argument\r\n",
        ),
        (&format!("touch {long} x\r\n"), BAD_LINE),
        (&format!("incr {long} x\r\n"), BAD_LINE),
        (&format!("get a {long} b\r\n"), BAD_LINE),
        ("slabs\r\n", "ERROR\r\n"),
        ("cache_memlimit\r\n", "ERROR\r\n"),
        ("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n"),
    ]);
}

/// As seen on memcached 1.6.45: with `noreply`, not even an error is sent.
#[test]
fn the_limit_of_memory_is_a_number_of_mebibytes() {
    check(&[
        ("cache_memlimit x\r\n", "ERROR\r\n"),
        ("cache_memlimit -1\r\n", "ERROR\r\n"),
        ("cache_memlimit 5000000000\r\n", "ERROR\r\n"),
        ("cache_memlimit noreply\r\n", ""),
        (
            "cache_memlimit 7\r\n",
            "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        ),
        (
            "cache_memlimit 1000000001\r\n",
            "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        ),
        // No store has addresses for a petabyte unless it was made for it.
        (
            "cache_memlimit 1000000000\r\n",
            "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
        ),
        ("cache_memlimit 8 foo bar\r\n", "OK\r\n"),
        ("cache_memlimit 8 noreply\r\n", ""),
    ]);
}

#[test]
fn delete_is_strict_as_in_1_6_18() {
    const USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    check(&[
        ("delete\r\n", BAD_LINE),
        ("delete a 0\r\n", "NOT_FOUND\r\n"),
        ("delete a 5\r\n", USAGE),
        ("delete a b\r\n", USAGE),
        ("delete a 0 0\r\n", USAGE),
        ("delete a b c\r\n", USAGE),
        ("delete a b c d\r\n", "ERROR\r\n"),
        ("delete a b c noreply\r\n", "ERROR\r\n"),
        (&format!("delete {}\r\n", "k".repeat(251)), BAD_LINE),
    ]);
}

#[test]
fn the_server_answers_about_itself() {
    const USAGE: &str = "CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    check(&[
        ("version\r\n", &format!("VERSION {VERSION}\r\n")),
        ("version x noreply\r\n", &format!("VERSION {VERSION}\r\n")),
        ("verbosity 1\r\n", "OK\r\n"),
        ("verbosity\r\n", BAD_LINE),
        ("verbosity x\r\n", BAD_LINE),
        ("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        (" flush_all 0\r\n", "OK\r\n"),
        ("flush_all -1\r\n", "OK\r\n"),
        ("flush_all 0 x\r\n", "OK\r\n"),
        (
            "flush_all x\r\n",
            "CLIENT_ERROR invalid exptime argument\r\n",
        ),
        ("mn foo\r\n", "MN\r\n"),
        ("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n"),
        ("stats items\r\n", "END\r\n"),
        ("stats conns\r\n", "END\r\n"),
        ("stats item\r\n", "ERROR\r\n"),
        ("stats foo\r\n", "ERROR\r\n"),
        ("stats reset\r\n", "RESET\r\n"),
        ("stats r\r\n", "RESET\r\n"),
        ("stats detail\r\n", USAGE),
        ("stats detail foo\r\n", USAGE),
        ("stats detail dump\r\n", "END\r\n"),
        ("stats detail on\r\n", "OK\r\n"),
        ("get a:b\r\n", "END\r\n"),
        (
            "stats detail dump\r\n",
            "PREFIX a get 1 hit 0 set 0 del 0\r\nEND\r\n",
        ),
        ("stats d off\r\n", "OK\r\n"),
    ]);
}
