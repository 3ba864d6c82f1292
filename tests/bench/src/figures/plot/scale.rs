//! The scale of a chart: from 0 in even steps, or from one power of ten to another.

/// Where a value is, on the way from the bottom (0) of a chart to its top (1).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    is_logarithmic: bool,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Values with a line.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// For values from 0 to `high`, with four to eight lines at round numbers.
    pub(super) fn linear(high: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let rough = high / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
        let step = steps
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let lines = (high / step).ceil();
        let ticks = (0..20).map(f64::from).take_while(|line| *line <= lines);
        Self {
            is_logarithmic: false,
            low: 0.0,
            high: lines * step,
            ticks: ticks.map(|line| line * step).collect(),
        }
    }

    /// From the power of ten below `low` to the one above `high`.
    pub(super) fn logarithmic(low: f64, high: f64) -> Self {
        let low = 10_f64.powf(low.max(1e-3).log10().floor());
        let high = 10_f64.powf(high.max(low * 1.01).log10().ceil());
        let ticks = std::iter::successors(Some(low), |tick| Some(tick * 10.0));
        Self {
            is_logarithmic: true,
            low,
            high,
            ticks: ticks.take_while(|tick| *tick <= high * 1.01).collect(),
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        if self.is_logarithmic {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_scale_starts_at_zero() {
        let scale = Scale::linear(1.73);
        assert_eq!(scale.ticks, [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(scale.place(0.0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(scale.place(1.0).to_bits(), 0.5_f64.to_bits());
        assert_eq!(
            Scale::linear(0.0).ticks.len(),
            6,
            "no values, still a scale"
        );
    }

    #[test]
    fn a_logarithmic_scale_goes_from_power_to_power() {
        let scale = Scale::logarithmic(30.0, 2_500.0);
        assert_eq!(scale.ticks, [10.0, 100.0, 1_000.0, 10_000.0]);
        assert!((scale.place(100.0) - 1.0 / 3.0).abs() < 1e-9);
        assert!(
            scale.place(0.0).abs() < 1e-9,
            "below the scale is its bottom"
        );
    }
}
