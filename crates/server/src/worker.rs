//! What a worker runs: all products of one thread, and the ways out to the other threads.
//!
//! In: datagrams and refusals from the engine, messages from control and from other workers. Out: datagrams, in turns;
//! events to the negotiator and to control, posts to other workers.
//! The one place where protocol and machine meet.

mod outgoing;
mod refusals;
mod shares;
mod turns;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use counters::Published;
use engine::{Mailbox, Service};
use pump::pump::Pump;
use reflect::reflect::Reflect;
use relay::relay::Relay;
use rooms::batch::Post;
use rooms::drops::DropReason;
use rooms::rooms::{Rooms, Sender};
use rooms::spec::Event;
use tokio::sync::oneshot;
use wire::rtp::{self, Kind};
use wire::{Datagram, DatagramRun, LinkEvent, LinkId, LinkRequest, Outbox, Path, Product, Sending, Token, WorkerId};

use crate::owner::{PUMP, REFLECT, RELAY, ROOMS, RTSP};
use crate::rooms::negotiator::Input;
use outgoing::Outgoing;
use refusals::Refusals;
use shares::Shares;
pub use shares::Ticket;
use turns::Turns;

/// What a worker's mailbox takes.
#[derive(Debug)]
pub enum Message {
    /// From control or a negotiator.
    Command(rooms::spec::Command),
    /// From another worker's rooms.
    Post(Post),
    /// A STUN or DTLS datagram that the negotiator wants sent.
    Transmit {
        /// Where to, and which way.
        path: Path,
        /// All of it.
        data: Box<[u8]>,
    },
    /// A peer is about to take the next step of its handshake: it has an answer, or has proved something.
    Expect,
    /// From control.
    Pump(pump::spec::Command),
    /// From control.
    Relay(relay::spec::Command),
    /// Links that no product is to have any more.
    CloseLinks {
        /// Which.
        links: Vec<LinkId>,
        /// Told when they are closed.
        done: oneshot::Sender<()>,
    },
    /// From control.
    Reflect(reflect::spec::Command),
}

/// What a worker tells control.
#[derive(Debug)]
pub enum Report {
    /// Of its rooms; what concerns handshakes goes to the negotiator instead.
    Rooms(rooms::spec::Event),
    /// Of its pump.
    Pump(pump::spec::Event),
    /// Of its relay.
    Relay {
        /// Whose.
        worker: WorkerId,
        /// What.
        event: relay::spec::Event,
    },
    /// Of its reflector.
    Reflect {
        /// Whose.
        worker: WorkerId,
        /// What.
        event: reflect::spec::Event,
    },
    /// Of its reflector, which gives its viewers away.
    Moved(reflect::moved::Handed),
    /// Nobody listens at a destination.
    Refused {
        /// Where.
        remote: SocketAddr,
    },
}

/// Where a worker's products publish what they count.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Of its rooms.
    pub rooms: Published<rooms::counters::Counters>,
    /// Of its pump.
    pub pump: Published<pump::counters::Counters>,
    /// Of its relay.
    pub relay: Published<relay::counters::Counters>,
    /// Of its reflector.
    pub reflect: Published<reflect::counters::Counters>,
}

/// Where a worker's products tell what others have to know.
pub struct Ways {
    /// Which worker it is.
    pub worker: WorkerId,
    /// The mailbox of each worker, by its number.
    pub workers: Vec<Mailbox<Message>>,
    /// The negotiator beside this worker; a worker without rooms has none.
    pub negotiator: Option<Mailbox<Input>>,
    /// Control.
    pub control: Mailbox<Report>,
    /// What is counted.
    pub numbers: Numbers,
}

/// Numbers are published no more often than this.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(1);

/// How old published numbers may get: a worker with nothing else to do is woken for them, and a wake-up takes longer than
/// publishing.
const PUBLISH_AGE_MAX: Duration = Duration::from_millis(20);

/// For how long a step of a handshake is waited for: a slow path's round trip, and what a browser needs to look at an answer.
const STEP_TIME: Duration = Duration::from_millis(500);

/// When a full mailbox is tried again, should the worker have nothing else to do until then.
const RETRY: Duration = Duration::from_millis(10);

/// All products of one worker.
pub struct Products {
    rooms: Rooms,
    pump: Pump,
    /// Where the server has one.
    relay: Option<Relay>,
    reflect: Reflect,
    worker: WorkerId,
    workers: Vec<Mailbox<Message>>,
    negotiator: Option<Outgoing<Input>>,
    shares: Shares,
    /// Until when the next step of a handshake is waited for.
    step_until: Instant,
    control: Outgoing<Report>,
    refusals: Refusals,
    numbers: Numbers,
    /// When the numbers may be published next, and whether they wait for that.
    publish_at: Instant,
    is_unpublished: bool,
    /// When to try again what found a mailbox full.
    retry_at: Option<Instant>,
    turns: Turns,
    /// Links that are being closed, and who is told.
    closing: Option<(Vec<LinkId>, oneshot::Sender<()>)>,
}

impl Products {
    /// The same, whose reflector has the kernel send in this way.
    #[must_use]
    pub fn sending(self, sending: Sending) -> Self {
        let settings = reflect::reflect::Settings { sending, ..reflect::reflect::Settings::new(REFLECT) };
        Products { reflect: Reflect::new(settings), ..self }
    }

    /// Products without sessions.
    pub fn new(now: Instant, rooms: Rooms, pump: Pump, relay: Option<Relay>, ways: Ways) -> Self {
        Products {
            rooms,
            pump,
            relay,
            reflect: Reflect::new(reflect::reflect::Settings::new(REFLECT)),
            worker: ways.worker,
            workers: ways.workers,
            negotiator: ways.negotiator.map(Outgoing::new),
            shares: Shares::default(),
            step_until: now,
            control: Outgoing::new(ways.control),
            refusals: Refusals::new(now),
            numbers: ways.numbers,
            publish_at: now,
            is_unpublished: false,
            retry_at: None,
            turns: Turns::default(),
            closing: None,
        }
    }

    /// Whose link it is.
    fn owner(&mut self, token: Token) -> &mut dyn Product {
        match (token.owner, &mut self.relay) {
            (PUMP | RTSP, _) => &mut self.pump,
            (RELAY, Some(relay)) => relay,
            (REFLECT, _) => &mut self.reflect,
            _ => &mut self.rooms,
        }
    }

    /// Shows what was counted, at once or soon.
    fn publish(&mut self, now: Instant) {
        self.is_unpublished = now < self.publish_at;
        if !self.is_unpublished {
            self.publish_at = now + PUBLISH_INTERVAL;
            self.numbers.rooms.store(&self.rooms.counters());
            self.numbers.pump.store(self.pump.counters());
            if let Some(relay) = &self.relay {
                self.numbers.relay.store(&relay.counters());
            }
            self.numbers.reflect.store(&self.reflect.counters());
        }
    }

    /// A link is closed; tells who waits for all of them.
    fn end_closing(&mut self, closed: Option<LinkId>) {
        if let Some((mut links, done)) = self.closing.take() {
            links.retain(|link| Some(*link) != closed);
            if links.is_empty() {
                // Nobody has to wait.
                done.send(()).ok();
            } else {
                self.closing = Some((links, done));
            }
        }
    }

    /// Hands packets to other workers.
    fn post(&mut self) {
        while let Some((to, post)) = self.rooms.poll_post() {
            let sent = match self.workers.get(to.index()) {
                Some(mailbox) => mailbox.send(Message::Post(post)),
                None => Err(Message::Post(post)),
            };
            if let Err(Message::Post(post)) = sent {
                self.rooms.handle_undelivered(post);
            }
        }
    }

    /// Passes on what the products have to say. What finds no room is tried again soon, also when nothing else happens.
    fn tell(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(event) = self.pump.poll_event() {
            self.control.send(Report::Pump(event));
        }
        if let Some(relay) = &mut self.relay {
            while let Some(event) = relay.poll_event() {
                tell_of_relay(relay, self.worker, event, &mut self.control, (now, out));
            }
        }
        while let Some(event) = self.reflect.poll_event() {
            self.control.send(Report::Reflect { worker: self.worker, event });
        }
        while let Some(moved) = self.reflect.poll_moved() {
            self.control.send(Report::Moved(moved));
        }
        while let Some(event) = self.rooms.poll_event() {
            match (event, &mut self.negotiator) {
                (event @ Event::SessionEnded { .. }, Some(negotiator)) => negotiator.send(Input::Event(event)),
                (event, _) => self.control.send(Report::Rooms(event)),
            }
        }
        self.control.flush();
        let mut is_behind = self.control.is_behind();
        if let Some(negotiator) = &mut self.negotiator {
            negotiator.flush();
            is_behind |= negotiator.is_behind();
        }
        self.retry_at = is_behind.then(|| now + RETRY);
    }
}

/// Passes on what a relay has to say. Strangers' datagrams find room or are lost, and their handshakes with them: their senders
/// repeat them.
fn tell_of_relay(
    relay: &mut Relay,
    worker: WorkerId,
    event: relay::spec::Event,
    control: &mut Outgoing<Report>,
    (now, out): (Instant, &mut Outbox),
) {
    use relay::spec::{Command, Event, HandshakeInput, HandshakeStep};
    let (is_begin, association) = match &event {
        Event::Handshake { association, input: HandshakeInput::Begin { .. } } => (true, *association),
        Event::Handshake { association, input: HandshakeInput::Datagram(_) } => (false, *association),
        _ => return control.send(Report::Relay { worker, event }),
    };
    if control.offer(Report::Relay { worker, event }) {
        return;
    }
    if is_begin {
        relay.handle_command(now, Command::Handshake { association, step: HandshakeStep::Failed }, out);
    } else {
        relay.count_drop(::relay::drops::DropReason::EventQueueFull);
    }
}

/// The longest datagram of a handshake that is taken: no path carries more in one piece.
const HANDSHAKE_BYTES_MAX: usize = 1_500;

/// Whether a datagram that begins as STUN or DTLS may be one of a handshake.
fn is_handshake(data: &[u8]) -> bool {
    let is_stun = || wire::stun::local_ufrag(data).is_some() || wire::stun::answered_transaction(data).is_some();
    data.len() <= HANDSHAKE_BYTES_MAX && (wire::dtls::is_record(data) || is_stun())
}

impl Service for Products {
    type Message = Message;

    fn handle_message(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match message {
            Message::Command(command) => self.rooms.handle_command(now, command, out),
            Message::Post(post) => self.rooms.handle_post(now, post, out),
            Message::Transmit { path, data } => {
                if !out.push(&path, &data) {
                    self.rooms.count_drop(DropReason::OutboxFull);
                }
            }
            Message::Expect => self.step_until = now + STEP_TIME,
            Message::Pump(command) => self.pump.handle_command(now, command),
            Message::Relay(command) => {
                if let Some(relay) = &mut self.relay {
                    relay.handle_command(now, command, out);
                }
            }
            Message::CloseLinks { links, done } => {
                // There are few of them, and the outbox is empty before each call.
                links.iter().for_each(|link| drop(out.request(LinkRequest::Close { link: *link })));
                self.closing = Some((links, done));
                self.end_closing(None);
            }
            Message::Reflect(command) => self.reflect.handle_command(now, command),
        }
    }

    /// Rooms send what comes, and reports and the rest of bursts beside it; the others send by the clock.
    fn poll_exact(&self) -> Option<Instant> {
        let relay = self.relay.as_ref().and_then(Product::poll_timeout);
        [self.pump.poll_timeout(), self.reflect.poll_timeout(), relay].into_iter().flatten().min()
    }

    /// What is counted is published, and what found no room tried again, when media has nothing to do.
    fn poll_wake(&self) -> Option<Instant> {
        let publish = self.is_unpublished.then(|| self.publish_at - PUBLISH_INTERVAL + PUBLISH_AGE_MAX);
        publish.into_iter().chain(self.retry_at).min()
    }

    /// While handshakes go on their steps come among the checks of those who are here.
    fn is_awaited(&self, now: Instant) -> bool {
        now < self.step_until
    }
}

impl Product for Products {
    /// What comes to the rooms' links is media, or STUN and DTLS for their negotiator (RFC 7983).
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        let Some(negotiator) = self.negotiator.as_mut().filter(|_| run.token.owner == ROOMS) else {
            return self.owner(run.token).handle_run(now, run, out);
        };
        for datagram in run.into_datagrams() {
            match rtp::classify(datagram.data) {
                Kind::Stun | Kind::Dtls => {
                    let Datagram { path, data, .. } = datagram;
                    if !is_handshake(data) {
                        self.rooms.count_drop(DropReason::MalformedHandshake);
                        continue;
                    }
                    let sender = self.rooms.handshake_sender(now, &path);
                    if sender == Sender::Session && self.rooms.handle_consent_check(now, &path, data, out) {
                        continue;
                    }
                    // Handshakes are the one thing on the packet path that is copied to the heap.
                    let input = |ticket| Input::Datagram { path, data: (&*data).into(), ticket };
                    let ticket = self.shares.take(sender, negotiator.size());
                    if !ticket.is_some_and(|ticket| negotiator.offer(input(ticket))) {
                        self.rooms.count_drop(match sender {
                            Sender::Flood => DropReason::HandshakeBudgetSpent,
                            Sender::Stranger | Sender::Session => DropReason::EventQueueFull,
                        });
                    }
                }
                _ => self.rooms.handle_datagram(now, datagram, out),
            }
        }
    }

    /// That a destination of the pump refuses is for control too. Peers of rooms prove that they listen by their consent
    /// (RFC 7675), those of the relay are its clients' business, and what ICMP says can be forged.
    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        if let LinkEvent::Closed { link, .. } = event {
            self.end_closing(Some(link));
        }
        if let LinkEvent::Refused { remote, .. } = event
            && matches!(token.owner, PUMP | RTSP)
            && self.refusals.is_news(now, remote)
        {
            // What finds no room is told again by the next refusal.
            self.control.offer(Report::Refused { remote });
        }
        self.owner(token).handle_link(now, token, event, out);
    }

    /// What is due is done when the products are asked, each in its turn.
    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        self.rooms.poll_timeout().into_iter().chain(self.poll_exact()).min()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let (rooms, pump, reflect): (&mut dyn Product, &mut dyn Product, &mut dyn Product) =
            (&mut self.rooms, &mut self.pump, &mut self.reflect);
        let has_more = match &mut self.relay {
            Some(relay) => self.turns.transmit(&mut [rooms, pump, reflect, relay], now, out),
            None => self.turns.transmit(&mut [rooms, pump, reflect], now, out),
        };
        self.post();
        self.tell(now, out);
        self.publish(now);
        has_more
    }
}

#[cfg(test)]
mod tests {
    use engine::{Receiver, mailbox};
    use pump::spec::Settings;
    use rooms::batch::BatchPool;
    use rooms::spec::{Command, SessionId};
    use wire::{DATAGRAM_MAX, LinkId, WorkerId};

    use super::*;

    /// Those of a worker without others, and what control hears, one report at a time.
    fn products(now: Instant) -> (Products, Receiver<Report>) {
        let (control, reports) = mailbox(1).expect("a mailbox");
        let ways =
            Ways { worker: WorkerId(0), workers: Vec::new(), negotiator: None, control, numbers: Numbers::default() };
        let rooms = Rooms::new(now, WorkerId(0), rooms::settings::Settings::new(0, (now, 0)), BatchPool::new(1));
        (Products::new(now, rooms, Pump::new(now, Settings::default()), None, ways), reports)
    }

    #[test]
    fn a_datagram_of_the_negotiator_that_finds_no_room_is_counted_and_dropped() {
        let now = Instant::now();
        let (mut products, _reports) = products(now);
        let mut out = Outbox::new(DATAGRAM_MAX);
        let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], 1).into(), local: None };
        for len in [DATAGRAM_MAX + 1, 100, 100] {
            products.handle_message(now, Message::Transmit { path, data: vec![22; len].into() }, &mut out);
        }
        assert_eq!(out.datagrams().count(), 1);
        assert_eq!(products.rooms.counters().drops.count(DropReason::OutboxFull), 2);
    }

    /// Those of a worker with a negotiator whose mailbox has room for so many.
    fn products_with_negotiator(now: Instant, len: usize) -> (Products, Receiver<Input>) {
        let (control, _) = mailbox(1).expect("a mailbox");
        let (negotiator, inputs) = mailbox(len).expect("a mailbox");
        let ways = Ways {
            worker: WorkerId(0),
            workers: Vec::new(),
            negotiator: Some(negotiator),
            control,
            numbers: Numbers::default(),
        };
        let rooms = Rooms::new(now, WorkerId(0), rooms::settings::Settings::new(0, (now, 0)), BatchPool::new(1));
        (Products::new(now, rooms, Pump::new(now, Settings::default()), None, ways), inputs)
    }

    fn add_session(products: &mut Products, now: Instant, port: u16) {
        let (_, keys) = srtp::SessionKeys::made_up_pair(srtp::Profile::AeadAes128Gcm, 1);
        let path = Path { link: LinkId::datagrams(0), remote: ([192, 0, 2, 1], port).into(), local: None };
        let peer = rooms::spec::PeerSpec { session: SessionId(port.into()), path, keys, cname: None };
        let add = Message::Command(Command::AddSession(peer));
        products.handle_message(now, add, &mut Outbox::new(10_000));
    }

    fn receive(products: &mut Products, now: Instant, port: u16, data: &[u8]) {
        let remote = ([192, 0, 2, 1], port).into();
        let token = Token { owner: ROOMS, number: 0 };
        let path = Path { link: LinkId::datagrams(0), remote, local: None };
        let len = data.len().try_into().expect("a datagram");
        let mut data = data.to_vec();
        let run = DatagramRun::new(token, path, len, &mut data);
        products.handle_run(now, run, &mut Outbox::new(10_000));
    }

    const RECORD: [u8; 14] = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1];

    #[test]
    fn a_flood_of_strangers_leaves_room_for_who_has_a_session_and_for_http() {
        let now = Instant::now();
        let (mut products, inputs) = products_with_negotiator(now, 8);
        add_session(&mut products, now, 7);
        (0..60).for_each(|_| receive(&mut products, now, 8, &RECORD));
        (0..60).for_each(|_| receive(&mut products, now, 7, &RECORD));
        assert_eq!(ports(&inputs), [8, 8, 8, 7, 7, 7]);
        assert_eq!(products.rooms.counters().drops.count(DropReason::EventQueueFull), 114);
        // And a flood of sessions leaves room for strangers.
        (0..4).for_each(|_| receive(&mut products, now, 7, &RECORD));
        receive(&mut products, now, 8, &RECORD);
        assert_eq!(ports(&inputs), [7, 7, 7, 8]);
    }

    fn ports(inputs: &Receiver<Input>) -> Vec<u16> {
        let port = |input| match input {
            Input::Datagram { path, .. } => path.remote.port(),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| inputs.try_recv()).map(port).collect()
    }

    #[test]
    fn one_session_has_so_many_datagrams_for_the_negotiator_and_others_have_theirs() {
        let now = Instant::now();
        let (mut products, inputs) = products_with_negotiator(now, 8_192);
        [7, 9].into_iter().for_each(|port| add_session(&mut products, now, port));
        (0..10_000).for_each(|_| receive(&mut products, now, 7, &RECORD));
        (0..3).for_each(|_| receive(&mut products, now, 9, &RECORD));
        let later = now + Duration::from_secs(1);
        (0..1_000).for_each(|_| receive(&mut products, later, 7, &RECORD));
        // Half of the sessions' share, and then 100 a second.
        let taken = ports(&inputs);
        assert_eq!((taken.len(), taken.iter().filter(|port| **port == 9).count()), (1_536 + 3 + 100, 3));
        assert_eq!(products.rooms.counters().drops.count(DropReason::HandshakeBudgetSpent), 8_464 + 900);
    }

    /// Anybody who knows a session's address and port can write them over datagrams of his own.
    #[test]
    fn a_flood_in_a_sessions_name_takes_nothing_from_it_while_the_negotiator_keeps_up() {
        let start = Instant::now();
        let (mut products, inputs) = products_with_negotiator(start, 8_192);
        add_session(&mut products, start, 7);
        let own = b"\x00\x01\x00\x08\x21\x12\xa4\x42............\x00\x06\x00\x03a:b\x00";
        let mut heard = 0;
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            (0..2).for_each(|_| receive(&mut products, now, 7, &RECORD));
            if ms % 100 == 0 {
                receive(&mut products, now, 7, own);
            }
            let is_own = |input: &Input| matches!(input, Input::Datagram { data, .. } if data[..] == own[..]);
            heard += std::iter::from_fn(|| inputs.try_recv()).filter(is_own).count();
        }
        assert_eq!(heard, 100);
    }

    #[test]
    fn what_only_begins_like_a_handshake_goes_no_further() {
        let now = Instant::now();
        let (mut products, inputs) = products_with_negotiator(now, 8);
        let mut long = vec![0; 1_501];
        long[..14].copy_from_slice(&RECORD);
        let check = b"\x00\x01\x00\x08\x21\x12\xa4\x42............\x00\x06\x00\x03a:b\x00";
        for data in [&long[..], &[0; 100], &[22; 100], &check[..27], &RECORD[..13], &[3]] {
            receive(&mut products, now, 8, data);
        }
        assert!(inputs.try_recv().is_none());
        assert_eq!(products.rooms.counters().drops.count(DropReason::MalformedHandshake), 6);
        receive(&mut products, now, 8, check);
        receive(&mut products, now, 8, &long[..1_500]);
        assert_eq!(std::iter::from_fn(|| inputs.try_recv()).count(), 2);
    }

    #[test]
    fn steps_of_a_handshake_are_waited_for_where_the_negotiator_expects_them() {
        let start = Instant::now();
        let (mut products, _inputs) = products_with_negotiator(start, 8);
        add_session(&mut products, start, 7);
        [7, 8].into_iter().for_each(|port| receive(&mut products, start, port, &RECORD));
        assert!(!products.is_awaited(start), "anybody can send that");
        products.handle_message(start, Message::Expect, &mut Outbox::new(10_000));
        assert!(products.is_awaited(start) && !products.is_awaited(start + STEP_TIME));
    }

    /// A ClientHello with this cookie.
    fn hello(cookie: &[u8]) -> Vec<u8> {
        let body = [&[0xfe, 0xfd][..], &[9; 32], &[0, cookie.len() as u8], cookie, &[0, 2, 0xc0, 0x2b, 1, 0]].concat();
        let len = body.len() as u8;
        let header = [22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, len + 12, 1, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, len];
        [&header[..], &body].concat()
    }

    #[test]
    fn handshakes_of_the_relay_s_clients_that_find_no_room_are_let_go() {
        let now = Instant::now();
        let (control, reports) = mailbox(8).expect("a mailbox");
        let mut settings = relay::settings::Settings::new([7; 32], (now, Duration::ZERO));
        let addr = ([192, 0, 2, 1], 5_349).into();
        settings.owner = RELAY;
        settings.listeners = vec![relay::settings::Listener { addr, transport: relay::spec::ClientTransport::Dtls }];
        let (mut products, _) = products(now);
        (products.relay, products.control) = (Some(Relay::new(now, settings)), Outgoing::new(control));
        let (token, link) = (Token { owner: RELAY, number: relay::names::listener(0) }, LinkId::datagrams(0));
        let mut out = Outbox::new(100_000);
        let opened = LinkEvent::Opened { link, local: addr, remote: None };
        products.handle_link(now, token, opened, &mut out);
        for port in 1..=100 {
            let path = Path { link, remote: ([192, 0, 2, 1], port).into(), local: None };
            let mut cookie = Vec::new();
            for _ in 0..3 {
                let mut hello = hello(&cookie);
                let len = hello.len().try_into().expect("a datagram");
                products.handle_run(now, DatagramRun::new(token, path, len, &mut hello), &mut out);
                if let Some(answer) = out.datagrams().next() {
                    cookie = answer.1[28..48].to_vec();
                }
                out.clear();
            }
            products.poll_transmit(now, &mut out);
        }
        let counters = products.relay.as_ref().map(Relay::counters).expect("it is there");
        assert!(!products.control.is_behind(), "nothing waits in the worker");
        assert_eq!((counters.dtls_handshakes_begun, counters.dtls_handshakes_failed), (100, 97));
        assert_eq!(std::iter::from_fn(|| reports.try_recv()).count(), 6, "a quarter is for others");
    }

    #[test]
    fn what_is_counted_is_published_soon_though_nothing_else_happens() {
        let now = Instant::now();
        let (mut products, _reports) = products(now);
        let mut out = Outbox::new(10_000);
        let dropped = |products: &Products| products.numbers.rooms.load().drops.count(DropReason::OutboxFull);
        products.poll_transmit(now, &mut out);
        assert_eq!(products.poll_wake(), None);
        products.rooms.count_drop(DropReason::OutboxFull);
        products.poll_transmit(now, &mut out);
        assert_eq!((dropped(&products), products.poll_wake()), (0, Some(now + PUBLISH_AGE_MAX)));

        products.poll_transmit(now + PUBLISH_AGE_MAX, &mut out);
        assert_eq!((dropped(&products), products.poll_wake()), (1, None));
    }

    #[test]
    fn what_finds_control_full_is_tried_again_though_nothing_else_happens() {
        let now = Instant::now();
        let (mut products, reports) = products(now);
        let mut out = Outbox::new(10_000);
        for token in 0..2 {
            let inspect = Command::Inspect { session: SessionId(7), token };
            products.handle_message(now, Message::Command(inspect), &mut out);
        }
        products.poll_transmit(now, &mut out);
        assert!(reports.try_recv().is_some() && reports.try_recv().is_none(), "there was room for one answer");

        let at = now + RETRY;
        assert!(products.poll_wake().is_some_and(|first| first <= at));
        products.poll_transmit(at, &mut out);
        assert!(reports.try_recv().is_some());
        products.poll_transmit(at, &mut out);
        assert_eq!(products.retry_at, None);
    }
}
