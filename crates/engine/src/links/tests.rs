use std::net::TcpStream;

use wire::{ListenOptions, StreamOptions};

use super::*;

const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Links with one framed listener, and its address.
fn listening() -> (Links, LinkId, SocketAddr) {
    let stream =
        StreamOptions { framing: Some(Framing::Length16), silence_max: Some(SILENCE_MAX), ..StreamOptions::default() };
    let options = ListenOptions { stream, ..ListenOptions::default() };
    let mut links = Links::new().expect("epoll");
    let opened = links.listen(Token::default(), ([127, 0, 0, 1], 0).into(), &options);
    let (listener, addr) = opened.expect("loopback can be bound");
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Opened { remote: None, .. }))));
    (links, listener, addr)
}

#[test]
fn a_link_that_stays_silent_is_closed() {
    let (mut links, listener, addr) = listening();
    let (mut counts, start) = (CountersSnapshot::default(), Instant::now());
    let client = TcpStream::connect(addr).expect("connect");
    links.accept(start, listener, &mut counts);
    assert_eq!((counts.tcp_links, links.next_sweep()), (1, Some(start + SWEEP_INTERVAL)));
    let Some((_, LinkEvent::Opened { link, remote, .. })) = links.poll_news() else { panic!("it is told") };
    assert_eq!((link.kind(), remote), (LinkKind::Framed, client.local_addr().ok()));

    links.sweep(start + SILENCE_MAX - Duration::from_millis(1), &mut counts);
    assert!(links.poll_news().is_none());
    links.sweep(start + SILENCE_MAX * 2, &mut counts);
    let news = links.poll_news().map(|(_, event)| event);
    assert!(matches!(news, Some(LinkEvent::Closed { link: gone, reason: CloseReason::Silent }) if gone == link));
    assert_eq!((counts.tcp_links, counts.tcp_closed, links.next_sweep()), (0, 1, None));
}

#[test]
fn a_listener_that_ran_out_of_descriptors_opens_again_at_the_next_sweep() {
    let (mut links, listener, addr) = listening();
    let start = Instant::now();
    links.pause(start, listener);
    let client = TcpStream::connect(addr).expect("connect");

    links.epoll.wait(Some(Duration::from_millis(5))).expect("wait");
    assert_eq!(links.epoll.ready_count(), 0);
    links.sweep(start + SWEEP_INTERVAL, &mut CountersSnapshot::default());
    links.epoll.wait(Some(Duration::from_secs(10))).expect("wait");
    assert_eq!(links.epoll.ready_count(), 1);
    drop(client);
}

#[test]
fn what_is_heard_of_a_link_that_is_gone_reaches_nobody() {
    let (mut links, listener, addr) = listening();
    let (mut counts, now) = (CountersSnapshot::default(), Instant::now());
    let mut accept = |links: &mut Links| {
        let client = TcpStream::connect(addr).expect("connect");
        links.accept(now, listener, &mut counts);
        let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
        (client, link)
    };
    let (_client, old) = accept(&mut links);
    links.close(old, CloseReason::Asked, &mut CountersSnapshot { tcp_links: 1, ..CountersSnapshot::default() });
    links.poll_news();
    let (_client, new) = accept(&mut links);
    assert_eq!((old.slot(), old == new), (new.slot(), false), "the slot is used again");

    let mut counts = CountersSnapshot { tcp_links: 1, ..CountersSnapshot::default() };
    links.handle_writable(now, old, &mut counts);
    assert!(links.read(now, old, &mut [0; 10], &mut counts).is_none());
    links.keep(old, &[1]);
    links.close(old, CloseReason::Asked, &mut counts);
    assert!(links.poll_news().is_none());
    assert_eq!((counts.tcp_links, counts.tcp_closed), (1, 0), "the new one is open");
}
