//! What becomes of datagrams that our interface takes and a router behind it does not.

use std::net::{SocketAddr, UdpSocket};

use engine::CountersSnapshot;
use engine::udp::SendQueue;
use wire::{Fragments, LinkId, Outbox, Path, UdpOptions};

use crate::common::PATIENCE;
use crate::common::own_process::is_alone_in_a_network;

/// Makes a network of two hosts and a router between them, whose second link takes 1,400 bytes. All three are one: rules say
/// what goes which way, by where it comes from.
const NETWORK: &str = "\
    veth() { ip link add $1 address 02:00:00:00:00:0$2 type veth peer name $3 address 02:00:00:00:00:0$4; } && \
    way() { ip rule add pref $1 iif $2 from $3 to $4 lookup $1 && ip route add $4 dev $5 table $1 && \
        ip neigh add $4 lladdr 02:00:00:00:00:0$6 dev $5; } && \
    veth one 1 near 2 && veth two 3 far 4 && ip rule add pref 20 lookup local && ip rule del pref 0 && \
    cd /proc/sys/net/ipv4 && echo 1 >ip_forward && echo 0 >conf/all/rp_filter && \
    for link in one two near far; do ip link set $link up && echo 0 >conf/$link/rp_filter && \
        echo 1 >conf/$link/accept_local; done && \
    ip link set far mtu 1400 && ip addr add 10.9.0.1/32 dev one && ip addr add 10.9.0.2/32 dev two && \
    way 1 lo 10.9.0.1 10.9.0.2 one 2 && way 2 near 10.9.0.1 10.9.0.2 far 3 && \
    way 3 lo 10.9.0.2 10.9.0.1 two 4 && way 4 far 10.9.0.2 10.9.0.1 near 1 && cd -";

#[test]
fn what_a_router_on_the_way_does_not_take_in_one_piece_arrives_where_fragments_are_always_made() {
    const NAME: &str =
        "narrow_path::what_a_router_on_the_way_does_not_take_in_one_piece_arrives_where_fragments_are_always_made";
    if !is_alone_in_a_network(NAME, NETWORK, "iproute2 and veth") {
        return;
    }
    for (fragments, expected) in [
        (Fragments::Always, vec![1_300, 1_300, 1_440, 1_440, 1_440, 7]),
        // Nobody tells the socket.
        (Fragments::WhenTold, vec![1_300, 1_300, 7]),
        (Fragments::Never, vec![1_300, 1_300, 7]),
    ] {
        let options = UdpOptions { fragments, ..UdpOptions::default() };
        let mut socket = engine::udp::UdpSocket::bind(([10, 9, 0, 1], 0).into(), &options).expect("it has the address");
        let far = UdpSocket::bind(SocketAddr::from(([10, 9, 0, 2], 0))).expect("it has the address");
        far.set_read_timeout(Some(PATIENCE)).expect("an option");
        let path = Path { link: LinkId::datagrams(0), remote: far.local_addr().expect("bound"), local: None };
        let (mut queue, mut counts) = (SendQueue::default(), CountersSnapshot::default());
        for lens in [&[1_300, 1_300, 1_440, 1_440, 1_440][..], &[7]] {
            let mut out = Outbox::new(1 << 20);
            lens.iter().for_each(|len| assert!(out.push(&path, &vec![9; *len])));
            queue.send_outbox(&mut socket, &out, &mut counts);
        }
        // Nothing overtakes here.
        let mut buf = [0; 2_048];
        let mut lens = Vec::new();
        while lens.last() != Some(&7) {
            lens.push(far.recv(&mut buf).expect("it arrives"));
        }
        assert_eq!(lens, expected, "{fragments:?}");
        assert_eq!((counts.send_calls, counts.gso_sends, counts.dropped()), (2, 2, 0), "{fragments:?}");
    }
}
