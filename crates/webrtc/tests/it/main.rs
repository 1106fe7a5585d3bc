//! Offers, answers and handshakes, between peers and with what browsers send.

mod answers;
mod common;
mod corpus;
mod handshake;
mod hostile_sdp;
