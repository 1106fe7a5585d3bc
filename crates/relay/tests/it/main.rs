//! The relay by a clock that is set, without a socket.
#![allow(clippy::unwrap_used)]

#[path = "../support/client.rs"]
mod client;
#[path = "../support/sealed.rs"]
mod sealed;
#[path = "../support/world.rs"]
mod world;

mod allocate;
mod channels;
mod connections;
mod data;
mod discovery;
mod dtls;
mod oracle;
mod permissions;
mod refresh;
mod requests;
mod story;
mod tcp;

/// The key of a user of these tests.
fn key(user: &str) -> Vec<u8> {
    let keys = relay::auth::UserKeys::new(user, "millrace", world::PASSWORD);
    keys.md5.expect("it has one").to_vec()
}
