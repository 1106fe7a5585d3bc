//! The control plane between HTTP and workers: what happens when a worker has no room, and when tracks change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rooms::spec::{Command, TrackSpec};
use server::rooms::control::{Control, ControlError, Meter, WorkerPort};
use server::rooms::directory::{DirectoryError, Role};
use server::rooms::negotiator::{Answer, Request};
use wire::codec::{Codec, MediaKind};

#[tokio::test]
async fn commands_that_find_no_room_wait_and_keep_their_order() {
    let worker = Arc::new(Worker::default());
    let control = Control::new(vec![worker.port()], Duration::ZERO);
    worker.is_full.store(true, Ordering::Relaxed);

    control.publish("a", "VP8").await.expect("answered");
    control.publish("b", "VP8").await.expect("answered");
    control.close_stream("a").expect("it is there");
    assert!(worker.words().is_empty());
    worker.is_full.store(false, Ordering::Relaxed);
    control.handle_timeout(Instant::now());

    assert_eq!(worker.words(), ["open 1", "open 2", "close 1"]);
}

#[tokio::test]
async fn a_publisher_with_other_tracks_gets_a_stream_of_its_own_under_the_old_name() {
    let worker = Arc::new(Worker::default());
    let control = Control::new(vec![worker.port()], Duration::from_secs(10));

    control.publish("a", "VP8").await.expect("answered");
    control.publish("a", "H264").await.expect("answered");

    // The first attempt of the second one was for stream 1, and is taken back.
    assert_eq!(worker.words(), ["publish 1", "open 1", "publish 1", "end", "publish 2", "close 1", "open 2"]);
    assert_eq!(control.streams().len(), 1);
    assert_eq!(control.streams()[0].tracks[0].codec, Codec::H264);
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_no_session_behind() {
    let worker = Arc::new(Worker { is_mute: true, ..Worker::default() });
    let control = Control::new(vec![worker.port()], Duration::from_secs(10));

    let given_up = tokio::time::timeout(Duration::from_millis(20), control.publish("a", "VP8")).await;

    assert!(given_up.is_err());
    assert_eq!(control.session_counts(Role::Publisher), (0, 0));
    assert_eq!(worker.words(), ["publish 1", "end"]);
}

#[tokio::test]
async fn a_negotiator_without_room_is_told_as_busy() {
    let port = WorkerPort { request: Box::new(|_| false), ..Arc::new(Worker::default()).port() };
    let control = Control::new(vec![port], Duration::from_secs(10));

    assert_eq!(control.publish("a", "VP8").await, Err(ControlError::Busy));
    assert_eq!(control.session_counts(Role::Publisher), (0, 0));
}

#[tokio::test]
async fn busy_workers_take_no_newcomers_until_they_are_at_rest_again() {
    let worker = Arc::new(Worker::default());
    let busy_ns = Arc::new(AtomicU64::new(0));
    let counter = busy_ns.clone();
    let meter = move || {
        let mut meter = Meter::default();
        meter.engine.busy_ns = counter.load(Ordering::Relaxed);
        meter
    };
    let port = WorkerPort { meter: Box::new(meter), ..worker.port() };
    let control = Control::new(vec![port], Duration::from_secs(10)).with_busy_max(0.9);
    let start = Instant::now();
    let work = |from: u64, to: u64, percent: u64| {
        for tick in from..to {
            control.handle_timeout(start + Duration::from_millis(tick * 100));
            busy_ns.fetch_add(percent * 1_000_000, Ordering::Relaxed);
        }
    };

    control.publish("a", "VP8").await.expect("answered");
    work(0, 50, 99);
    let refused = Err(ControlError::Directory(DirectoryError::Overloaded));
    assert_eq!(control.publish("b", "VP8").await, refused);
    assert_eq!(control.watch("a", "VP8").await, refused);
    control.publish("a", "VP8").await.expect("who comes back is welcome");
    work(50, 60, 20);
    control.publish("b", "VP8").await.expect("answered");
}

/// A worker and its negotiator that write down what they are asked, in short words.
#[derive(Default)]
struct Worker {
    words: Mutex<Vec<String>>,
    is_full: AtomicBool,
    /// Requests are kept without an answer.
    is_mute: bool,
    unanswered: Mutex<Vec<Request>>,
}

impl Worker {
    fn port(self: &Arc<Self>) -> WorkerPort {
        let (worker, negotiator) = (self.clone(), self.clone());
        WorkerPort {
            command: Box::new(move |command| worker.obey(command)),
            request: Box::new(move |request| {
                negotiator.negotiate(request);
                true
            }),
            meter: Box::new(Meter::default),
        }
    }

    fn obey(&self, command: Command) -> Result<(), Command> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(command);
        }
        self.note(match command {
            Command::OpenStream(spec) => format!("open {}", spec.id.0),
            Command::CloseStream(id) => format!("close {}", id.0),
            other => panic!("unexpected {other:?}"),
        });
        Ok(())
    }

    /// An offer names the codec that it sends.
    fn negotiate(&self, request: Request) {
        match request {
            Request::Publish { stream, .. } if self.is_mute => {
                self.note(format!("publish {}", stream.0));
                self.unanswered.lock().expect("not poisoned").push(request);
            }
            Request::Publish { stream, offer, reply, .. } => {
                if !self.is_full.load(Ordering::Relaxed) {
                    self.note(format!("publish {}", stream.0));
                }
                let codec = if offer == "H264" { Codec::H264 } else { Codec::Vp8 };
                let track = TrackSpec { kind: MediaKind::Video, codec, clock_rate: 90_000, rids: Vec::new() };
                let answer = Answer { sdp: "answer".to_owned(), etag: "tag".to_owned(), tracks: vec![track] };
                reply.send(Ok(answer)).expect("somebody waits");
            }
            Request::Close { .. } => self.note("end".to_owned()),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn note(&self, word: String) {
        self.words.lock().expect("not poisoned").push(word);
    }

    /// What was asked since the last call.
    fn words(&self) -> Vec<String> {
        std::mem::take(&mut self.words.lock().expect("not poisoned"))
    }
}
