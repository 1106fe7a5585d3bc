//! A rate of bits per second.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bitrate(u64);

impl Bitrate {
    pub const ZERO: Bitrate = Bitrate(0);

    pub const fn from_bps(bits_per_second: u64) -> Self {
        Bitrate(bits_per_second)
    }

    pub const fn from_kbps(kilobits_per_second: u64) -> Self {
        Bitrate(kilobits_per_second * 1_000)
    }

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

/// A number, with k, M or G behind it for the powers of 1,000: "1.5M", "300k".
impl FromStr for Bitrate {
    type Err = BitrateError;

    fn from_str(text: &str) -> Result<Self, BitrateError> {
        let (number, unit) = match text.char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&text[..at], 1e3),
            Some((at, 'M')) => (&text[..at], 1e6),
            Some((at, 'G')) => (&text[..at], 1e9),
            _ => (text, 1.0),
        };
        let number: f64 = number.trim().parse().map_err(|_| BitrateError)?;
        let bps = number * unit;
        if (0.0..1e15).contains(&bps) { Ok(Bitrate(bps as u64)) } else { Err(BitrateError) }
    }
}

/// The text is no bitrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a bitrate; write for instance 300k, 1.5M or 2G (bit/s)")]
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
        assert_eq!("1.5M".parse(), Ok(Bitrate::from_kbps(1_500)));
        assert_eq!("300k".parse(), Ok(Bitrate::from_kbps(300)));
        assert_eq!("64000".parse(), Ok(Bitrate::from_kbps(64)));
        for bad in ["", "M", "-1k", "1.5Mbit", "nan", "1e40"] {
            assert_eq!(bad.parse::<Bitrate>(), Err(BitrateError), "{bad}");
        }
    }

    #[test]
    fn nothing_divides_by_zero() {
        assert_eq!(Bitrate::of(1, Duration::ZERO), Bitrate::ZERO);
        assert_eq!(Bitrate::ZERO.time_for(1), Duration::MAX);
    }
}
