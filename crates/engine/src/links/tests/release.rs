//! Byte streams that are given back, and go on elsewhere.

use std::os::fd::OwnedFd;

use wire::Begun;

use super::*;

/// What was given back: the connection, what waited to leave, and what was not handled.
fn released(links: &mut Links) -> (OwnedFd, Box<[u8]>, Box<[u8]>) {
    match links.poll_news() {
        Some((_, LinkEvent::Released { descriptor, unsent, unread, .. })) => (descriptor, unsent, unread),
        other => panic!("{other:?}"),
    }
}

fn said(client: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut got = vec![0; len];
    client.read_exact(&mut got).expect("it comes");
    got
}

#[test]
fn a_stream_that_is_given_back_goes_on_elsewhere_and_is_no_link_any_more() {
    let (mut links, link, mut client) = streaming(StreamOptions::default());
    let mut out = Outbox::new(10_000);
    assert!(out.push_bytes(link, b"one, "));
    links.send(&out, &[]);
    links.handle_request(Instant::now(), LinkRequest::Release { link });
    let (descriptor, unsent, unread) = released(&mut links);
    assert!(unsent.is_empty() && unread.is_empty());
    assert_eq!((links.is_open(link), links.counts.tcp_links, links.has_news()), (false, 0, false));

    client.write_all(b"hello").expect("written");
    let (mut others, begun) = (Links::new().expect("epoll"), Begun { received: (*b"oh, ").into(), ..Begun::default() });
    let kind = Adopted::Begun(StreamOptions::default(), begun);
    others.handle_request(Instant::now(), LinkRequest::Adopt { token: Token::default(), descriptor, kind });
    let Some((_, LinkEvent::Opened { link, .. })) = others.poll_news() else { panic!("it is told") };
    out.clear();
    assert!(out.push_bytes(link, b"two"));
    others.send(&out, &[]);
    assert_eq!(said(&mut client, 8), b"one, two");
}

#[test]
fn what_waits_is_given_back_with_its_stream() {
    let (mut links, link, mut client) = streaming(StreamOptions { backlog_max: 64 << 20, ..StreamOptions::default() });
    let mut out = Outbox::new(64 * 1_024);
    let mut written = Vec::new();
    // Until the kernel has no room.
    for number in 0..=u8::MAX {
        let bytes = [number; 60_000];
        assert!(out.push_bytes(link, &bytes));
        links.send(&out, &[]);
        out.clear();
        written.extend_from_slice(&bytes);
    }
    links.handle_request(Instant::now(), LinkRequest::Release { link });
    let (descriptor, unsent, _) = released(&mut links);
    assert!(!unsent.is_empty() && written.ends_with(&unsent));
    let got = said(&mut client, written.len() - unsent.len());
    assert!(written.starts_with(&got), "it has all that is not given back");
    drop(descriptor);
}

#[test]
fn what_nobody_handled_is_given_back() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let descriptor = listener.accept().expect("it connects").0.into();
    let mut links = Links::new().expect("epoll");
    let begun = Begun { received: (*b"behind the request").into(), ..Begun::default() };
    let kind = Adopted::Begun(StreamOptions::default(), begun);
    links.handle_request(Instant::now(), LinkRequest::Adopt { token: Token::default(), descriptor, kind });
    let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
    links.handle_request(Instant::now(), LinkRequest::Release { link });
    assert_eq!(&*released(&mut links).2, b"behind the request");
}

#[test]
fn of_one_that_is_being_closed_the_end_is_told_and_nothing_else() {
    let (mut links, link, client) = streaming(StreamOptions::default());
    links.handle_request(Instant::now(), LinkRequest::Close { link });
    links.handle_request(Instant::now(), LinkRequest::Release { link });
    assert!(!links.has_news());
    drop(client);
    links.handle_request(Instant::now(), LinkRequest::Close { link });
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Closed { reason: CloseReason::Asked, .. }))));
}
