mod drops;
mod release;
mod sealed;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;

use wire::framing::Frame;
use wire::{Adopted, DatagramRun, LinkRequest, ListenOptions, Path, Sending, Strangers, StreamOptions, UdpOptions};

use super::stream::{CLOSING_MAX, CONNECTING_MAX, FRAME_TIME_MAX};
use super::*;

const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long the kernel may take. Far more than it does.
const PATIENCE: Duration = Duration::from_secs(40);

/// Links with one framed listener, and its address.
fn listening() -> (Links, LinkId, SocketAddr) {
    let stream =
        StreamOptions { framing: Some(Framing::Length16), silence_max: Some(SILENCE_MAX), ..StreamOptions::default() };
    listening_with(ListenOptions { stream, ..ListenOptions::default() })
}

fn listening_with(options: ListenOptions) -> (Links, LinkId, SocketAddr) {
    let mut links = Links::new().expect("epoll");
    let request = LinkRequest::Listen { token: Token::default(), addr: ([127, 0, 0, 1], 0).into(), options };
    links.handle_request(Instant::now(), request);
    match links.poll_news() {
        Some((_, LinkEvent::Opened { link, local, remote: None })) => (links, link, local),
        other => panic!("{other:?}"),
    }
}

/// Links with one byte stream, and its other end.
fn streaming(options: StreamOptions) -> (Links, LinkId, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let descriptor = listener.accept().expect("it connects").0.into();
    let mut links = Links::new().expect("epoll");
    let adopt = LinkRequest::Adopt { token: Token::default(), descriptor, kind: Adopted::Stream(options) };
    links.handle_request(Instant::now(), adopt);
    let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
    (links, link, client)
}

#[test]
fn a_connection_that_cannot_be_sent_on_as_it_is_to_be_is_refused() {
    let sending = |name: &str| Sending { congestion: Some(name.into()), dscp: 34, ..Sending::default() };
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let mut links = Links::new().expect("epoll");
    for (name, is_known) in [("reno", true), ("no_such", false)] {
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let descriptor = listener.accept().expect("it connects").0.into();
        let kind = Adopted::Stream(StreamOptions { sending: sending(name), ..StreamOptions::default() });
        links.handle_request(Instant::now(), LinkRequest::Adopt { token: Token::default(), descriptor, kind });
        let news = links.poll_news().map(|(_, news)| news);
        assert_eq!(matches!(news, Some(LinkEvent::Opened { .. })), is_known, "{name}: {news:?}");
        assert_eq!(matches!(news, Some(LinkEvent::Failed { .. })), !is_known, "{name}: {news:?}");
    }
}

/// So many framed connections, in each of which at least so many bytes wait though the kernel has room; and their other ends.
pub(crate) fn with_backlogs(count: usize, bytes: usize) -> (Links, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let mut links = Links::new().expect("epoll");
    let framing = Some(Framing::Length16);
    let clients = (0..count).map(|_| {
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let descriptor = listener.accept().expect("it connects").0.into();
        let options = StreamOptions { framing, backlog_max: 2 * bytes, ..StreamOptions::default() };
        let adopt = LinkRequest::Adopt { token: Token::default(), descriptor, kind: Adopted::Stream(options) };
        links.handle_request(Instant::now(), adopt);
        let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
        let Some(Link { body: Body::Stream(stream), .. }) = links.table.get_mut(link) else { panic!("it is there") };
        while stream.backlog_bytes() < bytes {
            let is_queued = stream.queue_frame(Framing::Length16, [&[7; 1_000], &[]], 2 * bytes, &mut links.buffers);
            assert!(is_queued, "there is room");
        }
        links.watch_as_wanted(link);
        client
    });
    let clients = clients.collect();
    (links, clients)
}

impl Links {
    /// What waits in all connections.
    pub(crate) fn backlog_bytes(&self) -> usize {
        let bytes = self.table.iter().map(|(_, link)| match &link.body {
            Body::Stream(stream) => stream.backlog_bytes(),
            Body::Udp(_) | Body::Listener(_) => 0,
        });
        bytes.sum()
    }
}

#[test]
fn a_link_that_stays_silent_is_closed() {
    let (mut links, listener, addr) = listening();
    let start = Instant::now();
    let client = TcpStream::connect(addr).expect("connect");
    links.accept(start, listener);
    assert_eq!((links.counts.tcp_links, links.next_sweep()), (1, Some(start + SWEEP_INTERVAL)));
    let Some((_, LinkEvent::Opened { link, remote, .. })) = links.poll_news() else { panic!("it is told") };
    assert_eq!((link.kind(), remote), (LinkKind::Framed, client.local_addr().ok()));

    links.sweep(start + SILENCE_MAX - Duration::from_millis(1));
    assert!(links.poll_news().is_none());
    links.sweep(start + SILENCE_MAX * 2);
    let news = links.poll_news().map(|(_, event)| event);
    assert!(matches!(news, Some(LinkEvent::Closed { link: gone, reason: CloseReason::Silent, .. }) if gone == link));
    assert_eq!((links.counts.tcp_links, links.counts.tcp_closed, links.next_sweep()), (0, 1, None));
}

/// A framed link, and its other end, which has begun a frame of 50,002 bytes at that time.
fn unfinished(start: Instant) -> (Links, LinkId, TcpStream) {
    let options = StreamOptions { framing: Some(Framing::Length16), frame_max: 60_000, ..StreamOptions::default() };
    let (mut links, link, mut client) = streaming(options);
    client.write_all(&[50_000_u16.to_be_bytes(), [7; 2]].concat()).expect("written");
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    let mut buffer = [0; 10];
    assert!(links.read(start, link, &mut buffer).is_some_and(|read| read.len == 4));
    let Frame::Incomplete { len } = Framing::Length16.next_frame(&buffer[..4], 60_000) else { panic!("it has begun") };
    links.keep(link, &buffer[..4], len);
    (links, link, client)
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_not_copied_before_it_is_whole() {
    let now = Instant::now();
    let (mut links, link, mut client) = unfinished(now);
    let mut buffer = vec![0xee; READ_BUFFER_BYTES];
    for written in [1, 1, 40_000, 9_000] {
        client.write_all(&vec![7; written]).expect("written");
        links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
        assert!(links.read(now, link, &mut buffer).is_none());
        assert_eq!(buffer[..4], [0xee; 4], "what was kept stays where it is");
    }
    client.write_all(&vec![7; 50_002]).expect("written");
    let mut got = None;
    while got.is_none() {
        links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
        got = links.read(now, link, &mut buffer);
    }
    let whole = Framing::Length16.next_frame(&buffer[..got.expect("read").len], 60_000);
    assert_eq!(whole, Frame::Datagram { range: 2..50_002, end: 50_002 });
    assert_eq!(buffer[2..50_002], [7; 50_000]);
}

#[test]
fn a_frame_that_has_begun_ends_in_time_or_the_link_does() {
    let start = Instant::now();
    let (mut links, link, mut client) = unfinished(start);
    client.write_all(&[7]).expect("written");
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    let late = start + FRAME_TIME_MAX - Duration::from_millis(1);
    assert!(links.read(late, link, &mut [0; 100]).is_none());
    links.sweep(late);
    assert!(links.poll_news().is_none());
    links.sweep(late + SWEEP_INTERVAL);
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Closed { reason: CloseReason::Silent, .. }))));
}

#[test]
fn a_connection_that_is_asked_for_has_one_answer_whatever_becomes_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let to = listener.local_addr().expect("bound");
    // Who asked has not heard its number yet; it is known here all the same.
    let link = LinkId::new(LinkKind::Stream, 0, 0);
    let start = Instant::now();
    let connect = || {
        let mut links = Links::new().expect("epoll");
        let options = StreamOptions { silence_max: Some(SILENCE_MAX), ..StreamOptions::default() };
        let request = LinkRequest::Connect { token: Token::default(), to, from: None, options };
        links.handle_request(start, request);
        assert!(links.poll_news().is_none(), "it is under way");
        links
    };
    let sweep = |links: &mut Links| links.sweep(start + SILENCE_MAX * 2);
    let close = |links: &mut Links| {
        links.handle_request(start, LinkRequest::Close { link });
    };
    let answer = |links: &mut Links| links.handle_writable(start, link);
    for is_silent in [true, false] {
        let mut links = connect();
        if is_silent {
            sweep(&mut links)
        } else {
            close(&mut links)
        }
        answer(&mut links);
        assert!(matches!(links.poll_news(), Some((_, LinkEvent::Failed { .. }))));
        assert!(links.poll_news().is_none());
        let counts = &links.counts;
        assert_eq!((counts.links_failed, counts.tcp_links, counts.tcp_closed), (1, 0, 0));
    }
    let mut links = connect();
    answer(&mut links);
    sweep(&mut links);
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Opened { .. }))));
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Closed { .. }))));
    assert!(links.poll_news().is_none());
    assert_eq!((links.counts.links_failed, links.counts.tcp_links, links.counts.tcp_closed), (0, 0, 1));
}

#[test]
fn who_does_not_answer_in_time_is_given_up_though_what_he_would_say_has_none() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let to = listener.local_addr().expect("bound");
    let (start, token) = (Instant::now(), Token::default());
    let link = LinkId::new(LinkKind::Stream, 0, 0);
    for is_answered in [false, true] {
        let mut links = Links::new().expect("epoll");
        let options = StreamOptions::default();
        links.handle_request(start, LinkRequest::Connect { token, to, from: None, options });
        if is_answered {
            links.handle_writable(start, link);
            assert!(matches!(links.poll_news(), Some((_, LinkEvent::Opened { .. }))));
        }
        links.sweep(start + CONNECTING_MAX - Duration::from_millis(1));
        assert!(links.poll_news().is_none());
        links.sweep(start + CONNECTING_MAX * 2);
        let is_late = |event| matches!(event, LinkEvent::Failed { error } if error.kind() == ErrorKind::TimedOut);
        assert_eq!(links.poll_news().is_some_and(|(_, event)| is_late(event)), !is_answered);
        assert_eq!((links.counts.tcp_links, links.next_sweep()), (u64::from(is_answered), None));
    }
}

#[test]
fn what_is_relayed_leaves_room_for_answers() {
    let framing = Some(Framing::Turn);
    let options = StreamOptions { framing, backlog_max: 64 * 1_024, ..StreamOptions::default() };
    let (mut links, link, client) = streaming(options);
    let path = Path { link, remote: client.local_addr().expect("bound"), local: None };
    let mut received = vec![7; 1_000];
    // The kernel takes some, until it is full.
    while links.counts.dropped_tcp_full == 0 {
        let mut out = Outbox::new(64 * 1_024);
        let shown = received.clone();
        let size = NonZeroUsize::new(received.len()).expect("it has bytes");
        let run = DatagramRun::new(Token::default(), path, size, &mut received).at(0);
        assert_eq!(out.push_prefixed(&path, &run, 0..1, 0..usize::MAX, |_| [0x40, 0, 3, 0xe8]), 1);
        links.send(&out, &shown);
    }
    let mut out = Outbox::new(64 * 1_024);
    assert!(out.push(&path, &[0; 1_000]) && out.push(&path, &[0; 1_000]));
    links.send(&out, &[]);
    assert_eq!(links.counts.dropped_tcp_full, 1, "answers have their room");
}

#[test]
fn the_longest_frame_of_who_is_known_may_be_longer() {
    let options = StreamOptions { framing: Some(Framing::Turn), frame_max: 100, ..StreamOptions::default() };
    let (mut links, link, mut client) = streaming(options);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    for limit in [100, 5_000] {
        links.handle_request(Instant::now(), LinkRequest::LimitFrames { link, bytes: limit });
        client.write_all(&[7; 4]).expect("written");
        links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
        let read = links.read(Instant::now(), link, &mut buffer);
        assert_eq!(read.map(|read| read.frame_max), Some(limit));
    }
}

#[test]
fn a_listener_that_ran_out_of_descriptors_opens_again_at_the_next_sweep() {
    let (mut links, listener, addr) = listening();
    let start = Instant::now();
    links.pause(start, listener);
    let client = TcpStream::connect(addr).expect("connect");

    links.connections.epoll.wait(Some(Duration::from_millis(5))).expect("wait");
    assert_eq!(links.connections.epoll.ready_count(), 0);
    links.sweep(start + SWEEP_INTERVAL);
    links.connections.epoll.wait(Some(Duration::from_secs(10))).expect("wait");
    assert_eq!(links.connections.epoll.ready_count(), 1);
    drop(client);
}

#[test]
fn what_is_heard_of_a_link_that_is_gone_reaches_nobody() {
    let (mut links, listener, addr) = listening();
    let now = Instant::now();
    let accept = |links: &mut Links| {
        let client = TcpStream::connect(addr).expect("connect");
        links.accept(now, listener);
        let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
        (client, link)
    };
    let (_client, old) = accept(&mut links);
    links.close(old, CloseReason::Asked);
    links.poll_news();
    let (_client, new) = accept(&mut links);
    assert_eq!((old.slot(), old == new), (new.slot(), false), "the slot is used again");

    links.handle_writable(now, old);
    assert!(links.read(now, old, &mut [0; 10]).is_none());
    links.keep(old, &[1], 2);
    links.close(old, CloseReason::Asked);
    assert!(links.poll_news().is_none());
    assert_eq!((links.counts.tcp_links, links.counts.tcp_closed), (1, 1), "the new one is open");
}

#[test]
fn of_a_blocked_stream_nothing_is_taken_before_its_writer_has_heard_of_room() {
    let (mut links, link, mut client) = streaming(StreamOptions::default());
    let (shared, mut out) = (Arc::new(vec![7; 8 << 20]), Outbox::new(2_000));
    assert!(out.push_stream(link, &shared, 0, shared.len()));
    links.send_pieces(&out);
    let Some((_, LinkEvent::Unsent { bytes, .. })) = links.poll_news() else { panic!("it is too much at once") };
    client.read_exact(&mut vec![0; shared.len() - bytes]).expect("what was taken arrives");
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    links.handle_writable(Instant::now(), link);

    // Written by one who does not know yet that there is room.
    let mut write = |links: &mut Links, text: &[u8]| {
        out.clear();
        assert!(out.push_bytes(link, text));
        links.send_pieces(&out);
    };
    write(&mut links, b"too early");
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Unsent { bytes: 9, .. }))));
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Writable { .. }))));
    write(&mut links, b"in time");
    assert!(links.poll_news().is_none());
    let mut got = [0; 7];
    client.read_exact(&mut got).expect("it arrives");
    assert_eq!(&got, b"in time");
}

#[test]
fn the_end_of_a_byte_streams_input_is_told_once_and_wakes_nobody_again() {
    let (mut links, link, client) = streaming(StreamOptions::default());
    client.shutdown(Shutdown::Write).expect("connected");
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    assert!(links.read(Instant::now(), link, &mut [0; 10]).is_none());
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::InputEnded { .. }))));
    links.connections.epoll.wait(Some(Duration::from_millis(5))).expect("wait");
    assert_eq!(links.connections.epoll.ready_count(), 0);

    // The other side is gone altogether, which is found by writing.
    drop(client);
    let mut out = Outbox::new(2_000);
    assert!(out.push_bytes(link, b"nobody reads it"));
    links.send_pieces(&out);
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    assert!(links.read(Instant::now(), link, &mut [0; 10]).is_none());
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Closed { .. }))));
}

#[test]
fn a_connection_that_nobody_wants_ends_in_time_though_its_peer_does_nothing() {
    for is_full in [true, false] {
        let (mut links, link, client) = streaming(StreamOptions::default());
        let mut out = Outbox::new(1 << 20);
        while is_full && links.poll_news().is_none() {
            out.clear();
            assert!(out.push_bytes(link, &[7; 100_000]));
            links.send_pieces(&out);
        }
        let start = Instant::now();
        links.handle_request(start, LinkRequest::Close { link });
        links.sweep(start + CLOSING_MAX - Duration::from_millis(1));
        assert!(links.poll_news().is_none());
        links.sweep(start + CLOSING_MAX * 2);
        let news = links.poll_news().map(|(_, event)| event);
        assert!(matches!(news, Some(LinkEvent::Closed { link: gone, reason: CloseReason::Asked, .. }) if gone == link));
        assert_eq!((links.counts.tcp_links, links.next_sweep()), (0, None));
        drop(client);
    }
}

#[test]
fn what_comes_for_a_paused_link_waits_in_the_kernel_and_is_no_silence() {
    for framing in [None, Some(Framing::Length16)] {
        let (mut links, link, mut client) =
            streaming(StreamOptions { framing, silence_max: Some(SILENCE_MAX), ..StreamOptions::default() });
        let start = Instant::now();
        let mut buffer = [0; 100];
        links.handle_request(start, LinkRequest::Read { link, is_on: false });
        client.write_all(&[0, 1, 7]).expect("written");
        client.shutdown(Shutdown::Write).expect("connected");
        links.connections.epoll.wait(Some(Duration::from_millis(5))).expect("wait");
        assert_eq!(links.connections.epoll.ready_count(), 0);
        assert!(links.read(start, link, &mut buffer).is_none(), "as if it was ready before");
        links.sweep(start + SILENCE_MAX * 2);
        assert!(links.poll_news().is_none());

        let later = start + SILENCE_MAX * 3;
        links.handle_request(later, LinkRequest::Read { link, is_on: true });
        links.sweep(later + SILENCE_MAX - Duration::from_millis(1));
        assert!(links.poll_news().is_none(), "silence begins anew");
        links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
        let len = links.read(later, link, &mut buffer).expect("it was there all the time").len;
        assert_eq!(buffer[..len], [0, 1, 7]);
        assert!(links.read(later, link, &mut buffer).is_none());
        let is_framed = framing.is_some();
        assert!(match links.poll_news() {
            Some((_, LinkEvent::InputEnded { .. })) => !is_framed,
            Some((_, LinkEvent::Closed { reason: CloseReason::Ended, .. })) => is_framed,
            _ => false,
        });
    }
}

#[test]
fn a_paused_link_that_breaks_is_closed_and_one_that_nobody_wants_ends() {
    for is_wanted in [true, false] {
        let (mut links, link, mut client) = streaming(StreamOptions::default());
        let now = Instant::now();
        links.handle_request(now, LinkRequest::Read { link, is_on: false });
        client.write_all(b"not read").expect("written");
        if is_wanted {
            // Who goes and has not read everything resets the connection.
            let mut out = Outbox::new(2_000);
            assert!(out.push_bytes(link, b"not read either"));
            links.send_pieces(&out);
            client.peek(&mut [0]).expect("it is there");
        } else {
            links.handle_request(now, LinkRequest::Close { link });
        }
        drop(client);
        let mut news = None;
        for _ in 0..10 {
            links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
            links.read(now, link, &mut [0; 100]);
            news = links.poll_news().map(|(_, event)| event);
            if news.is_some() {
                break;
            }
        }
        let expected = if is_wanted { CloseReason::Failed } else { CloseReason::Asked };
        assert!(matches!(news, Some(LinkEvent::Closed { reason, .. }) if reason == expected), "{news:?}");
        links.connections.epoll.wait(Some(Duration::from_millis(5))).expect("wait");
        assert_eq!(links.connections.epoll.ready_count(), 0);
    }
}

#[test]
fn of_many_overdue_links_the_first_are_closed_and_the_others_are_due_at_once() {
    let options = StreamOptions { silence_max: Some(SILENCE_MAX), ..StreamOptions::default() };
    let (mut links, _, client) = streaming(options.clone());
    for _ in 0..CLOSES_MAX {
        let (token, descriptor) = (Token::default(), client.try_clone().expect("a descriptor").into());
        let kind = Adopted::Stream(options.clone());
        links.handle_request(Instant::now(), LinkRequest::Adopt { token, descriptor, kind });
        assert!(matches!(links.poll_news(), Some((_, LinkEvent::Opened { .. }))));
    }
    let late = Instant::now() + SILENCE_MAX;
    for (closed, next) in [(CLOSES_MAX, Some(late)), (1, None)] {
        links.sweep(late);
        assert_eq!((std::iter::from_fn(|| links.poll_news()).count(), links.next_sweep()), (closed, next));
    }
}

/// Links with one framed listener that has a limit of `links_max`, and of `per_source_max` strangers of one address, each
/// for ten seconds; and its address.
fn guarded(links_max: usize, per_source_max: usize) -> (Links, LinkId, SocketAddr) {
    let stream = StreamOptions {
        framing: Some(Framing::Length16),
        silence_max: Some(SILENCE_MAX),
        strangers: Some(Strangers { age_max: STRANGER_AGE_MAX, per_source_max }),
        ..StreamOptions::default()
    };
    listening_with(ListenOptions { links_max, stream, ..ListenOptions::default() })
}

const STRANGER_AGE_MAX: Duration = Duration::from_secs(10);

/// A connection that the listener accepts, from an address of 127.0.0.0/8; and its link.
fn accepted(links: &mut Links, now: Instant, listener: LinkId, addr: SocketAddr, from: u8) -> (TcpStream, LinkId) {
    let client = connect_from(from, addr);
    links.accept(now, listener);
    loop {
        match links.poll_news() {
            Some((_, LinkEvent::Opened { link, .. })) => return (client, link),
            Some(_) => {}
            None => panic!("it is not accepted"),
        }
    }
}

fn connect_from(from: u8, to: SocketAddr) -> TcpStream {
    let from = SocketAddr::from(([127, 0, 0, from], 0));
    let stream = sys::tcp_connect(&to, Some(&from)).expect("under way");
    sys::wait_writable(stream.as_fd(), Some(PATIENCE)).expect("poll");
    stream.set_nonblocking(false).expect("it may wait");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Something is sent to a link.
fn answer(links: &mut Links, link: LinkId) {
    let mut out = Outbox::new(2_000);
    let path = wire::Path { link, remote: ([127, 0, 0, 1], 1).into(), local: None };
    assert!(out.push(&path, b"answer"));
    links.send(&out, &[]);
}

/// Who was closed since news were read last, and why.
fn closed(links: &mut Links) -> Vec<(LinkId, CloseReason)> {
    let news = std::iter::from_fn(|| links.poll_news());
    news.filter_map(|(_, event)| match event {
        LinkEvent::Closed { link, reason, .. } => Some((link, reason)),
        _ => None,
    })
    .collect()
}

#[test]
fn a_stranger_is_closed_in_time_whatever_he_sends_and_who_is_answered_stays() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(10, 10);
    let (mut talker, stranger) = accepted(&mut links, start, listener, addr, 1);
    let (_client, known) = accepted(&mut links, start, listener, addr, 1);
    answer(&mut links, known);
    assert_eq!(links.counts.tcp_strangers, 1);
    talker.write_all(&[0, 1, 7]).expect("written");
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    assert!(links.read(start + STRANGER_AGE_MAX / 2, stranger, &mut [0; 10]).is_some(), "a whole frame");

    links.sweep(start + STRANGER_AGE_MAX - Duration::from_millis(1));
    assert_eq!(closed(&mut links), []);
    links.sweep(start + 2 * STRANGER_AGE_MAX);
    assert_eq!(closed(&mut links), [(stranger, CloseReason::Stranger)]);
    let counts = &links.counts;
    assert_eq!((counts.tcp_links, counts.tcp_strangers, counts.tcp_strangers_closed), (1, 0, 1));
}

#[test]
fn bytes_that_nobody_answers_any_more_keep_no_link_open() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(10, 10);
    let (mut client, link) = accepted(&mut links, start, listener, addr, 1);
    answer(&mut links, link);
    links.sweep(start + SWEEP_INTERVAL);
    let late = start + SWEEP_INTERVAL + SILENCE_MAX;
    client.write_all(&[0, 1, 7]).expect("written");
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    assert!(links.read(late, link, &mut [0; 10]).is_some());

    links.sweep(late - Duration::from_millis(1));
    assert_eq!(closed(&mut links), []);
    links.sweep(late + SWEEP_INTERVAL);
    assert_eq!(closed(&mut links), [(link, CloseReason::Silent)]);
}

#[test]
fn the_oldest_stranger_makes_room_and_nobody_who_is_known() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(3, 10);
    let all: Vec<_> = (1..=3).map(|from| accepted(&mut links, start, listener, addr, from)).collect();
    let [first, second, third] = [0, 1, 2].map(|index: usize| all[index].1);
    answer(&mut links, first);

    let (_client, newcomer) = accepted(&mut links, start, listener, addr, 4);
    assert!(links.is_open(first) && !links.is_open(second) && links.is_open(third));
    [third, newcomer].into_iter().for_each(|link| answer(&mut links, link));
    let mut refused = connect_from(5, addr);
    links.accept(start, listener);
    assert!(matches!(refused.read(&mut [0]), Ok(0) | Err(_)), "all are known");
    let counts = &links.counts;
    assert_eq!((counts.tcp_links, counts.tcp_strangers, counts.tcp_refused), (3, 0, 1));
    assert_eq!(counts.tcp_strangers_closed, 1);
}

#[test]
fn one_address_has_so_many_strangers_and_its_oldest_makes_room_for_its_next() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(100, 2);
    let accept = |links: &mut Links, from| accepted(links, start, listener, addr, from);
    let (_other, of_other) = accept(&mut links, 2);
    let (_first, known) = accept(&mut links, 1);
    answer(&mut links, known);
    let (mut second, oldest) = accept(&mut links, 1);
    let (_third, third) = accept(&mut links, 1);

    let (_fourth, fourth) = accept(&mut links, 1);
    assert!(matches!(second.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(
        [oldest, of_other, known, third, fourth].map(|link| links.is_open(link)),
        [false, true, true, true, true]
    );
    let counts = &links.counts;
    assert_eq!((counts.tcp_links, counts.tcp_strangers, counts.tcp_strangers_closed, counts.tcp_refused), (4, 3, 1, 0));

    links.close(third, CloseReason::Failed);
    let _fifth = accept(&mut links, 1);
    assert_eq!((links.counts.tcp_strangers, links.counts.tcp_strangers_closed), (3, 1), "there was room");
}

#[test]
fn the_last_descriptors_are_not_for_what_products_open() {
    let mut links = Links::new().expect("epoll");
    let (token, addr) = (Token::default(), ([127, 0, 0, 1], 0).into());
    let udp = || LinkRequest::OpenUdp { token, addr, ports: None, options: UdpOptions::default() };
    links.handle_request(Instant::now(), udp());
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Opened { .. }))));
    // No descriptor is below the three that each process begins with.
    links.files_max = 3;
    let listen = LinkRequest::Listen { token, addr, options: ListenOptions::default() };
    for request in [udp(), listen] {
        links.handle_request(Instant::now(), request);
        let Some((_, LinkEvent::Failed { error })) = links.poll_news() else { panic!("there are none left") };
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    }
}

/// A relay has a socket for each client, and few connections among them.
#[test]
fn overdue_links_are_looked_for_in_shares_of_all() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(10, 10);
    for _ in 0..SWEEP_SLOTS {
        let (token, addr) = (Token::default(), ([127, 0, 0, 1], 0).into());
        links.handle_request(start, LinkRequest::OpenUdp { token, addr, ports: None, options: UdpOptions::default() });
    }
    while links.poll_news().is_some() {}
    let (_client, stranger) = accepted(&mut links, start, listener, addr, 1);
    let late = start + 2 * STRANGER_AGE_MAX;
    links.sweep(late);
    assert_eq!((closed(&mut links), links.next_sweep()), (vec![], Some(late + SWEEP_PAUSE)));
    links.sweep(late + SWEEP_PAUSE);
    assert_eq!(closed(&mut links), [(stranger, CloseReason::Stranger)]);
}

#[test]
fn who_is_known_at_one_address_leaves_half_of_the_places_to_others() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(4, 10);
    let accept = |links: &mut Links, from| {
        let (client, link) = accepted(links, start, listener, addr, from);
        answer(links, link);
        (client, link)
    };
    let (first, _second) = (accept(&mut links, 1), accept(&mut links, 1));
    let mut refused = connect_from(1, addr);
    links.accept(start, listener);
    assert_eq!((links.counts.tcp_links, links.counts.tcp_refused), (2, 1));
    assert!(matches!(refused.read(&mut [0]), Ok(0) | Err(_)));

    let _others = [2, 3].map(|from| accept(&mut links, from));
    assert_eq!((links.counts.tcp_links, links.counts.tcp_refused), (4, 1));
    links.close(first.1, CloseReason::Ended);
    let _next = accept(&mut links, 1);
    assert_eq!((links.counts.tcp_links, links.counts.tcp_refused), (4, 1));
}

#[test]
fn who_opens_many_connections_before_any_is_known_leaves_half_of_the_places_to_others() {
    let start = Instant::now();
    let (mut links, listener, addr) = guarded(4, 10);
    let all = [(); 4].map(|()| accepted(&mut links, start, listener, addr, 1));
    let open = all.each_ref().map(|(_, link)| links.is_open(*link));
    assert_eq!(open, [false, false, true, true], "its own oldest make room");
    let _others = [2, 3].map(|from| accepted(&mut links, start, listener, addr, from));
    assert_eq!((links.counts.tcp_links, links.counts.tcp_strangers_closed, links.counts.tcp_refused), (4, 2, 0));
}
