//! Binds a worker's rooms and its pump to the engine: the one place where protocol and machine meet.

use std::time::Instant;

use engine::{Mailbox, Service};
use rooms::batch::Post;
use rooms::rooms::Rooms;
use rooms::spec::{Command, Event, WorkerId};
use wire::{DatagramRun, LinkEvent, Outbox, Token};

use crate::pump::part::{self, PumpPart};

/// What a worker's mailbox takes.
#[derive(Debug)]
pub enum Message {
    Command(Command),
    Post(Post),
    Pump(pump::spec::Command),
}

/// One worker's rooms and pump, and where their events and posts go.
pub struct WorkerService<S, P> {
    rooms: Rooms,
    /// The mailbox of each worker, by its number.
    workers: Vec<Mailbox<Message>>,
    /// Hands an event to control; gives back what found no room.
    send_event: S,
    pump: PumpPart<P>,
    /// The pump writes first this time. They take turns, so that none keeps the other from a full outbox.
    pump_leads: bool,
}

impl<S, P> WorkerService<S, P>
where
    S: FnMut(Event) -> Result<(), Event>,
    P: FnMut(part::Event) -> Result<(), part::Event>,
{
    pub fn new(rooms: Rooms, workers: Vec<Mailbox<Message>>, send_event: S, pump: PumpPart<P>) -> Self {
        WorkerService { rooms, workers, send_event, pump, pump_leads: false }
    }

    fn transmit_rooms(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let more = self.rooms.poll_transmit(now, out);
        self.deliver();
        more
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

impl<S, P> Service for WorkerService<S, P>
where
    S: FnMut(Event) -> Result<(), Event>,
    P: FnMut(part::Event) -> Result<(), part::Event>,
{
    type Message = Message;

    /// The pump's sockets only send, so every datagram is for the rooms.
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        for datagram in run.into_datagrams() {
            self.rooms.handle_datagram(now, datagram, out);
        }
    }

    /// What is refused was the pump's; a link that closes was one of the rooms' connections.
    fn handle_link(&mut self, now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        match event {
            LinkEvent::Refused { remote, .. } => self.pump.handle_refused(now, remote),
            LinkEvent::Closed { link, .. } => self.rooms.handle_link_closed(link),
            _ => {}
        }
    }

    fn handle_message(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match message {
            Message::Command(command) => self.rooms.handle_command(now, command, out),
            Message::Post(post) => self.rooms.handle_post(now, post, out),
            Message::Pump(command) => self.pump.handle_command(now, command),
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.pump.handle_timeout(now);
        // The pump's time comes far more often.
        if self.rooms.poll_timeout().is_some_and(|at| at <= now) {
            self.rooms.handle_timeout(now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match (self.rooms.poll_timeout(), self.pump.poll_timeout()) {
            (Some(rooms), Some(pump)) => Some(rooms.min(pump)),
            (rooms, pump) => rooms.or(pump),
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.pump_leads = !self.pump_leads;
        if self.pump_leads {
            self.pump.poll_transmit(now, out) || !out.has_room() || self.transmit_rooms(now, out)
        } else {
            self.transmit_rooms(now, out) || !out.has_room() || self.pump.poll_transmit(now, out)
        }
    }
}
