//! What a network card does for the kernel, as ethtool(8) -k lists it.
//!
//! Source: the kernel's uapi/linux/ethtool.h; a request is a number and what goes with it, and is answered in place.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use super::check;
use super::socket::udp_socket;

/// One thing that a card can do, or the kernel for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// As ethtool names it: "tx-udp-segmentation".
    pub name: String,
    /// It is done.
    pub is_on: bool,
    /// It can be switched.
    pub can_change: bool,
}

/// What the network card of this name does, and could do. Needs no privilege.
pub fn card_features(card: &str) -> io::Result<Vec<Feature>> {
    let socket = udp_socket(&([127, 0, 0, 1], 0).into())?;
    let mut set = [GET_SET_INFO, 0, 1 << FEATURES, 0, 0];
    ask(socket.as_fd(), card, &mut set)?;
    let count = set[4] as usize;
    if count > FEATURES_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut names = vec![0; 3 + FEATURES_MAX * NAME_WORDS];
    names[..3].copy_from_slice(&[GET_STRINGS, FEATURES, count as u32]);
    ask(socket.as_fd(), card, &mut names)?;
    let blocks = count.div_ceil(32);
    let mut bits = vec![0; 2 + blocks * BLOCK_WORDS];
    bits[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
    ask(socket.as_fd(), card, &mut bits)?;
    let feature = |(index, name): (usize, &[u32])| {
        let block = &bits[2 + index / 32 * BLOCK_WORDS..][..BLOCK_WORDS];
        let [available, _, active, fixed] = [0, 1, 2, 3].map(|word| block[word] >> (index % 32) & 1 == 1);
        Feature { name: text(name), is_on: active, can_change: available && !fixed }
    };
    let names = names[3..].chunks_exact(NAME_WORDS).take(count).enumerate();
    Ok(names.map(feature).filter(|feature| !feature.name.is_empty()).collect())
}

const GET_STRINGS: u32 = 0x1b;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
/// The set of names that are features'.
const FEATURES: u32 = 4;
/// Far more than any kernel has; they are bits of one or two 64-bit numbers.
const FEATURES_MAX: usize = 1_024;
/// A name has 32 bytes.
const NAME_WORDS: usize = 8;
/// 32 features: what is available, requested, active, and never changed.
const BLOCK_WORDS: usize = 4;

fn text(name: &[u32]) -> String {
    let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Has a request answered in place. For names, `request` has room for as many as any kernel has; of features, the kernel
/// writes as many blocks as are asked for.
fn ask(socket: BorrowedFd<'_>, card: &str, request: &mut [u32]) -> io::Result<()> {
    // SAFETY: it is a name, numbers and pointers, for which zero is a value.
    let mut of_card: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = of_card.ifr_name.len() - 1;
    if card.len() > name || card.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    of_card.ifr_name.iter_mut().zip(card.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    of_card.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    // SAFETY: the kernel reads and writes `of_card` and the request behind it during the call only. The request is as long as
    // the three callers' numbers say; for names, which the kernel counts itself, it is longer than any kernel's list.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut of_card) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_leaves_checksums_out_and_cannot_be_told_not_to_be_loopback() {
        let features = card_features("lo").expect("there is loopback");
        let find = |name: &str| features.iter().find(|feature| feature.name == name).expect("it is listed");
        assert!(find("loopback").is_on && !find("loopback").can_change);
        assert!(find("tx-generic-segmentation").can_change);
    }

    #[test]
    fn there_is_no_such_card() {
        assert!(card_features("no-such-card").is_err());
        assert!(card_features("").is_err());
        assert!(card_features("a-name-that-no-card-may-have").is_err());
    }
}
