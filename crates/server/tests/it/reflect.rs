//! The reflector's control plane: what workers are told of streams and viewers, and who gets in.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use engine::{Receiver, mailbox};
use pump::sample::Sample;
use reflect::course::Course;
use reflect::spec::{Command, EndReason, EndedViewer, Event, StreamId, ViewerId};
use server::config::Config;
use server::plane::workers::Workers;
use server::plane::{Plane, ProductControl as _, placement};
use server::reflect::control::{Admission, Arrived, Control, Found, Refusal};
use server::reflect::stream::{Stream, StreamHandle, WriteError};
use server::worker::Message;
use tokio::time::{sleep, timeout};
use wire::{Begun, WorkerId};

const WORKER: WorkerId = WorkerId(0);
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Harness {
    pub control: Arc<Control>,
    pub plane: Arc<Plane>,
    pub workers: Vec<Receiver<Message>>,
    bytes: Vec<u8>,
}

impl Harness {
    /// With so many workers, and streams as a file has them.
    pub fn new(workers: usize, settings: &str) -> Self {
        Self::with_room_for(usize::MAX, workers, settings)
    }

    /// The same in a process that has descriptors for so many viewers.
    fn with_room_for(viewers_max: usize, workers: usize, settings: &str) -> Self {
        let (mailboxes, receivers) = (0..workers).map(|_| mailbox(1_000).expect("a mailbox")).unzip();
        // Others are no trouble, so that viewers are spread.
        let spread = placement::Settings { near_max: 0.0, ..placement::Settings::default() };
        let plane = Plane::new(Workers::pretended(mailboxes), spread);
        let control = Control::new(plane.clone(), None, viewers_max);
        let harness =
            Harness { control, plane, workers: receivers, bytes: Sample { pictures: 50, ..Sample::default() }.make() };
        harness.apply(settings);
        harness
    }

    fn apply(&self, settings: &str) {
        let mut config = Config::default();
        config.apply_toml("test", settings).expect("settings");
        self.control.apply(&config.reflect).expect("memory");
    }

    fn stream(&self, path: &str) -> Arc<Stream> {
        let Some(Found::Stream(stream)) = self.control.find(path) else { panic!("{path} is a stream") };
        stream
    }

    /// Somebody pushes, and a part of it came.
    pub async fn push(&self, path: &str) -> StreamHandle {
        let handle = self.stream(path).claim(Instant::now(), None).expect("nobody else does");
        handle.write(&self.bytes).await.expect("taken");
        let is_ready = async {
            while self.stream(path).content().is_none() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, is_ready).await.expect("in time");
        handle
    }

    fn admit(&self, path: &str, client: &str) -> Result<Admission, Refusal> {
        let client: IpAddr = client.parse().expect("an address");
        self.control.admit(&self.stream(path), Some(client), false)
    }

    pub fn serve(&self, path: &str) {
        let (descriptor, _) = UnixStream::pair().expect("a pair");
        let head = Box::default();
        let arrived = Arrived { descriptor: OwnedFd::from(descriptor), begun: Begun::default(), head, join: None };
        self.admit(path, "192.0.2.1").expect("a place").serve(arrived);
    }

    /// What a worker was told but for what has grown, and the last viewer and stream of it.
    fn told(&self, worker: usize) -> Vec<String> {
        std::iter::from_fn(|| self.workers[worker].try_recv()).filter_map(|message| named(&message)).collect()
    }

    fn end(&self, viewer: u64, stream: u64) {
        let ended = EndedViewer {
            id: ViewerId(viewer),
            stream: StreamId(stream),
            reason: EndReason::Closed,
            sent_bytes: 7,
            course: Course { skips: 1, ..Course::default() },
            age: Duration::ZERO,
        };
        self.control.handle_event(WORKER, Event::ViewerEnded(ended));
    }

    /// Writes until a worker is told of it.
    async fn until_told(&self, handle: &StreamHandle) {
        let is_told = async {
            loop {
                handle.write(&self.bytes).await.expect("taken");
                let mut messages = std::iter::from_fn(|| self.workers[0].try_recv());
                if messages.any(|message| matches!(message, Message::Reflect(Command::Grown { .. }))) {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, is_told).await.expect("in time");
    }
}

fn named(message: &Message) -> Option<String> {
    let Message::Reflect(command) = message else { panic!("{message:?}") };
    Some(match command {
        Command::AddStream { .. } => "add stream".to_owned(),
        Command::RemoveStream(_) => "remove stream".to_owned(),
        Command::AddViewer(viewer) => format!("add viewer {}", viewer.id.0),
        Command::EndViewer(viewer) => format!("end viewer {}", viewer.0),
        Command::Grown { .. } | Command::ChangeStream { .. } => return None,
        other => panic!("{other:?}"),
    })
}

/// The first stream of a control, in its first edition.
const FIRST: u64 = 1 << 16;

#[tokio::test]
async fn a_worker_has_a_stream_from_its_first_viewer_to_its_last() {
    let test = Harness::new(1, "[[reflect.streams]]\nname = \"a\"\n");
    let handle = test.push("/live/a").await;
    assert_eq!(test.told(0), [""; 0], "nobody watches");
    test.serve("/live/a");
    test.serve("/live/a");
    assert_eq!(test.told(0), ["add stream", "add viewer 1", "add viewer 2"]);
    test.until_told(&handle).await;

    test.end(1, FIRST);
    assert_eq!(test.told(0), [""; 0]);
    test.end(2, FIRST);
    assert_eq!(test.told(0), ["remove stream"]);
    // Before the worker has let go of it.
    test.serve("/live/a");
    assert_eq!(test.told(0), ["add stream", "add viewer 3"]);
    test.control.handle_event(WORKER, Event::Left(StreamId(FIRST)));
    test.until_told(&handle).await;

    assert!(test.control.end_viewer(ViewerId(3)) && !test.control.end_viewer(ViewerId(2)));
    assert_eq!(test.told(0), ["end viewer 3"]);
    let shown = &test.control.streams()[0];
    assert_eq!((shown.viewers, shown.totals.begun, shown.totals.sent_bytes, shown.totals.skips), (1, 3, 14, 2));
}

#[tokio::test]
async fn viewers_are_spread_and_the_stream_goes_where_they_are() {
    let test = Harness::new(2, "[[reflect.streams]]\nname = \"a\"\n");
    test.push("/live/a").await;
    for _ in 0..4 {
        test.serve("/live/a");
    }
    let told = [test.told(0), test.told(1)];
    assert!(told.iter().all(|told| told[0] == "add stream" && told.len() == 3), "{told:?}");
}

#[tokio::test]
async fn there_are_so_many_places_and_they_come_back() {
    let streams = "[[reflect.streams]]\nname = \"a\"\nviewers_max = 2\n[[reflect.streams]]\nname = \"b\"\n";
    let limits = "[reflect]\nviewers_max = 3\nviewers_per_client = 2\n";
    let test = Harness::new(1, &format!("{limits}{streams}"));
    assert_eq!(test.admit("/live/a", "192.0.2.1").err(), Some(Refusal::NotReady));
    for path in ["/live/a", "/live/b"] {
        test.push(path).await;
    }
    let one = test.admit("/live/a", "2001:db8::1").expect("a place");
    let two = test.admit("/live/b", "2001:db8::2").expect("a place");
    assert_eq!(test.admit("/live/a", "2001:db8::3").err(), Some(Refusal::ClientFull), "the same network");
    drop(two);
    let two = test.admit("/live/a", "192.0.2.1").expect("a place");
    assert_eq!(test.admit("/live/a", "192.0.2.2").err(), Some(Refusal::StreamFull));
    let three = test.admit("/live/b", "192.0.2.2").expect("a place");
    assert_eq!(test.admit("/live/b", "192.0.2.3").err(), Some(Refusal::Full));
    drop((one, two, three));
    assert_eq!(test.control.viewer_count(), 0);

    test.apply(&format!("[reflect]\nbandwidth_max = \"1Mbps\"\n{streams}"));
    test.plane.start_drain();
    assert_eq!(test.admit("/live/a", "192.0.2.1").err(), Some(Refusal::Draining));
}

#[tokio::test]
async fn players_of_hls_are_viewers_until_they_ask_no_more() {
    let test = Harness::new(1, "[reflect]\nviewers_per_client = 2\n[[reflect.streams]]\nname = \"a\"\n");
    test.push("/live/a").await;
    let visit = |client: &str, agent: &str, target: &str| {
        let request =
            Request::get(format!("/live/a/{target}")).header("User-Agent", agent).body(()).expect("a request");
        let client: IpAddr = client.parse().expect("an address");
        test.control.visit(&test.stream("/live/a"), (Some(client), false), &request.into_parts().0)
    };
    let one = visit("192.0.2.1", "player", "index.m3u8?_HLS_msn=7&a=b").expect("a place").expect("a session");
    visit("192.0.2.1", "player", "8.ts?a=b").expect("the same");
    assert_eq!(test.control.viewer_count(), 1);
    visit("192.0.2.1", "other", "8.ts?a=b").expect("a place");
    assert_eq!(visit("192.0.2.1", "player", "index.m3u8").err(), Some(Refusal::ClientFull));
    visit("192.0.2.2", "player", "index.m3u8?a=b").expect("a place");
    assert_eq!(test.control.viewer_count(), 3);

    let body = axum::body::to_bytes(one.count(Body::from("12345")), 10).await.expect("a body");
    assert_eq!(body.len(), 5);
    let viewers = test.control.viewers("a", ViewerId(0), 10).expect("a stream").0;
    assert!(viewers.iter().all(|viewer| viewer.is_hls && viewer.worker.is_none()), "{viewers:?}");
    assert!(test.control.end_viewer(viewers[2].id));
    assert_eq!(test.control.viewer_count(), 2);
    let now = Instant::now();
    test.control.handle_timeout(now);
    assert_eq!(test.control.viewer_count(), 2, "they may ask again");
    test.control.handle_timeout(now + Duration::from_secs(30));
    assert_eq!(test.control.viewer_count(), 0);
    let totals = &test.control.streams()[0].totals;
    assert_eq!((totals.begun, totals.sent_bytes), (3, 5));
    visit("192.0.2.1", "player", "index.m3u8").expect("a place");
}

#[tokio::test]
async fn there_are_no_more_viewers_than_descriptors() {
    let test = Harness::with_room_for(1, 1, "[[reflect.streams]]\nname = \"a\"\n");
    test.push("/live/a").await;
    let one = test.admit("/live/a", "192.0.2.1").expect("a place");
    assert_eq!(test.admit("/live/a", "192.0.2.2").err(), Some(Refusal::Full));
    drop(one);
    test.admit("/live/a", "192.0.2.2").expect("a place");
}

#[tokio::test]
async fn another_may_push_when_the_first_is_silent() {
    let test = Harness::new(1, "[[reflect.streams]]\nname = \"a\"\npush_silence = \"5s\"\n");
    let before = Instant::now();
    let first = test.push("/live/a").await;
    let (stream, after) = (test.stream("/live/a"), Instant::now());
    assert!(stream.claim(before + Duration::from_secs(4), None).is_err());
    let second = stream.claim(after + Duration::from_secs(6), None).expect("it is silent");
    assert!(matches!(first.write(b"x").await, Err(WriteError::Superseded)));
    first.break_off();
    second.write(&test.bytes).await.expect("it is the one");
    test.apply("");
    assert!(matches!(second.write(b"x").await, Err(WriteError::Ended)));
}

#[tokio::test]
async fn who_watches_a_stream_that_is_removed_gets_what_is_left_and_others_go_on() {
    let test = Harness::new(1, "[[reflect.streams]]\nname = \"a\"\n[[reflect.streams]]\nname = \"b\"\n");
    for path in ["/live/a", "/live/b"] {
        test.push(path).await;
        test.serve(path);
    }
    test.told(0);
    test.apply(
        "[[reflect.streams]]\nname = \"b\"\npath = \"/b\"\n[[reflect.streams]]\nname = \"c\"\nmetacube = true\n",
    );
    assert_eq!(test.told(0), ["remove stream"]);
    assert!(test.control.find("/live/a").is_none() && test.control.find("/live/b").is_none());
    let names: Vec<String> = test.control.streams().iter().map(|stream| stream.name.to_string()).collect();
    assert_eq!(names, ["b", "c", "c.metacube"]);
    assert_eq!(test.stream("/b").name().as_ref(), "b");
    test.end(1, FIRST);
    test.control.handle_event(WORKER, Event::Left(StreamId(FIRST)));
    assert_eq!(test.control.viewer_count(), 1);
}

#[tokio::test]
async fn who_watches_is_told_of_all_before_a_stream_ends() {
    for is_removed in [true, false] {
        let test = Harness::new(1, "[[reflect.streams]]\nname = \"a\"\n");
        let handle = test.push("/live/a").await;
        test.serve("/live/a");
        // The first is told of, and the second waits.
        for _ in 0..2 {
            handle.write(&test.bytes).await.expect("taken");
        }
        handle.break_off();
        if is_removed {
            test.apply("");
        } else {
            let other = test.stream("/live/a").claim(Instant::now(), Some("audio/mpeg")).expect("nobody else does");
            other.write(&[0xff, 0xfb, 0x90, 0].repeat(1_000)).await.expect("taken");
        }
        let messages = std::iter::from_fn(|| test.workers[0].try_recv());
        let growths = messages.filter_map(|message| match message {
            Message::Reflect(Command::Grown { stream: StreamId(FIRST), growth, .. }) => Some(growth.extent.end),
            _ => None,
        });
        let (told, came) = (growths.max().expect("it grew"), 3 * test.bytes.len() as u64);
        assert!(told + 1_000 > came, "{told} of {came}, less what came before the first start point");
    }
}

#[tokio::test]
async fn for_whom_a_stream_is_copied_gets_the_rest_when_it_is_removed_or_its_format_changes() {
    for is_removed in [true, false] {
        let test = Harness::new(1, "[[reflect.streams]]\nname = \"a\"\n");
        let handle = test.push("/live/a").await;
        let body = test.admit("/live/a", "192.0.2.1").expect("a place").copy(None);
        // He reads nothing yet.
        for _ in 0..2 {
            handle.write(&test.bytes).await.expect("taken");
        }
        if is_removed {
            test.apply("");
        } else {
            handle.begin(Some("audio/mpeg"));
            handle.write(&[0xff, 0xfb, 0x90, 0].repeat(1_000)).await.expect("taken");
            let other = test.admit("/live/a", "192.0.2.1").expect("a place").copy(None);
            handle.break_off();
            test.apply("");
            assert_eq!(read(other).await, [0xff, 0xfb, 0x90, 0].repeat(1_000), "the next edition has others");
        }
        assert!(read(body).await.ends_with(&test.bytes.repeat(2)), "from the newest start point on");
        let is_gone = async {
            while test.control.viewer_count() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, is_gone).await.expect("in time");
    }
}

async fn read(body: Body) -> Vec<u8> {
    let read = timeout(PATIENCE, to_bytes(body, usize::MAX)).await;
    read.expect("in time").expect("it does not break off").into()
}

#[tokio::test]
async fn what_is_pushed_in_another_format_is_another_stream_for_workers() {
    let test = Harness::new(1, "[[reflect.streams]]\nname = \"a\"\n");
    let handle = test.push("/live/a").await;
    test.serve("/live/a");
    test.told(0);
    handle.begin(Some("audio/mpeg"));
    handle.write(b"\xff\xfb\x90\0 and so on, long enough to be told from others").await.expect("taken");
    assert_eq!(test.told(0), ["remove stream"]);
    test.end(1, FIRST);
    test.control.handle_event(WORKER, Event::Left(StreamId(FIRST)));
    assert_eq!(test.told(0), [""; 0], "it was of the edition before");
}
