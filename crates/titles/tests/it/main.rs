//! Titles from folders and from origins that break their promises.
#![allow(clippy::unwrap_used)]

mod common;
mod files;
mod https;
mod origin_faults;
mod places;
mod sharing;
