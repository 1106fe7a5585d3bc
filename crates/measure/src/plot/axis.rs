//! How numbers become places on an axis, and which of them are written beside it.

use crate::text::{thousands, trimmed};

/// Whether equal steps or equal factors have equal lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors; only what is over 0 has a place.
    Log,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Ruler {
    /// What is counted, and in what unit.
    pub label: String,
    /// How values become lengths.
    pub scale: Scale,
    /// Values to write beside the axis, and how; by default round numbers.
    pub ticks: Vec<(f64, String)>,
}

impl Ruler {
    /// An axis with round numbers beside it.
    pub fn new(label: impl Into<String>, scale: Scale) -> Self {
        Ruler { label: label.into(), scale, ticks: Vec::new() }
    }

    /// An axis with these values beside it, as they are written.
    pub fn with_ticks(self, ticks: Vec<(f64, String)>) -> Self {
        Ruler { ticks, ..self }
    }
}

/// A range of values laid over a range of places.
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis that holds all values that it can show. It ends at round numbers; a linear one holds 0.
    pub fn around(values: impl Iterator<Item = f64>, ruler: &Ruler, start: f64, end: f64) -> Self {
        let scale = ruler.scale;
        let values = values.chain(ruler.ticks.iter().map(|tick| tick.0));
        let shown = values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
        let (low, high) = shown.fold((f64::MAX, f64::MIN), |(low, high), value| (value.min(low), value.max(high)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        if ruler.ticks.is_empty() {
            let (low, high, values) =
                if scale == Scale::Linear { round_steps(low, high) } else { round_factors(low, high) };
            let ticks = values.into_iter().map(|value| (value, short(value))).collect();
            return Axis { scale, low, high, start, end, ticks };
        }
        // A little air on both sides, so that marks at the ends stay inside.
        let (low, high) = (scale.length(low), scale.length(high));
        let air = if high > low { (high - low) * 0.04 } else { 0.5 };
        let [low, high] = [low - air, high + air].map(|length| if scale == Scale::Log { length.exp() } else { length });
        Axis { scale, low, high, start, end, ticks: ruler.ticks.clone() }
    }

    /// `None` for what the axis cannot show.
    pub fn place(&self, value: f64) -> Option<f64> {
        let [value, low, high] = [value, self.low, self.high].map(|value| self.scale.length(value));
        let share = (value - low) / (high - low);
        share.is_finite().then_some(self.start + share * (self.end - self.start))
    }

    /// As `place`, but what lies beyond an end is put there.
    pub fn place_inside(&self, value: f64) -> Option<f64> {
        self.place(value.clamp(self.low, self.high))
    }

    /// What to write beside the axis, with its places.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().filter_map(|(value, text)| Some((self.place(*value)?, text.as_str())))
    }
}

impl Scale {
    /// What has equal steps on paper.
    fn length(self, value: f64) -> f64 {
        if self == Scale::Log { value.ln() } else { value }
    }
}

/// The ends of a linear axis that holds 0, and what stands beside it: four to ten steps of 1, 2 or 5 times a power of ten.
fn round_steps(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let low = low.min(0.0);
    let high = if high > low { high } else { low + low.abs().max(1.0) };
    let rough = ((high - low) / 8.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let step = power * [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
    let count = (last - first).max(1.0) as u32;
    let values: Vec<f64> = (0..=count).map(|index| (first + f64::from(index)) * step).collect();
    (values[0], values[count as usize], values)
}

/// The ends of a logarithmic axis, and what stands beside it: 1, 2 and 5 times the powers of ten, and over many decades
/// these alone.
fn round_factors(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let [first, last] = [low, high].map(|value| value.log10().floor() as i32);
    let all = (first - 1..=last + 1)
        .flat_map(|power| [1, 2, 5].map(|factor| (factor, 10_f64.powi(power) * f64::from(factor))));
    let is_before = |value: f64| value <= low * 1.000_001;
    let all: Vec<(i32, f64)> = all.filter(|(_, value)| value.is_normal()).collect();
    let from = all.iter().rposition(|(_, value)| is_before(*value)).unwrap_or(0);
    let to = all.iter().rposition(|(_, value)| *value < high * 0.999_999).map_or(1, |below| below + 1);
    let to = to.max(from + 1).min(all.len() - 1);
    let is_long = all[to].1 / all[from].1 > 1e4;
    let values = all[from..=to].iter().filter(|(factor, _)| *factor == 1 || !is_long).map(|(_, value)| *value);
    (all[from].1, all[to].1, values.collect())
}

/// A number in few characters.
pub fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e9 => format!("{}G", trimmed(value / 1e9, 3)),
        magnitude if magnitude >= 1e6 => format!("{}M", trimmed(value / 1e6, 3)),
        magnitude if magnitude >= 1e4 => format!("{}k", trimmed(value / 1e3, 3)),
        magnitude if magnitude >= 1e3 => thousands(value),
        _ => trimmed(value, 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(axis: &Axis) -> Vec<f64> {
        axis.ticks.iter().map(|tick| tick.0).collect()
    }

    #[test]
    fn a_logarithmic_axis_ends_at_round_numbers_and_has_equal_decades() {
        let axis = Axis::around([3.0, 700.0].into_iter(), &Ruler::new("", Scale::Log), 0.0, 100.0);
        assert_eq!((axis.low, axis.high), (2.0, 1_000.0));
        let step = |from: f64, to: f64| axis.place(to).unwrap() - axis.place(from).unwrap();
        assert!((step(2.0, 20.0) - step(20.0, 200.0)).abs() < 1e-9);
        assert_eq!(values(&axis), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
    }

    #[test]
    fn a_linear_axis_holds_zero_and_has_round_steps() {
        let axis = Axis::around([3.1, 7.3].into_iter(), &Ruler::new("", Scale::Linear), 0.0, 100.0);
        assert_eq!(values(&axis), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    }

    #[test]
    fn given_ticks_stand_where_their_values_are_with_air_beside_them() {
        let ruler = Ruler::new("", Scale::Log).with_ticks(vec![(10.0, "ten".into()), (1_000.0, "many".into())]);
        let axis = Axis::around([100.0].into_iter(), &ruler, 0.0, 108.0);
        let places: Vec<f64> = axis.ticks().map(|tick| tick.0).collect();
        assert!((places[0] - 4.0).abs() < 0.1 && (places[1] - 104.0).abs() < 0.1, "{places:?}");
        assert!((axis.place(100.0).unwrap() - 54.0).abs() < 0.1);
    }

    #[test]
    fn odd_values_give_an_axis_all_the_same() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in
                [vec![], vec![0.0], vec![-1.0, f64::NAN], vec![f64::INFINITY], vec![5.0, 5.0], vec![1e-300, 1e300]]
            {
                let axis = Axis::around(values.clone().into_iter(), &Ruler::new("", scale), 0.0, 100.0);
                assert!(axis.low < axis.high && !axis.ticks.is_empty(), "{scale:?} {values:?}");
                assert!(axis.ticks.len() < 1_000, "{scale:?} {values:?}");
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.25, 999.0, 1_500.0, 25_000.0, 2.5e6, -0.0001].map(short);
        assert_eq!(texts, ["0", "0.25", "999", "1,500", "25k", "2.5M", "0"]);
    }
}
