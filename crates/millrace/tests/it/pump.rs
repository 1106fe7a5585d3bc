//! The pump by the binary itself: one title from the command line, and sessions of a server beside its rooms.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Publisher, Server, Viewer, Way, wait_until};
use pump::sample::Sample;
use serde_json::{Value, json};
use wire::ts::{DATAGRAM_LEN, PACKET_LEN, datagram_packets};

const JSON: [&str; 1] = ["Content-Type: application/json"];

#[test]
fn a_file_is_played_out_and_the_command_ends_with_it() {
    let title = Title::new(50);
    for scheme in ["udp", "rtp"] {
        let (addr, packets) = receiver();
        let started = Instant::now();
        let child = play(&title.path(), &format!("{scheme}://{addr}"), &[]);
        let output = child.wait_with_output().expect("it ends");

        assert_eq!(output.status.code(), Some(0));
        assert!(started.elapsed() >= Duration::from_millis(1_900), "two seconds of picture");
        let status = String::from_utf8(output.stderr).expect("text");
        assert!(status.contains("0:02.0 of 0:02.0") && status.contains("underruns 0"), "{status}");
        let received = first(&packets, title.bytes.len());
        assert!(without_times(received) == without_times(title.bytes.clone()), "{scheme}: {status}");
    }
}

/// Without references and time stamps: they go on from anew where the machine holds a stream up for 200 ms. That they stay
/// as they are else, and all bytes are, is for tests with a clock of their own.
fn without_times(mut bytes: Vec<u8>) -> Vec<u8> {
    for packet in bytes.as_chunks_mut::<PACKET_LEN>().0 {
        let has_adaptation = packet[3] & 0x20 != 0;
        let payload = if has_adaptation { 5 + usize::from(packet[4]) } else { 4 };
        if has_adaptation && packet[4] > 0 {
            // The flag that says so, and the PCR.
            packet[5] &= !0x80;
            let pcr_len = if packet[5] & 0x10 == 0 { 0 } else { 6 };
            packet[6..6 + pcr_len].fill(0);
        }
        let begins = packet[1] & 0x40 != 0;
        if begins && packet[payload..].starts_with(&[0, 0, 1]) {
            let stamps_len = [0, 0, 5, 10][usize::from(packet[payload + 7] >> 6)];
            packet[payload + 9..][..stamps_len].fill(0);
        }
    }
    bytes
}

#[test]
fn ctrl_c_ends_a_loop() {
    let title = Title::new(10);
    let (addr, packets) = receiver();
    let child = play(&title.path(), &format!("udp://{addr}"), &["--loop"]);
    for _ in 0..title.bytes.len() / DATAGRAM_LEN + 10 {
        packets.recv_timeout(PATIENCE).expect("it begins anew");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(0));
}

#[test]
fn what_cannot_be_played_is_said() {
    let title = Title::new(5);
    for (file, destination, flags, expected) in [
        ("no-such-file.ts", "udp://127.0.0.1:9", &[][..], "no-such-file.ts"),
        (&title.path(), "http://127.0.0.1:9", &[], "udp://host:port"),
        (&title.path(), "udp://127.0.0.1:9", &["--burst", "9"], "1 to 7"),
        (&title.path(), "udp://127.0.0.1:9", &["--interface", "none0"], "none0"),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "udp://127.0.0.1:9", &[], "no transport stream"),
    ] {
        let output = play(file, destination, flags).wait_with_output().expect("it ends");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_broadcast_and_pump_sessions_run_on_the_same_workers() {
    let title = Title::new(75);
    let media = format!("pump.media={}", title.folder.path().display());
    let server = Server::start(&[&media, "pump.destinations=127.0.0.0/8", "pump.late_max=10s"]);
    let (mut sessions, mut workers) = (Vec::new(), HashSet::new());
    // How busy workers are depends on the machine, and decides where a session goes.
    while sessions.len() < 4 || workers.len() < 2 {
        assert!(sessions.len() < 40, "whose worker has more to do gets no more");
        let (addr, packets) = receiver();
        let session = open(&server, &format!("udp://{addr}"));
        workers.insert(get(&server, &session)["worker"].as_u64());
        sessions.push((session, packets));
    }

    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 400);
    publisher.finish(&mut [&mut one, &mut other]);

    for viewer in [&one, &other] {
        viewer.assert_whole(0, &publisher);
    }
    for (session, packets) in &sessions {
        wait_until("the title ends", || get(&server, session)["state"] == "ended");
        let ended = get(&server, session);
        assert_eq!(ended["reason"], "all was sent");
        assert_eq!(first(packets, title.bytes.len()), title.bytes);
    }
    let sent = sessions.len() as f64 * (title.bytes.len() / DATAGRAM_LEN) as f64;
    wait_until("all are counted", || server.metric("millrace_pump_datagrams_total") >= sent);
}

#[test]
fn the_first_signal_lets_sessions_end_and_takes_no_new_ones() {
    let title = Title::new(100);
    let media = format!("pump.media={}", title.folder.path().display());
    let mut server = Server::start(&[&media, "pump.destinations=127.0.0.0/8", "http.drain_timeout=60s"]);
    let (addr, packets) = receiver();
    open(&server, &format!("udp://{addr}"));
    packets.recv_timeout(PATIENCE).expect("it has begun");

    server.terminate();
    wait_until("it drains", || server.ask("GET", "/healthz", &[], "").status == 503);
    let request = json!({"title": "title.ts", "destination": "udp://127.0.0.1:9"}).to_string();
    let refused = server.ask("POST", "/pump/sessions", &JSON, &request);
    assert_eq!((refused.status, refused.header("retry-after")), (503, "5"));

    wait_until("it ends with its session", || server.ended().is_some());
    assert!(server.ended().is_some_and(|status| status.success()));
    first(&packets, title.bytes.len() - DATAGRAM_LEN);
}

/// A title in a folder of its own.
struct Title {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Title {
    /// With so many pictures, 25 a second, at 2 Mbit/s.
    fn new(pictures: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let sample = Sample { rate: wire::Bitrate::from_kbps(2_000), pictures, ..Sample::default() };
        let bytes = sample.make();
        std::fs::write(folder.path().join("title.ts"), &bytes).expect("written");
        Title { folder, bytes }
    }

    fn path(&self) -> String {
        let path: PathBuf = self.folder.path().join("title.ts");
        path.display().to_string()
    }
}

fn play(file: &str, destination: &str, flags: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(["pump", file, destination]).args(flags);
    // When a test fails, one that plays on keeps nobody waiting who reads the test's output.
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

fn open(server: &Server, destination: &str) -> String {
    let request = json!({"title": "title.ts", "destination": destination}).to_string();
    let answer = server.ask("POST", "/pump/sessions", &JSON, &request);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.location("/pump/sessions")
}

fn get(server: &Server, session: &str) -> Value {
    serde_json::from_str(&server.ask("GET", session, &[], "").body).expect("JSON")
}

/// A socket that is read all the time, and the packets of each datagram.
fn receiver() -> (String, Receiver<Vec<u8>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let addr = socket.local_addr().expect("bound").to_string();
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let (sender, packets) = sync_channel(10_000);
    std::thread::spawn(move || {
        let mut buf = [0; 2_000];
        while let Ok(len) = socket.recv(&mut buf) {
            let payload = datagram_packets(&buf[..len]).expect("whole packets").1.as_flattened().to_vec();
            if sender.send(payload).is_err() {
                return;
            }
        }
    });
    (addr, packets)
}

/// The first bytes that come.
fn first(packets: &Receiver<Vec<u8>>, len: usize) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() < len {
        received.extend(packets.recv_timeout(PATIENCE).expect("the whole title"));
    }
    received.truncate(len);
    received
}
