//! Ranges of peers as lists of prefixes.
//!
//! coturn allows what any allowed range has, and refuses what only denied ranges have. Here the most specific rule decides.
//! So what is allowed is taken out of what is denied: then no two rules fit one address, and both mean the same.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use relay::rules::Peers;

/// First and last address.
type Range = (IpAddr, IpAddr);

#[derive(Default)]
pub(super) struct PeerRanges {
    allowed: Vec<Range>,
    denied: Vec<Range>,
}

impl PeerRanges {
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "allow-loopback-peers" {
            if super::is_on(value) {
                self.allowed.extend([range("127.0.0.0-127.255.255.255"), range("::1")].into_iter().flatten());
            }
            return Ok(());
        }
        let range = range(value).ok_or_else(|| format!("left out: {value:?} is no range of addresses"))?;
        if name == "allowed-peer-ip" {
            self.allowed.push(range)
        } else {
            self.denied.push(range)
        }
        Ok(())
    }

    /// What is allowed, and what is denied without it.
    pub(super) fn finish(&self) -> (Vec<Peers>, Vec<Peers>) {
        let denied = self.denied.iter().flat_map(|denied| {
            self.allowed.iter().fold(vec![*denied], |rest, allowed| {
                rest.into_iter().flat_map(|rest| without(rest, *allowed)).collect()
            })
        });
        (prefixes(self.allowed.iter().copied()), prefixes(denied))
    }
}

/// `from-to`, one address, or a prefix.
fn range(text: &str) -> Option<Range> {
    if let Ok(prefix) = text.parse::<IpNet>() {
        return Some((prefix.network(), prefix.broadcast()));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (IpAddr, IpAddr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first.is_ipv4() == last.is_ipv4() && first <= last).then_some((first, last))
}

/// What is left of one range without another.
fn without((first, last): Range, (from, to): Range) -> Vec<Range> {
    if first.is_ipv4() != from.is_ipv4() || to < first || last < from {
        return vec![(first, last)];
    }
    let before = if first < from { neighbour(from, false).map(|end| (first, end)) } else { None };
    let behind = if to < last { neighbour(to, true).map(|begin| (begin, last)) } else { None };
    before.into_iter().chain(behind).collect()
}

/// The next address, or the one before.
fn neighbour(address: IpAddr, is_next: bool) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            let bits = if is_next { v4.to_bits().checked_add(1) } else { v4.to_bits().checked_sub(1) };
            bits.map(|bits| IpAddr::V4(bits.into()))
        }
        IpAddr::V6(v6) => {
            let bits = if is_next { v6.to_bits().checked_add(1) } else { v6.to_bits().checked_sub(1) };
            bits.map(|bits| IpAddr::V6(bits.into()))
        }
    }
}

fn prefixes(ranges: impl Iterator<Item = Range>) -> Vec<Peers> {
    let nets = ranges.flat_map(|range| match range {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Subnets::new(first, last, 0).map(IpNet::from).collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Subnets::new(first, last, 0).map(IpNet::from).collect(),
        _ => Vec::new(),
    });
    let nets = IpNet::aggregate(&nets.collect());
    nets.into_iter().filter_map(|net| Peers::new(net, 0..=u16::MAX).ok()).collect()
}
