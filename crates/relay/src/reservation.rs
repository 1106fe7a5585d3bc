//! Ports that are kept for who has a token (RFC 8656 §7.2, EVEN-PORT and RESERVATION-TOKEN).
//!
//! In: the odd port behind one that was given away, and whose it is. Out: that port, once, to the same user, on whichever
//! worker he comes to: the kernel spreads clients, and the second allocation of a pair is another five-tuple.
//! Until it is used, a socket that nobody reads holds it, or any process that asks for some port might be given this one.
//! Cost: one lock per pair and one per use of it; packets never come here.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use hashbrown::HashMap;

/// What a client shows for a reserved port.
pub type ReservationToken = [u8; 8];

/// Binds a UDP port that nobody has, so that who takes it may bind it, too, with `SO_REUSEPORT`.
pub type HoldPort = fn(SocketAddr) -> io::Result<OwnedFd>;

/// All reserved ports of a server. Each is one of a worker's slice, so there are never more than ports. By default no socket
/// holds them.
#[derive(Debug, Default)]
pub struct Reservations {
    all: Mutex<HashMap<ReservationToken, Reservation>>,
    hold: Option<HoldPort>,
}

#[derive(Debug)]
struct Reservation {
    user: Arc<str>,
    /// What is to be bound.
    address: SocketAddr,
    until: Instant,
    is_taken: bool,
    /// Has the port until its taker has it.
    held: Option<OwnedFd>,
}

impl Reservations {
    /// None yet; each will be held in this way.
    pub fn held_by(hold: HoldPort) -> Self {
        Reservations { hold: Some(hold), ..Reservations::default() }
    }

    /// Keeps a port until then.
    ///
    /// # Errors
    /// When it cannot be had: `AddrInUse` where somebody else has it.
    pub fn keep(
        &self,
        token: ReservationToken,
        user: &Arc<str>,
        address: SocketAddr,
        until: Instant,
    ) -> io::Result<()> {
        let held = self.hold.map(|hold| hold(address)).transpose()?;
        let reservation = Reservation { user: Arc::clone(user), address, until, is_taken: false, held };
        self.lock().insert(token, reservation);
        Ok(())
    }

    /// Takes a port that is kept for that user.
    pub fn take(&self, now: Instant, token: &ReservationToken, user: &str) -> Option<SocketAddr> {
        let mut all = self.lock();
        let found = all.get_mut(token).filter(|it| !it.is_taken && now < it.until && *it.user == *user)?;
        found.is_taken = true;
        Some(found.address)
    }

    /// Who took a port has bound it.
    pub fn bound(&self, token: &ReservationToken) {
        if let Some(reservation) = self.lock().get_mut(token) {
            reservation.held = None;
        }
    }

    /// Who took a port did not get to use it.
    pub fn put_back(&self, token: &ReservationToken) {
        if let Some(reservation) = self.lock().get_mut(token) {
            reservation.is_taken = false;
        }
    }

    /// Who took a port needs it no more.
    pub fn give_back(&self, token: &ReservationToken) {
        self.lock().remove(token);
    }

    /// Keeps a port no longer, unless somebody has taken it; true when nobody has.
    pub fn end(&self, token: &ReservationToken) -> bool {
        let mut all = self.lock();
        let is_kept = all.get(token).is_some_and(|it| !it.is_taken);
        if is_kept {
            all.remove(token);
        }
        is_kept
    }

    /// Whether the port is free again for the worker whose slice it is of: nobody has taken it, and its time is over.
    pub fn is_over(&self, now: Instant, token: &ReservationToken) -> bool {
        let mut all = self.lock();
        if all.get(token).is_some_and(|it| !it.is_taken && it.until <= now) {
            all.remove(token);
        }
        !all.contains_key(token)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ReservationToken, Reservation>> {
        self.all.lock().expect("nobody panics under this lock")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_port_is_taken_once_by_its_user_and_in_time() {
        let (now, all, user) = (Instant::now(), Reservations::default(), Arc::from("ann"));
        let (address, until) = (([192, 0, 2, 1], 5_001).into(), now + Duration::from_secs(30));
        all.keep([1; 8], &user, address, until).expect("nobody has it");
        assert_eq!(all.take(now, &[1; 8], "bob"), None);
        assert_eq!(all.take(until, &[1; 8], "ann"), None);
        assert_eq!(all.take(now, &[2; 8], "ann"), None);
        assert_eq!(all.take(now, &[1; 8], "ann"), Some(address));
        assert_eq!(all.take(now, &[1; 8], "ann"), None);
        assert!(!all.is_over(until, &[1; 8]) && !all.end(&[1; 8]), "it is in use");
        all.give_back(&[1; 8]);
        assert!(all.is_over(now, &[1; 8]));
    }

    #[test]
    fn a_port_that_nobody_took_may_be_had_back_once() {
        let (now, all) = (Instant::now(), Reservations::default());
        all.keep([1; 8], &Arc::from("ann"), ([192, 0, 2, 1], 5_001).into(), now + Duration::from_secs(30))
            .expect("nobody has it");
        assert!(all.end(&[1; 8]) && !all.end(&[1; 8]));
        assert_eq!(all.take(now, &[1; 8], "ann"), None);
    }

    #[test]
    fn a_port_that_nobody_took_is_free_when_its_time_is_over() {
        let (now, all) = (Instant::now(), Reservations::default());
        let until = now + Duration::from_secs(30);
        all.keep([1; 8], &Arc::from("ann"), ([192, 0, 2, 1], 5_001).into(), until).expect("nobody has it");
        assert!(!all.is_over(now, &[1; 8]));
        assert!(all.is_over(until, &[1; 8]));
        assert_eq!(all.take(now, &[1; 8], "ann"), None);
    }
}
