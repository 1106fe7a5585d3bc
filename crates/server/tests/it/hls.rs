//! A stream as players that speak HLS meet it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use live::{Event, Format, Reader};
use reflect::hls::{Container, Settings};
use server::reflect::hls::Hls;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tower::ServiceExt as _;

use crate::skip::skip;

const UNIT: u64 = 188;
/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that is asked is counted, so that a test knows that somebody is there.
#[derive(Clone)]
struct Shared {
    hls: Arc<Hls>,
    asked: watch::Sender<usize>,
}

struct Harness {
    shared: Shared,
    router: Router,
    file: Arc<File>,
    begun: Instant,
    at: u64,
}

impl Harness {
    fn new(container: Container, part_target: Option<Duration>) -> Self {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let settings = Settings {
            container,
            target: Duration::from_secs(1),
            window: None,
            part_target,
            backlog_size: 1 << 30,
            first_number: 1_700_000_000,
        };
        let shared = Shared { hls: Arc::new(Hls::new(settings, file.clone())), asked: watch::Sender::new(0) };
        let router = Router::new().route("/live/a/{name}", get(answer)).with_state(shared.clone());
        Harness { shared, router, file, begun: Instant::now(), at: 0 }
    }

    /// So many seconds, a start point and ten units each.
    fn seconds(&mut self, count: usize) {
        for _ in 0..count {
            let second = self.at / (10 * UNIT);
            let now = self.begun + Duration::from_secs(second);
            self.shared.hls.tell(|playlist| {
                playlist.set_header(b"header");
                playlist.handle_start(self.at, Some(Duration::from_secs(second)), now);
            });
            for tenth in 1..=10 {
                self.file.write_all_at(&[self.at as u8; UNIT as usize], self.at).expect("room");
                self.at += UNIT;
                let now = now + Duration::from_millis(100 * tenth);
                self.shared.hls.tell(|playlist| playlist.handle_boundary(self.at, now));
            }
        }
    }

    async fn get(&self, name: &str) -> (StatusCode, Vec<u8>) {
        read(ask(&self.router, name).await).await
    }

    /// Asks, and returns when the question is there.
    async fn begin(&self, name: &str) -> tokio::task::JoinHandle<(StatusCode, Vec<u8>)> {
        let (router, name, before) = (self.router.clone(), name.to_owned(), *self.shared.asked.borrow());
        let task = tokio::spawn(async move { read(ask(&router, &name).await).await });
        let mut asked = self.shared.asked.subscribe();
        asked.wait_for(|asked| *asked > before).await.expect("it lives");
        task
    }
}

async fn answer(State(shared): State<Shared>, Path(name): Path<String>, RawQuery(query): RawQuery) -> Response {
    shared.asked.send_modify(|asked| *asked += 1);
    shared.hls.answer(&name, query.as_deref()).await.into_response()
}

async fn ask(router: &Router, name: &str) -> Response {
    let request = Request::get(format!("/live/a/{name}")).body(Body::empty()).expect("a request");
    router.clone().oneshot(request).await.expect("an answer")
}

async fn read(response: Response) -> (StatusCode, Vec<u8>) {
    let status = response.status();
    (status, to_bytes(response.into_body(), usize::MAX).await.expect("all of it").to_vec())
}

#[tokio::test]
async fn segments_are_the_backlog_behind_the_header() {
    let mut test = Harness::new(Container::Ts, None);
    test.seconds(3);
    let (status, text) = test.get("index.m3u8?token=a/b&x=%22&_HLS_skip=YES").await;
    let text = String::from_utf8(text).expect("text");
    assert_eq!(status, StatusCode::OK, "{text}");
    let list = "#EXTINF:1.000,\n1700000000.ts?token=a/b&x=%22\n#EXTINF:1.000,\n1700000001.ts?token=a/b&x=%22\n";
    assert!(text.ends_with(list), "{text}");
    let response = ask(&test.router, "1700000001.ts").await;
    let headers = response.headers();
    assert_eq!(headers["content-type"], "video/mp2t");
    assert_eq!(headers["cache-control"], "max-age=3600, immutable");
    let bytes: Vec<u8> = (10..20).flat_map(|unit| [(unit * UNIT) as u8; UNIT as usize]).collect();
    assert_eq!(read(response).await, (StatusCode::OK, [&b"header"[..], &bytes].concat()));
    for nothing in ["1699999999.ts", "1700000003.ts", "01700000000.ts", "x.ts", "init-1.mp4", "index.html", "0.0.0.ts"]
    {
        assert_eq!(test.get(nothing).await.0, StatusCode::NOT_FOUND, "{nothing}");
    }
}

#[tokio::test]
async fn who_asks_for_what_comes_next_has_it_when_it_is_there() {
    let mut test = Harness::new(Container::Ts, Some(Duration::from_millis(200)));
    let first = test.begin("index.m3u8").await;
    test.seconds(2);
    assert_eq!(first.await.expect("an answer").0, StatusCode::OK);
    let segment = test.begin("1700000001.ts").await;
    let part = test.begin("1700000002.0.ts").await;
    let playlist = test.begin("index.m3u8?_HLS_msn=1700000002&_HLS_part=1").await;
    assert!(!segment.is_finished() && !playlist.is_finished());
    assert_eq!(part.await.expect("an answer").0, StatusCode::NOT_FOUND, "nobody is told of it yet");
    test.seconds(2);
    assert_eq!(segment.await.expect("an answer").1.len(), 6 + 10 * UNIT as usize);
    let (status, text) = playlist.await.expect("an answer");
    let text = String::from_utf8(text).expect("text");
    assert!(status == StatusCode::OK && text.contains("\"1700000002.1.ts\""), "{text}");
    let parts = test.get("1700000002.0.ts").await.1.len() + test.get("1700000002.1.ts").await.1.len();
    assert_eq!(parts, 6 + 4 * UNIT as usize);
    for wrong in ["_HLS_part=1", "_HLS_msn=x", "_HLS_msn=-1", "_HLS_msn=1700000009"] {
        assert_eq!(test.get(&format!("index.m3u8?{wrong}")).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let last = test.begin("1700000003.ts").await;
    test.shared.hls.tell(|playlist| playlist.end(test.at, test.begun));
    assert_eq!(last.await.expect("an answer").0, StatusCode::OK);
    assert_eq!(test.get("1700000004.ts").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn who_waits_for_what_another_process_will_have_is_answered_at_once() {
    let mut test = Harness::new(Container::Ts, Some(Duration::from_millis(200)));
    test.seconds(3);
    let segment = test.begin("1700000002.ts").await;
    let playlist = test.begin("index.m3u8?_HLS_msn=1700000002").await;
    let asked = Instant::now();
    test.shared.hls.give_away(asked);
    assert_eq!(segment.await.expect("an answer").0, StatusCode::SERVICE_UNAVAILABLE);
    let (status, text) = playlist.await.expect("an answer");
    assert!(status == StatusCode::OK && text.starts_with(b"#EXTM3U\n"), "{status}");
    assert_eq!(test.get("1700000001.ts").await.0, StatusCode::OK, "what is there is there still");
}

#[tokio::test]
async fn of_what_the_backlog_forgets_the_answer_breaks_off() {
    let mut test = Harness::new(Container::Ts, None);
    test.seconds(3);
    let response = ask(&test.router, "1700000000.ts").await;
    test.shared.hls.tell(|playlist| playlist.forget(UNIT));
    assert!(to_bytes(response.into_body(), usize::MAX).await.is_err());
    assert_eq!(test.get("1700000000.ts").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ffmpeg_plays_a_transport_stream() {
    ffmpeg_sees_every_picture(Container::Ts, "-f mpegts").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ffmpeg_plays_fragmented_mp4() {
    ffmpeg_sees_every_picture(Container::Mp4, "-f mp4 -movflags frag_keyframe+empty_moov+default_base_moof").await;
}

/// Half of a stream is there when ffmpeg comes, and the rest once it has asked for the list.
async fn ffmpeg_sees_every_picture(container: Container, muxer: &str) {
    let made = "-f lavfi -i testsrc2=s=160x120:r=25:d=6 -c:v libx264 -preset ultrafast -g 25 -sc_threshold 0 -bf 0";
    let Some(stream) = run(&format!("{made} {muxer} pipe:1"), Stdio::null()) else {
        skip("HLS played by ffmpeg: ffmpeg is not installed, or lacks an encoder");
        return;
    };
    let mut made = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut made, &stream).expect("room");
    let path = made.path().display();
    let pictures = run(&format!("-i file:{path} -f framehash pipe:1"), Stdio::null()).expect("what ffmpeg made");
    let mut test = Harness::new(container, None);
    let mut source = Source::new(if container == Container::Ts { Format::Ts } else { Format::Mp4 });
    let (before, after) = stream.split_at(stream.len() / 2);
    source.write(&test, before);

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/live/a/index.m3u8", listener.local_addr().expect("bound"));
    let (close, closing) = oneshot::channel::<()>();
    let router = std::mem::take(&mut test.router);
    let served = axum::serve(listener, router).with_graceful_shutdown(async { drop(closing.await) });
    let serving = tokio::spawn(served.into_future());
    let player = tokio::task::spawn_blocking(move || {
        run(&format!("-live_start_index 0 -i {url} -map 0:v -f framehash pipe:1"), Stdio::inherit())
    });
    test.shared.asked.subscribe().wait_for(|asked| *asked > 1).await.expect("ffmpeg asks");
    source.write(&test, after);
    test.shared.hls.tell(|playlist| playlist.end(stream.len() as u64, test.begun));
    let played = tokio::time::timeout(PATIENCE, player).await.expect("it ends").expect("no panic").expect("it plays");
    drop(close);
    serving.await.expect("no panic").expect("served");
    assert_eq!(hashes(&played).len(), 150);
    assert_eq!(hashes(&played), hashes(&pictures));
}

/// What an inlet does, in one piece per write.
struct Source {
    reader: Reader,
    at: u64,
}

impl Source {
    fn new(format: Format) -> Self {
        Source { reader: Reader::new(format), at: 0 }
    }

    fn write(&mut self, test: &Harness, mut bytes: &[u8]) {
        test.file.write_all_at(bytes, self.at).expect("room");
        self.at += bytes.len() as u64;
        while let Some(event) = self.reader.read(&mut bytes).expect("what ffmpeg made") {
            test.shared.hls.tell(|playlist| match event {
                Event::Header(header) => playlist.set_header(&header.bytes),
                Event::Start(start) => playlist.handle_start(start.at, start.time, test.begun),
            });
        }
    }
}

/// What ffmpeg writes, if it can do that at all.
fn run(flags: &str, stderr: Stdio) -> Option<Vec<u8>> {
    let flags = flags.split(' ').filter(|flag| !flag.is_empty());
    let ffmpeg = Command::new("ffmpeg").args(["-v", "error", "-nostdin"]).args(flags).stderr(stderr).output().ok()?;
    ffmpeg.status.success().then_some(ffmpeg.stdout)
}

/// Of each picture, in order.
fn hashes(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit(',').next()).map(|hash| hash.trim().to_owned()).collect()
}
