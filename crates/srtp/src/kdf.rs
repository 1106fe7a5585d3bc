//! From a master key to the six session keys, with AES in counter mode (RFC 3711 §4.3, RFC 6188 §3).
//!
//! The key derivation rate is zero, as DTLS-SRTP has it (RFC 5764 §4.1.2): keys are derived once.

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};

use crate::keys::{KeyError, Master};

/// What a derived key is for (RFC 3711 §4.3.2).
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Label {
    RtpKey = 0,
    RtpAuth = 1,
    RtpSalt = 2,
    RtcpKey = 3,
    RtcpAuth = 4,
    RtcpSalt = 5,
}

/// Where the label meets the 112-bit salt: the key id is the label and a 48-bit index, which is zero.
const LABEL_AT: usize = 7;

/// Derives `N` bytes for `label`: the first of the keystream that starts where salt and label say.
pub(crate) fn derive<const N: usize>(master: Master<'_>, label: Label) -> Result<[u8; N], KeyError> {
    // A 96-bit salt stands where the first 96 of 112 bits do (RFC 7714 §11).
    let mut iv = [0; 16];
    iv[..master.salt.len()].copy_from_slice(master.salt);
    iv[LABEL_AT] ^= label as u8;

    let algorithm = if master.key.len() == 32 { &AES_256 } else { &AES_128 };
    let mut derived = [0; N];
    UnboundCipherKey::new(algorithm, master.key)
        .and_then(EncryptingKey::ctr)
        .and_then(|key| key.less_safe_encrypt(&mut derived, EncryptionContext::Iv128((&iv).into())))
        .map_err(|_| KeyError::Refused)?;
    Ok(derived)
}

#[cfg(test)]
mod tests {
    use super::super::tests::hex;
    use super::*;

    #[test]
    fn keys_are_those_of_rfc_3711_b_3() {
        let (key, salt) = (hex("E1F97A0D3E018BE0D64FA32C06DE4139"), hex("0EC675AD498AFEEBB6960B3AABE6"));
        let master = Master { key: &key, salt: &salt };
        let cipher_key: [u8; 16] = derive(master, Label::RtpKey).unwrap();
        let cipher_salt: [u8; 14] = derive(master, Label::RtpSalt).unwrap();
        let auth_key: [u8; 20] = derive(master, Label::RtpAuth).unwrap();
        assert_eq!(cipher_key[..], hex("C61E7A93744F39EE10734AFE3FF7A087"));
        assert_eq!(cipher_salt[..], hex("30CBBC08863D8C85D49DB34A9AE1"));
        assert_eq!(auth_key[..], hex("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4"));
    }

    #[test]
    fn keys_are_those_of_rfc_6188_7_2() {
        let key = hex("f0f04914b513f2763a1b1fa130f10e2998f6f6e43e4309d1e622a0e332b9f1b6");
        let salt = hex("3b04803de51ee7c96423ab5b78d2");
        let master = Master { key: &key, salt: &salt };
        let cipher_key: [u8; 32] = derive(master, Label::RtpKey).unwrap();
        let cipher_salt: [u8; 14] = derive(master, Label::RtpSalt).unwrap();
        let auth_key: [u8; 20] = derive(master, Label::RtpAuth).unwrap();
        assert_eq!(cipher_key[..], hex("5ba1064e30ec51613cad926c5a28ef731ec7fb397f70a960653caf06554cd8c4"));
        assert_eq!(cipher_salt[..], hex("fa31791685ca444a9e07c6c64e93"));
        assert_eq!(auth_key[..], hex("fd9c32d39ed5fbb5a9dc96b30818454d1313dc05"));
    }
}
