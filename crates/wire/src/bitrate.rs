//! A rate of bits per second.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bitrate(u64);

impl Bitrate {
    /// Nothing passes; also "no limit" and "unknown" where a user of it says so.
    pub const ZERO: Bitrate = Bitrate(0);

    /// Takes bits per second.
    pub const fn from_bps(bits_per_second: u64) -> Self {
        Bitrate(bits_per_second)
    }

    /// Takes thousands of bits per second.
    pub const fn from_kbps(kilobits_per_second: u64) -> Self {
        Bitrate(kilobits_per_second * 1_000)
    }

    /// Returns bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// The rate at which `bytes` pass in `span`; zero for an empty span.
    pub fn of(bytes: u64, span: Duration) -> Self {
        match span.as_nanos() {
            0 => Bitrate::ZERO,
            nanos => Bitrate((u128::from(bytes) * 8 * 1_000_000_000 / nanos) as u64),
        }
    }

    /// How long `bytes` take at this rate; `Duration::MAX` at rate zero.
    pub fn time_for(self, bytes: usize) -> Duration {
        match self.0 {
            0 => Duration::MAX,
            bps => Duration::from_nanos((bytes as u128 * 8 * 1_000_000_000 / u128::from(bps)) as u64),
        }
    }

    /// This rate times `factor`, which must not be negative.
    pub fn scale(self, factor: f64) -> Self {
        Bitrate((self.0 as f64 * factor) as u64)
    }
}

/// A number, with k, M or G behind it for the powers of 1,000, and "bps" behind that or not: "1.5M", "1500kbps",
/// "2_000_000". Underscores group digits, as in TOML.
impl FromStr for Bitrate {
    type Err = BitrateError;

    fn from_str(text: &str) -> Result<Self, BitrateError> {
        let is_of_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
        let (number, unit) = text.split_at(text.find(|c| !is_of_number(c)).unwrap_or(text.len()));
        let unit = unit.trim_start();
        let scale = match unit.strip_suffix("bps").unwrap_or(unit) {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return Err(BitrateError),
        };
        let number: f64 = number.replace('_', "").parse().map_err(|_| BitrateError)?;
        // 2.3 million is a little less than that in binary.
        let bps = (number * scale).round();
        if bps < BPS_END { Ok(Bitrate(bps as u64)) } else { Err(BitrateError) }
    }
}

/// Rates from here on are not read: a slip of the keyboard, and close to where arithmetic in bits would wrap.
const BPS_END: f64 = 1e15;

/// The text is no bitrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a bitrate; write for instance 300k, 1.5M, 20Mbps or 2_000_000 (bit/s)")]
pub struct BitrateError;

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.0} kbit/s", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} Mbit/s", self.0 as f64 / 1e6),
            _ => write!(f, "{:.2} Gbit/s", self.0 as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_are_each_others_inverse() {
        let rate = Bitrate::of(1_250, Duration::from_millis(10));
        assert_eq!(rate, Bitrate::from_kbps(1_000));
        assert_eq!(rate.time_for(1_250), Duration::from_millis(10));
    }

    #[test]
    fn text_is_read_with_its_unit() {
        for (text, kbps) in [
            ("1.5M", 1_500),
            ("1500k", 1_500),
            ("1500K", 1_500),
            ("1.5Mbps", 1_500),
            ("1_500_000", 1_500),
            ("1500000bps", 1_500),
            ("20 Mbps", 20_000),
            ("2G", 2_000_000),
            ("0.064Mbps", 64),
            ("2.3M", 2_300),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Bitrate::from_kbps(kbps)), "{text}");
        }
    }

    #[test]
    fn text_that_could_be_meant_otherwise_is_refused() {
        let no_rates =
            ["", "M", "bps", "_", ".", "1.5.2M", "-1k", "+1k", "1.5m", "1.5Mbit", "1MB", "1e6", "nan", "inf"];
        let too_fast = ["1_000_000G", "9999999999999999999999999999999Gbps"];
        for bad in no_rates.into_iter().chain(too_fast) {
            assert_eq!(bad.parse::<Bitrate>(), Err(BitrateError), "{bad}");
        }
    }

    #[test]
    fn nothing_divides_by_zero() {
        assert_eq!(Bitrate::of(1, Duration::ZERO), Bitrate::ZERO);
        assert_eq!(Bitrate::ZERO.time_for(1), Duration::MAX);
    }
}
