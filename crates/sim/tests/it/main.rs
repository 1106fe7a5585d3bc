//! Whole rooms in a simulated network.
#![allow(clippy::unwrap_used)]

mod bad_viewers;
mod common;
mod first_picture;
mod high_rate;
mod hostile;
mod layer_switch;
mod lossy_network;
mod meeting;
mod publisher_returns;
mod quality;
mod random_limits;
mod redundancy;
mod replay;
mod reports;
mod second_ssrc;
mod story;
mod svc;
mod tracks;
mod without_rooms;
mod workers;
