//! LiveKit's protocol over HTTP: signalling by WebSocket, the API for applications, webhooks.
//!
//! `hub::Hub` has the rooms (`livekit::rooms`), and everybody's queue; `routes` lets clients and applications in; a `socket`
//! is one client's connection; `twirp` reads and writes what applications ask for; `webhooks` tells them what happens.
//! Nothing serves it yet: what the rooms ask of the packet path waits in the hub (`Hub::media`).

pub mod hub;
pub mod queue;
pub mod routes;
pub mod settings;
mod socket;
mod twirp;
pub mod webhooks;

#[cfg(test)]
mod tests;
