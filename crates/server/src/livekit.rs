//! LiveKit's protocol over HTTP: signalling by WebSocket, the API for applications, webhooks.
//!
//! `hub::Hub` has the rooms (`livekit::rooms`), and everybody's queue; `routes` lets clients and applications in; a `socket`
//! is one client's connection, by `websocket`, and `guests` are those who come by WHIP and WHEP; `twirp` reads and writes what applications ask for; `webhooks` tells them what happens.
//! What the rooms ask of the packet path, `control` hands on: `stage` knows which worker each session and each track is on.

mod attendance;
pub mod control;
pub mod guests;
pub mod hub;
pub mod ice;
pub mod queue;
pub mod routes;
mod settings;
mod socket;
pub mod stage;
mod twirp;
pub mod webhooks;
mod websocket;

pub use ::livekit::token::Claims;
pub use settings::{Settings, sign};
pub(crate) use settings::{settings, weak_keys};

#[cfg(test)]
mod tests;
