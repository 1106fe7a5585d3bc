// Turns two readings of RTCPeerConnection.getStats, a second apart, into what a person wants to see.

/** What flowed between two readings, in or out. */
export interface Flow {
  width: number;
  height: number;
  framesPerSecond: number;
  videoBitrate: number;
  audioBitrate: number;
  /** Share of packets lost since the reading before, 0 to 1. */
  loss: number;
  packetsLost: number;
  roundTripMs: number | null;
  jitterBufferMs: number | null;
  freezes: number;
  nacks: number;
  keyframeRequests: number;
  audioLevel: number | null;
  videoCodec: string;
  audioCodec: string;
  cipher: string;
  /** Bytes of media since the reading before. */
  bytes: number;
  /** Outbound only: one entry per simulcast layer, smallest first. */
  layers: { rid: string; width: number; height: number; framesPerSecond: number; bitrate: number }[];
}

type Entry = Record<string, unknown> & { id: string; type: string };

/** Keeps the last reading of one peer connection, or of one sender or receiver. */
export class Meter {
  private before = new Map<string, Entry>();
  private beforeMs = 0;

  constructor(private readonly pc: { getStats(): Promise<RTCStatsReport> }) {}

  async read(): Promise<Flow> {
    const now = new Map<string, Entry>();
    (await this.pc.getStats()).forEach((entry: Entry) => now.set(entry.id, entry));
    const nowMs = performance.now();
    const flow = this.compare(now, this.beforeMs ? (nowMs - this.beforeMs) / 1000 : Infinity);
    this.before = now;
    this.beforeMs = nowMs;
    return flow;
  }

  private compare(now: Map<string, Entry>, seconds: number): Flow {
    const flow = emptyFlow();
    let received = 0;
    let lost = 0;
    for (const entry of now.values()) {
      const gained = (field: string) => Math.max(0, number(entry[field]) - number(this.before.get(entry.id)?.[field]));
      const codec = text(now.get(text(entry["codecId"]))?.["mimeType"]).replace(/^.*\//, "");
      if (entry.type === "inbound-rtp") {
        received += gained("packetsReceived");
        lost += gained("packetsLost");
        flow.packetsLost += number(entry["packetsLost"]);
        flow.nacks += number(entry["nackCount"]);
        this.media(flow, entry, codec, gained("bytesReceived"), seconds);
        if (entry["kind"] === "video") {
          flow.framesPerSecond = gained("framesDecoded") / seconds;
          flow.freezes = number(entry["freezeCount"]);
          flow.keyframeRequests = number(entry["pliCount"]) + number(entry["firCount"]);
          const emitted = gained("jitterBufferEmittedCount");
          flow.jitterBufferMs = emitted > 0 ? (1000 * gained("jitterBufferDelay")) / emitted : null;
        } else {
          flow.audioLevel = number(entry["audioLevel"]);
        }
      } else if (entry.type === "outbound-rtp") {
        flow.nacks += number(entry["nackCount"]);
        flow.keyframeRequests += number(entry["pliCount"]);
        this.media(flow, entry, codec, gained("bytesSent"), seconds);
        if (entry["kind"] === "video") {
          const framesPerSecond = gained("framesEncoded") / seconds;
          flow.framesPerSecond = Math.max(flow.framesPerSecond, framesPerSecond);
          flow.layers.push({
            rid: text(entry["rid"]),
            width: number(entry["frameWidth"]),
            height: number(entry["frameHeight"]),
            framesPerSecond,
            bitrate: (8 * gained("bytesSent")) / seconds,
          });
        }
      } else if (entry.type === "remote-inbound-rtp") {
        flow.loss = Math.max(flow.loss, number(entry["fractionLost"]));
      } else if (entry.type === "candidate-pair" && entry["nominated"] === true) {
        if (entry["currentRoundTripTime"] !== undefined) flow.roundTripMs = 1000 * number(entry["currentRoundTripTime"]);
      } else if (entry.type === "transport") {
        flow.cipher = text(entry["srtpCipher"]);
      }
    }
    if (received + lost > 0) flow.loss = lost / (received + lost);
    flow.layers.sort((a, b) => a.width - b.width);
    return flow;
  }

  /** What inbound and outbound entries have in common. */
  private media(flow: Flow, entry: Entry, codec: string, bytes: number, seconds: number): void {
    flow.bytes += bytes;
    if (entry["kind"] === "video") {
      flow.videoBitrate += (8 * bytes) / seconds;
      flow.videoCodec = codec;
      flow.width = Math.max(flow.width, number(entry["frameWidth"]));
      flow.height = Math.max(flow.height, number(entry["frameHeight"]));
    } else {
      flow.audioBitrate += (8 * bytes) / seconds;
      flow.audioCodec = codec;
    }
  }
}

function emptyFlow(): Flow {
  return {
    width: 0,
    height: 0,
    framesPerSecond: 0,
    videoBitrate: 0,
    audioBitrate: 0,
    loss: 0,
    packetsLost: 0,
    roundTripMs: null,
    jitterBufferMs: null,
    freezes: 0,
    nacks: 0,
    keyframeRequests: 0,
    audioLevel: null,
    videoCodec: "",
    audioCodec: "",
    cipher: "",
    bytes: 0,
    layers: [],
  };
}

function number(value: unknown): number {
  return typeof value === "number" ? value : 0;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
