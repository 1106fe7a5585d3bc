//! Which size of each of its pictures a viewer's path has room for.
//!
//! In: what there is for them all, and of each its priority, what each of its sizes takes, and which was chosen last. Out: a
//! share for each, by which `LayerChoice` chooses. Cost: O(n · `LAYERS_MAX`) for n pictures in order, and no allocation.
//!
//! Sizes are steps: of even parts what is left over may be enough for many steps, and in each part for none. So the smallest of
//! all goes out, whatever fits; then those of one priority go up by turns, all to the second size before anybody goes to the
//! third, as far as there is room. Who has a size already comes first, and then who stands first. A priority has what those
//! before it leave. There is room where all pictures together fit with what `room_for` wants to spare.

use wire::Bitrate;

use crate::bwe::room_for;
use crate::stream::LAYERS_MAX;

/// What one picture needs, and gets.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its place among the viewer's tracks.
    pub index: usize,
    /// 1 comes before 2; 0 comes behind all others.
    priority: u32,
    /// What each size takes, the smallest first; zero for one that is not sent.
    rates: [Bitrate; LAYERS_MAX],
    /// So many of these the viewer wants, from the smallest on.
    wanted: usize,
    /// The size that was chosen last; `None` where none was yet.
    chosen: Option<u8>,
    /// The size that there is room for.
    given: u8,
    /// What it may take.
    pub share: Bitrate,
}

impl Need {
    /// Nothing is given to it yet.
    pub fn new(
        index: usize,
        priority: u32,
        (rates, wanted): ([Bitrate; LAYERS_MAX], usize),
        chosen: Option<u8>,
    ) -> Self {
        Need { index, priority, rates, wanted, chosen, given: 0, share: Bitrate::ZERO }
    }

    /// What each size takes that the viewer wants.
    pub fn wanted(&self) -> &[Bitrate] {
        &self.rates[..self.wanted.min(LAYERS_MAX)]
    }

    fn rate(&self, size: u8) -> u64 {
        self.wanted().get(usize::from(size)).map_or(0, |rate| rate.bps())
    }

    /// Whether that size was chosen last, or a larger one.
    fn has(&self, size: u8) -> bool {
        self.chosen.is_some_and(|chosen| size <= chosen)
    }

    /// What it takes as it is.
    fn taken_before(&self) -> u64 {
        let chosen = self.chosen.map_or(0, |chosen| self.rate(chosen));
        if chosen > 0 { chosen } else { self.rate(self.given) }
    }

    /// Takes the smallest that is sent. Returns its rate.
    fn take_smallest(&mut self) -> u64 {
        self.given = self.wanted().iter().position(|rate| *rate > Bitrate::ZERO).unwrap_or(0) as u8;
        self.rate(self.given)
    }

    /// Takes that size instead, where there is room. `taken` is what all take; returns that.
    fn take(&mut self, size: u8, taken: u64, carried: Bitrate) -> u64 {
        let rate = self.rate(size);
        let with_it = taken - self.rate(self.given) + rate;
        if rate == 0 || room_for(Bitrate::from_bps(with_it), self.has(size)) > carried {
            return taken;
        }
        self.given = size;
        with_it
    }

    /// What there has to be for the size that it is given. `fits` is the part of what was sent before that there is room for: who
    /// is given less than before may keep that part of it, so that how long it stays there depends on how little fits.
    fn room(&self, fits: f64) -> Bitrate {
        let given = room_for(Bitrate::from_bps(self.rate(self.given)), self.has(self.given));
        match self.chosen.filter(|chosen| *chosen > self.given) {
            Some(chosen) => given.max(Bitrate::from_bps(self.rate(chosen)).scale(fits)),
            None => given,
        }
    }
}

/// Divides what there is. The needs stand in another order then.
pub fn divide(carried: Bitrate, needs: &mut [Need]) {
    if let [only] = needs {
        only.share = carried;
        return;
    }
    // Of 0 it is the largest number.
    needs.sort_unstable_by_key(|need| (need.priority.wrapping_sub(1), need.index));
    let mut taken: u64 = needs.iter_mut().map(Need::take_smallest).sum();
    let before: u64 = needs.iter().map(Need::taken_before).sum();
    for alike in needs.chunk_by_mut(|one, other| one.priority == other.priority) {
        for size in 1..LAYERS_MAX as u8 {
            for has_it in [true, false] {
                for need in alike.iter_mut().filter(|need| need.has(size) == has_it) {
                    taken = need.take(size, taken, carried);
                }
            }
        }
    }
    let fits = (carried.bps() as f64 / before.max(1) as f64).min(1.0);
    needs.iter_mut().for_each(|need| need.share = need.room(fits));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::bwe::LayerChooser;

    /// A camera's sizes, in kbit/s.
    const CAMERA: [u64; 3] = [150, 500, 2_500];

    fn need(index: usize, priority: u32, sizes: &[u64], chosen: Option<u8>) -> Need {
        let rates = std::array::from_fn(|size| Bitrate::from_kbps(sizes.get(size).copied().unwrap_or(0)));
        Need::new(index, priority, (rates, sizes.len()), chosen)
    }

    /// What each is given, and its share in kbit/s, by their places.
    fn divided(carried: u64, mut needs: Vec<Need>) -> Vec<(u8, u64)> {
        divide(Bitrate::from_kbps(carried), &mut needs);
        needs.sort_by_key(|need| need.index);
        needs.iter().map(|need| (need.given, need.share.bps() / 1_000)).collect()
    }

    /// The sizes that are given to cameras of these priorities, for which these were chosen last.
    fn sizes(carried: u64, cameras: &[(u32, Option<u8>)]) -> Vec<u8> {
        let needs = (0..).zip(cameras).map(|(index, (priority, chosen))| need(index, *priority, &CAMERA, *chosen));
        divided(carried, needs.collect()).iter().map(|(given, _)| *given).collect()
    }

    #[test]
    fn a_single_picture_has_all_that_there_is() {
        for carried in [0, 100, 5_000] {
            assert_eq!(divided(carried, vec![need(0, 0, &CAMERA, Some(1))])[0].1, carried);
        }
    }

    #[test]
    fn all_have_the_second_size_before_anybody_has_the_third() {
        let cameras = [(0, Some(0)); 4];
        let given = [600, 1_139, 1_140, 2_399, 2_400, 4_799, 4_800, 12_000].map(|carried| sizes(carried, &cameras));
        assert_eq!(given, [[0; 4], [0; 4], [1, 0, 0, 0], [1, 1, 1, 0], [1; 4], [1; 4], [2, 1, 1, 1], [2; 4]]);
    }

    #[test]
    fn the_smallest_goes_out_whatever_fits() {
        assert_eq!(divided(100, vec![need(0, 0, &CAMERA, None), need(1, 1, &[0, 500], None)]), [(0, 180), (1, 600)]);
    }

    #[test]
    fn who_has_a_size_keeps_it_before_another_gets_it_and_with_less_to_spare() {
        let cameras = |one, other| [(0, Some(one)), (0, Some(other))];
        assert_eq!(sizes(3_599, &cameras(1, 1)), [1, 1]);
        assert_eq!(sizes(3_600, &cameras(1, 1)), [2, 1]);
        assert_eq!(sizes(3_150, &cameras(1, 2)), [1, 2]);
        assert_eq!(sizes(5_250, &cameras(2, 2)), [2, 2]);
        assert_eq!(sizes(3_149, &cameras(1, 2)), [1, 1]);
        // But nobody has the third while another could have the second.
        assert_eq!(sizes(2_790, &cameras(0, 2)), [1, 1]);
    }

    #[test]
    fn who_comes_first_has_what_it_wants_but_for_the_smallest_of_the_others() {
        let cameras = [(2, Some(0)), (0, Some(0)), (1, Some(0))];
        assert_eq!(sizes(3_359, &cameras), [1, 1, 1]);
        assert_eq!(sizes(3_360, &cameras), [0, 0, 2]);
        assert_eq!(sizes(6_180, &cameras), [2, 0, 2]);
        assert_eq!(sizes(100, &cameras), [0, 0, 0]);
    }

    #[test]
    fn what_one_has_no_use_for_is_the_others() {
        let needs = vec![need(0, 0, &[150], Some(0)), need(1, 0, &[150], Some(0)), need(2, 0, &CAMERA, Some(1))];
        assert_eq!(divided(3_360, needs), [(0, 157), (0, 157), (2, 3_000)]);
    }

    #[test]
    fn who_is_given_less_has_the_part_that_fits_of_what_it_had() {
        let cameras = |carried| divided(carried, vec![need(0, 0, &CAMERA, Some(1)), need(1, 0, &CAMERA, Some(1))]);
        assert_eq!(cameras(900), [(1, 525), (0, 450)]);
        assert_eq!(cameras(1_020), [(1, 525), (0, 500)], "it fits, with too little to spare");
        assert_eq!(cameras(500), [(0, 250), (0, 250)]);
        assert_eq!(cameras(100), [(0, 157), (0, 157)]);
    }

    /// Needs of any number of pictures of any sizes, and what there is for them.
    fn any_needs(random: &mut wire::Random) -> (u64, Vec<Need>) {
        let needs = (0..2 + random.below(6) as usize).map(|index| {
            let small = 1 + random.below(200);
            let sizes = [small, 2 * small + random.below(500), 3_000];
            let chosen = random.below(4).checked_sub(1).map(|size| size as u8);
            need(index, random.below(3) as u32, &sizes, chosen)
        });
        let needs = needs.collect();
        (random.below(12_000), needs)
    }

    #[test]
    fn no_more_is_taken_than_there_is_unless_it_is_the_smallest() {
        let mut random = wire::Random::new(1);
        for _ in 0..1_000 {
            let (carried, mut needs) = any_needs(&mut random);
            divide(Bitrate::from_kbps(carried), &mut needs);
            let taken: u64 = needs.iter().map(|need| need.rate(need.given) / 1_000).sum();
            assert!(taken * 21 / 20 <= carried || needs.iter().all(|need| need.given == 0), "{carried}: {needs:?}");
        }
    }

    #[test]
    fn the_size_that_is_chosen_by_a_share_is_the_one_that_was_given() {
        let mut random = wire::Random::new(2);
        let start = Instant::now();
        for _ in 0..1_000 {
            let (carried, mut needs) = any_needs(&mut random);
            divide(Bitrate::from_kbps(carried), &mut needs);
            for need in needs.iter().filter(|need| need.chosen.is_none_or(|chosen| chosen <= need.given)) {
                let mut chooser = need.chosen.map_or(LayerChooser::default(), LayerChooser::at);
                let mut choose =
                    |second| chooser.choose(start + Duration::from_secs(second), need.share, need.wanted());
                assert_eq!([0, 1, 2].map(&mut choose)[2], Some(need.given), "{carried}: {need:?}");
            }
        }
    }
}
