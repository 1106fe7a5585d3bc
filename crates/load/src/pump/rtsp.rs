//! Opens sessions by RTSP, as set-top boxes do: DESCRIBE, SETUP and PLAY on a connection that stays, and TEARDOWN.
//!
//! In: the server's address, titles, and where each is to be received. A session's connection comes from that very address,
//! as the server sends to its client alone. Out: sessions that play RTP by UDP, and are kept by a request now and then.
//! Source: RFC 2326 §10 (methods), §12.37 (session timeout).

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use wire::rtsp::session_id;

use crate::clients::Background;

/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Servers end sessions that are silent for a minute.
pub(super) const KEEP: Duration = Duration::from_secs(20);

/// How often it is looked for sessions that are to be kept.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of an answer's head, and of its body, at most.
const ANSWER_MAX: u64 = 64 << 10;

/// One client's connection and its session.
#[derive(Debug)]
pub(super) struct Player {
    reader: BufReader<TcpStream>,
    /// Of the title.
    uri: String,
    session: Option<String>,
    cseq: u32,
    asked: Instant,
}

/// What a request is answered: lines of the head, and the body.
struct Answer {
    head: Vec<String>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.iter().filter_map(|line| line.split_once(':'));
        headers.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Player {
    /// Plays a title to where the connection comes from, `to`.
    fn play(server: SocketAddrV4, title: &str, to: SocketAddrV4) -> Result<Player> {
        let reader = BufReader::new(connect_from(to, server).with_context(|| format!("connect to {server}"))?);
        let uri = format!("rtsp://{server}/{title}");
        let mut player = Player { reader, uri: uri.clone(), session: None, cseq: 0, asked: Instant::now() };
        let description = player.ask("DESCRIBE", &uri, "Accept: application/sdp\r\n")?;
        let base = description.header("Content-Base").unwrap_or(&uri).trim_end_matches('/');
        let track = description.body.lines().filter_map(|line| line.strip_prefix("a=control:")).next_back();
        let track = match track.map(str::trim) {
            None | Some("*") => base.to_owned(),
            Some(track) if track.starts_with("rtsp://") => track.to_owned(),
            Some(track) => format!("{base}/{track}"),
        };
        let transport = format!("Transport: RTP/AVP;unicast;client_port={}\r\n", to.port());
        let setup = player.ask("SETUP", &track, &transport)?;
        let session = setup.header("Session").context("SETUP was answered without a session")?;
        player.session = Some(session_id(session).to_owned());
        player.ask_of_title("PLAY")?;
        Ok(player)
    }

    pub(super) fn tear_down(&mut self) -> Result<()> {
        self.ask_of_title("TEARDOWN").map(drop)
    }

    fn ask_of_title(&mut self, method: &str) -> Result<Answer> {
        self.ask(method, &self.uri.clone(), "")
    }

    /// Sends a request and reads its answer; one that is no success is an error.
    fn ask(&mut self, method: &str, uri: &str, headers: &str) -> Result<Answer> {
        self.cseq += 1;
        self.asked = Instant::now();
        let session = self.session.as_ref().map(|session| format!("Session: {session}\r\n")).unwrap_or_default();
        let request = format!("{method} {uri} RTSP/1.0\r\nCSeq: {}\r\n{session}{headers}\r\n", self.cseq);
        let sent = self.reader.get_ref().write_all(request.as_bytes()).context("send");
        sent.and_then(|()| self.answer()).with_context(|| format!("{method} {uri}"))
    }

    fn answer(&mut self) -> Result<Answer> {
        let lines = self.reader.by_ref().take(ANSWER_MAX).lines();
        let head: Vec<String> =
            lines.take_while(|line| !matches!(line.as_deref(), Ok(""))).collect::<io::Result<_>>()?;
        let mut answer = Answer { head, body: String::new() };
        let len = answer.header("Content-Length").map_or(Ok(0), str::parse::<u64>).context("its Content-Length")?;
        ensure!(len <= ANSWER_MAX, "an answer of {len} bytes");
        self.reader.by_ref().take(len).read_to_string(&mut answer.body)?;
        let status = answer.head.first().context("the connection was closed")?;
        ensure!(status.starts_with("RTSP/1.0 200"), "{status}");
        Ok(answer)
    }
}

/// A connection whose near end has the address of `from`, and any port.
fn connect_from(from: SocketAddrV4, to: SocketAddrV4) -> Result<TcpStream> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let stream = TcpStream::from(fd);
    // Connecting keeps to the time for writing.
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    bind(stream.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(*from.ip(), 0)))?;
    connect(stream.as_raw_fd(), &SockaddrIn::from(to))?;
    Ok(stream)
}

/// Shared by who opens it, who keeps it and who closes it.
pub(super) type SharedPlayer = Arc<Mutex<Player>>;

/// All players, which a thread keeps. It ends when this is dropped.
pub(super) struct Players {
    server: SocketAddrV4,
    all: Arc<Mutex<Vec<Weak<Mutex<Player>>>>>,
    _thread: Background,
}

impl Players {
    /// Players that ask for something every `period`, such as [`KEEP`].
    pub(super) fn new(server: SocketAddrV4, period: Duration) -> Result<Players> {
        let all = Arc::default();
        let players = Arc::clone(&all);
        let thread = Background::start("keeper", move |is_over| keep_all(&players, period, is_over))?;
        Ok(Players { server, all, _thread: thread })
    }

    pub(super) fn play(&self, title: &str, to: SocketAddrV4) -> Result<SharedPlayer> {
        let player = Arc::new(Mutex::new(Player::play(self.server, title, to)?));
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&player));
        Ok(player)
    }
}

fn keep_all(players: &Mutex<Vec<Weak<Mutex<Player>>>>, period: Duration, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        let there: Vec<SharedPlayer> = {
            let mut all = players.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|player| player.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        for player in there {
            let mut player = player.lock().unwrap_or_else(PoisonError::into_inner);
            if player.asked.elapsed() >= period && !is_over.load(Ordering::Relaxed) {
                // A session that is gone shows in what arrives.
                let _ = player.ask_of_title("GET_PARAMETER");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    use wire::rtsp::{Item, Method, next_item};

    use super::*;

    /// Answers a client until it has gone, and tells what it was asked.
    fn serve(listener: &TcpListener) -> Vec<(Method, String)> {
        let (stream, client) = listener.accept().unwrap();
        let (mut stream, mut buf, mut asked) = (stream, Vec::new(), Vec::new());
        loop {
            let Some((Item::Request(request), len)) = next_item(&buf).unwrap() else {
                let mut part = [0; 2_000];
                let read = stream.read(&mut part).unwrap();
                if read == 0 {
                    return asked;
                }
                buf.extend_from_slice(&part[..read]);
                continue;
            };
            asked.push((request.method, request.uri.to_owned()));
            let is_known = request.header("Session").map(session_id) == Some("a7");
            let (status, more) = match request.method {
                Method::Describe if request.uri.ends_with("/gone.ts") => ("404 Not Found", "\r\n".to_owned()),
                Method::Describe => {
                    let sdp = "v=0\r\na=control:*\r\nm=video 0 RTP/AVP 33\r\na=control:track\r\n";
                    ("200 OK", format!("Content-Base: {}/\r\nContent-Length: {}\r\n\r\n{sdp}", request.uri, sdp.len()))
                }
                Method::Setup => {
                    let transport = request.header("Transport").unwrap();
                    let port = transport.strip_prefix("RTP/AVP;unicast;client_port=").unwrap().parse::<u16>().unwrap();
                    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[7], (client.ip(), port)).unwrap();
                    ("200 OK", "Session: a7;timeout=60\r\n\r\n".to_owned())
                }
                _ if is_known => ("200 OK", "\r\n".to_owned()),
                _ => ("454 Session Not Found", "\r\n".to_owned()),
            };
            let answer = format!("RTSP/1.0 {status}\r\nCSeq: {}\r\n{more}", request.cseq().unwrap());
            stream.write_all(answer.as_bytes()).unwrap();
            buf.drain(..len);
        }
    }

    fn server() -> (TcpListener, SocketAddrV4) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        (listener, addr)
    }

    #[test]
    fn a_title_plays_to_the_address_that_the_connection_comes_from_until_it_is_torn_down() {
        let (listener, addr) = server();
        let receiver = UdpSocket::bind("0.0.0.0:0").unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = SocketAddrV4::new([127, 9, 8, 7].into(), receiver.local_addr().unwrap().port());
        let asked = thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener));
            let mut player = Player::play(addr, "film.ts", to).unwrap();
            assert_eq!(receiver.recv(&mut [0; 10]).unwrap(), 1);
            player.ask_of_title("GET_PARAMETER").unwrap();
            player.tear_down().unwrap();
            drop(player);
            server.join().unwrap()
        });
        let title = format!("rtsp://{addr}/film.ts");
        let expected = [
            (Method::Describe, title.clone()),
            (Method::Setup, format!("{title}/track")),
            (Method::Play, title.clone()),
            (Method::GetParameter, title.clone()),
            (Method::Teardown, title),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn a_session_that_plays_on_is_kept_until_it_is_gone() {
        let (listener, addr) = server();
        let asked = thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener));
            let players = Players::new(addr, Duration::from_millis(10)).unwrap();
            let player = players.play("film.ts", SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9)).unwrap();
            let end = Instant::now() + PATIENCE;
            // After the requests that opened it.
            while player.lock().unwrap().cseq < 5 {
                assert!(Instant::now() < end, "nobody keeps it");
                thread::sleep(Duration::from_millis(10));
            }
            drop(players);
            drop(player);
            server.join().unwrap()
        });
        assert!(asked[3..].iter().all(|(method, _)| *method == Method::GetParameter), "{asked:?}");
        assert!(asked.len() >= 5, "{asked:?}");
    }

    #[test]
    fn a_refusal_is_quoted() {
        let (listener, addr) = server();
        let error = thread::scope(|scope| {
            scope.spawn(|| serve(&listener));
            let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
            format!("{:#}", Player::play(addr, "gone.ts", to).unwrap_err())
        });
        assert!(error.contains("DESCRIBE") && error.contains("404"), "{error}");
    }
}
