//! Binds the products to the engine: WHIP and WHEP, auth, configuration, metrics, start and drain.
//!
//! The only crate where protocol code and the machine are both visible.
#![forbid(unsafe_code)]

mod accept;
pub mod auth;
pub mod config;
mod crowd;
pub mod demo;
pub mod door;
pub mod examine;
pub mod guard;
pub mod host;
pub mod http;
mod https;
pub mod import;
mod kept;
pub mod livekit;
pub mod machine;
pub mod needs;
pub mod owner;
pub mod plane;
pub mod pump;
mod random;
pub mod reflect;
pub mod relay;
pub mod report;
pub mod rooms;
pub mod rtsp;
pub mod run;
mod scan;
mod signals;
mod supervisor;
pub mod tls;
pub mod traces;
mod upgrade;
pub mod worker;
