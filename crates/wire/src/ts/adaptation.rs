//! The adaptation field (§2.4.3.4, §2.4.3.5): clock references, indicators, stuffing.
//!
//! In: the bytes that follow the length byte. Out: fields, each `None` where its flag is not set or it runs over the
//! field's end.

use super::Pcr;

pub(super) const DISCONTINUITY: u8 = 0x80;
pub(super) const RANDOM_ACCESS: u8 = 0x40;
pub(super) const PCR: u8 = 0x10;

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
    }

    #[test]
    fn what_runs_over_the_end_is_absent() {
        assert!(Adaptation::new(&[PCR, 0, 0, 0, 0, 0]).pcr().is_none());
    }
}
