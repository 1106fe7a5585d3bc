//! The addresses that a client has permitted (RFC 8656 §9): by IP address, for 300 seconds.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::rules::{self, Rules};

/// How long a permission holds (RFC 8656 §9).
pub const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);

/// The permissions of one allocation. What has run out counts no more, and is forgotten when there is no room, and when the
/// allocation is refreshed.
#[derive(Debug, Default)]
pub(crate) struct Permissions(HashMap<IpAddr, Permission>);

#[derive(Clone, Copy, Debug)]
struct Permission {
    until: Instant,
    /// Which of its ports the operator allows.
    ports: rules::Ports,
}

impl Permissions {
    /// Whether there is room for these, which are no more than `max` in all.
    pub(crate) fn has_room_for(&mut self, now: Instant, ips: &[IpAddr], max: usize) -> bool {
        if self.0.len() + ips.len() > max {
            self.0.retain(|_, permission| now < permission.until);
        }
        let new = ips.iter().enumerate().filter(|(index, ip)| !self.0.contains_key(*ip) && !ips[..*index].contains(ip));
        self.0.len() + new.count() <= max
    }

    /// Permits an address, for which there is room.
    pub(crate) fn permit(&mut self, now: Instant, ip: IpAddr, ports: rules::Ports) {
        self.0.insert(ip, Permission { until: now + PERMISSION_LIFETIME, ports });
    }

    /// Which ports of an address the operator allows, if the client permits the address.
    #[inline]
    pub(crate) fn ports(&self, now: Instant, ip: &IpAddr) -> Option<rules::Ports> {
        self.0.get(ip).filter(|permission| now < permission.until).map(|permission| permission.ports)
    }

    /// The rules are others now: asks them anew, and forgets what they allow no more.
    pub(crate) fn apply(&mut self, rules: &Rules) {
        self.0.retain(|ip, permission| {
            permission.ports = rules.ports(*ip);
            permission.ports != rules::Ports::None
        });
    }

    /// Forgets what has run out, and gives back the memory that it had.
    pub(crate) fn forget_lapsed(&mut self, now: Instant) {
        self.0.retain(|_, permission| now < permission.until);
        self.0.shrink_to_fit();
    }

    /// How many are in force.
    pub(crate) fn count(&self, now: Instant) -> usize {
        self.0.values().filter(|permission| now < permission.until).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_lapses_after_300_seconds_and_makes_room() {
        let now = Instant::now();
        let [one, two]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let mut permissions = Permissions::default();
        assert!(permissions.has_room_for(now, &[one, one], 1));
        permissions.permit(now, one, rules::Ports::All);
        assert!(permissions.has_room_for(now, &[one], 1) && !permissions.has_room_for(now, &[two], 1));
        let [before, after] = [299, 300].map(|seconds| now + Duration::from_secs(seconds));
        assert!(
            permissions.ports(before, &one) == Some(rules::Ports::All) && permissions.ports(before, &two).is_none()
        );
        assert!(permissions.ports(after, &one).is_none() && permissions.has_room_for(after, &[two], 1));
        assert_eq!((permissions.count(before), permissions.count(after)), (0, 0), "it was forgotten");
    }
    #[test]
    fn what_has_run_out_keeps_no_memory() {
        let now = Instant::now();
        let mut permissions = Permissions::default();
        for last in 0..=255 {
            permissions.permit(now, [192, 0, 2, last].into(), rules::Ports::All);
        }
        permissions.permit(now + Duration::from_secs(9), [192, 0, 2, 7].into(), rules::Ports::All);
        permissions.forget_lapsed(now + Duration::from_secs(299));
        assert_eq!(permissions.count(now), 256);
        permissions.forget_lapsed(now + PERMISSION_LIFETIME);
        assert!(permissions.count(now) == 1 && permissions.0.capacity() < 8, "{}", permissions.0.capacity());
    }
}
