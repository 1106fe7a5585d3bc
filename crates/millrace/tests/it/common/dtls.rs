//! DTLS in front of a relay: what a client says plainly at one address goes there in records, and back.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dimpl::{Config, Dtls, Output};

use super::PATIENCE;

/// How long a thread waits for a datagram until it looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);

/// One association. It ends with a goodbye when it is dropped.
pub struct Front {
    /// Where to speak plainly.
    pub addr: SocketAddr,
    dtls: Arc<Mutex<Dtls>>,
    outside: Arc<UdpSocket>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Front {
    /// Shakes hands with a relay.
    pub fn connect(relay: SocketAddr) -> Self {
        let [inside, outside] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(LOOK)).expect("a time");
            Arc::new(socket)
        });
        outside.connect(relay).expect("loopback");
        let dtls = Arc::new(Mutex::new(shake_hands(&outside)));
        let is_over = Arc::new(AtomicBool::new(false));
        let client = Arc::new(Mutex::new(None));
        let mut front = Front {
            addr: inside.local_addr().expect("bound"),
            dtls: dtls.clone(),
            outside: outside.clone(),
            is_over: is_over.clone(),
            threads: Vec::new(),
        };
        let (own, seen, told, plain, sealed) =
            (dtls.clone(), client.clone(), is_over.clone(), inside.clone(), outside.clone());
        front.threads.push(thread::spawn(move || {
            let mut buf = [0; 65_536];
            while !told.load(Ordering::Relaxed) {
                let Ok((len, from)) = plain.recv_from(&mut buf) else { continue };
                *seen.lock().expect("no panic") = Some(from);
                let mut dtls = own.lock().expect("no panic");
                dtls.send_application_data(&buf[..len]).expect("connected");
                poll(&mut dtls, |packet| drop(sealed.send(packet)), |_| {});
            }
        }));
        front.threads.push(thread::spawn(move || {
            let mut buf = [0; 65_536];
            while !is_over.load(Ordering::Relaxed) {
                let Ok(len) = outside.recv(&mut buf) else { continue };
                let mut dtls = dtls.lock().expect("no panic");
                dtls.handle_packet(&buf[..len]).expect("a record");
                let to = *client.lock().expect("no panic");
                let hand_on = |data: &[u8]| drop(to.map(|to| inside.send_to(data, to)));
                poll(&mut dtls, |packet| drop(outside.send(packet)), hand_on);
            }
        }));
        front
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        let mut dtls = self.dtls.lock().expect("no panic");
        dtls.close().ok();
        poll(&mut dtls, |packet| drop(self.outside.send(packet)), |_| {});
    }
}

fn shake_hands(socket: &UdpSocket) -> Dtls {
    let certificate = dimpl::certificate::generate_self_signed_certificate().expect("randomness");
    let start = Instant::now();
    let mut dtls = Dtls::new_12(Arc::new(Config::builder().build().expect("a configuration")), certificate, start);
    dtls.set_active(true);
    let mut buf = [0; 2_000];
    while start.elapsed() < PATIENCE {
        // It repeats what is not answered by itself.
        dtls.handle_timeout(Instant::now()).expect("a handshake");
        let mut is_connected = poll(&mut dtls, |packet| drop(socket.send(packet)), |_| {});
        if let Ok(len) = socket.recv(&mut buf) {
            dtls.handle_packet(&buf[..len]).expect("a handshake");
            is_connected |= poll(&mut dtls, |packet| drop(socket.send(packet)), |_| {});
        }
        if is_connected {
            return dtls;
        }
    }
    panic!("no handshake");
}

/// Whether it is connected from now on.
fn poll(dtls: &mut Dtls, mut send: impl FnMut(&[u8]), mut hand_on: impl FnMut(&[u8])) -> bool {
    let (mut buf, mut is_connected) = (vec![0; 70_000], false);
    loop {
        match dtls.poll_output(&mut buf) {
            Output::Packet(packet) => send(packet),
            Output::ApplicationData(data) => hand_on(data),
            Output::Connected => is_connected = true,
            Output::Timeout(_) => return is_connected,
            _ => {}
        }
    }
}
