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
const EXTENSION: u8 = 0x01;

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

    #[inline]
    pub fn pcr(&self) -> Option<Pcr> {
        if self.has(PCR) { Some(Pcr::from_field(self.data.get(1..)?.first_chunk()?)) } else { None }
    }

    /// The PCR that the program had before it was multiplexed anew.
    pub fn opcr(&self) -> Option<Pcr> {
        let field = self.after(OPCR)?;
        Some(Pcr::from_field(field.first_chunk()?))
    }

    /// Packets of this PID until a splicing point; negative behind it.
    pub fn splice_countdown(&self) -> Option<i8> {
        Some(*self.after(SPLICE)?.first()? as i8)
    }

    pub fn private_data(&self) -> Option<&'a [u8]> {
        counted(self.after(PRIVATE_DATA)?)
    }

    /// The extension's bytes, from its flags on.
    pub fn extension(&self) -> Option<&'a [u8]> {
        counted(self.after(EXTENSION)?)
    }

    /// What stands at the place of the field with this flag, when the flag is set.
    fn after(&self, flag: u8) -> Option<&'a [u8]> {
        if !self.has(flag) {
            return None;
        }
        let mut rest = &self.data[1..];
        for (before, len) in [(PCR, Some(6)), (OPCR, Some(6)), (SPLICE, Some(1)), (PRIVATE_DATA, None)] {
            if before == flag {
                break;
            }
            if self.has(before) {
                let len = len.or_else(|| Some(1 + usize::from(*rest.first()?)))?;
                rest = rest.get(len..)?;
            }
        }
        Some(rest)
    }
}

/// Bytes behind a byte that counts them.
fn counted(data: &[u8]) -> Option<&[u8]> {
    let (&len, rest) = data.split_first()?;
    rest.get(..len.into())
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
        assert_eq!(field.opcr().map(Pcr::ticks), Some(2_700));
        assert_eq!(field.splice_countdown(), Some(-2));
        assert_eq!(field.private_data(), Some(&[0xaa, 0xbb][..]));
        assert_eq!(field.extension(), Some(&[0x80, 1, 2][..]));
    }

    #[test]
    fn a_field_without_those_before_it_stands_in_their_place() {
        assert_eq!(Adaptation::new(&[SPLICE, 4]).splice_countdown(), Some(4));
        assert_eq!(Adaptation::new(&[PRIVATE_DATA, 1, 9]).private_data(), Some(&[9][..]));
    }

    #[test]
    fn what_runs_over_the_end_is_absent() {
        assert!(Adaptation::new(&[PCR, 0, 0, 0, 0, 0]).pcr().is_none());
        assert!(Adaptation::new(&[PRIVATE_DATA, 3, 1, 2]).private_data().is_none());
        assert!(Adaptation::new(&[PRIVATE_DATA | EXTENSION, 200]).extension().is_none());
        assert!(Adaptation::new(&[OPCR | PCR, 0, 0, 0, 0, 0, 0, 0]).opcr().is_none());
    }
}
