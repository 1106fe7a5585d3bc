//! Numbers and results as people and programs read them.

use std::time::Duration;

use crate::rounds::Ratio;

/// Adds a line to a text, as `writeln!` would.
#[macro_export]
macro_rules! line {
    ($out:expr, $($text:tt)*) => {{
        use std::fmt::Write as _;
        writeln!($out, $($text)*).expect("a String takes everything")
    }};
}

/// A ratio, or a dash.
pub fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| ratio.to_string())
}

/// A time on the command line, of a day at most.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a number of seconds is needed, 86400 at most".to_owned())
}

/// A whole number with a comma between thousands.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", &*digits), |digits| ("-", digits));
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    format!("{sign}{}", groups.collect::<Vec<_>>().join(","))
}

/// So many digits behind the point at most, and none that say nothing.
pub fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_their_thousands_apart() {
        let texts = [0.0, 7.0, 999.0, 1_000.0, 1_234_567.4, -45_670.0].map(thousands);
        assert_eq!(texts, ["0", "7", "999", "1,000", "1,234,567", "-45,670"]);
    }

    #[test]
    fn digits_that_say_nothing_are_left_out() {
        assert_eq!([1.5, 2.0, 0.126, -0.0001].map(|value| trimmed(value, 2)), ["1.5", "2", "0.13", "0"]);
    }

    #[test]
    fn a_time_is_a_number_of_seconds() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(["", "-1", "NaN", "1e30", "86401", "2s"].iter().all(|text| seconds(text).is_err()));
    }
}
