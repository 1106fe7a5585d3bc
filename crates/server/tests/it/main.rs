//! The server as clients meet it: HTTP, RTSP, and what stands behind them.
#![allow(clippy::unwrap_used)]

mod admin;
mod auth;
mod config;
mod control;
mod corpus;
mod counters;
mod directory;
mod door;
mod guests;
mod hls;
mod http;
mod http_connections;
mod metrics;
mod offers;
mod pump;
mod reflect;
mod reflect_story;
mod relay;
mod relay_log;
mod relay_story;
mod relay_users;
mod rtsp;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod tidy;
