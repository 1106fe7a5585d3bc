//! What the kernel says of its clock.

use std::io;

use super::check;

/// Whether somebody keeps the system's clock right, as far as the kernel was told (adjtimex(2), `STA_UNSYNC`).
pub fn clock_is_synchronized() -> io::Result<bool> {
    // SAFETY: they are integers, for which zero is a value; with no mode set nothing is changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one timex.
    check(unsafe { libc::adjtimex(&mut state) })?;
    Ok(state.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_asked_by_anybody() {
        clock_is_synchronized().expect("an answer");
    }
}
