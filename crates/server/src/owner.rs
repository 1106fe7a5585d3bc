//! Which product of a worker asked for a link (`wire::Token::owner`).

/// The rooms. They have no names for their links.
pub const ROOMS: u16 = 0;

/// The pump. Its links are numbered by what sends from them: 0 for sessions that ask for no output, then the outputs.
pub const PUMP: u16 = 1;
