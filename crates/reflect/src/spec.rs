//! What control tells a worker's reflector, and what it hears back. Plain values: they cross threads.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use wire::{Begun, Bitrate};

use crate::coalesce::Share;
use crate::course::Course;
use crate::moved::MovedViewer;
use crate::window::{Growth, Units};

/// One stream; unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// One viewer; unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewerId(pub u64);

/// What control asks of a worker's reflector.
#[derive(Debug)]
pub enum Command {
    /// A stream has its first viewer on this worker: it is told of growth from now on. A worker without viewers of a stream is
    /// not woken for it.
    AddStream {
        /// Which. It is not there yet.
        stream: StreamId,
        /// Its bytes, each at its own place; in memory (memfd_create(2)), as the worker stands still while they come.
        file: Arc<File>,
        /// What its container cannot be cut within.
        units: Units,
        /// What is there (`Backlog::add_reader`).
        growth: Growth,
        /// How its viewers are served.
        terms: Terms,
    },
    /// A stream's viewers are served otherwise from now on.
    ChangeStream {
        /// Which.
        stream: StreamId,
        /// How.
        terms: Terms,
    },
    /// A stream has grown. Its bytes are written.
    Grown {
        /// Which.
        stream: StreamId,
        /// By what; one value for all workers.
        growth: Arc<Growth>,
        /// How many viewers have a turn. Who has none gets it with his next.
        share: Share,
    },
    /// A stream has ended, or no viewer here. Who is there gets what is left of it, for `DRAIN_MAX` at most. `Event::Left`
    /// follows.
    RemoveStream(StreamId),
    /// A viewer is here: a request that was read and granted elsewhere.
    AddViewer(Box<NewViewer>),
    /// A viewer comes from another process. His stream was added here before, with all that was known of it there.
    TakeUp(Box<MovedViewer>),
    /// Tell what became of a viewer, by `Event::Story`.
    Story {
        /// Comes back with the answer.
        token: u64,
        /// Who.
        viewer: ViewerId,
    },
    /// End a viewer's connection at once.
    EndViewer(ViewerId),
    /// All viewers go over to another process (`Reflect::poll_moved`) when they have had a turn for what was told before; then
    /// nothing more is sent from here: not to newcomers either, who are ended. Who is under a cipher cannot go over: he gets the rest of his unit, and is ended.
    Release,
    /// Nothing is sent until `Resume`: viewers of another process come, who are its own until then.
    Hold,
    /// All are sent to who are here, and newcomers are taken: of another process, or those who were given away and stay after
    /// all (`Command::TakeUp`).
    Resume,
}

/// For how long the viewers of a stream that has ended may take to read what is left of it.
pub const DRAIN_MAX: Duration = Duration::from_secs(30);

/// How a stream's viewers are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How fast each may be sent to.
    pub pace: Pace,
    /// The stream's rate, as measured; zero when nobody knows. To be told again when it has changed by more than a fifth or
    /// so: each viewer's connection is told.
    pub rate: Bitrate,
    /// What becomes of who falls out of the window.
    pub lag: Lag,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { pace: Pace::Percent(200), rate: Bitrate::ZERO, lag: Lag::Skip }
    }
}

/// How fast a viewer may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as his network lets it.
    Free,
    /// So much of the stream's rate, and more until he has caught up; as `Free` where a worker has thousands of viewers.
    Percent(u16),
    /// That fast.
    Rate(Bitrate),
}

/// What becomes of a viewer who falls out of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// He gets the rest of the unit that he is in, and goes on at the newest start point: from the oldest, which is nearer, he
    /// would fall out again at once.
    Skip,
    /// His connection is closed.
    Close,
}

/// Where a viewer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// At the next start point that comes: he is as little behind as can be, and sees nothing until then.
    Next,
    /// At the newest start point that is there: he sees something at once.
    Newest,
    /// At the newest start point that is so old, or the oldest that is there.
    Back(Duration),
}

/// A viewer's connection that was accepted elsewhere, and his request, that was read and granted there.
#[derive(Debug)]
pub struct NewViewer {
    /// Which.
    pub id: ViewerId,
    /// Of what. It was added here before.
    pub stream: StreamId,
    /// The socket.
    pub descriptor: OwnedFd,
    /// What was read beyond the request, and the cipher that the connection is under.
    pub begun: Begun,
    /// What he is sent before the stream: the head of the response.
    pub head: Box<[u8]>,
    /// Where he begins.
    pub join: Join,
    /// How fast he may be sent to, where that is not for the stream to say.
    pub pace: Option<Pace>,
}

/// What a worker's reflector tells control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nobody here reads before `begin` any more, not in the kernel's name either: for `Backlog::passed`.
    Passed {
        /// Of which stream.
        stream: StreamId,
        /// The beginning of the window, as the worker was told.
        begin: u64,
    },
    /// Nobody here reads a stream that was removed any more: for `Backlog::remove_reader`.
    Left(StreamId),
    /// A viewer is gone. Each that was added is once.
    ViewerEnded(EndedViewer),
    /// The answer to `Command::Story`.
    Story {
        /// Of the question.
        token: u64,
        /// `None`: he is not here.
        told: Option<ViewerNow>,
    },
}

/// A viewer who is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewerNow {
    /// Bytes that the kernel took, the response's head included.
    pub sent_bytes: u64,
    /// Bytes that are there and that he has still to get.
    pub behind: u64,
    /// What became of him.
    pub course: Course,
    /// For how long he is here.
    pub age: Duration,
}

/// A viewer who is gone: what the access log says of him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedViewer {
    /// Who.
    pub id: ViewerId,
    /// Of what.
    pub stream: StreamId,
    /// Why.
    pub reason: EndReason,
    /// Bytes that the kernel took, the response's head included.
    pub sent_bytes: u64,
    /// What became of him.
    pub course: Course,
    /// For how long he was here.
    pub age: Duration,
}

/// Why a viewer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndReason {
    /// His connection ended, or broke.
    Closed,
    /// He fell out of the window, and was not to go on, or could not within a unit.
    Lagged,
    /// The stream ended, and he has all of it, or took too long.
    StreamEnded,
    /// Control asked for it.
    Asked,
    /// There is no such stream here.
    NoStream,
    /// The worker has as many as it may have.
    Full,
    /// He sent more than who watches has to say.
    Talked,
}
