//! Binds the products to the engine: WHIP and WHEP, auth, configuration, metrics, start and drain.
//!
//! The only crate where protocol code and the machine are both visible.
#![forbid(unsafe_code)]

mod accept;
pub mod auth;
mod backlog;
pub mod busy;
pub mod config;
pub mod control;
pub mod demo;
pub mod directory;
pub mod http;
pub mod machine;
pub mod negotiator;
pub mod pump;
mod questions;
mod random;
pub mod rtsp;
pub mod run;
pub mod service;
