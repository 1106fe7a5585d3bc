//! A scheduler for each core that wakes once per datagram interval and serves all of its streams at once: few wake-ups,
//! but the datagrams of all streams leave in one row, and the last waits for all the others.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use super::scene::{Content, Scene, Stream};
use super::window::{Tally, Window, sleep_until};
use super::{Case, Sample};

pub(super) fn run(scene: &Scene, case: &Case<'_>) -> Result<Sample> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind a sending socket");
    let sockets: Vec<UdpSocket> = (0..case.args.threads()).map(|_| bind()).collect::<Result<_>>()?;
    let window = case.window();
    let zero = Instant::now();
    thread::scope(|scope| {
        let threads = sockets.into_iter().enumerate().map(|(index, socket)| {
            let groups = groups(scene, &scene.share(index, case.args.threads()));
            scope.spawn(move || send(&socket, groups, zero, window))
        });
        let threads: Vec<_> = threads.collect();
        let measured = window.measure(|| Ok(()));
        let mut tally = Tally::default();
        for thread in threads {
            tally += thread.join().expect("a scheduler does not panic");
        }
        Ok(Sample::new(scene, measured?, tally))
    })
}

/// Streams of one rate, which are served together.
struct Group {
    content: Arc<Content>,
    streams: Vec<Arc<Stream>>,
}

fn groups(scene: &Scene, streams: &[Arc<Stream>]) -> Vec<Group> {
    let groups = scene.contents.iter().map(|content| {
        let streams = streams.iter().filter(|stream| Arc::ptr_eq(&stream.content, content));
        Group { content: Arc::clone(content), streams: streams.cloned().collect() }
    });
    groups.filter(|group| !group.streams.is_empty()).collect()
}

fn send(socket: &UdpSocket, groups: Vec<Group>, zero: Instant, window: Window) -> Tally {
    let mut tally = Tally::default();
    let mut turns: Vec<(Instant, u64, Group)> = groups.into_iter().map(|group| (zero, 0, group)).collect();
    while let Some((due, turn, group)) = turns.iter_mut().min_by_key(|(due, ..)| *due) {
        sleep_until(*due);
        if Instant::now() >= window.end {
            break;
        }
        for stream in &group.streams {
            let now = Instant::now();
            let sent = socket.send_to(group.content.burst(stream.start + *turn, 1), stream.to).is_ok();
            tally.note(&window, *due, now, u64::from(sent), u64::from(!sent));
        }
        *due += group.content.interval(1);
        *turn += 1;
    }
    tally
}
