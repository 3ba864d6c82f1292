//! `/`: the overview page for an operator.
//!
//! It is complete as sent: no scripts, no further resources. The browser reloads it every few seconds. Text
//! that comes from clients is [`escaped`].

use std::fmt::Write;
use std::time::Duration;

use super::history::{History, INTERVAL};
use super::snapshot::{LockShown, Snapshot, readable};

/// The most locks on the page; `/locks.json` has more.
const ROWS_MAX: usize = 100;

/// The unit of the charts; a browser scales them.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// The most waiting clients of a lock that the page names.
const WAITERS_MAX: usize = 3;

/// A lock with waiting clients is marked if it has been held for longer.
const HELD_LONG: Duration = Duration::from_secs(60);

/// A column of the table of locks: its name, the class of its cells, and the HTML of a cell.
type Column = (&'static str, &'static str, fn(&LockShown) -> String);

const COLUMNS: &[Column] = &[
    ("key", "key", key),
    ("waiters", "number", waiting),
    ("held for", "number", |lock| span(lock.held)),
    ("lease left", "number", |lock| {
        lock.lease.map_or("–".into(), span)
    }),
    ("mode", "", mode),
    ("fence", "number", |lock| lock.fence.clone()),
    ("conn", "", |lock| lock.owner.to_string()),
    ("client", "", |lock| escaped(&lock.peer)),
    ("metadata", "", |lock| {
        lock.metadata.as_deref().map_or("–".into(), escaped)
    }),
    ("silent for", "number", |lock| span(lock.silent)),
];

/// The whole page, with the locks whose keys begin with `prefix`.
pub(super) fn html(snapshot: &Snapshot, history: &History, prefix: &[u8]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"{}\">\n<title>latchd</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n",
        INTERVAL.as_secs(),
        include_str!("page.css")
    );
    header(&mut page, snapshot);
    tiles(&mut page, snapshot, history);
    charts(&mut page, history);
    locks(&mut page, snapshot, prefix);
    page.push_str("</body>\n</html>\n");
    page
}

// Writing to a string never fails.
fn header(page: &mut String, snapshot: &Snapshot) {
    let _ = writeln!(
        page,
        "<header><h1>latchd {}</h1><span>process {}, up {}</span>\
         <nav><a href=\"/metrics\">metrics</a><a href=\"/locks.json\">locks</a>\
         <a href=\"/healthz\">health</a></nav></header>",
        env!("CARGO_PKG_VERSION"),
        escaped(snapshot.line("pid")),
        span(snapshot.uptime)
    );
}

fn tiles(page: &mut String, snapshot: &Snapshot, history: &History) {
    let (counters, gauges) = (&snapshot.stats.counters, &snapshot.stats.gauges);
    let rates = history.whole();
    let window = format!("last {}", span(history.span()));
    page.push_str("<div class=\"tiles\">\n");
    let hits = rates
        .hit_percent
        .map_or("–".into(), |percent| format!("{percent:.1} %"));
    tile(page, "hit ratio", &hits, &window, None);
    let gets = format!("{} sets per second, {window}", rate(rates.sets));
    tile(page, "gets per second", &rate(rates.gets), &gets, None);
    tile(
        page,
        "memory",
        &bytes(gauges.bytes),
        &format!("of {} now", bytes(gauges.limit_maxbytes)),
        Some((gauges.bytes, gauges.limit_maxbytes)),
    );
    let items = format!("{} evicted since the start", grouped(counters.evictions));
    tile(page, "items", &grouped(gauges.curr_items), &items, None);
    let open = number(snapshot.line("curr_connections"));
    let most = number(snapshot.line("max_connections"));
    tile(
        page,
        "connections",
        &grouped(open),
        &format!("of {} now", grouped(most)),
        Some((open, most)),
    );
    let holders = format!("by {} connections now", grouped(gauges.lock_holders));
    tile(
        page,
        "locks held",
        &grouped(gauges.locks_held),
        &holders,
        None,
    );
    let most = format!("now; {} since the start", grouped(counters.lock_waits));
    tile(
        page,
        "waiting for locks",
        &grouped(gauges.lock_waiting),
        &most,
        None,
    );
    let lost = counters.lock_died + counters.lock_expired;
    let died = format!(
        "{} with their client, {} with their lease, since the start",
        grouped(counters.lock_died),
        grouped(counters.lock_expired)
    );
    tile(page, "ended without release", &grouped(lost), &died, None);
    // A request that has waited in vain counts as contended as well.
    let refused = counters
        .lock_contended
        .saturating_sub(counters.lock_wait_timeouts);
    let parts = format!(
        "{} refused at once, {} waited, since the start",
        grouped(refused),
        grouped(counters.lock_waits)
    );
    let contended = grouped(refused + counters.lock_waits);
    tile(page, "contended requests", &contended, &parts, None);
    let others = format!(
        "{} other gets saw a winner, since the start",
        grouped(counters.win_waits)
    );
    let wins = grouped(counters.win_sent);
    tile(page, "wins to recache", &wins, &others, None);
    page.push_str("</div>\n");
}

fn tile(page: &mut String, name: &str, value: &str, note: &str, part: Option<(u64, u64)>) {
    let _ = write!(
        page,
        "<div class=\"tile\">{name}<b>{value}</b><small>{note}</small>"
    );
    if let Some((part, whole)) = part {
        let percent = percent(part, whole);
        let _ = write!(
            page,
            "<div class=\"bar\"><i style=\"width:{percent:.1}%\"></i></div>"
        );
    }
    page.push_str("</div>\n");
}

fn charts(page: &mut String, history: &History) {
    let steps = history.steps();
    let gets: Vec<_> = steps.iter().map(|step| Some(step.gets)).collect();
    let sets: Vec<_> = steps.iter().map(|step| Some(step.sets)).collect();
    let hits: Vec<_> = steps.iter().map(|step| step.hit_percent).collect();
    let most = gets
        .iter()
        .chain(&sets)
        .flatten()
        .copied()
        .fold(0.0, f64::max);
    let top = round_up(most);
    page.push_str("<div class=\"charts\">\n");
    let names =
        "<span class=\"one-name\">gets</span> and <span class=\"two-name\">sets</span> per second";
    let svg = chart(&[("one", &gets), ("two", &sets)], top);
    figure(page, history, names, [rate(top), rate(top / 2.0)], &svg);
    let svg = chart(&[("area", &hits), ("one", &hits)], 100.0);
    let names = "<span class=\"one-name\">hit ratio</span> in percent of gets";
    figure(page, history, names, ["100".into(), "50".into()], &svg);
    page.push_str("</div>\n");
}

/// A chart with the numbers of its axes: the top, the middle and 0, and the time.
fn figure(
    page: &mut String,
    history: &History,
    names: &str,
    [top, middle]: [String; 2],
    svg: &str,
) {
    let ago = history.span();
    let _ = writeln!(
        page,
        "<section><h2>{names}</h2><figure>\
         <div class=\"axis\"><span>{top}</span><span>{middle}</span><span>0</span></div>{svg}\
         <figcaption><span>{} ago</span><span>{}</span><span>now</span></figcaption></figure></section>",
        span(ago),
        span(ago / 2)
    );
}

/// A chart of lines over the same time, with gaps where values are missing.
// There are at most 60 values.
#[allow(clippy::cast_precision_loss)]
fn chart(lines: &[(&str, &[Option<f64>])], top: f64) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\">\
         <path class=\"grid\" d=\"M0 .5H{WIDTH}M0 {}H{WIDTH}M0 {}H{WIDTH}\"/>",
        HEIGHT / 2.0,
        HEIGHT - 0.5
    );
    for (class, values) in lines {
        let step = WIDTH / (values.len().saturating_sub(1).max(1)) as f64;
        let points = values.iter().enumerate().map(|(index, value)| {
            let x = index as f64 * step;
            value.map(|value| (x, HEIGHT - 1.0 - (HEIGHT - 2.0) * (value / top).min(1.0)))
        });
        let points: Vec<_> = points.collect();
        let mut path = String::new();
        for run in points.split(Option::is_none).filter(|run| !run.is_empty()) {
            let run: Vec<_> = run.iter().flatten().collect();
            for (index, (x, y)) in run.iter().enumerate() {
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{letter}{x:.1} {y:.1}");
            }
            if let ("area", Some((first, _)), Some((last, _))) = (*class, run.first(), run.last()) {
                let _ = write!(path, "L{last:.1} {HEIGHT}L{first:.1} {HEIGHT}Z");
            }
        }
        let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    svg.push_str("</svg>");
    svg
}

fn locks(page: &mut String, snapshot: &Snapshot, prefix: &[u8]) {
    let typed = String::from_utf8_lossy(prefix);
    let prefix = readable(prefix);
    let held = snapshot.stats.gauges.locks_held;
    let all = snapshot.locks.iter();
    let found: Vec<_> = all.filter(|lock| lock.key.starts_with(&prefix)).collect();
    let shown = found.len().min(ROWS_MAX);
    let which = if !snapshot.tells_keys {
        "keys are hidden (-X)".into()
    } else if held == 0 {
        "no locks are held".into()
    } else if prefix.is_empty() && shown == found.len() {
        String::new()
    } else if prefix.is_empty() {
        format!("{shown} of {}", grouped(held))
    } else {
        let (found, listed) = (found.len() as u64, snapshot.locks.len() as u64);
        format!(
            "{} of the first {}, of {} in all",
            grouped(found),
            grouped(listed),
            grouped(held)
        )
    };
    let _ = write!(
        page,
        "<section><h2>locks <span class=\"soft\">{which}</span></h2>\
         <form><label>keys that begin with <input name=\"prefix\" value=\"{}\"></label><button>show</button></form>",
        escaped(&typed)
    );
    if shown == 0 {
        page.push_str("</section>\n");
        return;
    }
    page.push_str("<div class=\"wide\"><table><tr>");
    for (name, class, _) in COLUMNS {
        let _ = write!(page, "<th class=\"{class}\">{name}</th>");
    }
    page.push_str("</tr>\n");
    for lock in found.into_iter().take(ROWS_MAX) {
        page.push_str(if is_late(lock) {
            "<tr class=\"late\">"
        } else {
            "<tr>"
        });
        for (name, class, cell) in COLUMNS {
            let _ = write!(
                page,
                "<td class=\"{class}\" data-name=\"{name}\"><span>{}</span></td>",
                cell(lock)
            );
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div></section>\n");
}

/// Whether the lock is held long and waited for.
fn is_late(lock: &LockShown) -> bool {
    lock.waiting > 0 && lock.held > HELD_LONG
}

fn key(lock: &LockShown) -> String {
    let mark = if is_late(lock) {
        " <span class=\"mark\">held long</span>"
    } else {
        ""
    };
    format!("{}{mark}", escaped(&lock.key))
}

fn mode(lock: &LockShown) -> String {
    match (lock.is_shared, lock.permits) {
        (false, _) => "exclusive".into(),
        (true, None) => format!("shared by {}", lock.holders),
        (true, Some(permits)) => format!("shared by {} of {permits}", lock.holders),
    }
}

/// The number of clients that wait for a lock, and the first of them.
fn waiting(lock: &LockShown) -> String {
    if lock.waiting == 0 {
        return "–".into();
    }
    let first = lock.first_waiters.iter().take(WAITERS_MAX);
    let mut conns: Vec<_> = first.map(|waiter| waiter.conn.to_string()).collect();
    if lock.waiting > conns.len() {
        conns.push("…".into());
    }
    let count = grouped(lock.waiting as u64);
    format!("{count} <span class=\"first\">{}</span>", conns.join(", "))
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            letter => shown.push(letter),
        }
    }
    shown
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// A number with a thin space before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// A rate per second: with one decimal below ten.
// A rate is far below 2^53, and not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rate(number: f64) -> String {
    if number > 0.0 && number < 10.0 {
        format!("{number:.1}")
    } else {
        grouped(number.round() as u64)
    }
}

/// The next number of the form 1, 2 or 5 times a power of ten, at least 1.
fn round_up(number: f64) -> f64 {
    let mut top = 1.0;
    for factor in [2.0, 2.5, 2.0].iter().cycle() {
        if top >= number {
            break;
        }
        top *= factor;
    }
    top
}

// Three digits are shown.
#[allow(clippy::cast_precision_loss)]
fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KB", "MB"] {
        if value < 1024.0 {
            return format!("{} {unit}", rate(value));
        }
        value /= 1024.0;
    }
    format!("{value:.1} GB")
}

#[allow(clippy::cast_precision_loss)]
fn percent(part: u64, whole: u64) -> f64 {
    (100.0 * part as f64 / whole.max(1) as f64).min(100.0)
}

/// A time in its two largest units.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{lock, snapshot};
    use super::*;

    #[test]
    fn page_escapes_keys_and_loads_nothing() {
        let key = readable(b"</td><script>alert('x')</script>&\"");
        let mut held = lock(&key);
        held.metadata = Some(key);
        let page = html(&snapshot(vec![held]), &History::default(), b"<");
        let shown = page.matches("&lt;/td&gt;&lt;script&gt;alert(&#39;x&#39;)");
        assert_eq!(shown.count(), 2, "{page}");
        for word in [
            "<script", "src=", "url(", "@import", "http:", "https:", "<link",
        ] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn page_limits_its_lock_rows() {
        let many = snapshot(vec![lock("key"); 1000]);
        let page = html(&many, &History::default(), b"");
        assert_eq!(page.matches("<td class=\"key\"").count(), ROWS_MAX);
        assert!(page.contains("100 of 1\u{202f}000"), "{page}");
        let page = html(&snapshot(Vec::new()), &History::default(), b"");
        assert!(page.contains("no locks are held"));
        let mut silent = snapshot(Vec::new());
        silent.tells_keys = false;
        assert!(html(&silent, &History::default(), b"").contains("keys are hidden"));
    }

    #[test]
    fn locks_are_filtered_and_marked() {
        let [mut late, mut early, other] = ["job:\\u{1}", "job:é", "other"].map(lock);
        (late.waiting, early.waiting) = (1, 1);
        early.held = HELD_LONG;
        let all = snapshot(vec![late, early, other]);
        let page = html(&all, &History::default(), b"job:");
        assert_eq!(page.matches("<td class=\"key\"").count(), 2);
        assert_eq!(page.matches("held long").count(), 1);
        assert!(page.contains("2 of the first 3, of 3 in all"), "{page}");
        let page = html(&all, &History::default(), b"job:\x01");
        assert!(page.contains("value=\"job:\x01\""), "{page}");
        assert_eq!(page.matches("<td class=\"key\"").count(), 1);
        let page = html(&all, &History::default(), "job:é".as_bytes());
        assert!(page.contains("<span>job:é"), "{page}");
        assert_eq!(page.matches("<td class=\"key\"").count(), 1);
        assert!(html(&all, &History::default(), b"\">").contains("value=\"&quot;&gt;\""));
    }

    #[test]
    fn waiting_requests_count_as_contended() {
        let mut shown = snapshot(Vec::new());
        let counters = &mut shown.stats.counters;
        (counters.lock_contended, counters.lock_waits) = (3, 11);
        counters.lock_wait_timeouts = 2;
        let page = html(&shown, &History::default(), b"");
        let tile = "contended requests<b>12</b><small>1 refused at once, 11 waited, since";
        assert!(page.contains(tile), "{page}");
    }

    #[test]
    fn chart_has_gaps_for_missing_values() {
        let values = [Some(0.0), Some(100.0), None, Some(50.0)];
        let svg = chart(&[("one", &values)], 100.0);
        assert!(
            svg.contains("d=\"M0.0 119.0L200.0 1.0M600.0 60.0\""),
            "{svg}"
        );
        assert!(chart(&[("one", &[])], 1.0).contains("class=\"one\" d=\"\""));
    }

    #[test]
    fn numbers_are_as_people_read_them() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(
            (rate(0.0), rate(0.25), rate(12.6)),
            ("0".into(), "0.2".into(), "13".into())
        );
        assert_eq!(
            (round_up(0.0), round_up(2.1), round_up(51.0)),
            (1.0, 5.0, 100.0)
        );
        assert_eq!(
            (bytes(67_108_864), bytes(10)),
            ("64 MB".into(), "10 B".into())
        );
        assert_eq!(span(Duration::from_secs(3_725)), "1 h 2 min");
        assert_eq!(span(Duration::from_secs(90_000)), "1 d 1 h");
        assert_eq!(span(Duration::from_secs(59)), "59 s");
    }
}
