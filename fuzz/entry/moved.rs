//! What the fuzz target of viewers and streams that come from another process does with its bytes: takes them up, as far as that
//! can be, and goes on with them. Shared by the fuzz target and by `crates/reflect/tests`, which replays the corpus.
//!
//! The first two bytes say how many of the others are the backlog, the next two how many are its playlist; the rest is a viewer.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reflect::backlog::Backlog;
use reflect::coalesce::Share;
use reflect::hls::{Playlist, PlaylistState};
use reflect::moved::{BacklogState, MovedViewer, ViewerState};
use reflect::reflect::{Reflect, Settings};
use reflect::spec::{Command, StreamId, Terms, ViewerId};
use reflect::window::Units;
use wire::{LinkEvent, LinkId, LinkKind, LinkRequest, Outbox, Product as _, WorkerId};

const STREAM: StreamId = StreamId(1);
const WORKER: WorkerId = WorkerId(0);

pub fn moved(data: &[u8]) {
    let Some(([low, high, rest @ ..], data)) = data.split_first_chunk::<4>() else { return };
    let Some((backlog, data)) = data.split_at_checked(u16::from_le_bytes([*low, *high]).into()) else { return };
    let Some((playlist, viewer)) = data.split_at_checked(u16::from_le_bytes(*rest).into()) else { return };
    let Ok(state) = postcard::from_bytes::<BacklogState>(backlog) else { return };
    let now = Instant::now();
    let Some(mut backlog) = Backlog::restore(now, state) else { return };
    backlog.newest_start();
    if let Ok(state) = postcard::from_bytes::<PlaylistState>(playlist)
        && let Some(playlist) = Playlist::restore(now, state, backlog.end())
    {
        list(playlist, backlog.end(), now);
    }
    let growth = backlog.add_reader(WORKER);
    let file = || File::open("/dev/null").expect("it is there");
    let (mut reflect, mut out) = (Reflect::new(Settings::new(0)), Outbox::new(64 * 1_024));
    let (units, terms) = (Units::Marked, Terms::default());
    reflect.handle_command(now, Command::AddStream { stream: STREAM, file: Arc::new(file()), units, growth, terms });
    if let Ok(state) = postcard::from_bytes::<ViewerState>(viewer) {
        let moved =
            MovedViewer { id: ViewerId(1), stream: STREAM, descriptor: file().into(), unread: Box::default(), state };
        reflect.handle_command(now, Command::TakeUp(Box::new(moved)));
    }
    run(&mut reflect, &mut out, now);
    if backlog.append(&[7; 5_000]).is_ok() {
        backlog.mark_start(now);
        backlog.mark_boundary();
        let growth = Arc::new(backlog.take_growth(false));
        reflect.handle_command(now, Command::Grown { stream: STREAM, growth, share: Share::ALL });
        backlog.take_hole();
    }
    run(&mut reflect, &mut out, now);
    reflect.handle_command(now, Command::RemoveStream(STREAM));
    run(&mut reflect, &mut out, now);
}

/// Goes on with a playlist, from the end of its stream.
fn list(mut playlist: Playlist, end: u64, now: Instant) {
    let Some(text) = playlist.text("") else { return };
    assert!(text.starts_with("#EXTM3U\n"));
    playlist.set_clock(end, Duration::from_secs(1));
    for second in 1..30 {
        let (at, now) = (end.saturating_add(second * 1_000), now + Duration::from_secs(second));
        playlist.handle_boundary(at, now);
        if second % 3 == 0 {
            playlist.handle_start(at, Some(Duration::from_secs(second)), now);
        }
    }
    playlist.segment(playlist.next_number() - 1);
    playlist.break_off(end.saturating_add(40_000), now);
    playlist.forget(end);
    playlist.text("");
    playlist.state(now);
}

/// Lets the reflector write, and takes everything.
fn run(reflect: &mut Reflect, out: &mut Outbox, now: Instant) {
    for _ in 0..100 {
        let has_more = reflect.poll_transmit(now, out);
        out.clear();
        let requests: Vec<LinkRequest> = out.take_requests().collect();
        for request in &requests {
            if let LinkRequest::Adopt { token, .. } = request {
                let link = LinkId::new(LinkKind::Stream, 1, 0);
                let opened = LinkEvent::Opened { link, local: ([127, 0, 0, 1], 80).into(), remote: None };
                reflect.handle_link(now, *token, opened, out);
            }
        }
        if !has_more && requests.is_empty() {
            return;
        }
    }
}
