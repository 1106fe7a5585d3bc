//! Two sockets on one UDP port, of which the second gets what the first bytes of a datagram tell (`SO_REUSEPORT` and
//! `SO_ATTACH_REUSEPORT_CBPF`, socket(7); Linux 4.5).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};

use super::socket::{OFF, ON, set, shared_udp_socket};

/// How a datagram begins: what its first byte is, and its second. One that has no second begins like nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning(pub RangeInclusive<u8>, pub RangeInclusive<u8>);

/// A socket on the address of `first`, which is bound to it alone and keeps all that does not begin like any of these. To be
/// heard, each of the two is to be read. What the kernel has joined (GRO) goes where its first datagram belongs, and what ICMP
/// says to either. When the second is closed, the first gets everything again.
///
/// # Errors
/// What the system says. Then the first is as it was.
pub fn steered_udp_socket(first: BorrowedFd<'_>, addr: &SocketAddr, beginnings: &[Beginning]) -> io::Result<UdpSocket> {
    // Only now: it was bound without, so a port that somebody has is an error.
    set(first, libc::SOL_SOCKET, libc::SO_REUSEPORT, &ON)?;
    let second = shared_udp_socket(addr).and_then(|second| {
        steer(second.as_fd(), beginnings)?;
        Ok(second)
    });
    if second.is_err() {
        set(first, libc::SOL_SOCKET, libc::SO_REUSEPORT, &OFF)?;
    }
    second
}

/// Has the second of two sockets on a port get what begins like one of these from now on, and the first the rest. `socket` is
/// either of them.
///
/// # Errors
/// What the system says.
pub fn steer(socket: BorrowedFd<'_>, beginnings: &[Beginning]) -> io::Result<()> {
    let mut program = program(beginnings);
    let len = program.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Says 1, the second socket in the order of binding, for what begins so, and 0 for everything else. A load beyond a
/// datagram's end is 0, too.
fn program(beginnings: &[Beginning]) -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt, jf, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, at);
    let say = |socket| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, socket);
    // Goes on where the byte is in the range, and else `past` instructions further behind the two.
    let within = |range: &RangeInclusive<u8>, past| {
        let (start, end) = (u32::from(*range.start()), u32::from(*range.end()));
        [
            instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, past + 1, start),
            instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, past, 0, end),
        ]
    };
    let parts = beginnings.iter().flat_map(|Beginning(first, second)| {
        let ([a, b], [c, d]) = (within(first, 4), within(second, 1));
        [load(0), a, b, load(1), c, d, say(1)]
    });
    parts.chain([say(0)]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::{udp_socket, wait_readable};

    const PATIENCE: Duration = Duration::from_secs(40);

    fn beginnings() -> Vec<Beginning> {
        vec![Beginning(0..=3, 0..=255), Beginning(128..=191, 200..=204)]
    }

    /// The next datagram that a socket gets.
    fn next(socket: &UdpSocket) -> Vec<u8> {
        wait_readable(socket.as_fd(), Some(PATIENCE)).expect("waited");
        let mut buf = [0; 16];
        let len = socket.recv(&mut buf).expect("it came");
        buf[..len].to_vec()
    }

    #[test]
    fn the_second_socket_gets_what_begins_as_is_told_and_the_first_the_rest() {
        for any in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let any = any.parse().expect("an address");
            // A host may have no IPv6.
            let Ok(first) = udp_socket(&any) else { continue };
            let addr = first.local_addr().expect("bound");
            let second = steered_udp_socket(first.as_fd(), &addr, &beginnings()).expect("two on one port");
            let mut to = addr;
            if addr.ip().is_unspecified() {
                to.set_ip([127, 0, 0, 1].into());
            }
            // Of several senders, as the kernel would spread these.
            for _ in 0..4 {
                let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).expect("loopback can be bound");
                let send = |datagram: &[u8]| sender.send_to(datagram, to).map(drop).expect("sent");
                for [a, b] in [[0, 1], [3, 255], [128, 200], [191, 204], [150, 202]] {
                    send(&[a, b]);
                    assert_eq!(next(&second), [a, b]);
                }
                for [a, b] in [[4, 1], [127, 200], [128, 199], [128, 205], [192, 200], [255, 255]] {
                    send(&[a, b]);
                    assert_eq!(next(&first), [a, b]);
                }
                for short in [&[][..], &[0]] {
                    send(short);
                    assert_eq!(next(&first), short);
                }
            }
            drop(second);
            let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).expect("loopback can be bound");
            sender.send_to(&[0, 1], to).expect("sent");
            assert_eq!(next(&first), [0, 1], "there is one again");
        }
    }

    #[test]
    fn a_port_that_has_two_sockets_is_taken_for_others() {
        let first = udp_socket(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        let addr = first.local_addr().expect("bound");
        let _second = steered_udp_socket(first.as_fd(), &addr, &beginnings()).expect("two on one port");
        assert_eq!(udp_socket(&addr).expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_first_socket_that_gets_no_second_one_stays_alone() {
        let first = udp_socket(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        let addr = first.local_addr().expect("bound");
        let too_many = vec![Beginning(0..=3, 0..=255); 1_000];
        steered_udp_socket(first.as_fd(), &addr, &too_many).expect_err("a program has 4,096 instructions at most");
        assert_eq!(shared_udp_socket(&addr).expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
    }
}
