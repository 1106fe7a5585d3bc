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
        let given = !ruler.ticks.is_empty();
        let (low, high) = match scale {
            Scale::Linear if given => padded(low, high),
            Scale::Linear => linear_ends(low.min(0.0), high),
            Scale::Log if given => {
                let (low, high) = padded(low.ln(), high.ln());
                (low.exp(), high.exp())
            }
            Scale::Log => log_ends(low, high),
        };
        let mut axis = Axis { scale, low, high, start, end, ticks: ruler.ticks.clone() };
        if !given {
            axis.ticks = axis.round_values().into_iter().map(|value| (value, short(value))).collect();
        }
        axis
    }

    /// `None` for what the axis cannot show.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        share.is_finite().then_some(self.start + share * (self.end - self.start))
    }

    /// As `place`, but what lies beyond an end is put there.
    pub fn place_inside(&self, value: f64) -> Option<f64> {
        let value = if value.is_nan() { value } else { value.clamp(self.low, self.high) };
        self.place(value)
    }

    /// What to write beside the axis, with its places.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().filter_map(|(value, text)| Some((self.place(*value)?, text.as_str())))
    }

    fn round_values(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = round_step(self.high - self.low);
                let count = ((self.high - self.low) / step).round() as u32;
                (0..=count).map(|index| self.low + step * f64::from(index)).collect()
            }
            Scale::Log => {
                let decades = self.high.log10() - self.low.log10();
                let factors: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let first = self.low.log10().floor() as i32;
                let steps = (first..=first + decades.ceil() as i32 + 1)
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
                steps.filter(|step| (self.low * 0.999..=self.high * 1.001).contains(step)).collect()
            }
        }
    }
}

/// A little air on both sides, so that marks at the ends stay inside.
fn padded(low: f64, high: f64) -> (f64, f64) {
    let air = if high > low { (high - low) * 0.04 } else { 0.5 };
    (low - air, high + air)
}

fn linear_ends(low: f64, high: f64) -> (f64, f64) {
    let high = if high > low { high } else { low + low.abs().max(1.0) };
    let step = round_step(high - low);
    let (first, last) = ((low / step).floor() * step, (high / step - 1e-9).ceil() * step);
    (first, last.max(first + step))
}

/// 1, 2 or 5 times a power of ten, so that the range has four to ten steps.
fn round_step(range: f64) -> f64 {
    let rough = (range / 8.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    factor * power
}

fn log_ends(low: f64, high: f64) -> (f64, f64) {
    let low = steps_near(low).filter(|step| *step <= low * 1.000_001).fold(f64::MIN_POSITIVE, f64::max);
    let high = steps_near(high).filter(|step| *step >= high * 0.999_999 && *step > low).fold(f64::MAX, f64::min);
    (low, high)
}

/// 1, 2 and 5 times the powers of ten around `value`.
fn steps_near(value: f64) -> impl Iterator<Item = f64> {
    let power = value.log10().floor() as i32;
    (power - 1..=power + 1).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)))
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
