//! `SocketAddr` to the kernel's form and back, in place.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an IPv4 or IPv6 address in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddr {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddr {
    pub(super) const SIZE: libc::socklen_t = size_of::<RawAddr>() as libc::socklen_t;

    pub(super) fn empty() -> Self {
        // SAFETY: all three forms are plain integers, for which zero is a value.
        unsafe { mem::zeroed() }
    }

    /// Writes `addr` and returns the length that the kernel wants to hear.
    pub(super) fn set(&mut self, addr: &SocketAddr) -> libc::socklen_t {
        match addr {
            SocketAddr::V4(addr) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: in_addr(*addr.ip()),
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(addr) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: in6_addr(*addr.ip()),
                    sin6_scope_id: addr.scope_id(),
                };
                size_of::<libc::sockaddr_in6>() as libc::socklen_t
            }
        }
    }

    /// Reads what the kernel wrote; `None` when it is neither IPv4 nor IPv6.
    pub(super) fn read(&self) -> Option<SocketAddr> {
        // SAFETY: every form starts with the family, and `empty` initialised all bytes.
        match i32::from(unsafe { self.family }) {
            libc::AF_INET => {
                // SAFETY: all bytes are initialised, and every bit pattern is a value.
                let addr = unsafe { self.v4 };
                Some(SocketAddrV4::new(ipv4(addr.sin_addr), u16::from_be(addr.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: all bytes are initialised, and every bit pattern is a value.
                let addr = unsafe { self.v6 };
                let port = u16::from_be(addr.sin6_port);
                Some(SocketAddrV6::new(ipv6(addr.sin6_addr), port, 0, addr.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(self).cast()
    }
}

pub(super) fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }
}

pub(super) fn in6_addr(ip: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr { s6_addr: ip.octets() }
}

pub(super) fn ipv4(addr: libc::in_addr) -> Ipv4Addr {
    Ipv4Addr::from(addr.s_addr.to_ne_bytes())
}

pub(super) fn ipv6(addr: libc::in6_addr) -> Ipv6Addr {
    Ipv6Addr::from(addr.s6_addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went_in() {
        for text in ["192.0.2.7:4321", "[2001:db8::1]:65535", "[fe80::1%3]:9"] {
            let addr: SocketAddr = text.parse().expect("an address");
            let mut raw = RawAddr::empty();
            raw.set(&addr);
            assert_eq!(raw.read(), Some(addr));
        }
        assert_eq!(RawAddr::empty().read(), None);
    }
}
