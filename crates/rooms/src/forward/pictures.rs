//! VP8's and VP9's running numbers of one down track: they go on across a change of layer. VP8's picture ids have no gap
//! where pictures were left out; VP9's keep it, as their references are told by the distance (RFC 9628 §4.2).
//!
//! In: the numbers of the payload descriptor. Out: what to write in their place, in the same widths.
//! Cost: O(1); 24 bytes.
//! Source: RFC 7741 §4.2 (PictureID is the number of the picture in coding order, TL0PICIDX that of the base layer's).

use wire::codec::PictureNumbers;

use crate::drops::DropReason;

/// So many pictures back it is known which were dropped. One before has its numbers only where none was dropped since.
const WINDOW: u16 = 64;

/// New values for a payload descriptor; `None` where it has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureRewrite {
    pub picture_id: Option<u16>,
    pub tl0_pic_idx: Option<u8>,
}

impl PictureRewrite {
    /// Whether a packet with `numbers` has these values already.
    pub fn changes_nothing(&self, numbers: Option<&PictureNumbers>) -> bool {
        numbers.is_some_and(|numbers| (numbers.picture_id, numbers.tl0_pic_idx) == (self.picture_id, self.tl0_pic_idx))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pictures {
    /// The incoming picture id last in order; its low bits count when the incoming ids have 7.
    highest: u16,
    /// What is added to `highest` for its output id; wraps.
    shift: u16,
    /// Bit n: the picture n before `highest` was dropped.
    dropped: u64,
    /// Pictures from the last that was dropped, or from an encoder's start, to `highest`.
    since_dropped: u16,
    started: bool,
    tl0_started: bool,
    tl0_shift: u8,
    tl0_last: u8,
}

impl Pictures {
    /// Goes on with another layer, whose numbers start with these.
    pub(super) fn switch(&mut self, numbers: &PictureNumbers) {
        if let Some(picture_id) = numbers.picture_id {
            if self.started {
                self.restart(picture_id, mask(numbers));
            } else {
                self.started = true;
                self.highest = picture_id.wrapping_sub(1) & mask(numbers);
                self.shift = picture_id.wrapping_sub(1).wrapping_sub(self.highest);
            }
        }
        if let (Some(tl0), true) = (numbers.tl0_pic_idx, self.tl0_started) {
            self.tl0_shift = self.tl0_last.wrapping_add(1).wrapping_sub(tl0);
        }
    }

    /// Whether the picture is the one after the last.
    pub(super) fn follows(&self, numbers: &PictureNumbers) -> bool {
        numbers.picture_id.is_some_and(|picture_id| self.ahead(picture_id, mask(numbers)) == 1)
    }

    /// Numbers a packet that came in order.
    pub(super) fn forward(&mut self, numbers: &PictureNumbers) -> PictureRewrite {
        if let Some(picture_id) = numbers.picture_id {
            self.advance(picture_id, mask(numbers));
        }
        let rewrite = self.rewrite(numbers, 0);
        if let Some(tl0) = rewrite.tl0_pic_idx {
            (self.tl0_started, self.tl0_last) = (true, tl0);
        }
        rewrite
    }

    /// Leaves out the picture of a packet that came in order.
    pub(super) fn leave_out(&mut self, numbers: &PictureNumbers) {
        if let Some(picture_id) = numbers.picture_id
            && self.advance(picture_id, mask(numbers))
            && !numbers.keeps_gaps
        {
            self.shift = self.shift.wrapping_sub(1);
            self.dropped |= 1;
            self.since_dropped = 0;
        }
    }

    /// Numbers a packet that came late.
    pub(super) fn late(&self, numbers: &PictureNumbers) -> Result<PictureRewrite, DropReason> {
        let Some(picture_id) = numbers.picture_id else { return Ok(self.rewrite(numbers, 0)) };
        let mask = mask(numbers);
        let behind = self.highest.wrapping_sub(picture_id) & mask;
        if behind > mask / 2 {
            // Newer by its picture id though older by its sequence number: the publisher's mistake.
            return Ok(self.rewrite(numbers, 0));
        }
        if behind >= WINDOW {
            let is_known = behind < self.since_dropped;
            return if is_known { Ok(self.rewrite(numbers, 0)) } else { Err(DropReason::BehindHistory) };
        }
        if self.dropped >> behind & 1 == 1 {
            return Err(DropReason::TemporalLayer);
        }
        let since = self.dropped & ((1 << behind) - 1);
        Ok(self.rewrite(numbers, since.count_ones() as u16))
    }

    /// Moves on to a picture in order. Returns whether it is another than before.
    fn advance(&mut self, picture_id: u16, mask: u16) -> bool {
        match self.ahead(picture_id, mask) {
            0 => return false,
            ahead if ahead < WINDOW => {
                self.dropped <<= ahead;
                self.highest = self.highest.wrapping_add(ahead);
                self.since_dropped = self.since_dropped.saturating_add(ahead);
            }
            // The encoder started anew, or more was lost than can be told from that.
            _ => {
                self.restart(picture_id, mask);
                self.highest = self.highest.wrapping_add(1);
                self.since_dropped = 1;
            }
        }
        true
    }

    /// Makes `picture_id` the next, whatever came before.
    fn restart(&mut self, picture_id: u16, mask: u16) {
        let last = self.highest.wrapping_add(self.shift);
        self.highest = picture_id.wrapping_sub(1) & mask;
        self.shift = last.wrapping_sub(self.highest);
        (self.dropped, self.since_dropped) = (0, 0);
    }

    /// Pictures from `highest` to this one, modulo the id's width.
    fn ahead(&self, picture_id: u16, mask: u16) -> u16 {
        picture_id.wrapping_sub(self.highest) & mask
    }

    fn rewrite(&self, numbers: &PictureNumbers, dropped_since: u16) -> PictureRewrite {
        let shift = self.shift.wrapping_add(dropped_since);
        PictureRewrite {
            picture_id: numbers.picture_id.map(|picture_id| picture_id.wrapping_add(shift) & mask(numbers)),
            tl0_pic_idx: numbers.tl0_pic_idx.map(|tl0| tl0.wrapping_add(self.tl0_shift)),
        }
    }
}

fn mask(numbers: &PictureNumbers) -> u16 {
    if numbers.long_picture_id { 0x7fff } else { 0x7f }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn picture(picture_id: u16) -> PictureNumbers {
        PictureNumbers { picture_id: Some(picture_id), long_picture_id: true, keeps_gaps: false, tl0_pic_idx: None }
    }

    fn short(picture_id: u16) -> PictureNumbers {
        PictureNumbers { long_picture_id: false, ..picture(picture_id) }
    }

    fn started(numbers: PictureNumbers) -> Pictures {
        let mut pictures = Pictures::default();
        pictures.switch(&numbers);
        pictures
    }

    #[test]
    fn ids_are_kept_until_something_is_left_out() {
        let mut pictures = started(picture(32_767));
        assert_eq!(pictures.forward(&picture(32_767)).picture_id, Some(32_767));
        assert_eq!(pictures.forward(&picture(0)).picture_id, Some(0));
        pictures.leave_out(&picture(1));
        pictures.leave_out(&picture(1));
        assert_eq!(pictures.forward(&picture(2)).picture_id, Some(1));
        assert_eq!(pictures.late(&picture(1)), Err(DropReason::TemporalLayer));
        assert_eq!(pictures.late(&picture(0)).unwrap().picture_id, Some(0));
    }

    #[test]
    fn a_late_picture_is_known_from_the_last_that_was_left_out_on() {
        let mut pictures = started(picture(100));
        let forward = |pictures: &mut Pictures, mut ids: Range<u16>| {
            ids.all(|id| pictures.forward(&picture(id)).picture_id.is_some())
        };
        assert!(forward(&mut pictures, 100..103));
        pictures.leave_out(&picture(103));
        assert!(forward(&mut pictures, 104..400));
        assert_eq!(pictures.late(&picture(104)).unwrap().picture_id, Some(103));
        assert_eq!(pictures.late(&picture(102)), Err(DropReason::BehindHistory));
        pictures.switch(&picture(1_000));
        assert!(forward(&mut pictures, 1_000..1_100));
        assert_eq!(pictures.late(&picture(1_000)).unwrap().picture_id, Some(399));
        assert_eq!(pictures.late(&picture(999)), Err(DropReason::BehindHistory), "it was never begun");
    }

    #[test]
    fn ids_of_7_bits_wrap_at_128() {
        let mut pictures = started(short(126));
        pictures.forward(&short(126));
        pictures.leave_out(&short(127));
        assert_eq!(pictures.forward(&short(0)).picture_id, Some(127));
        assert_eq!(pictures.forward(&short(1)).picture_id, Some(0));
        assert_eq!(pictures.late(&short(126)).unwrap().picture_id, Some(126));
    }

    #[test]
    fn a_switch_goes_on_with_the_next_id() {
        let mut pictures = started(picture(500));
        pictures.forward(&picture(500));
        pictures.leave_out(&picture(501));
        pictures.switch(&picture(9));
        assert_eq!(pictures.forward(&picture(9)).picture_id, Some(501));
        pictures.switch(&short(100));
        assert_eq!(pictures.forward(&short(100)).picture_id, Some(502 & 0x7f));
    }

    #[test]
    fn ids_that_keep_their_gaps_go_on_across_a_switch() {
        let numbers =
            |picture_id, tl0| PictureNumbers { keeps_gaps: true, tl0_pic_idx: Some(tl0), ..picture(picture_id) };
        let mut pictures = started(numbers(500, 9));
        pictures.forward(&numbers(500, 9));
        pictures.leave_out(&numbers(501, 9));
        let out = pictures.forward(&numbers(502, 10));
        assert_eq!((out.picture_id, out.tl0_pic_idx), (Some(502), Some(10)));
        assert_eq!(pictures.late(&numbers(501, 9)).unwrap().picture_id, Some(501));
        pictures.switch(&numbers(32_000, 200));
        for (id, tl0, expected) in [(32_000, 200, (503, 11)), (32_001, 200, (504, 11)), (32_003, 201, (506, 12))] {
            let out = pictures.forward(&numbers(id, tl0));
            assert_eq!((out.picture_id, out.tl0_pic_idx), (Some(expected.0), Some(expected.1)));
        }
    }

    #[test]
    fn an_encoder_that_starts_anew_leaves_no_gap() {
        let mut pictures = started(picture(500));
        pictures.forward(&picture(500));
        assert_eq!(pictures.forward(&picture(20_000)).picture_id, Some(501));
        assert_eq!(pictures.forward(&picture(3)).picture_id, Some(502));
        assert_eq!(pictures.forward(&picture(4)).picture_id, Some(503));
    }

    #[test]
    fn base_layer_indices_go_on_across_a_switch() {
        let numbers = |tl0| PictureNumbers { tl0_pic_idx: Some(tl0), ..picture(0) };
        let mut pictures = started(numbers(255));
        assert_eq!(pictures.forward(&numbers(255)).tl0_pic_idx, Some(255));
        pictures.switch(&numbers(7));
        assert_eq!(pictures.forward(&numbers(7)).tl0_pic_idx, Some(0));
        assert_eq!(pictures.forward(&numbers(8)).tl0_pic_idx, Some(1));
    }
}
