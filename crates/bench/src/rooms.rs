//! `millrace bench rooms`: the least that it takes to hand one video to many viewers, as a server for `millrace load rooms`.
//!
//! In: an address. Out: a WHIP and WHEP server for measurements, until it is ended: whatever name a stream has, there is one,
//! the video, and the sound, of whoever published last, and who watches gets them from the next frame on.
//! How: one thread (`fan`) takes the publisher's packets; when a frame is whole it is sealed for each viewer, and goes to the
//! kernel as one GSO message each, a batch of these per call. Another (`door`) lets clients in, and is still when nobody comes.
//! Then nothing is read that viewers send: no reports, no NACKs, no checks. Nothing is paced, kept, or sent again.
//! What a real server takes more than this is what its promises cost.
//! Source: RFC 9725 (WHIP) for what little is understood of it; recvmmsg(2), sendmmsg(2), udp(7).

mod door;
mod fan;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context as _, Result};
use engine::sys::EventFd;
use engine::udp::{Options, UdpSocket};

use door::Door;
use fan::Fan;

/// Options of `millrace bench rooms`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where clients ask by HTTP. Media is at other ports of the same host.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8090")]
    pub listen: SocketAddr,
}

/// Of a socket to which thousands send.
const BUFFER_BYTES: usize = 8 << 20;

/// Who has come in by the door and is not served yet; the door waits for room.
const ARRIVALS_MAX: usize = 1_024;

/// Runs the server until somebody ends it.
///
/// # Errors
/// When a socket or a thread is not to be had.
pub fn execute(args: &Args) -> Result<Infallible> {
    let server = Server::new(args)?;
    println!("publish and watch at http://{}/whip/NAME and /whep/NAME", server.http_addr());
    server.run()
}

/// A server that has opened its sockets.
pub struct Server {
    door: Door,
    fan: Fan,
}

impl Server {
    /// Opens them.
    ///
    /// # Errors
    /// When an address is not to be had.
    pub fn new(args: &Args) -> Result<Self> {
        let (receive_buffer_bytes, send_buffer_bytes) = (Some(BUFFER_BYTES), Some(BUFFER_BYTES));
        let options = Options { receive_buffer_bytes, send_buffer_bytes, ..Options::default() };
        let bind = || UdpSocket::bind((args.listen.ip(), 0).into(), &options).context("bind a socket for media");
        // Publishers come to a socket of their own, which is read as long as there is one.
        let (viewers, publisher) = (bind()?, bind()?);
        let (arrivals, arrived) = mpsc::sync_channel(ARRIVALS_MAX);
        let signal = Arc::new(EventFd::new().context("open an eventfd")?);
        let door = Door::new(args.listen, &viewers, publisher.local_addr(), arrivals, Arc::clone(&signal))?;
        Ok(Server { door, fan: Fan::new(viewers, publisher, arrived, signal)? })
    }

    /// Where clients ask.
    pub fn http_addr(&self) -> SocketAddr {
        self.door.http_addr()
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// When a thread is not to be had, or the kernel refuses to wait.
    pub fn run(self) -> Result<Infallible> {
        let Server { door, fan } = self;
        let lets_in = move || {
            let Err(error) = door.run();
            eprintln!("nobody comes in any more: {error:#}");
        };
        thread::Builder::new().name("door".into()).spawn(lets_in).context("start a thread")?;
        fan.run()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    use fan::Arrival;

    use super::*;

    #[test]
    fn who_deletes_its_session_is_gone() {
        let Server { door, fan } = Server::new(&Args { listen: "127.0.0.1:0".parse().unwrap() }).unwrap();
        let mut http = TcpStream::connect(door.http_addr()).unwrap();
        thread::spawn(move || door.run());

        http.write_all(b"DELETE /session/7 HTTP/1.1\r\nContent-Length: 0\r\n\r\n").unwrap();

        let mut answer = String::new();
        http.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let arrival = fan.arrived.recv_timeout(Duration::from_secs(10));
        assert!(matches!(arrival, Ok(Arrival::Gone { session: 7 })));
    }
}
