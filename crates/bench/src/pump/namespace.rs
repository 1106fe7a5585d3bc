//! Two network namespaces with a pair of virtual cards between them: one to send from, one that takes and drops.
//!
//! The process moves into the first and a parked thread holds the second. Neither has a name, so the kernel takes both
//! away with the process, however that ends. What is sent goes through the whole stack, over the card as one piece, and
//! is dropped by the other side's IP layer: it is addressed to another card.
//! Needs root and the program `ip` (iproute2).

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result, bail};
use engine::sys::thread_id;
use nix::sched::{CloneFlags, unshare};

/// Receivers' addresses begin here (RFC 2544's, which are for such measurements).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Receivers that have an address.
pub(super) const RECEIVERS_MAX: usize = 1 << 16;

const PORT: u16 = 5_000;

/// As long as it lives there is somebody to send to.
pub(super) struct Namespace {
    /// The thread in the second namespace ends when this does.
    _sink: SyncSender<SyncSender<Result<()>>>,
}

impl Namespace {
    /// Moves the calling thread, and all that it starts from now on, into a namespace of its own with a sink behind.
    pub(super) fn enter() -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace (needs root)")?;
        let (sink, asked) = sync_channel(1);
        let (told, place) = sync_channel(1);
        thread::Builder::new().name("sink".into()).spawn(move || hold(&told, &asked)).context("start a thread")?;
        let place = place.recv().context("the sink's thread ended")??;
        ip("link set lo up")?;
        ip("link add pump0 mtu 1500 type veth peer name pump1 mtu 1500")?;
        ip(&format!("link set pump1 netns {place}"))?;
        let (reply, answer) = sync_channel(1);
        sink.send(reply).context("the sink's thread ended")?;
        answer.recv().context("the sink's thread ended")??;
        ip("addr add 198.19.0.1/24 dev pump0")?;
        ip("link set pump0 up")?;
        // No card has this address, so the other side drops all at once.
        ip("neigh add 198.19.0.2 lladdr 02:00:00:00:00:99 dev pump0 nud permanent")?;
        ip(&format!("route add {FIRST}/16 via 198.19.0.2 dev pump0"))?;
        Ok(Namespace { _sink: sink })
    }

    pub(super) fn addr(&self, index: usize) -> SocketAddr {
        let ip = Ipv4Addr::from_bits(FIRST.to_bits() + index as u32 % RECEIVERS_MAX as u32);
        (ip, PORT).into()
    }
}

/// Lives in the second namespace until nobody wants it any more, and turns its card on when asked.
fn hold(told: &SyncSender<Result<String>>, asked: &Receiver<SyncSender<Result<()>>>) {
    let made = unshare(CloneFlags::CLONE_NEWNET).context("make a second network namespace");
    let place = format!("/proc/{}/task/{}/ns/net", std::process::id(), thread_id());
    if told.send(made.map(|()| place)).is_ok() {
        while let Ok(reply) = asked.recv() {
            // Who does not wait for the answer has ended.
            let _ = reply.send(ip("link set pump1 up"));
        }
    }
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
    use std::fs;
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn what_is_sent_goes_over_the_card_and_the_namespace_is_gone_with_its_thread() {
        let own = || fs::read_link("/proc/thread-self/ns/net").unwrap();
        let before = own();
        let tried = thread::spawn(move || -> Result<u64> {
            let namespace = Namespace::enter()?;
            assert_ne!(own(), before);
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            for index in 0..100 {
                socket.send_to(&[7; 1_000], namespace.addr(index * 601))?;
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
