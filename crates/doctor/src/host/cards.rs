//! Which network interfaces carry what the server sends, and the interrupts of their cards.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::netlink::{self, Link};
use super::{list, number, text};

/// Those with a default route, and those that have one of `bound`. Loopback is none.
pub fn used(bound: &[IpAddr]) -> Vec<Link> {
    let routes = |file, of: fn(&str) -> Option<&str>| {
        let table = text(file).unwrap_or_default();
        table.lines().filter_map(of).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names = routes("/proc/net/route", default_v4);
    names.extend(routes("/proc/net/ipv6_route", default_v6));
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    names.extend(all.into_iter().filter(|own| bound.contains(&own.ip())).map(|own| own.name));
    let links = netlink::links().unwrap_or_default();
    let used = links.into_iter().filter(|link| link.name != "lo" && names.contains(&link.name));
    used.map(with_kind).collect()
}

/// Wireless cards have their queues themselves, as virtual ones may, and the kernel names no kind of them.
fn with_kind(link: Link) -> Link {
    let is_wireless = Path::new("/sys/class/net").join(&link.name).join("phy80211").exists();
    Link { kind: link.kind.or(is_wireless.then(|| "wireless".to_owned())), ..link }
}

/// The interface of a line of `/proc/net/route` that is a default route.
fn default_v4(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    (words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")).then_some(words[0])
}

/// The same of `/proc/net/ipv6_route`.
fn default_v6(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_default =
        words.first().is_some_and(|to| to.bytes().all(|digit| digit == b'0')) && words.get(1) == Some(&"00");
    words.get(9).filter(|name| is_default && **name != "lo").copied()
}

/// An interrupt of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The cores that may be interrupted.
    pub cpus: Vec<usize>,
    /// How often it came.
    pub count: u64,
}

/// The interrupts of an interface's card, as far as `/sys` is of this network namespace and shows them.
pub fn interrupts(link: &Link) -> Vec<Interrupt> {
    let folder = format!("/sys/class/net/{}", link.name);
    if link.kind.is_some() || number(&format!("{folder}/ifindex")) != Some(link.index.into()) {
        return Vec::new();
    }
    // A virtio card's interrupts are those of the device above it.
    let folders = ["device/msi_irqs", "device/../msi_irqs"].map(|below| fs::read_dir(format!("{folder}/{below}")));
    let entries = folders.into_iter().flatten().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let table = text("/proc/interrupts").unwrap_or_default();
    let interrupt = |number: u32| {
        let cpus = text(&format!("/proc/irq/{number}/smp_affinity_list"))?;
        Some(Interrupt { number, cpus: list(&cpus), count: count(&table, number)? })
    };
    numbers.filter_map(interrupt).collect()
}

/// How often an interrupt came, on all cores, by `/proc/interrupts`.
fn count(table: &str, number: u32) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{number}:")))?;
    Some(line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_is_one_to_everywhere() {
        let v4 = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert_eq!(default_v4(v4), Some("eth0"));
        assert_eq!(default_v4("eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0"), None);
        assert_eq!(default_v4("Iface\tDestination\tGateway"), None);
        let zero = "00000000000000000000000000000000";
        let v6 = |to: &str, len: &str, name: &str| {
            format!("{to} {len} {zero} 00 {zero} 00000400 00000003 00000000 00000003     {name}")
        };
        assert_eq!(default_v6(&v6(zero, "00", "eth0")), Some("eth0"));
        assert_eq!(default_v6(&v6(zero, "00", "lo")), None, "unreachable");
        assert_eq!(default_v6(&v6(&zero.replace("00", "fd"), "08", "eth0")), None);
    }

    #[test]
    fn interrupts_of_all_cores_are_added() {
        let table =
            "           CPU0       CPU1\n 41:       8336          2 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx\n";
        assert_eq!(count(table, 41), Some(8_338));
        assert_eq!(count(table, 4), None);
    }
}
