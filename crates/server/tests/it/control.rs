//! The control plane between HTTP and workers: what happens when a worker has no room, and when tracks change.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use engine::{Mailbox, Receiver, mailbox};
use rooms::spec::{Command, SessionId};
use server::plane::workers::Workers;
use server::plane::{Plane, ProductControl, placement};
use server::rooms::client::Client;
use server::rooms::control::{ControlError, NegotiatorEnd, Opened, RoomsControl};
use server::rooms::directory::{DirectoryError, Role, Settings};
use server::rooms::negotiator::{Answer, EndReason, Input, NegotiationError, Notice, Patched, Request};
use server::worker::Message;
use wire::WorkerId;
use wire::codec::Codec;

use crate::offers;

#[tokio::test]
async fn commands_that_find_no_room_wait_and_keep_their_order() {
    let test = Harness::new(1);

    for name in ["a", "b"] {
        test.publish(name, "VP8").await;
    }
    test.rooms.close_stream("a").expect("it is there");

    for command in ["open 1", "open 2", "close 1"] {
        assert_eq!(test.commands(), [command], "it has room for one");
        test.rooms.plane().handle_timeout(Instant::now());
    }
    assert!(test.commands().is_empty());
}

#[tokio::test]
async fn a_publisher_with_other_tracks_takes_the_name_when_it_is_connected() {
    let test = Harness::new(100);
    let streams = || test.rooms.streams(&["*"], "", 10);
    let codec = || streams()[0].tracks[0].codec;

    test.publish("a", "VP8").await;
    let opened =
        test.rooms.publish("a", &offers::video("sendonly", "H264", &[]), Client::default()).await.expect("answered");
    assert_eq!((test.commands(), codec()), (vec!["open 1".to_owned()], Codec::Vp8));
    test.connect("a", &opened);

    assert_eq!(test.commands(), ["open 2", "close 1"]);
    assert_eq!((streams().len(), codec()), (1, Codec::H264));
    assert_eq!(test.requests(), ["publish 1", "publish 2"]);
}

#[tokio::test]
async fn what_is_no_offer_for_a_stream_takes_no_place_and_opens_nothing() {
    let test = Harness::new(100);
    test.publish("a", "VP8").await;
    test.commands();

    let not_one = |result| matches!(result, Err(ControlError::Negotiation(NegotiationError::Sdp(_))));
    for offer in ["", "v=0\r\n", &offers::video("recvonly", "H264", &[]), &offers::video("sendonly", "VP8", &[])] {
        assert!(not_one(test.rooms.watch("a", offer, &[], Client::default()).await), "{offer}");
    }
    for offer in ["", "v=0\r\n", &offers::video("sendonly", "H263", &[]), &offers::video("recvonly", "VP8", &[])] {
        assert!(not_one(test.rooms.publish("a", offer, Client::default()).await), "{offer}");
        assert!(not_one(test.rooms.publish("b", offer, Client::default()).await), "{offer}");
    }

    assert_eq!((test.rooms.census().viewers, test.rooms.census().publishers), ((0, 0), (1, 1)));
    assert!(test.commands().is_empty());
    assert_eq!(test.requests(), ["publish 1"], "no negotiator has heard of them");
}

/// Begins to publish, and gives it up where that waits for the negotiator.
async fn give_up(rooms: &RoomsControl, host: u8) -> Poll<Result<Opened, ControlError>> {
    let client = Client { address: Some([192, 0, 2, host].into()), ..Client::default() };
    let offer = vp8();
    begin(&mut pin!(rooms.publish("a", &offer, client))).await
}

/// As far as it goes by itself.
async fn begin<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// What a negotiator does with requests for which nobody waits any more. How many there were.
fn catch_up(rooms: &RoomsControl, heard: &Receiver<Input>) -> usize {
    let waits = std::iter::from_fn(|| heard.try_recv());
    let end = |input| match input {
        Input::Request(Request::Open { place, reply, .. }) if reply.is_closed() => {
            rooms.handle_notice(Notice::Ended { session: place.session, reason: EndReason::Abandoned })
        }
        other => panic!("unexpected {other:?}"),
    };
    waits.map(end).count()
}

#[tokio::test]
async fn a_request_that_is_given_up_takes_its_place_until_the_negotiator_has_seen_it() {
    let (inputs, heard) = mailbox(100).expect("a mailbox");
    let (rooms, _worker) = rooms(100, inputs);
    assert!(give_up(&rooms, 1).await.is_pending());
    assert_eq!(rooms.census().publishers, (1, 0));
    assert_eq!((catch_up(&rooms, &heard), rooms.census().publishers), (1, (0, 0)));
}

#[tokio::test]
async fn offers_that_one_takes_back_leave_room_for_those_of_others() {
    let (inputs, heard) = mailbox(1_500).expect("a mailbox");
    let (rooms, _worker) = rooms(100, inputs);
    let too_many = Err(ControlError::Directory(DirectoryError::TooManyWaiting));
    for count in 0..2_000 {
        let begun = give_up(&rooms, 1).await;
        assert!(if count < 1_000 { begun.is_pending() } else { begun == Poll::Ready(too_many.clone()) }, "{count}");
    }
    assert!(give_up(&rooms, 2).await.is_pending(), "the mailbox has room");
    assert_eq!((catch_up(&rooms, &heard), rooms.census().publishers), (1_001, (0, 0)));
    assert!(give_up(&rooms, 1).await.is_pending());
}

#[tokio::test]
async fn an_answer_that_comes_when_nobody_waits_any_more_ends_its_session() {
    let (inputs, heard) = mailbox(100).expect("a mailbox");
    let (rooms, _worker) = rooms(100, inputs);
    {
        let offer = vp8();
        let mut publish = pin!(rooms.publish("a", &offer, Client::default()));
        assert!(begin(&mut publish).await.is_pending());
        answer(&heard);
    }
    assert_eq!(rooms.census().publishers, (0, 0));
    assert!(matches!(heard.try_recv(), Some(Input::Request(Request::Close { .. }))));
}

/// Answers an offer.
fn answer(heard: &Receiver<Input>) {
    let Some(Input::Request(Request::Open { reply, .. })) = heard.try_recv() else { panic!("an offer") };
    reply.send(Ok(Answer { sdp: "answer".to_owned(), etag: "tag".to_owned() })).expect("it waits");
}

#[tokio::test]
async fn a_session_has_one_fragment_in_the_mailbox_though_nobody_waits_for_it_any_more() {
    let (inputs, heard) = mailbox(100).expect("a mailbox");
    let (rooms, _worker) = rooms(100, inputs);
    let offer = vp8();
    let (opened, ()) = tokio::join!(rooms.publish("a", &offer, Client::default()), async { answer(&heard) });
    let session = rooms.find(Role::Publisher, "a", &opened.expect("answered").key).expect("it is there");
    let patch = || rooms.patch(session, "fragment".to_owned(), "\"tag\"".to_owned());
    for _ in 0..10 {
        assert!(begin(&mut pin!(patch())).await.is_pending());
    }
    let first = heard.try_recv();
    assert!(first.is_some() && heard.try_recv().is_none());

    let mut next = pin!(patch());
    assert!(begin(&mut next).await.is_pending() && heard.try_recv().is_none(), "the first one is not done with");
    drop(first);
    assert!(begin(&mut next).await.is_pending());
    let Some(Input::Request(Request::Patch { reply, turn, .. })) = heard.try_recv() else { panic!("a fragment") };
    let patched = Patched { fragment: None, etag: "tag".to_owned() };
    reply.send(Ok(patched.clone())).expect("it waits");
    drop(turn);
    assert_eq!(next.await, Ok(patched));
}

#[tokio::test]
async fn a_session_whose_token_is_over_is_ended_as_if_its_client_had_left() {
    let test = Harness::new(100);
    test.publish("a", "VP8").await;
    let now = Instant::now();
    let client = Client { ends_at: Some(now + Duration::from_secs(60)), ..Client::default() };
    let viewer = offers::video("recvonly", "VP8", &[]);
    test.rooms.watch("a", &viewer, &[], client).await.expect("answered");

    test.rooms.handle_timeout(now + Duration::from_secs(59));
    assert_eq!(test.rooms.census().viewers, (1, 0));
    test.rooms.handle_timeout(now + Duration::from_secs(60));
    assert_eq!((test.rooms.census().viewers, test.rooms.sessions(SessionId(0), 10, |_| true).0.len()), ((0, 0), 1));
    assert_eq!(test.requests(), ["publish 1", "watch 1", "end"]);
}

#[tokio::test]
async fn a_negotiator_without_room_is_told_as_busy() {
    let (mailbox, _) = mailbox(1).expect("a mailbox");
    let (rooms, _worker) = rooms(100, mailbox);

    assert_eq!(rooms.publish("a", &vp8(), Client::default()).await, Err(ControlError::Busy));
    assert_eq!(rooms.census().publishers, (0, 0));
}

#[tokio::test]
async fn questions_to_a_worker_without_room_are_told_as_busy() {
    let test = Harness::new(1);
    let opened = test.rooms.publish("a", &vp8(), Client::default()).await.expect("answered");
    test.connect("a", &opened);
    let session = test.rooms.find(Role::Publisher, "a", &opened.key).expect("it is there");

    assert_eq!(test.rooms.stats(session).await, Err(ControlError::Busy));
}

#[tokio::test]
async fn busy_workers_take_no_newcomers_until_they_are_at_rest_again() {
    let test = Harness::new(100);
    let (start, mut busy_ns) = (Instant::now(), 0);
    let mut work = |from: u64, to: u64, percent: u64| {
        for tick in from..to {
            let now = start + Duration::from_millis(tick * 100);
            test.rooms.plane().placement().update(now, WorkerId(0), busy_ns);
            busy_ns += percent * 1_000_000;
        }
    };

    test.rooms.publish("a", &vp8(), Client::default()).await.expect("answered");
    work(0, 50, 99);
    let refused = Err(ControlError::Directory(DirectoryError::Overloaded));
    assert_eq!(test.rooms.publish("b", &vp8(), Client::default()).await, refused);
    assert_eq!(test.rooms.watch("a", &offers::video("recvonly", "VP8", &[]), &[], Client::default()).await, refused);
    test.rooms.publish("a", &vp8(), Client::default()).await.expect("who comes back is welcome");
    work(50, 60, 20);
    test.rooms.publish("b", &vp8(), Client::default()).await.expect("answered");
}

/// Rooms over the mailbox of a worker, which the test reads, and a negotiator on a thread of its own.
struct Harness {
    rooms: RoomsControl,
    worker: Receiver<Message>,
    negotiator: JoinHandle<Vec<String>>,
}

impl Harness {
    /// The worker's mailbox has so much room; the negotiator answers.
    fn new(room: usize) -> Self {
        let (inputs, heard) = mailbox(100).expect("a mailbox");
        let negotiator = thread::spawn(move || {
            let mut words = Vec::new();
            while let Ok(Input::Request(request)) = heard.recv_timeout(None) {
                words.push(word(&request));
                if let Request::Open { reply, .. } = request {
                    let answer = Answer { sdp: "answer".to_owned(), etag: "tag".to_owned() };
                    reply.send(Ok(answer)).expect("heard");
                }
            }
            words
        });
        let (rooms, worker) = rooms(room, inputs);
        Harness { rooms, worker, negotiator }
    }

    /// Publishes, up to the keys.
    async fn publish(&self, name: &str, codec: &str) {
        let opened = self
            .rooms
            .publish(name, &offers::video("sendonly", codec, &[]), Client::default())
            .await
            .expect("answered");
        self.connect(name, &opened);
    }

    /// What a publisher's negotiator says when it has the keys.
    fn connect(&self, name: &str, opened: &Opened) {
        let session = self.rooms.find(Role::Publisher, name, &opened.key).expect("it is there");
        self.rooms.handle_notice(Notice::Connected { session });
    }

    /// What is in the worker's mailbox, in short words.
    fn commands(&self) -> Vec<String> {
        let word = |message| match message {
            Message::Command(Command::OpenStream(spec)) => format!("open {}", spec.id.0),
            Message::Command(Command::CloseStream(id)) => format!("close {}", id.0),
            other => panic!("unexpected {other:?}"),
        };
        std::iter::from_fn(|| self.worker.try_recv()).map(word).collect()
    }

    /// What the negotiator was asked, in short words.
    fn requests(self) -> Vec<String> {
        drop(self.rooms);
        self.negotiator.join().expect("no panic")
    }
}

fn rooms(room: usize, negotiator: Mailbox<Input>) -> (RoomsControl, Receiver<Message>) {
    let (mailbox, worker) = mailbox(room).expect("a mailbox");
    let placement = placement::Settings { busy_max: 0.9, ..placement::Settings::default() };
    let plane = Plane::new(Workers::pretended(vec![mailbox]), placement);
    let ends = vec![NegotiatorEnd { mailbox: negotiator, counters: Default::default() }];
    let settings = Settings { reconnect_grace: Duration::from_secs(10), sessions_max: 100, ..Default::default() };
    (RoomsControl::new(plane, ends, settings), worker)
}

fn vp8() -> String {
    offers::video("sendonly", "VP8", &[])
}

fn word(request: &Request) -> String {
    match request {
        Request::Open { place, .. } if place.role == Role::Publisher => format!("publish {}", place.stream.0),
        Request::Open { place, .. } => format!("watch {}", place.stream.0),
        Request::Close { .. } => "end".to_owned(),
        other => panic!("unexpected {other:?}"),
    }
}
