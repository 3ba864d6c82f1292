//! Plots as SVG: groups of bars side by side, one colour a server. A line through the end of each
//! bar shows the least and the most.
//!
//! - One scale a chart, from 0, or logarithmic from a power of ten.
//! - latchd has the same colour in every chart; the colours differ for colour-blind readers, too
//!   (Okabe and Ito's).
//! - A bar that is missing says that the server does not take part, not that it has 0.

mod scale;

use std::path::Path;

use anyhow::{Context, Result};
use svg::Document;
use svg::node::element::{Group as Layer, Line, Rectangle, Text, Title};

use self::scale::Scale;
use crate::figures::statistics::Spread;

const WIDTH: f64 = 1160.0;
/// Of one chart, with its title, legend and names of groups.
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 34.0;
/// How much of a group's place is between it and the next.
const GAP: f64 = 0.24;
/// The widest bar.
const BAR_WIDTH_MAX: f64 = 46.0;
/// Bars at least this wide have their number above them, others in them from the bottom up.
const BAR_WIDTH_LABELLED: f64 = 30.0;
/// Bars must be this high to have their number in them.
const BAR_HEIGHT_LABELLED: f64 = 44.0;

/// A colour of bars, and one that can be read on it.
type Colour = (&'static str, &'static str);
const OURS: Colour = ("#0072B2", "#FFFFFF");
const OTHERS: [Colour; 5] = [
    ("#AAAAAA", INK),
    ("#D55E00", "#FFFFFF"),
    ("#E69F00", INK),
    ("#56B4E9", INK),
    ("#CC79A7", INK),
];
const INK: &str = "#222222";
const FAINT: &str = "#DDDDDD";

/// Bars in groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) is_logarithmic: bool,
    /// Where the chart ends, for bars that reach beyond it too: those have an arrow and their number.
    pub(crate) top: Option<f64>,
    /// A line across, at the value that others are measured by.
    pub(crate) reference: Option<f64>,
    /// One a bar of a group.
    pub(crate) series: Vec<String>,
    pub(crate) groups: Vec<Group>,
}

/// Bars beside each other, in the order of the series.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<Option<Bar>>,
}

/// A value, and from where to where it varied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    value: f64,
    low: f64,
    high: f64,
}

impl Bar {
    /// A median with its ends.
    pub(crate) fn of(spread: Spread) -> Self {
        Self {
            value: spread.median,
            low: spread.min,
            high: spread.max,
        }
    }

    /// A value that was measured once.
    pub(crate) fn exactly(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    /// A value, and the most that was seen.
    pub(crate) fn up_to(value: f64, high: f64) -> Self {
        Self {
            value,
            low: value,
            high,
        }
    }
}

/// Writes charts below each other into one file.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(charts: &[Chart], file: &Path) -> Result<()> {
    let charts: Vec<_> = charts
        .iter()
        .filter(|chart| !chart.groups.is_empty())
        .collect();
    let height = HEIGHT * charts.len() as f64;
    let mut document = Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("width", WIDTH)
        .set("height", height)
        .set("font-family", "Helvetica, Arial, sans-serif")
        .set("font-size", 12)
        .add(rectangle(0.0, 0.0, WIDTH, height, "#FFFFFF"));
    for (index, chart) in charts.iter().enumerate() {
        let at = format!("translate(0 {})", HEIGHT * index as f64);
        document = document.add(chart.draw().set("transform", at));
    }
    svg::save(file, &document).with_context(|| file.display().to_string())
}

impl Chart {
    fn scale(&self) -> Scale {
        let bars = || {
            self.groups
                .iter()
                .flat_map(|group| group.bars.iter().flatten())
        };
        let high = bars()
            .map(|bar| bar.high)
            .chain(self.reference)
            .fold(0.0, f64::max);
        if self.is_logarithmic {
            let low = bars().map(|bar| bar.low).filter(|low| *low > 0.0);
            Scale::logarithmic(low.fold(high, f64::min), high)
        } else {
            Scale::linear(self.top.map_or(high, |top| high.min(top)))
        }
    }

    fn draw(&self) -> Layer {
        let scale = self.scale();
        let y = |value: f64| HEIGHT - BOTTOM - scale.place(value) * (HEIGHT - TOP - BOTTOM);
        let mut layer = Layer::new().add(
            text(&self.title, LEFT, 22.0, "start")
                .set("font-size", 15)
                .set("font-weight", "bold"),
        );
        for tick in &scale.ticks {
            layer = layer
                .add(line(LEFT, y(*tick), WIDTH - RIGHT, y(*tick), FAINT))
                .add(text(&short(*tick), LEFT - 8.0, y(*tick) + 4.0, "end"));
        }
        layer = layer.add(self.legend());
        let place = (WIDTH - LEFT - RIGHT) / self.groups.len() as f64;
        for (index, group) in self.groups.iter().enumerate() {
            let left = LEFT + place * index as f64;
            let middle = left + place / 2.0;
            layer = layer.add(text(&group.label, middle, HEIGHT - BOTTOM + 18.0, "middle"));
            let there = group.bars.iter().flatten().count();
            let width = (place * (1.0 - GAP) / there.max(1) as f64).min(BAR_WIDTH_MAX);
            let mut x = middle - width * there as f64 / 2.0;
            for (series, bar) in group.bars.iter().enumerate() {
                let Some(bar) = bar else { continue };
                let colour = colour(&self.series, series);
                let about = format!(
                    "{}, {}: {}",
                    group.label,
                    self.series[series],
                    short(bar.value)
                );
                layer = layer.add(draw_bar(
                    *bar,
                    x,
                    width,
                    y,
                    bar.value > scale.high,
                    colour,
                    &about,
                ));
                x += width;
            }
        }
        if let Some(reference) = self.reference {
            let across = line(LEFT, y(reference), WIDTH - RIGHT, y(reference), INK);
            layer = layer.add(across.set("stroke-dasharray", "5 4"));
        }
        layer.add(line(LEFT, y(scale.low), WIDTH - RIGHT, y(scale.low), INK))
    }

    /// The legend of the colours.
    fn legend(&self) -> Layer {
        let mut layer = Layer::new();
        let mut x = LEFT;
        for (index, name) in self.series.iter().enumerate() {
            layer = layer
                .add(rectangle(
                    x,
                    33.0,
                    12.0,
                    12.0,
                    colour(&self.series, index).0,
                ))
                .add(text(name, x + 17.0, 43.0, "start"));
            x += 17.0 + 7.0 * name.chars().count() as f64 + 18.0;
        }
        layer
    }
}

/// A bar with its ends, its number, and its tooltip.
fn draw_bar(
    bar: Bar,
    x: f64,
    width: f64,
    y: impl Fn(f64) -> f64,
    is_cut: bool,
    (colour, ink_on_it): Colour,
    about: &str,
) -> Layer {
    let (top, bottom) = (y(bar.value), y(0.0));
    let thickness = (width - 2.0).max(1.0);
    let middle = x + thickness / 2.0;
    let mut layer =
        Layer::new()
            .add(Title::new(about))
            .add(rectangle(x, top, thickness, bottom - top, colour));
    let (low, high) = (y(bar.low), y(bar.high));
    if low > high {
        layer = layer.add(line(middle, low, middle, high, INK));
        for end in [low, high] {
            layer = layer.add(line(middle - 3.0, end, middle + 3.0, end, INK));
        }
    }
    let number = if is_cut {
        format!("{} \u{2191}", short(bar.value))
    } else {
        short(bar.value)
    };
    let number = if width >= BAR_WIDTH_LABELLED {
        text(&number, middle, high - 5.0, "middle")
    } else {
        let (start, ink) = if bottom - top >= BAR_HEIGHT_LABELLED {
            (bottom - 5.0, ink_on_it)
        } else {
            (high - 5.0, INK)
        };
        let (across, up) = (rounded(middle + 3.5), rounded(start));
        text(&number, 0.0, 0.0, "start")
            .set("transform", format!("translate({across} {up}) rotate(-90)"))
            .set("fill", ink)
    };
    layer.add(number.set("font-size", 10))
}

/// The colour of a series: latchd's own for the first latchd, then the others in turn.
fn colour(series: &[String], index: usize) -> Colour {
    let ours = series.iter().position(|name| name.starts_with("latchd"));
    match ours {
        Some(ours) if ours == index => OURS,
        Some(ours) if ours < index => OTHERS[(index - 1) % OTHERS.len()],
        Some(_) | None => OTHERS[index % OTHERS.len()],
    }
}

/// A number as short as its size allows.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

fn text(words: &str, x: f64, y: f64, anchor: &str) -> Text {
    Text::new(words)
        .set("x", rounded(x))
        .set("y", rounded(y))
        .set("fill", INK)
        .set("text-anchor", anchor)
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> Line {
    Line::new()
        .set("x1", rounded(x1))
        .set("y1", rounded(y1))
        .set("x2", rounded(x2))
        .set("y2", rounded(y2))
        .set("stroke", colour)
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, colour: &str) -> Rectangle {
    Rectangle::new()
        .set("x", rounded(x))
        .set("y", rounded(y))
        .set("width", rounded(width))
        .set("height", rounded(height))
        .set("fill", colour)
}

/// A tenth of a pixel is enough, and keeps files that are committed small.
fn rounded(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests;
