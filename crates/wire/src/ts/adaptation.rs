//! The adaptation field (§2.4.3.4, §2.4.3.5): clock references, indicators, stuffing.
//!
//! In: the bytes that follow the length byte. Out: fields, each `None` where its flag is not set or it runs over the
//! field's end.

use super::Pcr;

pub(super) const DISCONTINUITY: u8 = 0x80;
pub(super) const RANDOM_ACCESS: u8 = 0x40;
pub(super) const PCR: u8 = 0x10;
const OPCR: u8 = 0x08;
const SPLICE: u8 = 0x04;
pub(super) const PRIVATE_DATA: u8 = 0x02;

/// An adaptation field, which may be empty (length 0).
#[derive(Clone, Copy, Debug)]
pub struct Adaptation<'a> {
    data: &'a [u8],
}

impl<'a> Adaptation<'a> {
    #[inline]
    pub(super) fn new(data: &'a [u8]) -> Self {
        Adaptation { data }
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.data.first().is_some_and(|flags| flags & flag != 0)
    }

    /// The continuity counter may jump here; with a PCR, so does the time base (§2.4.3.5).
    #[inline]
    pub fn discontinuity(&self) -> bool {
        self.has(DISCONTINUITY)
    }

    /// A decoder may begin with the next PES packet of this PID.
    #[inline]
    pub fn random_access(&self) -> bool {
        self.has(RANDOM_ACCESS)
    }

    /// The program's clock when this packet arrives (§2.4.3.5).
    #[inline]
    pub fn pcr(&self) -> Option<Pcr> {
        if self.has(PCR) { Some(Pcr::from_field(self.data.get(1..)?.first_chunk()?)) } else { None }
    }

    /// What a transmitter says of its own accord, such as pictures' properties.
    pub fn private_data(&self) -> Option<&'a [u8]> {
        let (&len, rest) = self.private_field()?.split_first()?;
        rest.get(..len.into())
    }

    /// The private data and what counts it, behind the fields that stand before.
    fn private_field(&self) -> Option<&'a [u8]> {
        if !self.has(PRIVATE_DATA) {
            return None;
        }
        let mut rest = &self.data[1..];
        for (_, len) in [(PCR, 6), (OPCR, 6), (SPLICE, 1)].into_iter().filter(|(before, _)| self.has(*before)) {
            rest = rest.get(len..)?;
        }
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_follow_each_other_in_the_order_of_their_flags() {
        let mut data = vec![0xff];
        data.extend(Pcr::from_ticks(300 * 7 + 5).to_field());
        data.extend(Pcr::from_ticks(300 * 9).to_field());
        data.extend([0xfe, 2, 0xaa, 0xbb, 3, 0x80, 1, 2, 0xff]);
        let field = Adaptation::new(&data);
        assert!(field.discontinuity() && field.random_access());
        assert_eq!(field.pcr().map(Pcr::ticks), Some(2_105));
        assert_eq!(field.private_data(), Some(&[0xaa, 0xbb][..]));
    }

    #[test]
    fn a_field_without_those_before_it_stands_in_their_place() {
        assert_eq!(Adaptation::new(&[PRIVATE_DATA, 1, 9]).private_data(), Some(&[9][..]));
    }

    #[test]
    fn what_runs_over_the_end_is_absent() {
        assert!(Adaptation::new(&[PCR, 0, 0, 0, 0, 0]).pcr().is_none());
        assert!(Adaptation::new(&[PRIVATE_DATA, 3, 1, 2]).private_data().is_none());
        assert!(Adaptation::new(&[OPCR | PCR | PRIVATE_DATA, 0, 0, 0, 0, 0, 0, 0]).private_data().is_none());
    }
}
