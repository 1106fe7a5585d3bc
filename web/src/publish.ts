// Publishes a camera, a screen or the test picture by WHIP, with three simulcast layers or one.

import { testPicture } from "./picture.js";
import { Session, streams } from "./signal.js";
import { Meter, type Flow } from "./stats.js";

export interface PublishOptions {
  name: string;
  token: string;
  source: "camera" | "screen" | "picture";
  simulcast: boolean;
  /** MIME subtype such as "VP8"; empty leaves the choice to the browser. */
  codec: string;
  /** Size of the test picture. */
  width: number;
  height: number;
}

export type PublishState = "starting" | "live" | "reconnecting" | "stopped";

/** From the smallest picture to the largest. */
const LAYERS: RTCRtpEncodingParameters[] = [
  { rid: "q", scaleResolutionDownBy: 4, maxBitrate: 150_000 },
  { rid: "h", scaleResolutionDownBy: 2, maxBitrate: 500_000 },
  { rid: "f", scaleResolutionDownBy: 1, maxBitrate: 2_000_000 },
];
const RETRY_MS = 1000;
/** ICE says "disconnected" after a short silence and often recovers, alone or by a restart. */
const DISCONNECTED_MAX_MS = 5000;

export class Publisher {
  state: PublishState = "starting";
  session: Session | null = null;
  flow: Flow | null = null;
  why = "";
  private meter: Meter | null = null;
  private timer = 0;
  private disconnectedAt: number | null = null;
  private readonly abort = new AbortController();

  private constructor(
    readonly options: PublishOptions,
    readonly stream: MediaStream,
    private readonly release: () => void,
    private readonly changed: (publisher: Publisher) => void,
  ) {}

  /** Asks for the source, connects, and returns once the server has answered. */
  static async start(options: PublishOptions, changed: (publisher: Publisher) => void): Promise<Publisher> {
    const { source, width, height } = options;
    const taken = source === "picture" ? testPicture(width, height) : { stream: await capture(source), stop: () => {} };
    const { stream } = taken;
    const publisher = new Publisher(options, stream, taken.stop, changed);
    for (const track of stream.getVideoTracks()) track.addEventListener("ended", () => void publisher.stop());
    try {
      await publisher.connect();
    } catch (error) {
      await publisher.stop();
      throw error;
    }
    publisher.timer = window.setInterval(() => void publisher.tick(), 1000);
    return publisher;
  }

  get pc(): RTCPeerConnection | null {
    return this.session?.pc ?? null;
  }

  async stop(): Promise<void> {
    if (this.state === "stopped") return;
    this.state = "stopped";
    this.abort.abort();
    clearInterval(this.timer);
    this.release();
    for (const track of this.stream.getTracks()) track.stop();
    this.changed(this);
    await this.session?.close();
  }

  private async connect(): Promise<void> {
    const pc = new RTCPeerConnection();
    for (const track of this.stream.getVideoTracks()) {
      track.contentHint = this.options.source === "screen" ? "detail" : "motion";
      const transceiver = pc.addTransceiver(track, {
        direction: "sendonly",
        streams: [this.stream],
        sendEncodings: this.options.simulcast ? LAYERS : [{ maxBitrate: 2_500_000 }],
      });
      // On a machine under load a test picture loses frames, not its size: who looks at layers goes by that.
      if (this.options.source === "picture") await prefer(transceiver.sender, "maintain-resolution");
      if (this.options.codec) transceiver.setCodecPreferences(codecsFrom(this.options.codec));
    }
    for (const track of this.stream.getAudioTracks()) {
      pc.addTransceiver(track, { direction: "sendonly", streams: [this.stream] });
    }
    try {
      const endpoint = `/whip/${encodeURIComponent(this.options.name)}`;
      this.session = await Session.open(pc, endpoint, this.options.token, this.abort.signal);
    } catch (error) {
      pc.close();
      throw error;
    }
    this.meter = new Meter(pc);
    this.state = "live";
    this.changed(this);
  }

  /** Once a second: statistics, and a new connection where the old one is lost. */
  private async tick(): Promise<void> {
    const { session, meter } = this;
    if (this.state !== "live" || !session || !meter) return;
    const state = session.pc.connectionState;
    if (state !== "disconnected") this.disconnectedAt = null;
    else this.disconnectedAt ??= performance.now();
    const silent = this.disconnectedAt !== null && performance.now() - this.disconnectedAt > DISCONNECTED_MAX_MS;
    if (state === "failed" || state === "closed" || silent) return await this.reconnect();
    const known = await session.stats().catch(() => undefined);
    if (known === null && this.state === "live") return await this.forgotten();
    this.flow = await meter.read();
    this.changed(this);
  }

  /** The server has let go of our session: it was restarted, or somebody else publishes under our name now. */
  private async forgotten(): Promise<void> {
    const list = await streams(this.options.token).catch(() => []);
    if (!list.some((stream) => stream.name === this.options.name && stream.state === "live")) return await this.reconnect();
    this.why = "somebody else publishes under this name now";
    await this.stop();
  }

  private async reconnect(): Promise<void> {
    this.state = "reconnecting";
    this.changed(this);
    await this.session?.close();
    while (!this.abort.signal.aborted) {
      try {
        return await this.connect();
      } catch (error) {
        this.why = error instanceof Error ? error.message : String(error);
        this.changed(this);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
}

async function capture(source: "camera" | "screen"): Promise<MediaStream> {
  if (source === "screen") return await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: 30 }, audio: true });
  const video = { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 30 } };
  return await navigator.mediaDevices.getUserMedia({ video, audio: true });
}

async function prefer(sender: RTCRtpSender, degradationPreference: string): Promise<void> {
  const parameters = { ...sender.getParameters(), degradationPreference };
  await sender.setParameters(parameters as RTCRtpSendParameters);
}

/** The codec asked for, and the repair formats that go with any codec. */
function codecsFrom(wanted: string): RTCRtpCodec[] {
  const all = RTCRtpSender.getCapabilities("video")?.codecs ?? [];
  return all.filter((codec) => {
    const name = codec.mimeType.replace(/^.*\//, "");
    return name.toLowerCase() === wanted.toLowerCase() || name === "rtx";
  });
}
