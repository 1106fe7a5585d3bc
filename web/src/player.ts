// Plays one reflected stream by HTTP and does not give up: HLS by hls.js, or by the browser where that is all it has; WebM,
// fragmented MP4 and sound as the browser's own element plays them. Of what it cannot play it says where players find it.

import type * as hls from "./hls.js";
import type { Reflected } from "./signal.js";
import type { WatchState } from "./watch.js";

/** How playing is to go on. */
export type PlayState = WatchState | { kind: "elsewhere"; why: string };

/** What is known of a stream that is being played. */
export interface Playing {
  width: number;
  height: number;
  framesPerSecond: number;
  dropped: number;
  /** Seconds that are there to be played. */
  buffered: number;
  /** Seconds behind the newest that there is; null where nobody knows. */
  behind: number | null;
}

const READ_EVERY_MS = 1000;
const RETRY_FIRST_MS = 300;
const RETRY_LONGEST_MS = 4000;
/** A player that got no further for so long is begun anew. */
const STUCK_MAX_MS = 10_000;

export class Player {
  state: PlayState = { kind: "connecting" };
  playing: Playing | null = null;
  /** How often it began, for the curious and for tests. */
  starts = 0;
  private readonly abort = new AbortController();
  private hls: hls.Hls | null = null;

  constructor(
    readonly name: string,
    /** What the server says of the stream by now. */
    private readonly known: () => Reflected | undefined,
    private readonly token: string,
    private readonly video: HTMLVideoElement,
    /** Called at each change of state and after each reading. */
    private readonly changed: (player: Player) => void,
  ) {
    void this.run();
  }

  stop(): void {
    this.abort.abort();
    this.letGo();
    this.enter({ kind: "stopped" });
  }

  private get stopped(): boolean {
    return this.abort.signal.aborted;
  }

  private enter(state: PlayState): void {
    this.state = this.stopped ? { kind: "stopped" } : state;
    this.changed(this);
  }

  private async run(): Promise<void> {
    let retryMs = RETRY_FIRST_MS;
    while (!this.stopped) {
      const begun = performance.now();
      const why = await this.play().catch((error: unknown) => (error instanceof Error ? error.message : String(error)));
      this.letGo();
      this.playing = null;
      if (this.stopped || this.state.kind === "elsewhere" || this.state.kind === "refused") return;
      if (performance.now() - begun > STUCK_MAX_MS) retryMs = RETRY_FIRST_MS;
      this.enter({ kind: "waiting", why });
      await sleep(retryMs, this.abort.signal);
      retryMs = Math.min(2 * retryMs, RETRY_LONGEST_MS);
    }
  }

  /** Plays until it ends or fails; says why. */
  private async play(): Promise<string> {
    this.starts += 1;
    const over = new AbortController();
    const { signal } = over;
    this.abort.signal.addEventListener("abort", () => over.abort(), { signal });
    try {
      const failed = new Promise<string>((resolve) => {
        signal.addEventListener("abort", () => resolve("stopped"));
        this.video.addEventListener("ended", () => resolve("the stream has ended"), { signal });
        this.begin(resolve, signal).catch((error: unknown) => resolve(String(error)));
      });
      return await Promise.race([failed, this.follow(signal)]);
    } finally {
      over.abort();
    }
  }

  /** Gives the element something to play. */
  private async begin(fail: (why: string) => void, signal: AbortSignal): Promise<void> {
    const { video } = this;
    video.srcObject = null;
    const stream = this.known();
    const broken = () => fail(video.error?.message || "the stream cannot be played");
    if (!stream?.content_type) return fail("nothing has come yet");
    if (!stream.hls && canPlay(video, stream.content_type)) {
      video.addEventListener("error", broken, { signal });
      return this.open(stream.path);
    }
    if (!stream.hls) {
      const address = new URL(stream.path, location.href);
      this.enter({ kind: "elsewhere", why: `${stream.content_type} is not for browsers.\nPlayers find it at\n${address}` });
      return fail("it is not for browsers");
    }
    const { Hls, Events } = await loadHls();
    if (signal.aborted) return;
    if (!Hls.isSupported()) {
      video.addEventListener("error", broken, { signal });
      return this.open(stream.hls);
    }
    const player = new Hls({
      // A worker would be made of a blob, which the page's policy does not allow.
      enableWorker: false,
      backBufferLength: 30,
      // The first segment is fetched while the element opens, and not at the next tenth of a second.
      startFragPrefetch: true,
      xhrSetup: (request) => this.sign(request),
    });
    this.hls = player;
    player.on(Events.ERROR, (_, error) => {
      const status = error.response?.code;
      if (status === 401 || status === 403) {
        this.enter({ kind: "refused", why: `${status} ${error.response?.text ?? ""}`.trim() });
        fail("refused");
      } else if (error.fatal) {
        fail(status ? `HTTP ${status}` : error.details);
      }
    });
    player.loadSource(stream.hls);
    player.attachMedia(video);
    void video.play().catch(() => undefined);
  }

  private open(path: string): void {
    this.video.src = withToken(path, this.token);
    void this.video.play().catch(() => undefined);
  }

  private sign(request: XMLHttpRequest): void {
    if (this.token) request.setRequestHeader("Authorization", `Bearer ${this.token}`);
  }

  private letGo(): void {
    this.hls?.destroy();
    this.hls = null;
    this.video.removeAttribute("src");
    this.video.load();
  }

  /** Reads what is played until it gets no further; says so. */
  private async follow(signal: AbortSignal): Promise<string> {
    const { video } = this;
    let [framesBefore, timeBefore, movedAt, readAt] = [0, -1, performance.now(), performance.now()];
    for (;;) {
      await shown(video, READ_EVERY_MS, signal);
      if (signal.aborted) return "stopped";
      const now = performance.now();
      const quality = video.getVideoPlaybackQuality();
      const frames = quality.totalVideoFrames - quality.droppedVideoFrames;
      const end = video.buffered.length > 0 ? video.buffered.end(video.buffered.length - 1) : 0;
      this.playing = {
        width: video.videoWidth,
        height: video.videoHeight,
        framesPerSecond: (1000 * Math.max(0, frames - framesBefore)) / Math.max(1, now - readAt),
        dropped: quality.droppedVideoFrames,
        buffered: Math.max(0, end - video.currentTime),
        behind: this.hls && Number.isFinite(this.hls.latency) ? this.hls.latency : null,
      };
      if (video.currentTime !== timeBefore || video.paused) movedAt = now;
      const isLive = video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA && now - movedAt < 2 * READ_EVERY_MS;
      if (isLive) this.enter({ kind: "live" });
      else if (video.readyState > 0) this.enter({ kind: "waiting", why: "nothing arrives" });
      if (now - movedAt > STUCK_MAX_MS) return "nothing arrives any more";
      [framesBefore, timeBefore, readAt] = [frames, video.currentTime, now];
    }
  }
}

/** What plays HLS; whoever knows that it will be needed asks before. */
export function loadHls(): Promise<typeof hls> {
  return import("./hls.js");
}

/** What the element plays without help: WebM, MP4 and sound. */
function canPlay(video: HTMLVideoElement, type: string | null): boolean {
  return type !== null && video.canPlayType(type) !== "";
}

function withToken(path: string, token: string): string {
  return token ? `${path}?token=${encodeURIComponent(token)}` : path;
}

/** The first picture ends the wait as well. */
function shown(video: HTMLVideoElement, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      video.removeEventListener("playing", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    video.addEventListener("playing", done);
    signal.addEventListener("abort", done, { once: true });
  });
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
