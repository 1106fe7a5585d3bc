//! A network namespace with a pair of virtual cards: what is sent goes through the whole stack, over the card as one
//! piece, and is dropped by the other end's IP layer, for it is addressed to another card.
//!
//! The calling thread moves into it. It has no name, so the kernel takes it away with the process, however that ends.
//! Needs root and the program `ip` (iproute2).

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};

/// Receivers' addresses begin here (RFC 2544's, which are for such measurements).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Receivers that have an address.
pub(super) const RECEIVERS_MAX: usize = 1 << 16;

const PORT: u16 = 5_000;

/// What is said to `ip`. No card has the neighbour's address, so the other end drops all at once.
const SET_UP: [&str; 7] = [
    "link set lo up",
    "link add pump0 mtu 1500 type veth peer name pump1 mtu 1500",
    "link set pump1 up",
    "addr add 198.19.0.1/24 dev pump0",
    "link set pump0 up",
    "neigh add 198.19.0.2 lladdr 02:00:00:00:00:99 dev pump0 nud permanent",
    "route add 198.18.0.0/16 via 198.19.0.2 dev pump0",
];

/// Moves the calling thread, and all that it starts from now on, into a namespace of its own.
pub(super) fn enter() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace (needs root)")?;
    SET_UP.iter().try_for_each(|words| ip(words))
}

/// Where a receiver is, once the namespace is entered.
pub(super) fn addr(index: usize) -> SocketAddr {
    let ip = Ipv4Addr::from_bits(FIRST.to_bits() + index as u32 % RECEIVERS_MAX as u32);
    (ip, PORT).into()
}

/// Runs `ip` (iproute2) with these words.
fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output().context("run ip (of iproute2)")?;
    if !output.status.success() {
        bail!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::{fs, thread};

    use super::*;

    #[test]
    fn what_is_sent_goes_over_the_card_and_the_namespace_is_gone_with_its_thread() {
        let own = || fs::read_link("/proc/thread-self/ns/net").unwrap();
        let before = own();
        let tried = thread::spawn(move || -> Result<u64> {
            enter()?;
            assert_ne!(own(), before);
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            for index in 0..100 {
                socket.send_to(&[7; 1_000], addr(index * 601))?;
            }
            let devices = fs::read_to_string("/proc/thread-self/net/dev")?;
            let line = devices.lines().find_map(|line| line.trim().strip_prefix("pump0:"));
            // The tenth number is packets sent.
            let packets = line.and_then(|line| line.split_whitespace().nth(9)).context("no card")?;
            Ok(packets.parse()?)
        });
        match tried.join().unwrap() {
            Ok(packets) => assert!((100..150).contains(&packets), "{packets}"),
            Err(error) => eprintln!("not tried: {error:#}"),
        }
        assert!(!fs::read_to_string("/proc/self/net/dev").unwrap().contains("pump0"));
    }
}
