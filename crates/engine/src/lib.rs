//! Workers: one thread each, with sockets, a mailbox and one service that knows no system call.
//!
//! In: datagrams from UDP sockets and TCP links, messages from other threads, the time.
//! Out: what the service writes into its outbox, in as few system calls as the kernel allows; counters.
//! Cost: no allocation and no lock per datagram. Whoever waits for work waits in one `epoll_pwait2`.
//!
//! `Worker::bind` opens sockets, `BoundWorker::run` starts the thread, `WorkerHandle` talks to it. The parts can be
//! used alone as well: `udp` without a worker, `mailbox` between any two threads.
#![deny(unsafe_code)]

mod counters;
mod egress;
mod event_loop;
mod links;
mod mailbox;
mod service;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
#[allow(unsafe_code)]
pub mod sys;
pub mod udp;
mod worker;

pub use counters::CountersSnapshot;
pub use mailbox::{Mailbox, Receiver, RecvError, mailbox};
pub use service::Service;
pub use worker::{BoundWorker, OpenSocket, Socket, SocketOptions, Worker, WorkerConfig, WorkerHandle};
