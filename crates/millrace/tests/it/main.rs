//! The program as people meet it: its commands, and servers in processes of their own with clients on loopback.
#![allow(clippy::unwrap_used)]

mod ab;
mod broadcast;
mod clients;
mod commands;
mod common;
mod demo;
mod doctor;
mod drain;
mod drain_goes_on;
mod guests;
mod hostile;
mod huge_pages;
mod ice_restart;
mod ice_tcp;
mod join_storm;
mod late_joiners;
mod leaving;
mod load_livekit;
mod load_sound;
mod manual;
mod offers;
mod offloads;
#[path = "../../../../tests/support/own_process.rs"]
mod own_process;
mod proof_pump;
mod publisher_returns;
mod pump;
mod pump_live;
mod reflect;
mod reflect_access;
mod reflect_hostile;
mod reflect_sources;
mod relay;
mod relay_dtls;
mod relay_hostile;
mod relay_streams;
mod reload;
mod retransmission;
mod rtsp;
mod signals;
mod silence;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod slow_reader;
mod story;
mod supervisor;
mod traces;
mod upgrade;
mod upgrade_tls;
mod uplink_loss;
