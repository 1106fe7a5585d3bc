//! Binds a worker's rooms to the engine: the one place where protocol and machine meet.

use std::time::Instant;

use engine::{Mailbox, Service};
use rooms::batch::Post;
use rooms::rooms::Rooms;
use rooms::spec::{Command, Event, WorkerId};
use wire::{Datagram, LinkId, Outbox};

/// What a worker's mailbox takes.
#[derive(Debug)]
pub enum Message {
    Command(Command),
    Post(Post),
}

/// One worker's rooms, and where their events and posts go.
pub struct RoomsService<S> {
    rooms: Rooms,
    /// The mailbox of each worker, by its number.
    workers: Vec<Mailbox<Message>>,
    /// Hands an event to control; gives back what found no room.
    send_event: S,
}

impl<S: FnMut(Event) -> Result<(), Event>> RoomsService<S> {
    pub fn new(rooms: Rooms, workers: Vec<Mailbox<Message>>, send_event: S) -> Self {
        RoomsService { rooms, workers, send_event }
    }

    /// Passes on what the rooms have to say. Events keep their order, and wait for the next turn when control is behind.
    fn deliver(&mut self) {
        while let Some((WorkerId(to), post)) = self.rooms.poll_post() {
            let undelivered = match self.workers.get(usize::from(to)) {
                Some(mailbox) => mailbox.send(Message::Post(post)).err(),
                None => Some(Message::Post(post)),
            };
            if let Some(Message::Post(post)) = undelivered {
                self.rooms.handle_undelivered(post);
            }
        }
        while let Some(event) = self.rooms.poll_event() {
            if let Err(event) = (self.send_event)(event) {
                self.rooms.handle_unheard(event);
                return;
            }
        }
    }
}

impl<S: FnMut(Event) -> Result<(), Event>> Service for RoomsService<S> {
    type Message = Message;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>, out: &mut Outbox) {
        self.rooms.handle_datagram(now, datagram, out);
    }

    fn handle_message(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match message {
            Message::Command(command) => self.rooms.handle_command(now, command, out),
            Message::Post(post) => self.rooms.handle_post(now, post, out),
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.rooms.handle_timeout(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.rooms.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let more = self.rooms.poll_transmit(now, out);
        self.deliver();
        more
    }

    fn handle_link_closed(&mut self, _now: Instant, link: LinkId) {
        self.rooms.handle_link_closed(link);
    }
}
