//! Offers, answers and handshakes, between peers and with what browsers send.
#![allow(clippy::unwrap_used)]

mod answers;
mod certificates;
mod common;
mod conference;
mod conference_client;
mod corpus;
mod handshake;
mod hostile_sdp;
mod reach;
mod same_track;
