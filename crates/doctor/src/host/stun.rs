//! Asks a STUN server for our address as it sees it.
//!
//! Source: RFC 8489 §6.2.1 (requests over UDP), §14.2 (XOR-MAPPED-ADDRESS).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use stun_types::attribute::XorMappedAddress;
use stun_types::message::{BINDING, Message, MessageWriteVec};
use stun_types::prelude::MessageWrite as _;

/// A request is repeated after these times, and given up after the last: three seconds and a half.
const WAITS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// How long its name may take.
const RESOLVING_MAX: Duration = Duration::from_secs(4);

/// What was asked from, and what the server has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Our own address towards the server.
    pub local: SocketAddr,
    /// The same from there.
    pub seen: SocketAddr,
    /// It was asked from a port of media.
    pub is_media_port: bool,
}

/// Asks `server`, a host and a port, from this port or, where it is taken, from any: by IPv4 and by IPv6, where it has both. Of a
/// way on which nothing can leave nothing is said, unless there is no other.
///
/// # Errors
/// What the system says, also of the name; `TimedOut` when there is no answer.
pub fn ask(server: &str, port: u16) -> Vec<io::Result<Mapped>> {
    let servers = match resolve(server) {
        Ok(servers) => servers,
        Err(error) => return vec![Err(error)],
    };
    let mut answers: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = servers.iter().map(|server| scope.spawn(|| ask_one(*server, port))).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    });
    let is_no_way = |answer: &io::Result<Mapped>| {
        let kind = answer.as_ref().err().map(io::Error::kind);
        matches!(kind, Some(ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable))
    };
    if answers.iter().any(Result::is_ok) {
        answers.retain(|answer| !is_no_way(answer));
    }
    answers
}

fn ask_one(server: SocketAddr, port: u16) -> io::Result<Mapped> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, port)).or_else(|_| UdpSocket::bind((any, 0)))?;
    socket.connect(server)?;
    let request = Message::builder_request(BINDING, MessageWriteVec::new()).finish();
    for wait in WAITS {
        let until = Instant::now() + wait;
        socket.send(&request)?;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            socket.set_read_timeout(Some(left))?;
            let mut answer = [0; 1_500];
            match socket.recv(&mut answer) {
                Ok(len) => match address(&answer[..len], &request) {
                    Some(seen) => return mapped(&socket, seen, port),
                    None => continue,
                },
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn mapped(socket: &UdpSocket, seen: SocketAddr, port: u16) -> io::Result<Mapped> {
    let local = socket.local_addr()?;
    Ok(Mapped { local, seen, is_media_port: port != 0 && local.port() == port })
}

/// The first address of a host in each family. The system's resolver may take longer than anybody waits.
fn resolve(server: &str) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = mpsc::sync_channel(1);
    let server = server.to_owned();
    // Who has given up does not hear it.
    let find = move || drop(tell.send(server.to_socket_addrs().map(Iterator::collect)));
    thread::Builder::new().spawn(find)?;
    let found: Vec<SocketAddr> = told.recv_timeout(RESOLVING_MAX).map_err(|_| ErrorKind::TimedOut)??;
    let first = |is_v4| found.iter().find(|addr| addr.is_ipv4() == is_v4).copied();
    let servers: Vec<_> = [true, false].into_iter().filter_map(first).collect();
    if servers.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(servers) }
}

/// The address in the answer to a request.
fn address(answer: &[u8], request: &[u8]) -> Option<SocketAddr> {
    let (answer, request) = (Message::from_bytes(answer).ok()?, Message::from_bytes(request).ok()?);
    let is_answer = answer.is_response() && answer.transaction_id() == request.transaction_id();
    let seen = answer.attribute::<XorMappedAddress>().ok().filter(|_| is_answer)?;
    Some(seen.addr(answer.transaction_id()))
}

#[cfg(test)]
mod tests {
    use stun_types::prelude::MessageWriteExt as _;

    use super::*;

    #[test]
    fn an_answer_says_where_we_are_and_what_answers_another_request_does_not() {
        let [request, other] = [(); 2].map(|()| Message::builder_request(BINDING, MessageWriteVec::new()).finish());
        let asked = Message::from_bytes(&request).expect("a request");
        let mut answer = Message::builder_success(&asked, MessageWriteVec::new());
        let seen = SocketAddr::from(([192, 0, 2, 7], 4_321));
        answer.add_attribute(&XorMappedAddress::new(seen, asked.transaction_id())).expect("room");
        let answer = answer.finish();
        assert_eq!(address(&answer, &request), Some(seen));
        assert_eq!(address(&answer, &other), None);
        assert_eq!(address(&request, &request), None);
        assert_eq!(address(&answer[..answer.len() - 1], &request), None);
    }
}
