//! A live input by the binary: one millrace plays a title out, another evens out what comes and sends it on.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use crate::common::{PATIENCE, free_addr};
use pump::sample::Sample;
use wire::ts::{DATAGRAM_LEN, PACKET_LEN};

#[test]
fn what_comes_in_is_sent_on_until_ctrl_c() {
    let title = Sample { pictures: 30 * 25, ..Sample::default() }.make();
    let file = std::env::temp_dir().join(format!("millrace-pump-live-{}.ts", std::process::id()));
    std::fs::write(&file, &title).expect("written");
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let to = format!("udp://{}", receiver.local_addr().expect("bound"));
    let between = format!("udp://{}", free_addr());

    let mut live = pump(&[&format!("{between}?delay=300ms"), &to]);
    let mut sender = pump(&[file.to_str().expect("text"), &between]);
    let mut received = Vec::new();
    while received.len() < 300 * DATAGRAM_LEN {
        let mut buf = [0; 2_000];
        let len = receiver.recv(&mut buf).expect("it goes on");
        received.extend(&buf[..len]);
    }
    interrupt(&live);
    let output = live.wait().expect("it ends");
    interrupt(&sender);
    sender.wait().expect("it ends");
    std::fs::remove_file(&file).expect("it was there");

    assert_eq!(output.code(), Some(0));
    // On a busy machine a stream that is late by more than the pump makes up for goes on with another clock, flagged.
    let (title, received) = (without_clocks(&title), without_clocks(&received));
    let start = title.windows(7).position(|part| received.starts_with(part)).expect("it is of the title");
    assert!(title[start..].starts_with(&received), "nothing else is changed, and nothing is missing");
}

/// The packets, with zeros for clock references, time stamps and what flags that they jump.
fn without_clocks(packets: &[u8]) -> Vec<Vec<u8>> {
    let mut packets: Vec<Vec<u8>> = packets.chunks(PACKET_LEN).map(Vec::from).collect();
    for packet in &mut packets {
        let mut payload = 4;
        if packet[3] & 0x20 != 0 {
            payload += 1 + usize::from(packet[4]);
            if packet[4] > 0 {
                packet[5] &= !DISCONTINUITY;
            }
            if packet[4] > 6 && packet[5] & HAS_PCR != 0 {
                packet[6..12].fill(0);
            }
        }
        if packet[1] & STARTS_PES != 0 && packet[payload..].starts_with(&[0, 0, 1]) {
            let stamps = usize::from(packet[payload + 8]);
            packet[payload + 9..][..stamps].fill(0);
        }
    }
    packets
}

const DISCONTINUITY: u8 = 0x80;
const HAS_PCR: u8 = 0x10;
const STARTS_PES: u8 = 0x40;

fn pump(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("pump").args(args).stderr(Stdio::null()).spawn().expect("the binary runs")
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
}
