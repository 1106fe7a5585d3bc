//! Whose packets come from where: of the sessions at one place, one has them.
//!
//! In: sessions that come to a place and leave it; TCP connections that open and end. Out: the session at a place.
//! Cost: a packet is one lookup; a move looks at no more than `RIVALS_MAX` others.

use std::net::SocketAddr;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use wire::{LinkId, LinkKind, Path};

/// Sessions that have proved the same place at the same time, as with a NAT that gives a port away again, are two. What more
/// there are wait for nothing: each claims the place again as often as its peer is heard.
const RIVALS_MAX: usize = 8;

type Place = (LinkId, SocketAddr);

/// The places of one worker's sessions, which are known by their keys.
#[derive(Debug, Default)]
pub struct Places {
    holders: HashMap<Place, usize>,
    /// Sessions at places that others hold, who came first first. No entry is empty.
    rivals: HashMap<Place, Vec<usize>>,
    /// TCP connections that are open.
    connections: HashSet<LinkId>,
}

fn place(path: &Path) -> Place {
    (path.link, path.remote)
}

impl Places {
    /// The session whose packets come that way.
    #[inline]
    pub fn holder(&self, path: &Path) -> Option<usize> {
        self.holders.get(&place(path)).copied()
    }

    /// A session comes to a place, or wants to have it back. It is its own, unless the session there `keeps` it; who of the
    /// two has it not gets it when the other goes.
    pub fn claim(&mut self, key: usize, path: &Path, keeps: impl FnOnce(usize) -> bool) {
        match self.holders.entry(place(path)) {
            Entry::Vacant(entry) => _ = entry.insert(key),
            Entry::Occupied(entry) if *entry.get() == key => {}
            Entry::Occupied(entry) if keeps(*entry.get()) => self.wait(key, path),
            Entry::Occupied(mut entry) => {
                let former = entry.insert(key);
                self.wait_no_more(key, path);
                self.wait(former, path);
            }
        }
    }

    /// A session's packets come from there no more.
    pub fn leave(&mut self, key: usize, path: &Path) {
        if self.holder(path) != Some(key) {
            return self.wait_no_more(key, path);
        }
        match self.rivals.get(&place(path)).and_then(|rivals| rivals.first().copied()) {
            Some(next) => {
                self.holders.insert(place(path), next);
                self.wait_no_more(next, path);
            }
            None => _ = self.holders.remove(&place(path)),
        }
    }

    fn wait(&mut self, key: usize, path: &Path) {
        let rivals = self.rivals.entry(place(path)).or_default();
        if rivals.len() < RIVALS_MAX && !rivals.contains(&key) {
            rivals.push(key);
        }
    }

    fn wait_no_more(&mut self, key: usize, path: &Path) {
        if let Entry::Occupied(mut entry) = self.rivals.entry(place(path)) {
            entry.get_mut().retain(|rival| *rival != key);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Whether something that is sent that way goes anywhere: not over a TCP connection that has ended.
    pub fn is_open(&self, path: &Path) -> bool {
        path.link.kind() != LinkKind::Framed || self.connections.contains(&path.link)
    }

    /// A link is open.
    pub fn open(&mut self, link: LinkId) {
        if link.kind() == LinkKind::Framed {
            self.connections.insert(link);
        }
    }

    /// A link is gone. Returns the sessions that had no other.
    pub fn close(&mut self, link: LinkId, remote: SocketAddr) -> impl Iterator<Item = usize> + use<> {
        self.connections.remove(&link);
        let rivals = self.rivals.remove(&(link, remote)).unwrap_or_default();
        self.holders.remove(&(link, remote)).into_iter().chain(rivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(link: LinkId) -> Path {
        Path { link, remote: ([192, 0, 2, 1], 7).into(), local: None }
    }

    fn udp() -> Path {
        path(LinkId::datagrams(0))
    }

    #[test]
    fn who_waits_for_a_place_has_it_in_the_order_of_coming() {
        let mut places = Places::default();
        (0..4).for_each(|key| places.claim(key, &udp(), |_| true));
        places.leave(1, &udp());
        let mut holders = Vec::new();
        while let Some(holder) = places.holder(&udp()) {
            holders.push(holder);
            places.leave(holder, &udp());
        }
        assert_eq!(holders, [0, 2, 3]);
        assert!(places.rivals.is_empty());
    }

    #[test]
    fn who_has_to_go_waits_and_who_claims_twice_waits_once() {
        let mut places = Places::default();
        places.claim(0, &udp(), |_| true);
        places.claim(1, &udp(), |_| true);
        places.claim(1, &udp(), |_| true);
        places.claim(1, &udp(), |_| false);
        assert_eq!(places.holder(&udp()), Some(1));
        places.leave(1, &udp());
        assert_eq!(places.holder(&udp()), Some(0));
        places.leave(0, &udp());
        assert_eq!(places.holder(&udp()), None);
    }

    #[test]
    fn very_many_at_one_place_are_not_kept() {
        let mut places = Places::default();
        (0..10_000).for_each(|key| places.claim(key, &udp(), |_| true));
        assert_eq!(places.rivals[&place(&udp())].len(), RIVALS_MAX);
        (0..10_000).for_each(|key| places.leave(key, &udp()));
        assert!(places.holders.is_empty() && places.rivals.is_empty());
    }

    #[test]
    fn all_at_a_connection_that_ends_have_lost_it() {
        let mut places = Places::default();
        let tcp = path(LinkId::new(LinkKind::Framed, 1, 1));
        assert!(places.is_open(&udp()) && !places.is_open(&tcp));
        places.open(tcp.link);
        assert!(places.is_open(&tcp));
        (0..3).for_each(|key| places.claim(key, &tcp, |_| true));
        assert_eq!(places.close(tcp.link, tcp.remote).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(!places.is_open(&tcp) && places.holder(&tcp).is_none());
    }
}
