//! `/`: the overview page for an operator.
//!
//! It is complete as sent: no scripts, no further resources. The browser reloads it every few seconds. Text
//! that comes from clients is [`escaped`].

use std::fmt::Write;
use std::time::Duration;

use super::history::{History, INTERVAL};
use super::snapshot::{LockShown, Snapshot};

/// The most locks on the page; `/locks.json` has more.
const ROWS_MAX: usize = 100;

/// The unit of the charts; a browser scales them.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// The whole page.
pub(super) fn html(snapshot: &Snapshot, history: &History) -> String {
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
    locks(&mut page, snapshot);
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
    page.push_str("<div class=\"tiles\">\n");
    let hits = rates
        .hit_percent
        .map_or("–".into(), |percent| format!("{percent:.1} %"));
    tile(page, "hit rate", &hits, "of recent gets", None);
    let gets = format!("{} sets per second", rate(rates.sets));
    tile(page, "gets per second", &rate(rates.gets), &gets, None);
    tile(
        page,
        "memory",
        &bytes(gauges.bytes),
        &format!("of {}", bytes(gauges.limit_maxbytes)),
        Some((gauges.bytes, gauges.limit_maxbytes)),
    );
    let items = format!("{} evicted", grouped(counters.evictions));
    tile(page, "items", &grouped(gauges.curr_items), &items, None);
    let open = number(snapshot.line("curr_connections"));
    let most = number(snapshot.line("max_connections"));
    tile(
        page,
        "connections",
        &grouped(open),
        &format!("of {}", grouped(most)),
        Some((open, most)),
    );
    let holders = format!("by {} connections", grouped(gauges.lock_holders));
    tile(
        page,
        "locks held",
        &grouped(gauges.locks_held),
        &holders,
        None,
    );
    let most = format!("{} waited in total", grouped(counters.lock_waits));
    tile(
        page,
        "waiting for locks",
        &grouped(gauges.lock_waiting),
        &most,
        None,
    );
    let asked = format!("of {} requested", grouped(counters.cmd_lock));
    tile(
        page,
        "locks contended",
        &grouped(counters.lock_contended),
        &asked,
        None,
    );
    let waits = format!("{} already won (Z)", grouped(counters.win_waits));
    tile(page, "wins (W)", &grouped(counters.win_sent), &waits, None);
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
    let ago = span(history.span());
    page.push_str("<div class=\"charts\">\n");
    let _ = writeln!(
        page,
        "<section><h2><span class=\"one-name\">gets</span> and <span class=\"two-name\">sets</span> per \
         second <span class=\"soft\">up to {}</span></h2><figure>{}\
         <figcaption><span>{ago} ago</span><span>now</span></figcaption></figure></section>",
        rate(top),
        chart(&[("one", &gets), ("two", &sets)], top)
    );
    let _ = writeln!(
        page,
        "<section><h2><span class=\"one-name\">hit rate</span> in percent of gets \
         <span class=\"soft\">0 to 100</span></h2><figure>{}\
         <figcaption><span>{ago} ago</span><span>now</span></figcaption></figure></section>",
        chart(&[("area", &hits), ("one", &hits)], 100.0)
    );
    page.push_str("</div>\n");
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

fn locks(page: &mut String, snapshot: &Snapshot) {
    let held = snapshot.stats.gauges.locks_held;
    let shown = snapshot.locks.len().min(ROWS_MAX);
    let which = if !snapshot.tells_keys {
        "keys are hidden (-X)".into()
    } else if (shown as u64) < held {
        format!("{shown} of {}", grouped(held))
    } else {
        String::new()
    };
    let _ = write!(
        page,
        "<section><h2>locks <span class=\"soft\">{which}</span></h2>"
    );
    if shown == 0 {
        let said = if held == 0 { "no locks are held" } else { "" };
        let _ = writeln!(page, "<span class=\"soft\">{said}</span></section>");
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table><tr><th>key</th><th>mode</th><th>connection</th><th>client</th>\
         <th class=\"number\">last request</th><th class=\"number\">held for</th>\
         <th class=\"number\">lease left</th><th class=\"number\">waiters</th></tr>\n",
    );
    for lock in snapshot.locks.iter().take(ROWS_MAX) {
        let mode = if lock.is_shared {
            format!("shared by {}", lock.holders)
        } else {
            "exclusive".to_owned()
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"key\">{}</td><td>{mode}</td><td>{}</td><td>{}</td>\
             <td class=\"number\">{} ago</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td></tr>",
            escaped(&lock.key),
            lock.owner,
            escaped(&lock.peer),
            span(lock.silent),
            span(lock.held),
            lock.lease.map_or("–".to_owned(), span),
            waiting(lock)
        );
    }
    page.push_str("</table></div></section>\n");
}

/// The number of clients that wait for a lock, and the first of them.
fn waiting(lock: &LockShown) -> String {
    if lock.waiting == 0 {
        return "–".into();
    }
    let conns = lock
        .first_waiters
        .iter()
        .map(|waiter| waiter.conn.to_string());
    let conns = conns.collect::<Vec<_>>().join(", ");
    let more = if lock.waiting > lock.first_waiters.len() {
        ", …"
    } else {
        ""
    };
    let count = grouped(lock.waiting as u64);
    format!("{count} <span class=\"soft\">({conns}{more})</span>")
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
        let key = b"</td><script>alert('x')</script>&\""
            .escape_ascii()
            .to_string();
        let page = html(&snapshot(vec![lock(&key)]), &History::default());
        assert!(
            page.contains("&lt;/td&gt;&lt;script&gt;alert(\\&#39;x\\&#39;)"),
            "{page}"
        );
        for word in [
            "<script", "src=", "url(", "@import", "http:", "https:", "<link",
        ] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn page_limits_its_lock_rows() {
        let many = snapshot(vec![lock("key"); 1000]);
        let page = html(&many, &History::default());
        assert_eq!(page.matches("<tr><td").count(), ROWS_MAX);
        assert!(page.contains("100 of 1\u{202f}000"), "{page}");
        let page = html(&snapshot(Vec::new()), &History::default());
        assert!(page.contains("no locks are held"));
        let mut silent = snapshot(Vec::new());
        silent.tells_keys = false;
        assert!(html(&silent, &History::default()).contains("keys are hidden"));
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
