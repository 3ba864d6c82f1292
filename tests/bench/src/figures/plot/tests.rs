//! The shapes drawn, and the text beside them.

use super::*;

#[test]
fn numbers_are_short() {
    for (value, text) in [
        (0.0, "0"),
        (0.951, "0.95"),
        (1.0, "1"),
        (12.34, "12.3"),
        (150.0, "150"),
        (12_345.0, "12.3k"),
        (200_000.0, "200k"),
        (1_500_000.0, "1.5M"),
    ] {
        assert_eq!(short(value), text);
    }
}

#[test]
fn latchd_has_its_colour_wherever_it_stands() {
    let series = ["memcached", "latchd", "yrmcds"].map(str::to_owned);
    let colours = [0, 1, 2].map(|index| colour(&series, index));
    assert_eq!(colours, [OTHERS[0], OURS, OTHERS[1]]);
}

#[test]
fn a_plot_has_a_bar_for_each_server() {
    let chart = Chart {
        title: "a < b".into(),
        reference: Some(1.0),
        series: vec!["latchd".into(), "memcached".into()],
        groups: vec![Group {
            label: "row".into(),
            bars: vec![Some(Bar::exactly(2.0)), None],
        }],
        ..Chart::default()
    };
    let drawing = chart.draw().to_string();
    assert_eq!(
        drawing.matches(OURS.0).count(),
        2,
        "in the legend and as a bar"
    );
    assert_eq!(
        drawing.matches(OTHERS[0].0).count(),
        1,
        "in the legend only"
    );
    assert!(drawing.contains("a &lt; b"), "{drawing}");
}

#[test]
fn a_bar_beyond_the_top_is_marked() {
    let chart = |value| Chart {
        top: Some(3.0),
        series: vec!["latchd".into(), "slow".into()],
        groups: vec![Group {
            label: "row".into(),
            bars: vec![Some(Bar::exactly(2.0)), Some(Bar::exactly(value))],
        }],
        ..Chart::default()
    };
    let drawing = chart(8.1).draw().to_string();
    assert_eq!(drawing.matches('\u{2191}').count(), 1, "{drawing}");
    assert!(drawing.contains("8.1 \u{2191}"), "{drawing}");
    assert!(!chart(2.5).draw().to_string().contains('\u{2191}'));
}
