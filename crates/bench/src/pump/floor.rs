//! The least that it takes: a timing wheel, ready-made bytes, and one message of several datagrams per burst.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::sys::{self, Epoll, MESSAGES_MAX, Outgoing, Payload, SendBatch};
use engine::udp::{Options, UdpSocket};
use wheel::Wheel;
use wire::ts::DATAGRAM_LEN;
use wire::{LinkId, Path};

use super::Case;
use super::scene::{Scene, Stream};
use super::window::Window;
use crate::comparison::{Sample, on_threads};

/// For how long a full socket is waited for; then its datagrams count as refused.
const STALL_MAX: Duration = Duration::from_millis(2);

pub(super) fn run(scene: &Scene, case: &Case<'_>) -> Result<Sample> {
    let zero = Instant::now();
    let senders = (0..case.args.workers).map(|index| Sender::new(&scene.share(index, case.args.workers), case, zero));
    let senders: Vec<Sender> = senders.collect::<Result<_>>()?;
    let window = case.window();
    on_threads(senders, |sender| sender.run(&window), || window.measure(|| ()))
}

/// One thread's streams.
struct Sender {
    socket: UdpSocket,
    epoll: Epoll,
    batch: SendBatch,
    burst: u8,
    lines: Vec<Line>,
    wheel: Wheel<u32>,
    /// Streams whose burst waits for the next call, and when each was due.
    waiting: Vec<(u32, Instant)>,
}

struct Line {
    stream: Arc<Stream>,
    path: Path,
    interval: Duration,
    first: Instant,
    /// Bursts that were sent.
    turn: u32,
}

impl Line {
    fn due(&self) -> Instant {
        self.first + self.interval * self.turn
    }
}

impl Sender {
    fn new(streams: &[Arc<Stream>], case: &Case<'_>, zero: Instant) -> Result<Self> {
        let any_port = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let lines = streams.iter().map(|stream| Line {
            stream: Arc::clone(stream),
            path: Path { link: LinkId::datagrams(0), remote: stream.to, local: None },
            interval: stream.content.interval(case.burst),
            first: zero + stream.phase(case.burst),
            turn: 0,
        });
        let lines: Vec<Line> = lines.collect();
        let mut wheel = Wheel::new(zero, case.args.tick());
        for (index, line) in lines.iter().enumerate() {
            wheel.insert(line.first, index as u32);
        }
        Ok(Sender {
            socket: UdpSocket::bind(any_port, &Options::default()).context("bind a sending socket")?,
            epoll: Epoll::new(1).context("open an epoll set")?,
            batch: SendBatch::default(),
            burst: case.burst,
            lines,
            wheel,
            waiting: Vec::with_capacity(MESSAGES_MAX),
        })
    }

    fn run(mut self, window: &Window) -> Result<Sample> {
        sys::set_timer_slack(Duration::from_nanos(1)).context("set the timers' slack")?;
        let mut sample = Sample::default();
        let mut now = Instant::now();
        while now < window.end {
            let next = self.wheel.next_deadline().unwrap_or(window.end);
            // What was sent since took its time, and the next tick is none the later for it.
            self.epoll
                .wait(Some(next.saturating_duration_since(Instant::now())))
                .context("wait for the next deadline")?;
            now = Instant::now();
            while let Some(index) = self.wheel.pop_due(now) {
                self.waiting.push((index, self.lines[index as usize].due()));
                if self.waiting.len() == MESSAGES_MAX {
                    self.flush(window, now, &mut sample);
                    // Who does not keep up always has more that is due, and has to see that its time is over.
                    now = Instant::now();
                    if now >= window.end {
                        break;
                    }
                }
            }
            self.flush(window, now, &mut sample);
        }
        Ok(sample)
    }

    /// Sends what waits, and puts its streams back on the wheel.
    fn flush(&mut self, window: &Window, now: Instant, sample: &mut Sample) {
        let (lines, burst) = (&self.lines, self.burst);
        let mut rest = &self.waiting[..];
        while !rest.is_empty() {
            let messages = rest.iter().map(|(index, _)| {
                let line = &lines[*index as usize];
                let position = line.stream.start + u64::from(line.turn) * u64::from(burst);
                let segment_bytes = (burst > 1).then_some(DATAGRAM_LEN as u16);
                Outgoing {
                    path: &line.path,
                    data: Payload::Whole(line.stream.content.burst(position, burst)),
                    segment_bytes,
                }
            });
            let (done, sent) = match self.batch.send(self.socket.as_fd(), messages) {
                Ok(count) => (count, u64::from(burst)),
                Err(_) if sys::wait_writable(self.socket.as_fd(), Some(STALL_MAX)).is_ok() => (1, 0),
                Err(_) => (rest.len(), 0),
            };
            for (_, due) in &rest[..done] {
                window.note(sample, *due, now, sent, u64::from(burst) - sent);
            }
            rest = &rest[done..];
        }
        for (index, _) in self.waiting.drain(..) {
            let line = &mut self.lines[index as usize];
            line.turn += 1;
            self.wheel.insert(line.due(), index);
        }
    }
}
