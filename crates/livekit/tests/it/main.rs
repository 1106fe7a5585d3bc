//! Rooms as clients, applications and the packet path see them: a clock that the test owns, and scripted clients.

mod support;

mod admin;
mod backup;
mod behind;
mod data;
mod forwarding;
mod joining;
mod leaving;
mod limits;
mod loudest;
mod moving;
mod negotiation;
mod presence;
mod profile;
mod quality;
mod resuming;
mod subscriptions;
mod tracks;
mod walk;
