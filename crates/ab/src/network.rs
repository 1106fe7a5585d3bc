//! Where packets were lost, as the kernel counts it.
//!
//! In: the processes of server and load. Out: counters of their network namespaces and of their UDP sockets; what two
//! looks differ in is what was lost between them.
//! The counters of a namespace contain what other programs in it lost too; those of sockets do not.
//! Source: proc_net(5); `drops` in /proc/net/udp is sk_drops, packets for which the receive buffer had no room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};

use super::proc::{field, open_files};

/// Counters of one network namespace. The files are kept open, for they stay readable when the process is gone.
#[derive(Debug)]
pub struct Namespace {
    /// Two with the same one are one.
    pub inode: u64,
    snmp: File,
    snmp6: Option<File>,
    devices: File,
}

/// What a namespace has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Datagrams that a full receive buffer had no room for.
    pub receive_buffer: u64,
    /// Datagrams that were not sent for want of room.
    pub send_buffer: u64,
    /// Packets that interfaces dropped, received and sent.
    pub interface: u64,
}

impl Counted {
    pub fn since(&self, before: &Counted) -> Counted {
        Counted {
            receive_buffer: self.receive_buffer.saturating_sub(before.receive_buffer),
            send_buffer: self.send_buffer.saturating_sub(before.send_buffer),
            interface: self.interface.saturating_sub(before.interface),
        }
    }
}

impl Namespace {
    /// The namespace in which these processes work: the first that is not ours, else ours.
    pub fn of(pids: &[i32]) -> io::Result<Namespace> {
        let own = inode_of("self")?;
        let apart = |pid: &&i32| inode_of(&pid.to_string()).is_ok_and(|inode| inode != own);
        match pids.iter().find(apart).map(|pid| Self::open(&pid.to_string())) {
            Some(Ok(namespace)) => Ok(namespace),
            _ => Self::open("self"),
        }
    }

    fn open(process: &str) -> io::Result<Namespace> {
        let file = |name: &str| File::open(format!("/proc/{process}/net/{name}"));
        // Where IPv6 is switched off, its counters are not there.
        Ok(Namespace {
            inode: inode_of(process)?,
            snmp: file("snmp")?,
            snmp6: file("snmp6").ok(),
            devices: file("dev")?,
        })
    }

    pub fn counted(&mut self) -> io::Result<Counted> {
        let mut counted = Counted { interface: interface_drops(&again(&mut self.devices)?), ..Counted::default() };
        (counted.receive_buffer, counted.send_buffer) = snmp_udp(&again(&mut self.snmp)?);
        if let Some(snmp6) = &mut self.snmp6 {
            let text = again(snmp6)?;
            counted.receive_buffer += field(&text, "Udp6RcvbufErrors");
            counted.send_buffer += field(&text, "Udp6SndbufErrors");
        }
        Ok(counted)
    }
}

fn inode_of(process: &str) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata(format!("/proc/{process}/ns/net"))?.ino())
}

/// A file of /proc is made anew when it is read from its beginning.
fn again(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// RcvbufErrors and SndbufErrors: a line with the names, and below it one with the numbers.
fn snmp_udp(text: &str) -> (u64, u64) {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let of = |wanted: &str| {
        let mut pairs = names.split_whitespace().zip(numbers.split_whitespace());
        pairs.find(|(name, _)| *name == wanted).and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
    };
    (of("RcvbufErrors"), of("SndbufErrors"))
}

/// Drops of all interfaces: the 4th number is of what was received, the 12th of what was sent.
fn interface_drops(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.split_once(':')).map(|(_, numbers)| numbers);
    let drops = |numbers: &str| {
        let at =
            |index| numbers.split_whitespace().nth(index).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        at(3) + at(11)
    };
    numbers.map(drops).sum()
}

/// Drops of the UDP sockets of some processes, by the sockets' inodes.
pub type Sockets = BTreeMap<u64, u64>;

/// The UDP sockets of these processes. With ten thousand sockets this takes some 20 ms.
pub fn sockets_of(pids: &[i32]) -> Sockets {
    let mut ours: BTreeSet<u64> = BTreeSet::new();
    let mut tables = BTreeMap::new();
    for pid in pids {
        let sockets =
            open_files(*pid).filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok());
        ours.extend(sockets);
        // One table per namespace; processes of the same one would show the same sockets again.
        if let Ok(inode) = inode_of(&pid.to_string()) {
            tables.entry(inode).or_insert_with(|| {
                let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
                table("udp") + &table("udp6")
            });
        }
    }
    let all = tables.values().flat_map(|table| table.lines()).filter_map(socket);
    all.filter(|(inode, _)| ours.contains(inode)).collect()
}

/// What these sockets dropped since `before`; one that was not there then began with 0.
pub fn drops(now: &Sockets, before: &Sockets) -> u64 {
    now.iter().map(|(inode, drops)| drops.saturating_sub(before.get(inode).copied().unwrap_or(0))).sum()
}

/// Inode and drops from a line of /proc/net/udp: the 10th and the 13th field.
fn socket(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace().skip(9);
    Some((fields.next()?.parse().ok()?, fields.nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let snmp = "Ip: Forwarding\nIp: 1\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 9 8 7 6 5 4\n";
        assert_eq!(snmp_udp(snmp), (5, 4));
        assert_eq!(snmp_udp(""), (0, 0));
    }

    #[test]
    fn interfaces_drop_what_comes_and_what_goes() {
        let devices = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop|\n    \
                       lo: 1 1 0 2 0 0 0 0 1 1 0 3 0 0 0 0\n  eth0:1 1 0 10 0 0 0 0 1 1 0 20 0 0 0 0\n";
        assert_eq!(interface_drops(devices), 35);
    }

    #[test]
    fn a_socket_that_came_later_began_with_nothing() {
        let before = Sockets::from([(1, 5), (2, 7)]);
        assert_eq!(drops(&Sockets::from([(1, 6), (3, 2)]), &before), 3);
    }

    #[test]
    fn what_a_full_socket_drops_is_counted_for_that_socket_and_its_namespace() {
        let pid = [std::process::id() as i32];
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut namespace = Namespace::of(&pid).unwrap();
        let (sockets, counted) = (sockets_of(&pid), namespace.counted().unwrap());
        assert!(!sockets.is_empty());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2_000 {
            sender.send_to(&[0; 1400], receiver.local_addr().unwrap()).unwrap();
        }
        assert!(drops(&sockets_of(&pid), &sockets) > 0);
        assert!(namespace.counted().unwrap().since(&counted).receive_buffer > 0);
    }
}
