// Watches one stream by WHEP and does not give up: a lost connection is made again, and a stream that is not there
// yet, or no longer, is awaited.

import { HttpError, Session, type ServerStats } from "./signal.js";
import { Meter, type Flow } from "./stats.js";

export type WatchState =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "waiting"; why: string }
  | { kind: "refused"; why: string }
  | { kind: "stopped" };

/** Wait before the first new attempt; doubled each time up to the longest. */
const RETRY_FIRST_MS = 300;
const RETRY_LONGEST_MS = 4000;
/** ICE says "disconnected" after a short silence and often recovers, alone or by a restart. */
const DISCONNECTED_MAX_MS = 5000;
const CONNECT_MAX_MS = 8000;
/** The server keeps viewers for a while when a publisher is gone, so that they go on when it returns. */
const SILENCE_SHOWN_MS = 2500;
const SILENCE_MAX_MS = 20_000;

export class Watcher {
  readonly stream = new MediaStream();
  session: Session | null = null;
  flow: Flow | null = null;
  server: ServerStats | null = null;
  state: WatchState = { kind: "connecting" };
  /** Connections made so far, for the curious and for tests. */
  connections = 0;
  private limit: number | null = null;
  private readonly abort = new AbortController();

  constructor(
    readonly name: string,
    private readonly token: string,
    /** Called at each change of state and after each reading of statistics. */
    private readonly changed: (watcher: Watcher) => void,
  ) {
    void this.run();
  }

  get pc(): RTCPeerConnection | null {
    return this.session?.pc ?? null;
  }

  /** Highest layer to be sent, 0 the smallest; null lets the bandwidth estimate choose. */
  async select(layer: number | null): Promise<void> {
    this.limit = layer;
    await this.session?.limit(layer);
  }

  get selected(): number | null {
    return this.limit;
  }

  async stop(): Promise<void> {
    this.abort.abort();
    const session = this.session;
    this.session = null;
    this.enter({ kind: "stopped" });
    await session?.close();
  }

  private get stopped(): boolean {
    return this.abort.signal.aborted;
  }

  private enter(state: WatchState): void {
    this.state = this.stopped ? { kind: "stopped" } : state;
    this.changed(this);
  }

  private async run(): Promise<void> {
    let retryMs = RETRY_FIRST_MS;
    while (!this.stopped) {
      try {
        await this.connect();
        retryMs = RETRY_FIRST_MS;
        const why = await this.follow();
        this.enter({ kind: "waiting", why });
      } catch (error) {
        if (error instanceof HttpError && (error.status === 401 || error.status === 403)) {
          this.enter({ kind: "refused", why: error.message });
          return;
        }
        if (error instanceof HttpError && error.retryAfterMs !== null) retryMs = Math.max(retryMs, error.retryAfterMs);
        this.enter({ kind: "waiting", why: error instanceof Error ? error.message : String(error) });
      }
      const gone = this.session;
      this.session = null;
      this.flow = null;
      if (gone && !this.stopped) void gone.close();
      await sleep(retryMs, this.abort.signal);
      retryMs = Math.min(2 * retryMs, RETRY_LONGEST_MS);
    }
  }

  /** Makes a connection; returns once media can flow. */
  private async connect(): Promise<void> {
    const pc = new RTCPeerConnection();
    pc.addEventListener("track", (event) => this.take(event.track));
    try {
      pc.addTransceiver("video", { direction: "recvonly" });
      pc.addTransceiver("audio", { direction: "recvonly" });
      const endpoint = `/whep/${encodeURIComponent(this.name)}`;
      const session = await Session.open(pc, endpoint, this.token, this.abort.signal);
      if (this.stopped) return await session.close();
      this.session = session;
      await connected(pc);
    } catch (error) {
      if (!this.session) pc.close();
      throw error;
    }
    this.connections += 1;
    this.enter({ kind: "live" });
    if (this.limit !== null) await this.session?.limit(this.limit).catch(() => undefined);
  }

  /** Puts a track in the place of the one of its kind, so that the video element keeps its source. */
  private take(track: MediaStreamTrack): void {
    for (const old of this.stream.getTracks()) {
      if (old.kind === track.kind) this.stream.removeTrack(old);
    }
    this.stream.addTrack(track);
    this.changed(this);
  }

  /** Reads statistics until the session is over; says why it is. */
  private async follow(): Promise<string> {
    const session = this.session;
    if (!session) return "stopped";
    const meter = new Meter(session.pc);
    let silentSince = performance.now();
    while (!this.stopped) {
      await sleep(1000, this.abort.signal);
      const lost = await lostConnection(session.pc);
      if (lost || this.stopped) return lost ?? "stopped";
      this.flow = await meter.read();
      if (this.flow.bytes > 0) silentSince = performance.now();
      try {
        this.server = await session.stats();
        if (!this.server) return "the stream has ended";
      } catch {
        this.server = {};
      }
      const silence = performance.now() - silentSince;
      if (silence > SILENCE_MAX_MS) return "nothing arrives any more";
      this.enter(silence > SILENCE_SHOWN_MS ? { kind: "waiting", why: "nothing arrives" } : { kind: "live" });
    }
    return "stopped";
  }
}

/** Resolves when `pc` is connected, rejects when it fails or takes too long. */
function connected(pc: RTCPeerConnection): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("no connection: is UDP to the server blocked?")), CONNECT_MAX_MS);
    const look = () => {
      if (pc.connectionState === "connected") resolve();
      else if (pc.connectionState === "failed" || pc.connectionState === "closed") reject(new Error("connection failed"));
      else return;
      clearTimeout(timer);
    };
    pc.addEventListener("connectionstatechange", look);
    look();
  });
}

/** Why `pc` carries nothing any more, or null while it does. A short disconnection is waited for. */
async function lostConnection(pc: RTCPeerConnection): Promise<string | null> {
  const since = performance.now();
  while (pc.connectionState === "disconnected") {
    if (performance.now() - since > DISCONNECTED_MAX_MS) return "connection lost";
    await sleep(100);
  }
  return pc.connectionState === "connected" ? null : "connection lost";
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
