//! Against a sender of our own, and against a server that has just enough of the API.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;

use pump::sample::Sample;
use wire::Bitrate;
use wire::ts::DATAGRAM_LEN;

use super::*;
use crate::clients::typed;

const RATE: Bitrate = Bitrate::from_kbps(2_000);

fn title() -> Vec<u8> {
    Sample { rate: RATE, pictures: 25 * 20, ..Sample::default() }.make()
}

/// Sends a title at its rate until it is told to stop; of every so many datagrams one is left out.
fn send(title: &[u8], to: SocketAddr, lost_one_in: usize, is_over: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    for (count, datagram) in title.chunks_exact(DATAGRAM_LEN).enumerate() {
        let due = start + RATE.time_for(DATAGRAM_LEN * count);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        if (count + 1) % lost_one_in != 0 {
            // Nobody may listen yet, or any more.
            let _ = socket.send_to(datagram, to);
        }
    }
}

/// Listens to two streams, of which the second loses datagrams.
fn listen(lost_one_in: usize, more: &[&str]) -> Report {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), title()).unwrap();
    // Two neighbours that nobody else has: the host is this process's own, and each test has others.
    static LAST: AtomicU16 = AtomicU16::new(20_000);
    let first = LAST.fetch_add(2, Ordering::Relaxed);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 128 + high % 100, middle, low);
    let addr = format!("udp://{host}:{first}");
    let words =
        ["--listen", &addr, "--sessions", "2", "--seconds", "2.2", "--warm-up", "0.5", "--json", "--sample", "1"];
    let mut args: Args = typed(&[&words, more].concat()).unwrap();
    args.file = Some(file.path().into());
    let (is_over, title) = (AtomicBool::new(false), title());
    thread::scope(|scope| {
        for (port, lost_one_in) in [(first, usize::MAX), (first + 1, lost_one_in)] {
            let (title, is_over) = (&title, &is_over);
            scope.spawn(move || send(title, (host, port).into(), lost_one_in, is_over));
        }
        let report = measure(&args);
        is_over.store(true, Ordering::Relaxed);
        report.unwrap()
    })
}

#[test]
fn streams_of_any_sender_are_measured() {
    let report = listen(usize::MAX, &[]);
    assert_eq!((report.sessions, report.sessions_wanted), (2, 2));
    assert_eq!((report.lost, report.damaged, report.malformed, report.dropped_here), (0, 0, 0, 0), "{report:?}");
    assert!(report.matched > 100 && report.datagrams > 100, "{report:?}");
    // Two seconds of two streams, with much tolerance for a busy machine.
    assert!(report.bytes > 200_000 && report.bytes < 4_000_000, "{report:?}");
    assert!(report.times["interval"].count > 100 && report.times["lateness"].count > 10, "{report:?}");
    assert!(report.times["delay_factor"].count > 0 && report.times["delay_factor"].max_ms > 5.0, "{report:?}");
    assert_eq!((report.times["start"].count, report.underruns), (0, None));
    assert_eq!(report.failures(&Limits::default()), Vec::<String>::new());
}

#[test]
fn losses_are_found_and_are_a_failure_when_they_are_too_many() {
    let report = listen(20, &[]);
    assert!(report.lost > 0 && report.sessions_with_loss == 1, "{report:?}");
    assert_eq!(report.damaged, 0, "{report:?}");
    let limits = Limits { max_loss: Some(0.0), max_delay_factor: Some(0.001), ..Limits::default() };
    let failures = report.failures(&limits).join("; ");
    assert!(failures.contains("--max-loss") && failures.contains("--max-delay-factor"), "{failures}");
    let json = report.json();
    assert_eq!(json["packets"], report.datagrams);
    assert!(json["lost"].as_u64().is_some_and(|lost| lost > 0));
    assert!(json["values"]["interval_p99_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{json}");
    assert!(json["latency_ms"]["p99"].is_number());
}

/// Just enough of a pump: each session is a thread that sends the title.
struct Api {
    title: Vec<u8>,
    opened: AtomicUsize,
    closed: AtomicUsize,
    read: AtomicUsize,
    asked: Mutex<Vec<serde_json::Value>>,
    /// Where a live input comes in: then a session is what does.
    input: Option<UdpSocket>,
    is_over: AtomicBool,
}

impl Api {
    fn new(input: Option<UdpSocket>) -> Self {
        Api {
            title: title(),
            opened: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            asked: Mutex::default(),
            input,
            is_over: AtomicBool::new(false),
        }
    }

    /// Runs the load against it.
    fn load(&self, words: &[&str]) -> Report {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let url = format!("http://{addr}/");
        let args = typed(&[&["--url", &url, "--json"], words].concat()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| self.serve(&listener, scope));
            let report = measure(&args);
            self.is_over.store(true, Ordering::Relaxed);
            // The last connection only wakes the listener.
            drop(TcpStream::connect(addr));
            report.unwrap()
        })
    }

    fn serve<'scope>(&'scope self, listener: &TcpListener, scope: &'scope thread::Scope<'scope, '_>) {
        for stream in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let stream = stream.unwrap();
            scope.spawn(move || while self.answer(&stream, scope).is_some() {});
        }
    }

    fn answer<'scope>(&'scope self, stream: &TcpStream, scope: &'scope thread::Scope<'scope, '_>) -> Option<()> {
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, answer) = match line.split(' ').next()? {
            "POST" => {
                let wanted: serde_json::Value = serde_json::from_slice(&body).ok()?;
                let to: SocketAddr = wanted["destination"].as_str()?.strip_prefix("udp://")?.parse().ok()?;
                self.asked.lock().unwrap().push(wanted);
                scope.spawn(move || match &self.input {
                    Some(input) => self.send_on(input, to),
                    None => send(&self.title, to, usize::MAX, &self.is_over),
                });
                let id = self.opened.fetch_add(1, Ordering::Relaxed);
                ("201 Created", format!(r#"{{"id": "{id}"}}"#))
            }
            "DELETE" => {
                self.closed.fetch_add(1, Ordering::Relaxed);
                ("200 OK", "{}".into())
            }
            _ if line.contains("/metrics") => ("200 OK", self.metrics()),
            // It takes until something came in.
            _ if line.contains("/pump/titles") => ("200 OK", self.titles()),
            _ => ("200 OK", r#"{"statistics": {"underruns": 2}}"#.into()),
        };
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).ok()
    }

    fn titles(&self) -> String {
        let is_receiving = self.input.as_ref().is_some_and(|input| input.peek(&mut [0; 2_000]).is_ok());
        let state = if is_receiving { "receiving" } else { "silent" };
        format!(r#"[{{"name": "film.ts"}}, {{"name": "live/news", "state": "{state}"}}]"#)
    }

    fn send_on(&self, input: &UdpSocket, to: SocketAddr) {
        let mut datagram = [0; 2_000];
        while !self.is_over.load(Ordering::Relaxed) {
            if let Ok(len) = input.recv(&mut datagram) {
                input.send_to(&datagram[..len], to).unwrap();
            }
        }
    }

    /// From reading to reading 500 bursts more, all of them 100 µs late.
    fn metrics(&self) -> String {
        let bursts = 500 * self.read.fetch_add(1, Ordering::Relaxed);
        let name = "millrace_pump_lateness_seconds_bucket";
        format!("{name}{{worker=\"0\",le=\"0.000065536\"}} 0\n{name}{{worker=\"0\",le=\"0.000131072\"}} {bursts}\n")
    }
}

#[test]
fn sessions_are_opened_received_and_closed_again() {
    let api = Api::new(None);
    let words = "--title film.ts --sessions 5 --threads 2 --seconds 1 --warm-up 0.3 --unreceived 1 --sink 127.77.0.1:9 \
                 --burst 2 --loop";
    let report = api.load(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!((report.sessions, report.lost, report.damaged), (5, 0, 0), "{report:?}");
    assert_eq!((report.times["start"].count, report.underruns), (5, Some(2 * 6)), "{report:?}");
    let json = report.json();
    assert_eq!((&json["values"]["unreceived"], &json["values"]["server_bursts"]), (&1.into(), &500.into()), "{json}");
    let late_ms = json["values"]["server_lateness_p99_ms"].as_f64().unwrap();
    assert!((0.065..0.132).contains(&late_ms), "{json}");
    assert_eq!((api.opened.into_inner(), api.closed.into_inner()), (6, 6));
    let asked = api.asked.into_inner().unwrap();
    assert!(asked.iter().all(|asked| asked["title"] == "film.ts" && asked["burst"] == 2 && asked["loop"] == true));
    let to = |asked: &serde_json::Value| asked["destination"].as_str().unwrap().to_owned();
    let mut places: Vec<String> = asked.iter().map(to).collect();
    places.sort();
    places.dedup();
    assert!(places.len() == 6 && places.contains(&"udp://127.77.0.1:9".to_owned()), "{places:?}");
}

#[test]
fn newcomers_come_while_it_counts_with_titles_of_their_own_and_only_their_start_counts() {
    let api = Api::new(None);
    let words = "--title {n}.ts --sessions 2 --newcomers-per-second 4 --seconds 3 --warm-up 0 \
                 --newcomers-title new-{n}.ts --faulty 2 --origin 127.0.0.1:0 --rate 1Mbps";
    let report = api.load(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!((report.sessions, report.times["start"].count), (2, 2), "{report:?}");
    // The machine may be so busy that one of the last is late.
    assert!(report.newcomers >= 6 && report.newcomers + report.refused == 12, "{report:?}");
    assert!(report.times["newcomer_start"].count >= 6 && report.faulty >= 1, "{report:?}");
    assert!(report.json()["values"]["newcomer_start_p999_ms"].is_number());
    let opened = api.opened.into_inner();
    assert_eq!((opened, api.closed.into_inner()), (2 + report.newcomers + report.faulty, opened));
    let asked = api.asked.into_inner().unwrap();
    let mut titles: Vec<&str> = asked.iter().map(|asked| asked["title"].as_str().unwrap()).collect();
    titles.sort_unstable();
    titles.dedup();
    assert_eq!(titles.len(), opened);
    assert!(titles.contains(&"0.ts") && titles.contains(&"new-2.ts") && titles.contains(&"slow-0.ts"), "{titles:?}");
}

#[test]
fn the_load_is_the_source_of_a_live_input_and_what_comes_of_it_is_compared() {
    let input = UdpSocket::bind("127.0.0.1:0").unwrap();
    input.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    for scheme in ["udp", "rtp"] {
        let to = format!("{scheme}://{}", input.local_addr().unwrap());
        let api = Api::new(Some(input.try_clone().unwrap()));
        let words = "--title live/news --rate 2Mbps --sessions 1 --seconds 1 --warm-up 0.3";
        let report = api.load(&[&words.split(' ').collect::<Vec<_>>()[..], &["--feed", &to]].concat());
        assert_eq!((report.sessions, report.lost, report.damaged), (1, 0, 0), "{report:?}");
        assert!(report.matched > 100 && report.times["lateness"].count > 5, "{report:?}");
    }
}

#[test]
fn those_that_are_received_start_among_the_others() {
    assert_eq!(spread(2, 6), [2, 0, 3, 4, 5, 1, 6, 7]);
    assert_eq!(spread(3, 0), [0, 1, 2]);
    assert_eq!(spread(3, 1), [0, 1, 3, 2]);
    let order = spread(200, 3_300);
    let places: Vec<usize> = (0..200).map(|number| order.iter().position(|other| *other == number).unwrap()).collect();
    assert!(places.windows(2).all(|pair| (17..=18).contains(&(pair[1] - pair[0]))), "{places:?}");
}

#[test]
fn a_server_that_refuses_is_quoted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let args = typed(&["--url", &url, "--title", "film.ts", "--sessions", "1", "--json"]).unwrap();
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\nConnection: close\r\n\r\nno title");
        });
        format!("{:#}", measure(&args).unwrap_err())
    });
    assert!(error.contains("404") && error.contains("no title"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for words in [
        &["--seconds", "1"][..],
        &["--title", "a", "--listen", "udp://127.0.0.1:5000"],
        &["--listen", "udp://localhost:5000"],
        &["--listen", "udp://127.0.0.1:5000", "--unreceived", "5"],
        &["--title", "a", "--burst", "8"],
        &["--title", "a", "--faulty", "2"],
        &["--title", "a", "--seconds", "nan"],
        &["--listen", "udp://127.0.0.1:5000", "--origin", "127.0.0.1:0"],
        &["--listen", "udp://127.0.0.1:5000", "--newcomers-per-second", "3"],
        &["--listen", "udp://127.0.0.1:5000", "--feed", "udp://127.0.0.1:5001"],
        &["--title", "a", "--feed", "http://127.0.0.1:5001"],
        &["--title", "a", "--rtsp", "127.0.0.1:554", "--burst", "2"],
    ] {
        assert!(typed::<Args>(words).is_err(), "{words:?}");
    }
    for words in [
        &["--title", "a", "--sessions", "0"][..],
        &["--title", "a", "--url", "https://127.0.0.1"],
        &["--title", "a", "--sessions", "70000"],
        &["--title", "a", "--sample", "2"],
        &["--listen", "udp://127.0.0.1:65535", "--sessions", "2"],
    ] {
        assert!(measure(&typed(words).unwrap()).is_err(), "{words:?}");
    }
    let args: Args = typed(&["--listen", "rtp://@239.1.1.1:5004"]).unwrap();
    assert_eq!(args.listen.unwrap().to_string(), "239.1.1.1:5004");
}
