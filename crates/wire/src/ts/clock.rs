//! The two clocks of a program: references at 27 MHz (PCR) and presentation times at 90 kHz (PTS, DTS).
//!
//! Both wrap with a 33-bit base of 90 kHz, every 26.5 hours, so they have a distance but no order.
//! Source: §2.4.3.5 (PCR), §2.4.3.7 (PTS, DTS).

/// Program clock reference in ticks of 27 MHz, modulo 2^33 × 300.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pcr(u64);

impl Pcr {
    /// Ticks after which the clock is at zero again.
    pub const MODULUS: u64 = 300 << 33;

    /// Ticks per second.
    pub const HZ: u64 = 27_000_000;

    /// Takes ticks of any size, modulo the wrap.
    pub const fn from_ticks(ticks: u64) -> Self {
        Pcr(ticks % Self::MODULUS)
    }

    /// Ticks of 27 MHz.
    pub const fn ticks(self) -> u64 {
        self.0
    }

    /// Reads base and extension. An extension of 300 and more, which the standard does not have, carries over.
    #[inline]
    pub fn from_field(field: &[u8; 6]) -> Self {
        let [a, b, c, d, e, f] = *field;
        let bits = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Pcr::from_ticks((bits >> 15) * 300 + (bits & 0x1ff))
    }

    /// 33 bits of base, six ones, nine bits of extension.
    #[inline]
    pub fn to_field(self) -> [u8; 6] {
        let (base, extension) = (self.0 / 300, self.0 % 300);
        let bits = base << 15 | 0x7e00 | extension;
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// The reference `ticks` later; earlier when negative.
    #[inline]
    pub fn plus(self, ticks: i64) -> Self {
        Pcr((self.0 as i64).wrapping_add(ticks).rem_euclid(Self::MODULUS as i64) as u64)
    }

    /// Ticks from `self` to `other`, the shorter way round: negative when `other` is earlier.
    #[inline]
    pub fn ticks_to(self, other: Pcr) -> i64 {
        shorter_way(self.0, other.0, Self::MODULUS)
    }
}

/// Presentation or decoding time in ticks of 90 kHz, modulo 2^33.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Ticks after which the clock is at zero again.
    pub const MODULUS: u64 = 1 << 33;

    /// Takes ticks of any size, modulo the wrap.
    pub const fn from_ticks(ticks: u64) -> Self {
        Timestamp(ticks % Self::MODULUS)
    }

    /// Ticks of 90 kHz.
    pub const fn ticks(self) -> u64 {
        self.0
    }

    /// Reads the 33 bits between their marker bits, whatever the first four bits say.
    pub fn from_field(field: &[u8; 5]) -> Self {
        let [a, b, c, d, e] = field.map(u64::from);
        Timestamp((a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1)
    }

    /// 33 bits in three parts, a one behind each; `prefix` is the first four bits.
    pub fn to_field(self, prefix: u8) -> [u8; 5] {
        let ticks = self.0;
        [
            prefix << 4 | (ticks >> 29) as u8 & 0x0e | 1,
            (ticks >> 22) as u8,
            (ticks >> 14) as u8 | 1,
            (ticks >> 7) as u8,
            (ticks << 1) as u8 | 1,
        ]
    }

    /// The time `ticks` later; earlier when negative.
    pub fn plus(self, ticks: i64) -> Self {
        Timestamp((self.0 as i64).wrapping_add(ticks).rem_euclid(Self::MODULUS as i64) as u64)
    }

    /// Ticks from `self` to `other`, the shorter way round: negative when `other` is earlier.
    pub fn ticks_to(self, other: Timestamp) -> i64 {
        shorter_way(self.0, other.0, Self::MODULUS)
    }
}

#[inline]
fn shorter_way(from: u64, to: u64, modulus: u64) -> i64 {
    let forward = (to + modulus - from) % modulus;
    if forward <= modulus / 2 { forward as i64 } else { forward as i64 - modulus as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pcr_is_its_base_times_300_plus_its_extension() {
        // Base 0x1_0000_0001, extension 299.
        let field = [0x80, 0, 0, 0, 0xfe | 0x01, 0x2b];
        let pcr = Pcr::from_field(&field);
        assert_eq!(pcr.ticks(), 0x1_0000_0001 * 300 + 299);
        assert_eq!(pcr.to_field(), field);
    }

    #[test]
    fn clocks_count_on_through_their_wrap() {
        let late = Pcr::from_ticks(Pcr::MODULUS - 10);
        assert_eq!(late.plus(25).ticks(), 15);
        assert_eq!(Pcr::from_ticks(15).plus(-25), late);
        assert_eq!((late.ticks_to(Pcr::from_ticks(15)), Pcr::from_ticks(15).ticks_to(late)), (25, -25));
        let late = Timestamp::from_ticks(Timestamp::MODULUS - 1);
        assert_eq!((late.plus(1).ticks(), late.ticks_to(Timestamp::from_ticks(0))), (0, 1));
    }

    #[test]
    fn a_timestamp_has_a_marker_bit_behind_each_part() {
        let all_ones = Timestamp::from_ticks(u64::MAX);
        assert_eq!(all_ones.to_field(2), [0x2f, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Timestamp::from_ticks(0).to_field(3), [0x31, 0, 1, 0, 1]);
        for ticks in [0, 1, 1 << 14, 1 << 15, 1 << 22, 1 << 29, 1 << 30, 0x1_2345_6789] {
            let timestamp = Timestamp::from_ticks(ticks);
            assert_eq!(Timestamp::from_field(&timestamp.to_field(2)), timestamp);
        }
    }
}
