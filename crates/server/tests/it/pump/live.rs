//! Live inputs: a sender, the server, and those who watch.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use engine::sys::set_multicast;
use pump::sample::Sample;
use serde_json::{Value, json};
use server::config::LiveInput;
use wire::ts::{DATAGRAM_LEN, PACKET_LEN, write_rtp_header};
use wire::{Bitrate, Multicast, Seq};

use super::harness::{Harness, Receiver, assert_continues, eventually, packets};

const RATE: Bitrate = Bitrate::from_kbps(2_000);

/// Loopback's number on every Linux.
const LOOPBACK: u32 = 1;

/// Sends a sample in real time, unevenly, until it is dropped.
struct Sender {
    bytes: Arc<Vec<u8>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    fn start(to: SocketAddr, with_rtp: bool) -> Sender {
        let bytes = Arc::new(Sample { rate: RATE, pictures: 60 * 25, ..Sample::default() }.make());
        let is_over = Arc::new(AtomicBool::new(false));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        set_multicast(socket.as_fd(), &to, &Multicast { interface: LOOPBACK, ..Multicast::default() }).expect("set");
        let (sent, stop, start) = (bytes.clone(), is_over.clone(), Instant::now());
        let thread = std::thread::spawn(move || {
            for (index, part) in sent.chunks(DATAGRAM_LEN).enumerate() {
                let passed = Duration::from_nanos((index * DATAGRAM_LEN * 8) as u64 * 1_000_000_000 / RATE.bps());
                // Every 8 datagrams others are late, by up to 28 ms.
                let late = Duration::from_millis((index as u64 / 8 * 7) % 5 * 7);
                std::thread::sleep((start + passed + late).saturating_duration_since(Instant::now()));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut datagram = vec![0; if with_rtp { 12 } else { 0 }];
                write_rtp_header(&mut datagram, Seq(index as u16), index as u32 * 474, 77, false);
                datagram.extend(part);
                socket.send_to(&datagram, to).expect("sent");
            }
        });
        Sender { bytes, is_over, thread: Some(thread) }
    }

    /// Checks that packets are of the sample, one behind the other, without a change.
    fn assert_has(&self, packets: &[u8]) {
        let mut places = self.bytes.windows(DATAGRAM_LEN).step_by(PACKET_LEN);
        let start = places.position(|part| packets.starts_with(part)).expect("it is of the sample") * PACKET_LEN;
        assert!(self.bytes[start..].starts_with(packets), "from byte {start} on");
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// An input named "news", and where to send.
fn receive(test: &Harness, url: &str, options: &[(&str, &str)]) -> SocketAddr {
    let input = LiveInput::new("news", url).expect("an input");
    let input = options.iter().try_fold(input, |input, (key, value)| input.with(key, value)).expect("options that fit");
    test.pump().start_live(&[input]).expect("it can be received");
    test.pump().live_inputs()[0].local
}

async fn input(test: &Harness) -> Value {
    let titles = test.send("GET", "/pump/titles", "").await.body;
    titles.as_array().and_then(|titles| titles.last()).cloned().expect("there is an input")
}

/// What the input has received.
async fn received_packets(test: &Harness) -> u64 {
    input(test).await["statistics"]["bytes"].as_u64().expect("a number") / PACKET_LEN as u64
}

async fn until_receiving(test: &Harness) {
    eventually("it is known what comes", || async {
        let request = json!({"title": "live/news", "destination": "udp://127.0.0.1:9"});
        let answer = test.send("POST", "/pump/sessions", &request.to_string()).await;
        let id = answer.body["id"].as_str().map(|id| id.parse().expect("a number"));
        if let Some(id) = id {
            test.delete(id).await;
            test.until(id, |session| session["state"] == "ended").await;
        }
        answer.status == StatusCode::CREATED
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_received_once_goes_to_many_unchanged() {
    for (url, options, with_rtp) in [
        ("udp://127.0.0.1:0", &[][..], false),
        ("rtp://127.0.0.1:0", &[("source", "127.0.0.1"), ("delay", "400ms")], true),
        ("udp://@239.255.77.20:0", &[("interface", "lo")], false),
        ("rtp://127.0.0.1@232.77.77.20:0", &[("interface", "lo")], true),
    ] {
        let test = Harness::start(|_| {});
        let sender = Sender::start(receive(&test, url, options), with_rtp);
        until_receiving(&test).await;
        let (mut sessions, mut workers) = (Vec::new(), HashSet::new());
        // Two workers are to get the chunks. How busy they are depends on the machine, and decides where a session goes.
        for scheme in ["udp", "rtp"].into_iter().cycle() {
            let receiver = Receiver::bind();
            let id = test.open(json!({"title": "live/news", "destination": receiver.url(scheme)})).await;
            workers.insert(test.get(id).await["worker"].as_u64());
            sessions.push((id, receiver));
            if sessions.len() >= 3 && workers.len() == 2 {
                break;
            }
            assert!(sessions.len() < 40, "whose worker has more to do gets no more");
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        for (_, receiver) in &sessions {
            sender.assert_has(&packets(&receiver.take(300)));
        }
        let state = input(&test).await;
        assert_eq!((&state["name"], &state["state"]), (&json!("live/news"), &json!("receiving")), "{url}");
        assert_eq!(state["sessions"], json!(sessions.len()));
        for (id, _receiver) in sessions {
            assert_eq!(test.delete(id).await, StatusCode::NO_CONTENT);
            test.until_ended(id).await;
        }
        assert_eq!(input(&test).await["sessions"], json!(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_session_goes_on_with_what_is_new() {
    let test = Harness::start(|_| {});
    let sender = Sender::start(receive(&test, "udp://127.0.0.1:0", &[]), false);
    until_receiving(&test).await;
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "live/news", "destination": receiver.url("udp")})).await;
    let mut received = receiver.take(50);
    test.patch(id, json!({"paused": true})).await;
    test.until(id, |session| session["statistics"]["activity"] == "paused").await;
    received.extend(receiver.take_what_is_there());
    let position = test.get(id).await["statistics"]["packet"].as_u64().expect("a position");
    // What the clock says is not enough: a machine that stood still has received nothing meanwhile.
    let second = RATE.bps() / 8 / PACKET_LEN as u64;
    let before = received_packets(&test).await;
    eventually("a second and a half comes in", || async { received_packets(&test).await > before + second * 3 / 2 })
        .await;
    test.patch(id, json!({"paused": false})).await;
    received.extend(receiver.take(100));
    let after = test.get(id).await["statistics"]["packet"].as_u64().expect("a position");
    assert!(after - position > second, "it left out what came meanwhile");
    assert_continues(&packets(&received));
    drop(sender);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_live_input_has_not_is_refused() {
    let test = Harness::start(|_| {});
    let to = receive(&test, "udp://127.0.0.1:0", &[]);
    let receiver = Receiver::bind();
    let mut request = json!({"title": "live/news", "destination": receiver.url("udp")});
    let answer = test.send("POST", "/pump/sessions", &request.to_string()).await;
    assert_eq!((answer.status, answer.retry_after.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    assert_eq!(input(&test).await["state"], json!("silent"));
    request["title"] = json!("live/other");
    let answer = test.send("POST", "/pump/sessions", &request.to_string()).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);

    let _sender = Sender::start(to, false);
    until_receiving(&test).await;
    for (key, value) in
        [("start", json!(3)), ("end", json!(30)), ("loop", json!(true)), ("speed", json!(2)), ("rate", json!("3Mbps"))]
    {
        let mut request = json!({"title": "live/news", "destination": receiver.url("udp")});
        request[key] = value;
        let answer = test.send("POST", "/pump/sessions", &request.to_string()).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{key}");
        assert_eq!(answer.body["detail"], json!(format!("a live input has no {key}")));
    }
    let id = test.open(json!({"title": "live/news", "destination": receiver.url("udp")})).await;
    for change in [json!({"seek": 3}), json!({"scale": 2}), json!({"end": 3})] {
        assert_eq!(test.patch(id, change).await, StatusCode::UNPROCESSABLE_ENTITY);
    }
    eventually("they are counted", || async {
        let page = test.metrics().await;
        let counted = [
            "millrace_pump_live_state{input=\"news\",state=\"receiving\"} 1",
            "millrace_pump_live_state{input=\"news\",state=\"silent\"} 0",
            "millrace_pump_live_sessions{input=\"news\"} 1",
            "millrace_pump_live_continuity_errors_total{input=\"news\"} 0",
            "millrace_pump_live_foreign_total{input=\"news\"} 0",
        ];
        counted.iter().all(|line| page.contains(line))
    })
    .await;
}
