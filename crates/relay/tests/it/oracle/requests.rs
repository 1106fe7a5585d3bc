//! What clients ask of both.

use relay::message::{Method, attribute};

use super::{LIFETIMES, NUMBERS, Play, Proof, Request, UNKNOWN, USERS, Value};

impl Play {
    /// Any request, and mostly one that makes sense.
    pub(super) fn request(&mut self, who: usize) -> Request {
        let methods = [
            Method::Allocate,
            Method::Allocate,
            Method::Refresh,
            Method::CreatePermission,
            Method::CreatePermission,
            Method::ChannelBind,
            Method::ChannelBind,
            Method::Binding,
        ];
        let method = self.pick(&methods);
        let mut attributes = self.attributes(method);
        // In any order.
        for index in 1..attributes.len() {
            let other = self.random.below(index as u64 + 1) as usize;
            attributes.swap(index, other);
        }
        let behind = [(attribute::LIFETIME, vec![0; 4]), (UNKNOWN[0], Vec::new())];
        let behind = self.random.chance(0.1).then(|| behind[self.random.below(2) as usize].clone());
        let wrong = [
            Proof::Other,
            Proof::WrongPassword,
            Proof::Nobody,
            Proof::OldNonce,
            Proof::NoIntegrity,
            Proof::Lacks(attribute::USERNAME),
            Proof::Lacks(attribute::REALM),
            Proof::Lacks(attribute::NONCE),
        ];
        Request {
            method,
            id: self.parties[who].client.transaction(),
            attributes,
            behind,
            has_fingerprint: self.random.chance(0.5),
            proof: match method {
                Method::Binding => Proof::NoIntegrity,
                _ if self.random.chance(0.85) => Proof::Right,
                _ => self.pick(&wrong),
            },
            user: USERS[who],
            is_again: false,
        }
    }

    /// What may stand in such a request.
    fn attributes(&mut self, method: Method) -> Vec<(u16, Value)> {
        let mut attributes = Vec::new();
        let byte = |value: u8| Value::Bytes(vec![value, 0, 0, 0]);
        match method {
            Method::Allocate => {
                if !self.random.chance(0.05) {
                    let protocol = if self.random.chance(0.9) { 17 } else { self.pick(&[6, 1]) };
                    attributes.push((attribute::REQUESTED_TRANSPORT, byte(protocol)));
                }
                if self.random.chance(0.3) {
                    let family = self.pick(&[1, 2, 2, 3]);
                    let kind = self.pick(&[attribute::REQUESTED_ADDRESS_FAMILY, attribute::ADDITIONAL_ADDRESS_FAMILY]);
                    attributes.push((kind, byte(family)));
                }
                if self.random.chance(0.05) {
                    attributes.push((attribute::ADDITIONAL_ADDRESS_FAMILY, byte(2)));
                }
                if self.random.chance(0.2) {
                    attributes.push((attribute::EVEN_PORT, Value::Bytes(vec![self.pick(&[0, 0x80])])));
                }
                if self.random.chance(0.05) {
                    attributes.push((attribute::RESERVATION_TOKEN, Value::Bytes(vec![7; 8])));
                }
                if self.random.chance(0.1) {
                    attributes.push((attribute::DONT_FRAGMENT, Value::Bytes(Vec::new())));
                }
            }
            Method::Refresh if self.random.chance(0.2) => {
                attributes.push((attribute::REQUESTED_ADDRESS_FAMILY, byte(self.pick(&[1, 2, 2, 3]))));
            }
            Method::CreatePermission => {
                for _ in 0..self.pick(&[0, 1, 1, 1, 2, 3]) {
                    attributes.push((attribute::XOR_PEER_ADDRESS, Value::Peer(self.peer())));
                }
            }
            Method::ChannelBind => {
                if self.random.chance(0.95) {
                    let [high, low] = self.pick(&NUMBERS).to_be_bytes();
                    attributes.push((attribute::CHANNEL_NUMBER, Value::Bytes(vec![high, low, 0, 0])));
                }
                if self.random.chance(0.95) {
                    attributes.push((attribute::XOR_PEER_ADDRESS, Value::Peer(self.peer())));
                }
            }
            _ => {}
        }
        if matches!(method, Method::Allocate | Method::Refresh) {
            for _ in 0..self.pick(&[0, 1, 1, 1, 1, 2]) {
                let lifetime = self.pick(&LIFETIMES);
                attributes.push((attribute::LIFETIME, Value::Bytes(lifetime.to_be_bytes().to_vec())));
            }
        }
        if self.random.chance(0.1) {
            let more = [UNKNOWN[0], UNKNOWN[1], attribute::LIFETIME, attribute::DONT_FRAGMENT];
            let kind = self.pick(&more);
            attributes.push((kind, Value::Bytes(if kind == attribute::LIFETIME { vec![0; 4] } else { Vec::new() })));
        }
        attributes
    }
}
