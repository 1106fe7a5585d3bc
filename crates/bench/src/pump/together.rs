//! A scheduler for each core that wakes once per datagram interval and serves all of its streams at once: few wake-ups,
//! but the datagrams of all streams leave in one row, and the last waits for all the others.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Case;
use super::scene::{Content, Scene, Stream};
use super::window::{Window, sleep_until};
use crate::comparison::{Sample, on_threads};

pub(super) fn run(scene: &Scene, case: &Case<'_>) -> Result<Sample> {
    let threads = case.args.threads();
    let worker = |index| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind a sending socket")?;
        Ok((socket, groups(scene, &scene.share(index, threads))))
    };
    let workers = (0..threads).map(worker).collect::<Result<Vec<_>>>()?;
    let (window, zero) = (case.window(), Instant::now());
    on_threads(workers, |(socket, groups)| Ok(send(&socket, groups, zero, window)), || window.measure(|| ()))
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

fn send(socket: &UdpSocket, groups: Vec<Group>, zero: Instant, window: Window) -> Sample {
    let mut sample = Sample::default();
    let mut turns: Vec<(Instant, u64, Group)> = groups.into_iter().map(|group| (zero, 0, group)).collect();
    while let Some((due, turn, group)) = turns.iter_mut().min_by_key(|(due, ..)| *due) {
        sleep_until(*due);
        if Instant::now() >= window.end {
            break;
        }
        for stream in &group.streams {
            let now = Instant::now();
            let sent = socket.send_to(group.content.burst(stream.start + *turn, 1), stream.to).is_ok();
            window.note(&mut sample, *due, now, u64::from(sent), u64::from(!sent));
        }
        *due += group.content.interval(1);
        *turn += 1;
    }
    sample
}
