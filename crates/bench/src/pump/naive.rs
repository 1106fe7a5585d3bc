//! What one writes first: a task with a ticker for each stream, and one `sendto` per datagram.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::net::UdpSocket;
use tokio::runtime::Builder;
use tokio::time::interval_at;

use super::Case;
use super::scene::{Scene, Stream};
use super::window::Window;
use crate::comparison::Sample;

pub(super) fn run(scene: &Scene, case: &Case<'_>) -> Result<Sample> {
    let runtime = Builder::new_multi_thread().worker_threads(case.args.threads()).enable_all().build();
    let runtime = runtime.context("start tokio's threads")?;
    let any_port = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let socket = Arc::new(runtime.block_on(UdpSocket::bind(any_port)).context("bind a sending socket")?);
    let window = case.window();
    let zero = Instant::now();
    let tasks =
        scene.streams.iter().map(|stream| runtime.spawn(send(Arc::clone(&socket), stream.clone(), zero, window)));
    let tasks: Vec<_> = tasks.collect();
    let mut sample = window.measure(|| ())?;
    for task in tasks {
        sample += runtime.block_on(task).context("a stream's task failed")?;
    }
    Ok(sample)
}

async fn send(socket: Arc<UdpSocket>, stream: Arc<Stream>, zero: Instant, window: Window) -> Sample {
    let mut sample = Sample::default();
    let mut ticker = interval_at((zero + stream.phase(1)).into(), stream.content.interval(1));
    for position in stream.start.. {
        let due = ticker.tick().await.into_std();
        let now = Instant::now();
        if now >= window.end {
            break;
        }
        let sent = socket.send_to(stream.content.burst(position, 1), stream.to).await.is_ok();
        window.note(&mut sample, due, now, u64::from(sent), u64::from(!sent));
    }
    sample
}
