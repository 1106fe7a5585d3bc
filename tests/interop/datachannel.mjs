// libdatachannel, by the npm package node-datachannel. It has no codec: it publishes the demo clip, whose RTP packets are made
// here, and counts whole frames when it watches.
//
//   node datachannel.mjs publish URL VP8                      until its input ends
//   node datachannel.mjs watch FRAMES URL…                    until each has so many frames, or its input ends

import { readFile } from "node:fs/promises";
import datachannel from "node-datachannel";
import { AUDIO_PACKETS, inputEnded, say, until } from "./peer.mjs";

const { Audio, PeerConnection, RtcpNackResponder, RtcpReceivingSession, Video } = datachannel;
const VP8 = 96;
const H264 = 102;
const OPUS = 111;
/** What is recommended for H.264 by RFC 8829: constrained baseline, any packetization that is not interleaved. */
const H264_PROFILE = "profile-level-id=42e01f;packetization-mode=1;level-asymmetry-allowed=1";
const PAYLOAD_MAX = 1100;
const ended = inputEnded();

/** Exchanges offer and answer with `url`; an answer that is none comes back as its status. */
async function connect(pc, url) {
  const gathered = new Promise((resolve) => pc.onGatheringStateChange((state) => state === "complete" && resolve()));
  pc.setLocalDescription("offer");
  await gathered;
  const headers = { "content-type": "application/sdp" };
  const answer = await fetch(url, { method: "POST", headers, body: pc.localDescription().sdp });
  if (!answer.ok) return { refused: answer.status };
  const location = new URL(answer.headers.get("location"), url);
  pc.setRemoteDescription(await answer.text(), "answer");
  return { close: () => fetch(location, { method: "DELETE" }) };
}

async function publish(url) {
  const pc = new PeerConnection("publisher", { iceServers: [] });
  const video = new Video("0", "SendOnly");
  video.addVP8Codec(VP8);
  video.addSSRC(1001, "clip", "clip", "video");
  const audio = new Audio("1", "SendOnly");
  audio.addOpusCodec(OPUS);
  audio.addSSRC(1002, "clip", "clip", "audio");
  const tracks = [video, audio].map((media) => pc.addTrack(media));
  tracks[0].setMediaHandler(new RtcpNackResponder());
  const session = await connect(pc, url);
  if (session.refused) throw new Error(`POST ${url}: ${session.refused}`);
  await until("both tracks are open", 15, () => tracks.every((track) => track.isOpen()));
  const [frames, packets] = await Promise.all([ivfFrames("demo.ivf"), oggPackets("demo.ogg")]);
  play(tracks[0], frames.map(vp8Payloads), { ssrc: 1001, type: VP8, perSecond: 30, clock: 90_000 });
  play(tracks[1], packets.map((packet) => [packet]), { ssrc: 1002, type: OPUS, perSecond: 50, clock: 48_000 });
  say({ publishing: url });
  await ended;
  await session.close();
}

/** Sends `units`, each the payloads of one frame, over and over. */
function play(track, units, { ssrc, type, perSecond, clock }) {
  let seq = 0;
  const start = performance.now();
  const next = (index) => {
    const payloads = units[index % units.length];
    for (const [place, payload] of payloads.entries()) {
      const header = Buffer.alloc(12);
      header[0] = 0x80;
      header[1] = type | (place === payloads.length - 1 && clock === 90_000 ? 0x80 : 0);
      header.writeUInt16BE(seq++ & 0xffff, 2);
      header.writeUInt32BE(((index * clock) / perSecond) >>> 0, 4);
      header.writeUInt32BE(ssrc, 8);
      if (track.isOpen()) track.sendMessageBinary(Buffer.concat([header, payload]));
    }
    const due = start + (1000 * (index + 1)) / perSecond;
    setTimeout(next, Math.max(0, due - performance.now()), index + 1);
  };
  next(0);
}

/** RFC 7741 §4.2 with one byte of descriptor: S is set at a frame's start. */
function vp8Payloads(frame) {
  const payloads = [];
  for (let at = 0; at < frame.length; at += PAYLOAD_MAX) {
    payloads.push(Buffer.concat([Buffer.from([at === 0 ? 0x10 : 0]), frame.subarray(at, at + PAYLOAD_MAX)]));
  }
  return payloads;
}

async function ivfFrames(name) {
  const file = await readFile(new URL(`../../assets/${name}`, import.meta.url));
  const frames = [];
  for (let at = 32; at < file.length; ) {
    const size = file.readUInt32LE(at);
    frames.push(file.subarray(at + 12, at + 12 + size));
    at += 12 + size;
  }
  return frames;
}

/** The packets of an Ogg file (RFC 3533 §6) without the two of Opus's headers (RFC 7845 §3). */
async function oggPackets(name) {
  let file = await readFile(new URL(`../../assets/${name}`, import.meta.url));
  const packets = [];
  let packet = Buffer.alloc(0);
  while (file.length > 0) {
    const count = file[26];
    let body = 27 + count;
    for (const size of file.subarray(27, 27 + count)) {
      packet = Buffer.concat([packet, file.subarray(body, body + size)]);
      body += size;
      if (size === 255) continue;
      packets.push(packet);
      packet = Buffer.alloc(0);
    }
    file = file.subarray(body);
  }
  return packets.slice(2);
}

async function watch(frames, urls) {
  const watched = [];
  for (const url of urls) {
    const pc = new PeerConnection("viewer", { iceServers: [] });
    const video = new Video("0", "RecvOnly");
    video.addVP8Codec(VP8);
    video.addH264Codec(H264, H264_PROFILE);
    const audio = new Audio("1", "RecvOnly");
    audio.addOpusCodec(OPUS);
    const counts = { [VP8]: counter("VP8"), [H264]: counter("H264"), [OPUS]: counter("opus") };
    const tracks = [video, audio].map((media) => pc.addTrack(media));
    for (const track of tracks) {
      track.setMediaHandler(new RtcpReceivingSession());
      track.onMessage((packet) => counts[packet[1] & 0x7f]?.take(packet));
    }
    watched.push({ url, pc, tracks, counts, ...(await connect(pc, url)) });
  }
  const received = () =>
    watched.map(({ url, counts, refused }) => {
      const video = counts[VP8].packets > 0 ? counts[VP8] : counts[H264];
      const { codec, packets, lost, frames } = video;
      return { url, refused, video: { codec, packets, lost, frames }, audio: { packets: counts[OPUS].packets, lost: counts[OPUS].lost } };
    });
  const enough = (one) => one.refused || (one.video.frames >= frames && one.audio.packets >= AUDIO_PACKETS);
  await until("", Infinity, () => received().every(enough), ended);
  say({ received: received() });
  await Promise.all(watched.map((one) => one.close?.()));
}

/** Counts packets, gaps between their numbers, and frames of which no packet is missing. */
function counter(codec) {
  return {
    codec,
    packets: 0,
    lost: 0,
    frames: 0,
    last: null,
    whole: true,
    take(packet) {
      const seq = packet.readUInt16BE(2);
      const gap = this.last === null ? 0 : (seq - this.last - 1) & 0xffff;
      if (gap > 0x7fff) return;
      this.lost += gap;
      if (gap > 0) this.whole = false;
      this.last = seq;
      this.packets += 1;
      if (!(packet[1] & 0x80)) return;
      if (this.whole) this.frames += 1;
      this.whole = true;
    },
  };
}

const [role, ...rest] = process.argv.slice(2);
if (role === "publish") await publish(rest[0]);
else await watch(Number(rest[0]), rest.slice(1));
datachannel.cleanup();
process.exit(0);
