//! Offers, answers and handshakes, between peers and with what browsers send.
#![allow(clippy::unwrap_used)]

mod answers;
mod certificates;
mod common;
mod conference;
mod corpus;
mod handshake;
mod hostile_sdp;
mod reach;
