//! When a certificate is renewed, and how long to wait after a failure.
//!
//! In: from when until when it is good, what its directory suggests, a chance from 0 to 1. Out: a time. No clock.
//! A chance, because not all servers that were started together are to come together.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use crate::Validity;

/// After the first failure; after each further one it is twice as long. Directories let a name fail five times an hour.
const PAUSE_MIN: Duration = Duration::from_secs(300);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(12 * 3_600);
/// Who starts the server anew does not wait longer than this: perhaps he has seen to the reason.
pub(crate) const PAUSE_AT_START: Duration = Duration::from_secs(900);
/// After a failure because too much was asked for already.
pub(crate) const PAUSE_LIMITED: Duration = Duration::from_secs(3_600);

/// After a certificate was obtained; after each further one that came too old it is twice as long. Directories give out five
/// for the same name a week.
const REST: Range<Duration> = Duration::from_secs(3_600)..Duration::from_secs(7 * 86_400);

/// How often a directory is asked at most and at least when it wants a certificate to be renewed (RFC 9773 §4.3.2).
const ASK: Range<Duration> = Duration::from_secs(3_600)..Duration::from_secs(86_400);

/// When a certificate is renewed that nobody says anything about: at two thirds of its life, or up to a thirtieth earlier.
pub(crate) fn renewal(validity: &Validity, chance: f64) -> SystemTime {
    validity.from + validity.life().mul_f64(2.0 / 3.0 - chance / 30.0)
}

/// For how long nothing is asked for after a certificate was obtained, before which `stale` in a row were to be renewed when
/// they came. It is no more than a third of its life.
pub(crate) fn rest(validity: &Validity, stale: u32) -> Duration {
    REST.start.saturating_mul(1 << stale.min(16)).min(REST.end).min(validity.life() / 3)
}

/// However wrong a directory's clock is, a certificate is used for so long.
const USED_MIN: Duration = Duration::from_secs(86_400);

/// The same where a directory suggests a time: then, and not before a third of its life is over, but for a time that is over:
/// it knows something about the certificate that we do not.
pub(crate) fn suggested(validity: &Validity, window: &Range<SystemTime>, now: SystemTime, chance: f64) -> SystemTime {
    let long = window.end.duration_since(window.start).unwrap_or_default();
    let third = validity.life() / 3;
    let used = if window.end <= now { third.min(USED_MIN) } else { third };
    (window.start + long.mul_f64(chance)).max(validity.from + used)
}

/// When a directory is asked again that wants to be asked after so long.
pub(crate) fn ask_after(wanted: Duration) -> Duration {
    wanted.clamp(ASK.start, ASK.end)
}

/// After so many failures in a row, at least one.
pub(crate) fn pause(failures: u32, chance: f64) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
    doubled.mul_f64(1.0 + chance / 4.0)
}

/// For people: days, or what is less than two of them.
pub fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7_200 => format!("{} minutes", seconds / 60),
        seconds if seconds < 172_800 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn day(number: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * (20_000 + number)
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let validity = Validity { from: day(0), until: day(90) };
        assert_eq!(renewal(&validity, 0.0), day(60));
        assert_eq!(renewal(&validity, 1.0), day(57));
    }

    #[test]
    fn a_directory_that_wants_it_earlier_is_heard_but_not_in_the_first_third() {
        let validity = Validity { from: day(0), until: day(90) };
        let (window, now) = (|from, to| day(from)..day(to), day(1));
        assert_eq!(suggested(&validity, &window(40, 44), now, 0.5), day(42));
        assert_eq!(suggested(&validity, &window(0, 60), now, 0.1), day(30));
        // One that was revoked: its time is in the past.
        assert!(suggested(&validity, &window(0, 1), day(10), 0.5) <= day(10));
        assert_eq!(suggested(&validity, &window(0, 1), now, 0.0), day(1), "and not again and again");
        assert_eq!([0, 2, 100].map(|hours| ask_after(DAY / 24 * hours) / 3_600), [1, 2, 24].map(Duration::from_secs));
    }

    #[test]
    fn what_came_too_old_is_asked_for_less_and_less_often() {
        let validity = Validity { from: day(0), until: day(90) };
        assert_eq!(
            [0, 1, 2, 20, u32::MAX].map(|stale| rest(&validity, stale) / 3_600),
            [1, 2, 4, 168, 168].map(Duration::from_secs)
        );
        assert_eq!(rest(&Validity { from: day(0), until: day(6) }, 20), 2 * DAY);
    }

    #[test]
    fn pauses_double_and_have_an_end() {
        let minutes = |failures| pause(failures, 0.0).as_secs() / 60;
        assert_eq!([1, 2, 3, 4].map(minutes), [5, 10, 20, 40]);
        assert_eq!([20, 1_000, u32::MAX].map(minutes), [720; 3]);
        assert_eq!(pause(1, 1.0), Duration::from_secs(375));
    }
}
