//! Makes titles to test with: tables, H.264 pictures that no decoder would like, sound, and a clock that is right.
//!
//! In: a rate, a length, a seed. Out: a transport stream of 188-byte packets, the same for the same seed.

use wire::ts::{
    AdaptationSpec, PACKET_LEN, PacketSpec, Pcr, Pid, PmtStream, SECTION_LEN_MAX, Timestamp, section_packets,
    write_null, write_packet, write_pat, write_pes_header, write_pmt,
};
use wire::{Bitrate, Random};

/// Where samples have their PMT.
pub const PMT_PID: Pid = Pid::new(0x1000).unwrap();
/// Where samples have their pictures, and the clock.
pub const VIDEO_PID: Pid = Pid::new(0x100).unwrap();
/// Where samples have their sound.
pub const AUDIO_PID: Pid = Pid::new(0x101).unwrap();

/// Time from picture to picture, in ticks of 27 MHz: 25 a second.
const PICTURE: u64 = Pcr::HZ / 25;

/// Time from reference to reference at the most, in ticks of 27 MHz (30 ms).
const REFERENCE: u64 = 810_000;

/// What to make.
#[derive(Clone, Debug)]
pub struct Sample {
    /// A constant rate, filled up with null packets, or the mean of a variable one.
    pub rate: Bitrate,
    /// Whether the rate is constant.
    pub is_constant: bool,
    /// Pictures in all, 25 a second.
    pub pictures: u32,
    /// Every so many pictures one stands alone.
    pub group: u32,
    /// Its random_access_indicator is set.
    pub says_random_access: bool,
    /// The first reference, in ticks of 27 MHz.
    pub first_pcr: u64,
    /// Of what fills the pictures.
    pub seed: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Sample {
            rate: Bitrate::from_kbps(4_500),
            is_constant: true,
            pictures: 250,
            group: 12,
            says_random_access: true,
            first_pcr: 10 * Pcr::HZ,
            seed: 1,
        }
    }
}

impl Sample {
    /// The title's bytes.
    pub fn make(&self) -> Vec<u8> {
        let mut maker =
            Maker { sample: self, bytes: Vec::new(), counters: [0; 4], random: Random::new(self.seed), stamped: None };
        for number in 0..self.pictures {
            maker.picture(number);
        }
        maker.bytes
    }

    /// Packets of one picture's time.
    fn packets_per_picture(&self) -> u64 {
        (self.rate.bps() / (25 * 8 * PACKET_LEN as u64)).max(12)
    }

    /// Packets up to the start of picture `number`.
    fn packets_before(&self, number: u32) -> u64 {
        u64::from(number) * self.rate.bps() / (25 * 8 * PACKET_LEN as u64)
    }
}

struct Maker<'a> {
    sample: &'a Sample,
    bytes: Vec<u8>,
    /// Of PAT, PMT, video and audio.
    counters: [u8; 4],
    random: Random,
    /// When the last reference was written, in ticks since the first.
    stamped: Option<u64>,
}

impl Maker<'_> {
    fn picture(&mut self, number: u32) {
        let is_alone = number.is_multiple_of(self.sample.group.max(1));
        let share = self.sample.packets_per_picture();
        // A picture that stands alone has twice the mean, others less; a variable rate follows from that.
        let packets = if is_alone { share * 3 / 2 } else { share / 2 + self.random.next_u64() % (share / 3) };
        let video = self.video(number, is_alone, packets as usize * 184 - 30);
        let audio = self.audio(number);
        let start = self.bytes.len() / PACKET_LEN;
        if number.is_multiple_of(3) || is_alone {
            self.tables();
        }
        // In a variable rate, the picture's packets have the picture's time.
        let tables = self.bytes.len() / PACKET_LEN - start;
        let all = video.len().div_ceil(176) + audio.len().div_ceil(184) + tables;
        let clock = (number, start, all);
        self.payload(2, VIDEO_PID, &video, is_alone, Some(clock));
        self.payload(3, AUDIO_PID, &audio, false, None);
        if self.sample.is_constant {
            let end = self.sample.packets_before(number + 1) as usize;
            while self.bytes.len() / PACKET_LEN < end {
                if self.reference_is_due(clock) {
                    self.payload(2, VIDEO_PID, &[], false, Some(clock));
                } else {
                    self.push(write_null);
                }
            }
        }
    }

    /// Ticks since the first reference at the next packet.
    fn now(&self, (number, start, all): (u32, usize, usize)) -> u64 {
        let position = self.bytes.len() / PACKET_LEN;
        if self.sample.is_constant {
            let bits = (position * PACKET_LEN * 8) as u128;
            return (bits * u128::from(Pcr::HZ) / u128::from(self.sample.rate.bps())) as u64;
        }
        let within = (position - start).min(all) as u64;
        u64::from(number) * PICTURE + PICTURE * within / all.max(1) as u64
    }

    fn reference_is_due(&self, clock: (u32, usize, usize)) -> bool {
        self.stamped.is_none_or(|stamped| self.now(clock) >= stamped + REFERENCE)
    }

    /// A PES packet in packets of its PID. With a clock they carry references.
    fn payload(&mut self, index: usize, pid: Pid, pes: &[u8], is_alone: bool, clock: Option<(u32, usize, usize)>) {
        let mut rest = pes;
        let mut starts = !pes.is_empty();
        loop {
            let due = clock.filter(|clock| self.reference_is_due(*clock)).map(|clock| self.now(clock));
            self.stamped = due.or(self.stamped);
            let pcr = due.map(|ticks| Pcr::from_ticks(self.sample.first_pcr + ticks));
            let random_access = starts && is_alone && self.sample.says_random_access;
            let fields = AdaptationSpec { random_access, pcr, ..AdaptationSpec::default() };
            let counter = self.counters[index];
            // A packet without payload repeats the counter of the one before.
            let continuity = if rest.is_empty() { counter.wrapping_sub(1) } else { counter };
            let spec = PacketSpec { pid, payload_unit_start: starts, continuity };
            let mut taken = 0;
            self.push(|packet| taken = write_packet(packet, &spec, &fields, rest));
            self.counters[index] = counter.wrapping_add(u8::from(taken > 0)) & 0x0f;
            (rest, starts) = (&rest[taken..], false);
            if rest.is_empty() {
                return;
            }
        }
    }

    fn video(&mut self, number: u32, is_alone: bool, len: usize) -> Vec<u8> {
        let mut pes = vec![0; 19];
        let dts = (self.sample.first_pcr + u64::from(number) * PICTURE) / 300 + 45_000;
        let (pts, dts) = (Timestamp::from_ticks(dts + 3_600), Timestamp::from_ticks(dts));
        let header_len = write_pes_header(&mut pes, 0xe0, usize::MAX >> 8, Some(pts), Some(dts)).unwrap_or(0);
        pes.truncate(header_len);
        pes.extend([0, 0, 0, 1, 9, 0xf0]);
        if is_alone {
            pes.extend([0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1e, 0xd9, 0, 0, 0, 1, 0x68, 0xce, 0x3c, 0x80]);
            pes.extend([0, 0, 1, 0x65, 0x88, 0x84]);
        } else {
            pes.extend([0, 0, 1, 0x41, 0x9a, 0x24]);
        }
        self.fill(&mut pes, len);
        pes
    }

    fn audio(&mut self, number: u32) -> Vec<u8> {
        let mut pes = vec![0; 14];
        let pts = Timestamp::from_ticks((self.sample.first_pcr + u64::from(number) * PICTURE) / 300 + 45_000);
        let header_len = write_pes_header(&mut pes, 0xc0, 300, Some(pts), None).unwrap_or(0);
        pes.truncate(header_len);
        self.fill(&mut pes, header_len + 300);
        pes
    }

    /// Bytes that hold no start code.
    fn fill(&mut self, data: &mut Vec<u8>, len: usize) {
        while data.len() < len {
            let bytes = self.random.next_u64().to_le_bytes().map(|byte| byte | 1);
            data.extend(&bytes[..bytes.len().min(len - data.len())]);
        }
    }

    fn tables(&mut self) {
        let mut buf = [0; SECTION_LEN_MAX];
        let video = PmtStream { stream_type: 0x1b, pid: VIDEO_PID, descriptors: &[] };
        let audio = PmtStream { stream_type: 0x0f, pid: AUDIO_PID, descriptors: &[10, 4, b'e', b'n', b'g', 0] };
        let pat_len = write_pat(&mut buf, 1, 0, [(1, PMT_PID)]).unwrap_or(0);
        let [pat, pmt, ..] = self.counters;
        self.counters[0] = section_packets(&buf[..pat_len], Pid::PAT, pat, |packet| self.bytes.extend(packet));
        let pmt_len = write_pmt(&mut buf, 1, 0, VIDEO_PID, &[], [video, audio]).unwrap_or(0);
        self.counters[1] = section_packets(&buf[..pmt_len], PMT_PID, pmt, |packet| self.bytes.extend(packet));
    }

    fn push(&mut self, write: impl FnOnce(&mut [u8; PACKET_LEN])) {
        let mut packet = [0; PACKET_LEN];
        write(&mut packet);
        self.bytes.extend(packet);
    }
}
