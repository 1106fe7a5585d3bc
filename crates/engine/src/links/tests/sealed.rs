//! Connections under a cipher, and those on which others have begun to speak: what holds for them beyond what holds for all.

use wire::{Begun, Cipher, CipherError, Opened, Path};

use super::*;

/// Records of a kind, a length of two bytes, and bytes that are changed by what was sealed before.
#[derive(Debug, Default)]
struct Toy {
    opened: u8,
    sealed: u8,
    owes_answer: bool,
    /// Records with data that can still be sealed, where there is a limit.
    records_left: Option<u32>,
}

const DATA: u8 = 1;
const END: u8 = 2;
const QUESTION: u8 = 3;
const ANSWER: u8 = 4;
const ALERT: u8 = 5;

impl Toy {
    fn record(&mut self, kind: u8, plain: &[u8]) -> Vec<u8> {
        let (high, low) = ((plain.len() >> 8) as u8, plain.len() as u8);
        self.sealed = self.sealed.wrapping_add(1);
        [kind, high, low].into_iter().chain(plain.iter().map(|byte| byte ^ self.sealed)).collect()
    }
}

impl Cipher for Toy {
    fn open(&mut self, buf: &mut [u8]) -> Result<Opened, CipherError> {
        let mut result = Opened { record_len: 3, ..Opened::default() };
        while let Some([kind, high, low]) = buf[result.used..].first_chunk().copied() {
            let (start, len) = (result.used + 3, usize::from(high) << 8 | usize::from(low));
            result.record_len = 3 + len;
            if buf.len() < start + len {
                break;
            }
            self.opened = self.opened.wrapping_add(1);
            match kind {
                DATA => {
                    buf.copy_within(start..start + len, result.plain);
                    buf[result.plain..][..len].iter_mut().for_each(|byte| *byte ^= self.opened);
                    result.plain += len;
                }
                END => result.has_ended = true,
                QUESTION => (self.owes_answer, result.has_output) = (true, true),
                ANSWER => {}
                _ => return Err(CipherError),
            }
            (result.used, result.record_len) = (start + len, 3);
        }
        Ok(result)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        for part in plain.chunks(16 * 1_024) {
            if let Some(left) = &mut self.records_left {
                *left = left.checked_sub(1).ok_or(CipherError)?;
            }
            let record = self.record(DATA, part);
            out.extend(record);
        }
        Ok(())
    }

    fn poll_output(&mut self, out: &mut Vec<u8>) {
        let kind = if std::mem::take(&mut self.owes_answer) { ANSWER } else { ALERT };
        let record = self.record(kind, &[]);
        out.extend(record);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let record = self.record(END, &[]);
        out.extend(record);
    }
}

/// The other end of a connection under that cipher.
struct Other {
    socket: TcpStream,
    cipher: Toy,
}

impl Other {
    fn write(&mut self, plain: &[u8]) {
        let record = self.cipher.record(DATA, plain);
        self.socket.write_all(&record).expect("written");
    }

    /// The next record: its kind, and what it says.
    fn read(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 3];
        self.socket.read_exact(&mut header).expect("a record");
        let mut body = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        self.socket.read_exact(&mut body).expect("all of it");
        self.cipher.opened = self.cipher.opened.wrapping_add(1);
        body.iter_mut().for_each(|byte| *byte ^= self.cipher.opened);
        (header[0], body)
    }
}

/// Links with one connection that begins with that, and its other end.
fn begun(options: StreamOptions, begun: Begun) -> (Links, LinkId, Other) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let descriptor = listener.accept().expect("it connects").0.into();
    let mut links = Links::new().expect("epoll");
    let kind = Adopted::Begun(options, begun);
    links.handle_request(Instant::now(), LinkRequest::Adopt { token: Token::default(), descriptor, kind });
    let Some((_, LinkEvent::Opened { link, .. })) = links.poll_news() else { panic!("it is told") };
    (links, link, Other { socket, cipher: Toy::default() })
}

fn sealed(options: StreamOptions) -> (Links, LinkId, Other) {
    begun(options, Begun { cipher: Some(Box::new(Toy::default())), ..Begun::default() })
}

fn framed() -> StreamOptions {
    StreamOptions { framing: Some(Framing::Length16), ..StreamOptions::default() }
}

/// What is read of a link when something is there.
fn read(links: &mut Links, link: LinkId) -> Option<Vec<u8>> {
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    links.connections.look().expect("epoll");
    if !links.connections.has_rest() {
        links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    }
    while links.connections.next().is_some() {}
    links.read(Instant::now(), link, &mut buffer).map(|read| buffer[..read.len].to_vec())
}

/// The same until there is something.
fn read_some(links: &mut Links, link: LinkId) -> Vec<u8> {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < PATIENCE, "something comes");
        if let Some(bytes) = read(links, link) {
            return bytes;
        }
    }
}

fn reason(links: &mut Links) -> Option<CloseReason> {
    closed(links).first().map(|(_, reason)| *reason)
}

#[test]
fn what_was_read_before_comes_first_and_wakes_the_worker() {
    let mut cipher = Toy::default();
    let mut records = cipher.record(DATA, b"two, ");
    records.extend(cipher.record(DATA, b"three"));
    let rest = records.split_off(10);
    let first = Begun {
        remote: Some(([192, 0, 2, 1], 7).into()),
        received: (*b"one, ").into(),
        cipher: Some(Box::new(Toy::default())),
        sealed: records.into(),
    };
    let (mut links, link, mut other) = begun(StreamOptions::default(), first);
    assert!(links.connections.has_rest(), "nobody waits for the kernel");
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let got = links.read(Instant::now(), link, &mut buffer).expect("it is there");
    assert_eq!((&buffer[..got.len], got.remote, got.is_full), (&b"one, "[..], ([192, 0, 2, 1], 7).into(), true));
    let got = links.read(Instant::now(), link, &mut buffer).expect("it is there");
    assert_eq!(&buffer[..got.len], b"two, ");
    other.socket.write_all(&rest).expect("written");
    assert_eq!(read_some(&mut links, link), b"three");
    assert!(!links.connections.has_rest());
}

#[test]
fn what_came_before_waits_while_nobody_wants_it() {
    let first = Begun { received: (*b"early").into(), ..Begun::default() };
    let (mut links, link, _other) = begun(StreamOptions::default(), first);
    let now = Instant::now();
    links.handle_request(now, LinkRequest::Read { link, is_on: false });
    while links.connections.next().is_some() {}
    assert!(links.read(now, link, &mut [0; 100]).is_none());
    links.handle_request(now, LinkRequest::Read { link, is_on: true });
    assert!(links.connections.has_rest());
    assert_eq!(read(&mut links, link), Some(b"early".to_vec()));
}

#[test]
fn more_than_may_come_before_is_not_adopted() {
    let mut links = Links::new().expect("epoll");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let begun = Begun { received: vec![0; FRAME_MAX + 1].into(), ..Begun::default() };
    let (token, kind) = (Token::default(), Adopted::Begun(StreamOptions::default(), begun));
    links.handle_request(Instant::now(), LinkRequest::Adopt { token, descriptor: client.into(), kind });
    assert!(matches!(links.poll_news(), Some((_, LinkEvent::Failed { .. }))));
}

#[test]
fn records_are_opened_however_they_are_cut() {
    let text: Vec<u8> = (0..50_000_u32).map(|index| (index % 251) as u8).collect();
    for step in [1, 7, 1_000, 40_000] {
        let (mut links, link, mut other) = sealed(StreamOptions::default());
        // One byte at a time takes a while; fewer do.
        let text = &text[..if step == 1 { 300 } else { text.len() }];
        let mut records = Vec::new();
        for (index, part) in text.chunks(if step == 1 { 100 } else { 16_384 }).enumerate() {
            records.extend(other.cipher.record(DATA, part));
            if index % 2 == 0 {
                records.extend(other.cipher.record(DATA, &[]));
            }
        }
        let mut got = Vec::new();
        for part in records.chunks(step) {
            other.socket.write_all(part).expect("written");
            links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
            while links.connections.next().is_some() {}
            let mut buffer = vec![0; READ_BUFFER_BYTES];
            while let Some(read) = links.read(Instant::now(), link, &mut buffer) {
                got.extend_from_slice(&buffer[..read.len]);
            }
        }
        let since = Instant::now();
        while got.len() < text.len() {
            assert!(since.elapsed() < PATIENCE, "{step}");
            got.extend(read(&mut links, link).unwrap_or_default());
        }
        assert!(got == text, "{step}");
    }
}

#[test]
fn a_record_that_has_begun_ends_in_time_or_the_link_does() {
    let (mut links, link, mut other) = sealed(StreamOptions::default());
    other.socket.write_all(&[DATA, 1]).expect("written");
    let start = Instant::now() + Duration::from_secs(3_600);
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    assert!(links.read(start, link, &mut vec![0; READ_BUFFER_BYTES]).is_none());
    links.sweep(start + FRAME_TIME_MAX - Duration::from_millis(1));
    assert_eq!(reason(&mut links), None);
    links.sweep(start + FRAME_TIME_MAX + SWEEP_INTERVAL);
    assert_eq!(reason(&mut links), Some(CloseReason::Silent));
}

#[test]
fn frames_of_one_flush_are_a_record_each_and_have_a_limit() {
    // With the length before each frame, and a record's three bytes.
    let (mut links, link, mut other) = sealed(StreamOptions { backlog_max: 3_006, ..framed() });
    let path = Path { link, remote: ([127, 0, 0, 1], 1).into(), local: None };
    let mut out = Outbox::new(10_000);
    (0..4).for_each(|index| assert!(out.push(&path, &[index; 998])));
    links.send(&out, &[]);
    for index in 0..3 {
        let (kind, body) = other.read();
        assert_eq!((kind, body.len(), &body[..3]), (DATA, 1_000, &[0x03, 0xe6, index][..]));
    }
    assert_eq!(links.counts.dropped_tcp_full, 1);
}

#[test]
fn a_connection_whose_cipher_is_used_up_ends() {
    let cipher = Toy { records_left: Some(2), ..Toy::default() };
    let (mut links, link, mut other) = begun(framed(), Begun { cipher: Some(Box::new(cipher)), ..Begun::default() });
    let path = Path { link, remote: ([127, 0, 0, 1], 1).into(), local: None };
    let mut out = Outbox::new(2_000);
    (0..2).for_each(|_| assert!(out.push(&path, b"last")));
    links.send(&out, &[]);
    (0..2).for_each(|_| assert_eq!(other.read(), (DATA, b"\0\x04last".to_vec())));
    assert_eq!(reason(&mut links), None);
    links.send(&out, &[]);
    assert_eq!(reason(&mut links), Some(CloseReason::Failed));
}

#[test]
fn what_waits_sealed_is_bounded_and_the_newest_datagram_is_dropped() {
    let (mut links, link, other) =
        sealed(StreamOptions { backlog_max: 100_000, send_buffer_bytes: Some(16 * 1_024), ..framed() });
    let path = Path { link, remote: ([127, 0, 0, 1], 1).into(), local: None };
    let mut out = Outbox::new(100_000);
    let mut sent = 0;
    while links.counts.dropped_tcp_full == 0 {
        out.clear();
        (0..50).for_each(|_| assert!(out.push(&path, &[7; 1_000])));
        links.send(&out, &[]);
        sent += 50;
        assert!(sent < 100_000, "somewhere is the end of what the kernel takes");
    }
    assert!(links.backlog_bytes() <= 101_000, "records have a header each");
    drop(other);
}

#[test]
fn of_a_byte_stream_one_record_waits_and_the_writer_hears_of_the_rest() {
    let (mut links, link, mut other) = sealed(StreamOptions::default());
    let shared: Arc<Vec<u8>> = Arc::new((0..8_u32 << 20).map(|index| (index % 253) as u8).collect());
    let (mut got, mut at, mut unsent) = (Vec::new(), 0, 0);
    let since = Instant::now();
    while got.len() < shared.len() {
        assert!(since.elapsed() < PATIENCE, "all of it arrives");
        let mut out = Outbox::new(2_000);
        assert!(out.push_stream(link, &shared, at, shared.len() - at));
        links.send_pieces(&out);
        let end = match links.poll_news() {
            Some((_, LinkEvent::Unsent { bytes, .. })) => {
                unsent += 1;
                assert!(links.backlog_bytes() < 17_000, "{} bytes", links.backlog_bytes());
                shared.len() - bytes
            }
            _ => shared.len(),
        };
        at = end;
        // What waits leaves when there is room; then the writer hears of it.
        while got.len() < end {
            let (kind, body) = other.read();
            assert_eq!(kind, DATA);
            got.extend(body);
            links.handle_writable(Instant::now(), link);
        }
        assert!(end == shared.len() || matches!(links.poll_news(), Some((_, LinkEvent::Writable { .. }))));
    }
    assert!(got == *shared && unsent > 0, "{unsent}");
}

#[test]
fn files_and_copied_pieces_are_sealed_in_order() {
    let (mut links, link, mut other) = sealed(StreamOptions::default());
    let file = tempfile();
    let mut out = Outbox::new(2_000);
    assert!(out.push_bytes(link, b"head, "));
    assert!(out.push_file(link, &Arc::new(file), 2, 6));
    assert!(out.push_bytes(link, b", tail"));
    links.send_pieces(&out);
    let mut got = Vec::new();
    while got.len() < 18 {
        let (kind, body) = other.read();
        assert_eq!(kind, DATA);
        got.extend(body);
    }
    assert_eq!(got, b"head, middle, tail");
    assert!(links.poll_news().is_none());
    let counts = &links.counts;
    assert_eq!((counts.tls_files_by_kernel, counts.tls_files_by_worker), (0, 1), "the kernel knows no such cipher");
}

/// A file that says "a middle".
fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("millrace-sealed-{}", std::process::id()));
    std::fs::write(&path, b"a middle").expect("written");
    let file = std::fs::File::open(&path).expect("it is there");
    std::fs::remove_file(&path).expect("it is there");
    file
}

#[test]
fn who_says_that_this_was_all_is_heard_and_may_read_on() {
    for is_framed in [false, true] {
        let options = if is_framed { framed() } else { StreamOptions::default() };
        let (mut links, link, mut other) = sealed(options);
        let mut records = other.cipher.record(DATA, &[0, 1, 7]);
        records.extend(other.cipher.record(END, &[]));
        records.extend(b"what follows means nothing");
        other.socket.write_all(&records).expect("written");
        assert_eq!(read_some(&mut links, link), [0, 1, 7]);
        links.come_back_to(link);
        assert!(links.connections.has_rest(), "the kernel may know nothing of the end");
        assert_eq!(read(&mut links, link), None);
        if is_framed {
            assert_eq!(reason(&mut links), Some(CloseReason::Ended));
            assert_eq!(other.read().0, END);
            continue;
        }
        assert!(matches!(links.poll_news(), Some((_, LinkEvent::InputEnded { .. }))));
        let mut out = Outbox::new(2_000);
        assert!(out.push_bytes(link, b"answer"));
        links.send_pieces(&out);
        assert_eq!(other.read(), (DATA, b"answer".to_vec()));
        links.handle_request(Instant::now(), LinkRequest::Close { link });
        links.handle_writable(Instant::now(), link);
        assert_eq!(other.read().0, END);
    }
}

#[test]
fn a_byte_stream_that_is_cut_off_has_failed_and_what_is_closed_says_so_before_it_ends() {
    let (mut links, link, other) = sealed(StreamOptions::default());
    drop(other);
    assert_eq!(read(&mut links, link), None);
    assert_eq!(reason(&mut links), Some(CloseReason::Failed));

    let (mut links, link, mut other) = sealed(framed());
    let mut out = Outbox::new(2_000);
    let path = Path { link, remote: ([127, 0, 0, 1], 1).into(), local: None };
    assert!(out.push(&path, b"last"));
    links.send(&out, &[]);
    links.handle_request(Instant::now(), LinkRequest::Close { link });
    links.handle_writable(Instant::now(), link);
    assert_eq!(other.read(), (DATA, b"\0\x04last".to_vec()));
    assert_eq!(other.read(), (END, vec![]));
    assert_eq!(other.socket.read(&mut [0]).expect("the end"), 0);
    other.socket.write_all(b"no record").expect("written");
    drop(other);
    let since = Instant::now();
    while reason(&mut links) != Some(CloseReason::Asked) {
        assert!(since.elapsed() < PATIENCE, "it ends");
        read(&mut links, link);
    }
}

#[test]
fn what_the_cipher_has_to_say_leaves_by_itself_and_a_broken_record_ends_the_link() {
    let (mut links, link, mut other) = sealed(framed());
    let question = other.cipher.record(QUESTION, &[]);
    other.socket.write_all(&question).expect("written");
    assert_eq!(read(&mut links, link), None);
    links.connections.epoll.wait(Some(PATIENCE)).expect("wait");
    links.handle_writable(Instant::now(), link);
    assert_eq!(other.read().0, ANSWER);
    links.connections.epoll.wait(Some(Duration::from_millis(5))).expect("wait");
    assert_eq!(links.connections.epoll.ready_count(), 0, "nothing is waited for any more");

    other.write(&[0, 1, 7]);
    assert_eq!(read_some(&mut links, link), [0, 1, 7]);
    other.socket.write_all(&[99, 0, 0]).expect("written");
    assert_eq!(read(&mut links, link), None);
    assert_eq!(reason(&mut links), Some(CloseReason::Failed));
    assert_eq!(other.read().0, ALERT);
}

#[test]
fn an_idle_connection_keeps_no_buffer() {
    let (mut links, link, mut other) = sealed(framed());
    other.write(&[0, 1, 7]);
    assert_eq!(read_some(&mut links, link), [0, 1, 7]);
    answer(&mut links, link);
    assert_eq!(other.read().0, DATA);
    let Some(Link { body: Body::Stream(stream), .. }) = links.table.get(link) else { panic!("it is there") };
    assert_eq!(stream.kept_bytes(), 0);
}
