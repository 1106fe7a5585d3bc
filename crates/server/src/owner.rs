//! Which product of a worker asked for a link (`wire::Token::owner`).

/// The rooms. They have no names for their links.
pub const ROOMS: u16 = 0;

/// The pump. Its sockets are numbered by what sends from them: 0 for sessions that ask for no output, then the outputs.
pub const PUMP: u16 = 1;

/// RTSP's connections, which are the pump's once they carry packets. Each has a number of its own.
pub const RTSP: u16 = 2;

/// The relay, which says itself what its numbers are (`relay::names`).
pub const RELAY: u16 = 3;

/// The reflector. Its links are viewers' connections, numbered by their slots.
pub const REFLECT: u16 = 4;
