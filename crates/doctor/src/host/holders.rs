//! Who holds an address: `/proc/net` has the socket's number, and `/proc/PID/fd` whose it is.
//!
//! Source: proc_net(5), proc_pid_fd(5).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;

use super::text;

/// Who holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process's number, and its program; `None`: one of this user that may not be looked at, as it has capabilities.
    pub process: Option<(u32, String)>,
}

/// Who holds `addr`, or an address that keeps others from it. `None`: nobody, or it may not be known.
pub fn holder(is_udp: bool, addr: SocketAddr) -> Option<Holder> {
    let tables = if is_udp { ["udp", "udp6"] } else { ["tcp", "tcp6"] }.map(|name| format!("/proc/net/{name}"));
    let entries: Vec<_> = tables.iter().filter_map(|file| text(file)).flat_map(|table| entries(&table)).collect();
    let in_way = |ip: &IpAddr| *ip == addr.ip() || ip.is_unspecified() || addr.ip().is_unspecified();
    let mut inodes: Vec<_> = entries
        .iter()
        .filter(|entry| entry.is_bound && entry.addr.port() == addr.port() && in_way(&entry.addr.ip()))
        .collect();
    // The nearest first: an IPv6 socket may, and need not, hold the IPv4 address as well.
    inodes.sort_by_key(|entry| (entry.addr.is_ipv4() != addr.is_ipv4(), entry.addr.ip() != addr.ip()));
    let known = inodes.iter().find_map(|entry| owner(entry.inode));
    let own = fs::metadata("/proc/self").ok().map(|own| own.uid());
    known.or_else(|| inodes.iter().any(|entry| Some(entry.uid) == own).then_some(Holder { process: None }))
}

struct Entry {
    addr: SocketAddr,
    /// It is no connection.
    is_bound: bool,
    /// Whose it is.
    uid: u32,
    inode: u64,
}

fn entries(table: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = words.get(1)?.split_once(':')?;
        let addr = SocketAddr::new(ip_of(ip)?, u16::from_str_radix(port, 16).ok()?);
        let is_bound = words.get(2)?.ends_with(":0000");
        Some(Entry { addr, is_bound, uid: words.get(7)?.parse().ok()?, inode: words.get(9)?.parse().ok()? })
    };
    table.lines().filter_map(entry).collect()
}

/// Words of 32 bits in the order of the host.
fn ip_of(digits: &str) -> Option<IpAddr> {
    let words: Vec<u32> =
        (0..digits.len() / 8).filter_map(|at| u32::from_str_radix(digits.get(at * 8..at * 8 + 8)?, 16).ok()).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let v4 = <[u8; 4]>::try_from(&*bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(&*bytes).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

/// The process that has a socket open.
fn owner(inode: u64) -> Option<Holder> {
    let wanted = format!("socket:[{inode}]");
    let has = |pid: u32| {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str()))
    };
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.into_iter().find(|pid| has(*pid))?;
    Some(Holder { process: Some((pid, text(&format!("/proc/{pid}/comm"))?)) })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn addresses_in_tables_are_words_in_the_order_of_the_host() {
        let local = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(ip_of(&format!("{local:08X}")), Some(Ipv4Addr::LOCALHOST.into()));
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        assert_eq!(ip_of(&format!("{:024}{last:08X}", 0)), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(ip_of("address"), None);
    }

    #[test]
    fn who_holds_an_address_is_this_test() {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let holder = |is_udp, addr| holder(is_udp, addr).and_then(|holder| holder.process).map(|(pid, _)| pid);
        let own = Some(std::process::id());
        assert_eq!(holder(false, tcp.local_addr().expect("bound")), own);
        let port = udp.local_addr().expect("bound").port();
        assert_eq!(holder(true, ([0, 0, 0, 0], port).into()), own);
        drop(tcp);
    }
}
