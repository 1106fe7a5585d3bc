// src/player.ts
var READ_EVERY_MS = 1e3;
var RETRY_FIRST_MS = 300;
var RETRY_LONGEST_MS = 4e3;
var STUCK_MAX_MS = 1e4;
var Player = class {
  constructor(name, known, token, video2, changed) {
    this.name = name;
    this.known = known;
    this.token = token;
    this.video = video2;
    this.changed = changed;
    void this.run();
  }
  name;
  known;
  token;
  video;
  changed;
  state = { kind: "connecting" };
  playing = null;
  /** How often it began, for the curious and for tests. */
  starts = 0;
  abort = new AbortController();
  hls = null;
  stop() {
    this.abort.abort();
    this.letGo();
    this.enter({ kind: "stopped" });
  }
  get stopped() {
    return this.abort.signal.aborted;
  }
  enter(state) {
    this.state = this.stopped ? { kind: "stopped" } : state;
    this.changed(this);
  }
  async run() {
    let retryMs = RETRY_FIRST_MS;
    while (!this.stopped) {
      const begun = performance.now();
      const why = await this.play().catch((error) => error instanceof Error ? error.message : String(error));
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
  async play() {
    this.starts += 1;
    const over = new AbortController();
    const { signal } = over;
    this.abort.signal.addEventListener("abort", () => over.abort(), { signal });
    try {
      const failed = new Promise((resolve) => {
        signal.addEventListener("abort", () => resolve("stopped"));
        this.video.addEventListener("ended", () => resolve("the stream has ended"), { signal });
        this.begin(resolve, signal).catch((error) => resolve(String(error)));
      });
      return await Promise.race([failed, this.follow(signal)]);
    } finally {
      over.abort();
    }
  }
  /** Gives the element something to play. */
  async begin(fail, signal) {
    const { video: video2 } = this;
    video2.srcObject = null;
    const stream = this.known();
    const broken = () => fail(video2.error?.message || "the stream cannot be played");
    if (!stream?.content_type) return fail("nothing has come yet");
    if (!stream.hls && canPlay(video2, stream.content_type)) {
      video2.addEventListener("error", broken, { signal });
      return this.open(stream.path);
    }
    if (!stream.hls) {
      const address = new URL(stream.path, location.href);
      this.enter({ kind: "elsewhere", why: `${stream.content_type} is not for browsers.
Players find it at
${address}` });
      return fail("it is not for browsers");
    }
    const { Hls, Events } = await loadHls();
    if (signal.aborted) return;
    if (!Hls.isSupported()) {
      video2.addEventListener("error", broken, { signal });
      return this.open(stream.hls);
    }
    const player = new Hls({
      // A worker would be made of a blob, which the page's policy does not allow.
      enableWorker: false,
      backBufferLength: 30,
      // The first segment is fetched while the element opens, and not at the next tenth of a second.
      startFragPrefetch: true,
      xhrSetup: (request2) => this.sign(request2)
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
    player.attachMedia(video2);
    void video2.play().catch(() => void 0);
  }
  open(path) {
    this.video.src = withToken(path, this.token);
    void this.video.play().catch(() => void 0);
  }
  sign(request2) {
    if (this.token) request2.setRequestHeader("Authorization", `Bearer ${this.token}`);
  }
  letGo() {
    this.hls?.destroy();
    this.hls = null;
    this.video.removeAttribute("src");
    this.video.load();
  }
  /** Reads what is played until it gets no further; says so. */
  async follow(signal) {
    const { video: video2 } = this;
    let [framesBefore, timeBefore, movedAt, readAt] = [0, -1, performance.now(), performance.now()];
    for (; ; ) {
      await shown(video2, READ_EVERY_MS, signal);
      if (signal.aborted) return "stopped";
      const now = performance.now();
      const quality = video2.getVideoPlaybackQuality();
      const frames = quality.totalVideoFrames - quality.droppedVideoFrames;
      const end = video2.buffered.length > 0 ? video2.buffered.end(video2.buffered.length - 1) : 0;
      this.playing = {
        width: video2.videoWidth,
        height: video2.videoHeight,
        framesPerSecond: 1e3 * Math.max(0, frames - framesBefore) / Math.max(1, now - readAt),
        dropped: quality.droppedVideoFrames,
        buffered: Math.max(0, end - video2.currentTime),
        behind: this.hls && Number.isFinite(this.hls.latency) ? this.hls.latency : null
      };
      if (video2.currentTime !== timeBefore || video2.paused) movedAt = now;
      const isLive = video2.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA && now - movedAt < 2 * READ_EVERY_MS;
      if (isLive) this.enter({ kind: "live" });
      else if (video2.readyState > 0) this.enter({ kind: "waiting", why: "nothing arrives" });
      if (now - movedAt > STUCK_MAX_MS) return "nothing arrives any more";
      [framesBefore, timeBefore, readAt] = [frames, video2.currentTime, now];
    }
  }
};
function loadHls() {
  return import("./hls.js");
}
function canPlay(video2, type) {
  return type !== null && video2.canPlayType(type) !== "";
}
function withToken(path, token) {
  return token ? `${path}?token=${encodeURIComponent(token)}` : path;
}
function shown(video2, ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      video2.removeEventListener("playing", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    video2.addEventListener("playing", done);
    signal.addEventListener("abort", done, { once: true });
  });
}
function sleep(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

// src/ticker.ts
function everyTick(intervalMs, tick) {
  const worker = new Worker(import.meta.url, { type: "module" });
  worker.onmessage = tick;
  worker.postMessage(intervalMs);
  return () => worker.terminate();
}
function keepTime() {
  self.onmessage = (event) => setInterval(() => self.postMessage(0), event.data);
}

// src/picture.ts
var FRAMES_PER_SECOND = 30;
function testPicture(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { alpha: false });
  if (!context) throw new Error("this browser draws no canvas");
  let frame = 0;
  const draw = () => paint(context, width, height, frame++);
  draw();
  const stopTicks = everyTick(1e3 / FRAMES_PER_SECOND, draw);
  const stream = canvas.captureStream(FRAMES_PER_SECOND);
  const tone = melody();
  for (const track of tone.stream.getAudioTracks()) stream.addTrack(track);
  const stop = () => {
    stopTicks();
    tone.stop();
    for (const track of stream.getTracks()) track.stop();
  };
  return { canvas, stream, stop };
}
function paint(context, width, height, frame) {
  const turn = 2 * Math.PI * frame / (10 * FRAMES_PER_SECOND);
  const sky = context.createLinearGradient(0, 0, 0, height);
  sky.addColorStop(0, "#1e2c54");
  sky.addColorStop(1, "#5a86cc");
  context.fillStyle = sky;
  context.fillRect(0, 0, width, height);
  wheel(context, width / 2, height * 0.47, height * 0.33, turn);
  water(context, width, height, turn);
  const size = Math.round(height / 15);
  context.fillStyle = "#fff";
  context.font = `bold ${size}px ui-monospace, monospace`;
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText((/* @__PURE__ */ new Date()).toISOString().slice(11, 23), size, height - size);
  context.textAlign = "right";
  context.fillText(`frame ${frame}`, width - size, height - size);
}
function wheel(context, x, y, radius, turn) {
  context.save();
  context.translate(x, y);
  context.rotate(-turn);
  context.strokeStyle = context.fillStyle = "#ecb25c";
  context.lineWidth = radius * 0.08;
  for (const part of [0.92, 0.52]) {
    context.beginPath();
    context.arc(0, 0, radius * part, 0, 2 * Math.PI);
    context.stroke();
  }
  for (let spoke = 0; spoke < 12; spoke++) {
    context.rotate(Math.PI / 6);
    context.fillRect(0, -radius * 0.025, radius, radius * 0.05);
    context.fillRect(radius * 0.88, -radius * 0.1, radius * 0.18, radius * 0.2);
  }
  context.beginPath();
  context.arc(0, 0, radius * 0.16, 0, 2 * Math.PI);
  context.fill();
  context.restore();
}
function water(context, width, height, turn) {
  context.fillStyle = "#12629c";
  context.beginPath();
  context.moveTo(0, height);
  for (let x = 0; x <= width; x += 8) {
    const along = x / width * 2 * Math.PI;
    context.lineTo(x, height * (0.73 + 0.017 * Math.sin(3 * along - 6 * turn) + 8e-3 * Math.sin(7 * along - 14 * turn)));
  }
  context.lineTo(width, height);
  context.fill();
}
function melody() {
  const audio = new AudioContext();
  const out = audio.createMediaStreamDestination();
  const tone = new OscillatorNode(audio, { type: "triangle", frequency: 330 });
  const slow = new OscillatorNode(audio, { type: "square", frequency: 0.5 });
  const step = new GainNode(audio, { gain: 55 });
  const level = new GainNode(audio, { gain: 0.2 });
  slow.connect(step).connect(tone.frequency);
  tone.connect(level).connect(out);
  tone.start();
  slow.start();
  void audio.resume();
  return { stream: out.stream, stop: () => void audio.close() };
}

// src/fragment.ts
function fragmentOf(sdp) {
  const [session = "", first = ""] = sections(sdp);
  const wanted = /^(m=|a=(mid|ice-ufrag|ice-pwd|candidate):|a=end-of-candidates)/;
  const group = lines(session).filter((line) => line.startsWith("a=group:") || line.startsWith("a=ice-"));
  return [...group, ...lines(first).filter((line) => wanted.test(line)), ""].join("\r\n");
}
function answerWith(answer, fragment) {
  const fresh = (name) => lines(fragment).find((line) => line.startsWith(`a=${name}:`)) ?? "";
  const candidates = lines(fragment).filter((line) => line.startsWith("a=candidate:"));
  let placed = false;
  const result = lines(answer).flatMap((line) => {
    if (line.startsWith("a=candidate:") || line === "a=end-of-candidates") return [];
    if (line.startsWith("a=ice-ufrag:")) return [fresh("ice-ufrag")];
    if (!line.startsWith("a=ice-pwd:")) return [line];
    if (placed) return [fresh("ice-pwd")];
    placed = true;
    return [fresh("ice-pwd"), ...candidates];
  });
  return [...result, ""].join("\r\n");
}
function sections(sdp) {
  return sdp.split(/^(?=m=)/m);
}
function lines(text2) {
  return text2.split(/\r?\n/).filter((line) => line !== "");
}

// src/signal.ts
var GATHER_MS = 500;
var HttpError = class extends Error {
  constructor(status, message, retryAfterMs) {
    super(message);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
  status;
  retryAfterMs;
};
var Session = class _Session {
  constructor(pc, url, answer, token) {
    this.pc = pc;
    this.url = url;
    this.answer = answer;
    this.token = token;
    pc.addEventListener("iceconnectionstatechange", () => {
      if (pc.iceConnectionState === "disconnected") void this.restartIce().catch(() => void 0);
    });
  }
  pc;
  url;
  answer;
  token;
  /** Sends the offer of `pc` to `endpoint` and applies the answer. */
  static async open(pc, endpoint, token, signal) {
    await pc.setLocalDescription();
    await gathered(pc, GATHER_MS);
    const response = await request(endpoint, token, {
      method: "POST",
      headers: { "Content-Type": "application/sdp" },
      body: pc.localDescription?.sdp ?? "",
      signal
    });
    const location2 = response.headers.get("Location");
    if (!location2) throw new Error("the answer names no resource (Location)");
    const answer = await response.text();
    const session = new _Session(pc, new URL(location2, response.url).href, answer, token);
    await pc.setRemoteDescription({ type: "answer", sdp: answer });
    return session;
  }
  /** Looks for a path anew; keys and streams stay as they are. */
  async restartIce() {
    const { pc } = this;
    pc.restartIce();
    await pc.setLocalDescription();
    await gathered(pc, GATHER_MS);
    const response = await request(this.url, this.token, {
      method: "PATCH",
      headers: { "Content-Type": "application/trickle-ice-sdpfrag", "If-Match": "*" },
      body: fragmentOf(pc.localDescription?.sdp ?? "")
    });
    this.answer = answerWith(this.answer, await response.text());
    await pc.setRemoteDescription({ type: "answer", sdp: this.answer });
  }
  /** What the server says about this session, or null when it has forgotten it. */
  async stats() {
    try {
      return await (await request(`${this.url}/stats`, this.token, {})).json();
    } catch (error) {
      if (error instanceof HttpError && (error.status === 404 || error.status === 410)) return null;
      throw error;
    }
  }
  /** Limits what the server sends; null is no limit. */
  async limit(spatialMax, temporalMax = null) {
    await request(`${this.url}/layer`, this.token, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ spatial_max: spatialMax, temporal_max: temporalMax })
    });
  }
  /** Ends the session here and on the server; `keepalive` lets the request outlive the page. */
  async close() {
    this.pc.close();
    await request(this.url, this.token, { method: "DELETE", keepalive: true }).catch(() => void 0);
  }
};
async function streams(token) {
  return await (await request("/api/streams", token, {})).json();
}
async function reflected(token) {
  try {
    return await (await request("/api/reflect/streams", token, {})).json();
  } catch (error) {
    if (error instanceof HttpError && error.status === 404) return [];
    throw error;
  }
}
async function request(url, token, init) {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(url, { ...init, headers });
  if (response.ok) return response;
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  throw new HttpError(response.status, await reason(response), Number.isFinite(seconds) ? seconds * 1e3 : null);
}
async function reason(response) {
  const text2 = await response.text().catch(() => "");
  try {
    const problem = JSON.parse(text2);
    return problem.detail ?? problem.title ?? `HTTP ${response.status}`;
  } catch {
    return text2.slice(0, 200) || `HTTP ${response.status} ${response.statusText}`;
  }
}
function gathered(pc, capMs) {
  return new Promise((resolve) => {
    const done = () => {
      if (pc.iceGatheringState !== "complete") return;
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(resolve, capMs);
    pc.addEventListener("icegatheringstatechange", done);
    done();
  });
}

// src/stats.ts
var Meter = class {
  constructor(pc) {
    this.pc = pc;
  }
  pc;
  before = /* @__PURE__ */ new Map();
  beforeMs = 0;
  async read() {
    const now = /* @__PURE__ */ new Map();
    (await this.pc.getStats()).forEach((entry2) => now.set(entry2.id, entry2));
    const nowMs = performance.now();
    const flow = this.compare(now, this.beforeMs ? (nowMs - this.beforeMs) / 1e3 : Infinity);
    this.before = now;
    this.beforeMs = nowMs;
    return flow;
  }
  compare(now, seconds) {
    const flow = emptyFlow();
    let received = 0;
    let lost = 0;
    for (const entry2 of now.values()) {
      const gained = (field) => Math.max(0, number(entry2[field]) - number(this.before.get(entry2.id)?.[field]));
      const codec = text(now.get(text(entry2["codecId"]))?.["mimeType"]).replace(/^.*\//, "");
      if (entry2.type === "inbound-rtp") {
        received += gained("packetsReceived");
        lost += gained("packetsLost");
        flow.packetsLost += number(entry2["packetsLost"]);
        flow.nacks += number(entry2["nackCount"]);
        this.media(flow, entry2, codec, gained("bytesReceived"), seconds);
        if (entry2["kind"] === "video") {
          flow.framesPerSecond = gained("framesDecoded") / seconds;
          flow.freezes = number(entry2["freezeCount"]);
          flow.keyframeRequests = number(entry2["pliCount"]) + number(entry2["firCount"]);
          const emitted = gained("jitterBufferEmittedCount");
          flow.jitterBufferMs = emitted > 0 ? 1e3 * gained("jitterBufferDelay") / emitted : null;
        } else {
          flow.audioLevel = number(entry2["audioLevel"]);
        }
      } else if (entry2.type === "outbound-rtp") {
        flow.nacks += number(entry2["nackCount"]);
        flow.keyframeRequests += number(entry2["pliCount"]);
        this.media(flow, entry2, codec, gained("bytesSent"), seconds);
        if (entry2["kind"] === "video") {
          const framesPerSecond = gained("framesEncoded") / seconds;
          flow.framesPerSecond = Math.max(flow.framesPerSecond, framesPerSecond);
          flow.layers.push({
            rid: text(entry2["rid"]),
            width: number(entry2["frameWidth"]),
            height: number(entry2["frameHeight"]),
            framesPerSecond,
            bitrate: 8 * gained("bytesSent") / seconds
          });
        }
      } else if (entry2.type === "remote-inbound-rtp") {
        flow.loss = Math.max(flow.loss, number(entry2["fractionLost"]));
      } else if (entry2.type === "candidate-pair" && entry2["nominated"] === true) {
        if (entry2["currentRoundTripTime"] !== void 0) flow.roundTripMs = 1e3 * number(entry2["currentRoundTripTime"]);
      } else if (entry2.type === "transport") {
        flow.cipher = text(entry2["srtpCipher"]);
      }
    }
    if (received + lost > 0) flow.loss = lost / (received + lost);
    flow.layers.sort((a, b) => a.width - b.width);
    return flow;
  }
  /** What inbound and outbound entries have in common. */
  media(flow, entry2, codec, bytes, seconds) {
    flow.bytes += bytes;
    if (entry2["kind"] === "video") {
      flow.videoBitrate += 8 * bytes / seconds;
      flow.videoCodec = codec;
      flow.width = Math.max(flow.width, number(entry2["frameWidth"]));
      flow.height = Math.max(flow.height, number(entry2["frameHeight"]));
    } else {
      flow.audioBitrate += 8 * bytes / seconds;
      flow.audioCodec = codec;
    }
  }
};
function emptyFlow() {
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
    layers: []
  };
}
function number(value) {
  return typeof value === "number" ? value : 0;
}
function text(value) {
  return typeof value === "string" ? value : "";
}

// src/publish.ts
var LAYERS = [
  { rid: "q", scaleResolutionDownBy: 4, maxBitrate: 15e4 },
  { rid: "h", scaleResolutionDownBy: 2, maxBitrate: 5e5 },
  { rid: "f", scaleResolutionDownBy: 1, maxBitrate: 2e6 }
];
var RETRY_MS = 1e3;
var DISCONNECTED_MAX_MS = 5e3;
var Publisher = class _Publisher {
  constructor(options, stream, release, changed) {
    this.options = options;
    this.stream = stream;
    this.release = release;
    this.changed = changed;
  }
  options;
  stream;
  release;
  changed;
  state = "starting";
  session = null;
  flow = null;
  why = "";
  meter = null;
  timer = 0;
  disconnectedAt = null;
  abort = new AbortController();
  /** Asks for the source, connects, and returns once the server has answered. */
  static async start(options, changed) {
    const { source, width, height } = options;
    const taken = source === "picture" ? testPicture(width, height) : { stream: await capture(source), stop: () => {
    } };
    const { stream } = taken;
    const publisher = new _Publisher(options, stream, taken.stop, changed);
    for (const track of stream.getVideoTracks()) track.addEventListener("ended", () => void publisher.stop());
    try {
      await publisher.connect();
    } catch (error) {
      await publisher.stop();
      throw error;
    }
    publisher.timer = window.setInterval(() => void publisher.tick(), 1e3);
    return publisher;
  }
  get pc() {
    return this.session?.pc ?? null;
  }
  async stop() {
    if (this.state === "stopped") return;
    this.state = "stopped";
    this.abort.abort();
    clearInterval(this.timer);
    this.release();
    for (const track of this.stream.getTracks()) track.stop();
    this.changed(this);
    await this.session?.close();
  }
  async connect() {
    const pc = new RTCPeerConnection();
    for (const track of this.stream.getVideoTracks()) {
      track.contentHint = this.options.source === "screen" ? "detail" : "motion";
      const transceiver = pc.addTransceiver(track, {
        direction: "sendonly",
        streams: [this.stream],
        sendEncodings: this.options.simulcast ? LAYERS : [{ maxBitrate: 25e5 }]
      });
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
  async tick() {
    const { session, meter } = this;
    if (this.state !== "live" || !session || !meter) return;
    const state = session.pc.connectionState;
    if (state !== "disconnected") this.disconnectedAt = null;
    else this.disconnectedAt ??= performance.now();
    const silent = this.disconnectedAt !== null && performance.now() - this.disconnectedAt > DISCONNECTED_MAX_MS;
    if (state === "failed" || state === "closed" || silent) return await this.reconnect();
    const known = await session.stats().catch(() => void 0);
    if (known === null && this.state === "live") return await this.forgotten();
    this.flow = await meter.read();
    this.changed(this);
  }
  /** The server has let go of our session: it was restarted, or somebody else publishes under our name now. */
  async forgotten() {
    const list = await streams(this.options.token).catch(() => []);
    if (!list.some((stream) => stream.name === this.options.name && stream.state === "live")) return await this.reconnect();
    this.why = "somebody else publishes under this name now";
    await this.stop();
  }
  async reconnect() {
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
};
async function capture(source) {
  if (source === "screen") return await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: 30 }, audio: true });
  const video2 = { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 30 } };
  return await navigator.mediaDevices.getUserMedia({ video: video2, audio: true });
}
async function prefer(sender, degradationPreference) {
  const parameters = { ...sender.getParameters(), degradationPreference };
  await sender.setParameters(parameters);
}
function codecsFrom(wanted) {
  const all = RTCRtpSender.getCapabilities("video")?.codecs ?? [];
  return all.filter((codec) => {
    const name = codec.mimeType.replace(/^.*\//, "");
    return name.toLowerCase() === wanted.toLowerCase() || name === "rtx";
  });
}

// src/view.ts
var CHART_SECONDS = 60;
var charted = { of: null, rates: [] };
function showStats(watcher) {
  const list = byId("stats");
  const { flow } = watcher;
  const server = watcher.server ?? {};
  byId("chart").hidden = !flow;
  if (!flow) return list.replaceChildren();
  const layer = server.layers?.[0];
  const roundTrip = flow.roundTripMs ?? server.round_trip_ms;
  const rows = [
    ["Resolution", flow.width ? `${flow.width} × ${flow.height}` : "–"],
    ["Frames per second", flow.framesPerSecond.toFixed(0)],
    ["Video", `${kilobits(flow.videoBitrate)} ${flow.videoCodec}`],
    ["Audio", `${kilobits(flow.audioBitrate)} ${flow.audioCodec}`],
    ["Loss", `${(100 * flow.loss).toFixed(1)} % (${flow.packetsLost} in all)`],
    ["Round trip", milliseconds(roundTrip)],
    ["Jitter buffer", milliseconds(flow.jitterBufferMs)],
    ["Freezes", String(flow.freezes)],
    ["Asked again", `${flow.nacks} NACK, ${flow.keyframeRequests} PLI`],
    ["Layer", layer ? layerText(layer.current, layer.layer_count, layer.rid) : "–"],
    ["Bandwidth estimate", server.estimate ? kilobits(server.estimate) : "–"],
    ["Encryption", cipherText(flow.cipher)]
  ];
  list.replaceChildren(...rows.map(([term, value]) => row(term, value)));
  chart(flow, flow.videoBitrate);
}
function showPlaying(player, known) {
  const list = byId("stats");
  const { playing } = player;
  byId("chart").hidden = true;
  if (!playing) return list.replaceChildren();
  const rows = [
    ["Resolution", playing.width ? `${playing.width} × ${playing.height}` : "–"],
    ["Frames per second", playing.framesPerSecond.toFixed(0)],
    ["Rate", known?.rate ? kilobits(known.rate) : "–"],
    ["Behind", playing.behind === null ? "–" : `${playing.behind.toFixed(1)} s`],
    ["Buffer", `${playing.buffered.toFixed(1)} s`],
    ["Frames dropped", String(playing.dropped)],
    ["Address", known?.path ?? "–"],
    ["Playlist", known?.hls ?? "–"]
  ];
  list.replaceChildren(...rows.map(([term, value]) => row(term, value)));
}
function showLayers(watcher, rids) {
  const box = byId("layers");
  const video2 = watcher?.server?.layers?.find((layer) => layer.layer_count > 1);
  box.hidden = !video2;
  if (!watcher || !video2) return;
  const shape = `${watcher.name} ${video2.layer_count} ${rids.join()}`;
  if (box.dataset["shape"] !== shape) {
    box.dataset["shape"] = shape;
    const choices = [choice("auto", "auto", () => void watcher.select(null))];
    for (let layer = 0; layer < video2.layer_count; layer++) {
      const name = layerText(layer, video2.layer_count, rids[layer] ?? null);
      choices.push(choice(String(layer), name, () => void watcher.select(layer)));
    }
    box.replaceChildren(...box.querySelectorAll("legend"), ...choices);
  }
  for (const input of box.querySelectorAll("input")) {
    input.checked = input.value === String(watcher.selected ?? "auto");
    input.parentElement?.setAttribute("data-current", String(input.value === String(video2.current)));
  }
}
function layerText(layer, count, rid) {
  if (layer === null) return "none yet";
  if (count < 2) return "the only one";
  const place = layer === 0 ? "smallest" : layer === count - 1 ? "largest" : `${layer + 1} of ${count}`;
  return rid ? `${rid} (${place})` : place;
}
function cipherText(cipher) {
  const bits = /AES_?(\d+)/.exec(cipher)?.[1];
  return bits ? `${cipher.includes("GCM") ? "AES-GCM" : "AES-CM"} ${bits}` : cipher || "–";
}
function choice(value, text2, chosen) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "radio";
  input.name = "layer";
  input.value = value;
  input.addEventListener("change", chosen);
  label.append(input, ` ${text2}`);
  return label;
}
function row(term, value) {
  const div = document.createElement("div");
  const dt = document.createElement("dt");
  const dd = document.createElement("dd");
  dt.textContent = term;
  dd.textContent = value;
  div.append(dt, dd);
  return div;
}
function chart(reading, bitrate) {
  if (charted.of === reading) return;
  charted = { of: reading, rates: [...charted.rates, bitrate].slice(-CHART_SECONDS) };
  const top = Math.max(...charted.rates, 1);
  const points = charted.rates.map((rate, index) => {
    const x = 300 - (charted.rates.length - 1 - index) * (300 / (CHART_SECONDS - 1));
    return `${x.toFixed(1)},${(46 - 44 * rate / top).toFixed(1)}`;
  });
  byId("line").setAttribute("points", points.join(" "));
}
function kilobits(bitsPerSecond) {
  return bitsPerSecond >= 1e6 ? `${(bitsPerSecond / 1e6).toFixed(2)} Mbit/s` : `${Math.round(bitsPerSecond / 1e3)} kbit/s`;
}
function milliseconds(value) {
  return value === null || value === void 0 ? "–" : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

// src/watch.ts
var RETRY_FIRST_MS2 = 300;
var RETRY_LONGEST_MS2 = 4e3;
var DISCONNECTED_MAX_MS2 = 5e3;
var CONNECT_MAX_MS = 8e3;
var SILENCE_SHOWN_MS = 2500;
var SILENCE_MAX_MS = 2e4;
var Watcher = class {
  constructor(name, token, changed) {
    this.name = name;
    this.token = token;
    this.changed = changed;
    void this.run();
  }
  name;
  token;
  changed;
  stream = new MediaStream();
  session = null;
  flow = null;
  server = null;
  state = { kind: "connecting" };
  /** Connections made so far, for the curious and for tests. */
  connections = 0;
  limit = null;
  abort = new AbortController();
  get pc() {
    return this.session?.pc ?? null;
  }
  /** Highest layer to be sent, 0 the smallest; null lets the bandwidth estimate choose. */
  async select(layer) {
    this.limit = layer;
    await this.session?.limit(layer);
  }
  get selected() {
    return this.limit;
  }
  async stop() {
    this.abort.abort();
    const session = this.session;
    this.session = null;
    this.enter({ kind: "stopped" });
    await session?.close();
  }
  get stopped() {
    return this.abort.signal.aborted;
  }
  enter(state) {
    this.state = this.stopped ? { kind: "stopped" } : state;
    this.changed(this);
  }
  async run() {
    let retryMs = RETRY_FIRST_MS2;
    while (!this.stopped) {
      try {
        await this.connect();
        retryMs = RETRY_FIRST_MS2;
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
      await sleep2(retryMs, this.abort.signal);
      retryMs = Math.min(2 * retryMs, RETRY_LONGEST_MS2);
    }
  }
  /** Makes a connection; returns once media can flow. */
  async connect() {
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
    if (this.limit !== null) await this.session?.limit(this.limit).catch(() => void 0);
  }
  /** Puts a track in the place of the one of its kind, so that the video element keeps its source. */
  take(track) {
    for (const old of this.stream.getTracks()) {
      if (old.kind === track.kind) this.stream.removeTrack(old);
    }
    this.stream.addTrack(track);
    this.changed(this);
  }
  /** Reads statistics until the session is over; says why it is. */
  async follow() {
    const session = this.session;
    if (!session) return "stopped";
    const meter = new Meter(session.pc);
    let silentSince = performance.now();
    while (!this.stopped) {
      await sleep2(1e3, this.abort.signal);
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
};
function connected(pc) {
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
async function lostConnection(pc) {
  const since = performance.now();
  while (pc.connectionState === "disconnected") {
    if (performance.now() - since > DISCONNECTED_MAX_MS2) return "connection lost";
    await sleep2(100);
  }
  return pc.connectionState === "connected" ? null : "connection lost";
}
function sleep2(ms, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

// src/main.ts
var LIST_EVERY_MS = 2e3;
var TOKEN_KEY = "millrace.token";
var query = new URLSearchParams(location.search);
var video;
var tokenField;
var millrace = {
  watcher: null,
  player: null,
  publisher: null,
  streams: [],
  reflected: [],
  watch,
  play,
  publish,
  refresh
};
function watch(name) {
  leave();
  const watcher = new Watcher(name, tokenField.value, (watcher2) => {
    if (millrace.watcher === watcher2) showWatcher(watcher2);
  });
  millrace.watcher = watcher;
  video.srcObject = null;
  showWatcher(watcher);
  showStreams();
  return watcher;
}
function play(name) {
  leave();
  const known = () => millrace.reflected.find((stream) => stream.name === name);
  const player = new Player(name, known, tokenField.value, video, (player2) => {
    if (millrace.player === player2) showPlayer(player2);
  });
  millrace.player = player;
  showPlayer(player);
  showStreams();
  return player;
}
function leave() {
  void millrace.watcher?.stop();
  millrace.player?.stop();
  millrace.watcher = null;
  millrace.player = null;
}
async function publish(options) {
  await millrace.publisher?.stop();
  const defaults = { source: "picture", simulcast: true, codec: "", width: 1280, height: 720 };
  const publisher = await Publisher.start({ ...defaults, token: tokenField.value, ...options }, (publisher2) => {
    if (millrace.publisher === publisher2) showPublisher(publisher2);
  });
  millrace.publisher = publisher;
  showPublisher(publisher);
  void refresh();
  return publisher;
}
async function refresh() {
  try {
    const token = tokenField.value;
    [millrace.streams, millrace.reflected] = await Promise.all([streams(token), reflected(token)]);
    showStreams();
  } catch (error) {
    millrace.streams = [];
    millrace.reflected = [];
    showStreams(error instanceof Error ? error.message : String(error));
  }
}
function showWatcher(watcher) {
  const { state } = watcher;
  showState(watcher.name, state.kind, {
    connecting: "Connecting …",
    live: "",
    waiting: "why" in state ? `Waiting for ${watcher.name} …
${state.why}` : "",
    refused: "why" in state ? `Not allowed: ${state.why}
Is the token right?` : "",
    stopped: "Stopped"
  }[state.kind]);
  if (video.srcObject !== watcher.stream && watcher.stream.getTracks().length > 0) video.srcObject = watcher.stream;
  if (state.kind === "live" && video.paused) void video.play().catch(() => void 0);
  showStats(watcher);
  const tracks = millrace.streams.find((stream) => stream.name === watcher.name)?.tracks;
  showLayers(watcher, tracks?.find((track) => track.kind === "video")?.rids ?? []);
}
function showPlayer(player) {
  const { state } = player;
  showState(player.name, state.kind, {
    connecting: "Connecting …",
    live: "",
    waiting: "why" in state ? `Waiting for ${player.name} …
${state.why}` : "",
    refused: "why" in state ? `Not allowed: ${state.why}
Is the token right?` : "",
    elsewhere: "why" in state ? state.why : "",
    stopped: "Stopped"
  }[state.kind]);
  showLayers(null, []);
  showPlaying(player, millrace.reflected.find((stream) => stream.name === player.name));
}
function showState(name, kind, overlay) {
  element("watching", HTMLElement).textContent = name;
  const label = element("state", HTMLElement);
  label.dataset["kind"] = kind;
  label.textContent = kind === "elsewhere" ? "" : kind;
  element("overlay", HTMLElement).textContent = overlay;
  element("stop", HTMLButtonElement).disabled = kind === "stopped";
}
function showStreams(problem = "") {
  const broadcasts = millrace.streams.map(
    (stream) => entry(stream.name, summary(stream), stream.name === millrace.watcher?.name, () => watch(stream.name))
  );
  const empty = problem || (millrace.reflected.length > 0 ? "" : "None yet. Publish one below.");
  showList("streams", broadcasts, empty, problem !== "");
  const byHttp = millrace.reflected.map(
    (stream) => entry(stream.name, summaryOf(stream), stream.name === millrace.player?.name, () => play(stream.name))
  );
  element("reflected-title", HTMLElement).hidden = byHttp.length === 0;
  showList("reflected", byHttp, "", false);
}
function entry(name, text2, isCurrent, chosen) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(name, small(text2));
  button.setAttribute("aria-current", String(isCurrent));
  button.addEventListener("click", chosen);
  return button;
}
function showList(id, items, empty, isError) {
  const list = element(id, HTMLElement);
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  if (items.length === 0) {
    const text2 = document.createElement("p");
    text2.textContent = empty;
    text2.classList.toggle("error", isError);
    list.replaceChildren(...empty ? [text2] : []);
    return;
  }
  list.replaceChildren(
    ...items.map((button) => {
      const item = document.createElement("li");
      item.append(button);
      return item;
    })
  );
  items[focused]?.focus();
}
function summary(stream) {
  const codecs = stream.tracks.map((track) => track.codec + (track.rids.length > 1 ? ` ×${track.rids.length}` : ""));
  return [stream.state, viewers(stream.viewers), ...codecs].join(" · ");
}
function summaryOf(stream) {
  const type = (stream.content_type ?? "").replace(/;.*/, "");
  const known = [stream.live ? "live" : "no source", viewers(stream.viewers), stream.rate ? kilobits(stream.rate) : ""];
  return [...known, stream.hls ? `${type}, HLS` : type].filter((text2) => text2 !== "").join(" · ");
}
function viewers(count) {
  return count === 1 ? "1 viewer" : `${count} viewers`;
}
function showPublisher(publisher) {
  const running = publisher.state !== "stopped";
  element("publish-start", HTMLElement).hidden = running;
  element("publish-stop", HTMLElement).hidden = !running;
  const preview = element("preview", HTMLVideoElement);
  preview.hidden = !running;
  if (running && preview.srcObject !== publisher.stream) {
    preview.srcObject = publisher.stream;
    void preview.play().catch(() => void 0);
  }
  say(running ? `${publisher.options.name}: ${publisher.state}` : publisher.why, !running);
  const table = element("publish-layers", HTMLTableElement);
  const layers = publisher.flow?.layers ?? [];
  table.hidden = !running || layers.length === 0;
  table.tBodies[0]?.replaceChildren(
    ...layers.map((layer) => {
      const row2 = document.createElement("tr");
      const rate = Math.round(layer.bitrate / 1e3);
      for (const text2 of [layer.rid || "–", `${layer.width}×${layer.height}`, layer.framesPerSecond.toFixed(0), rate]) {
        row2.insertCell().textContent = String(text2);
      }
      return row2;
    })
  );
}
function say(text2, error = false) {
  const place = element("publish-state", HTMLElement);
  place.textContent = text2;
  place.classList.toggle("error", error);
}
function readForm() {
  const [width, height] = (query.get("size") ?? "1280x720").split("x").map(Number);
  return {
    name: element("name", HTMLInputElement).value.trim(),
    token: tokenField.value,
    source: element("source", HTMLSelectElement).value,
    codec: element("codec", HTMLSelectElement).value,
    simulcast: element("simulcast", HTMLInputElement).checked,
    width: width || 1280,
    height: height || 720
  };
}
function fillForm() {
  element("name", HTMLInputElement).value = query.get("publish") ?? `stream-${Math.random().toString(36).slice(2, 6)}`;
  element("source", HTMLSelectElement).value = query.get("source") ?? "picture";
  element("codec", HTMLSelectElement).value = query.get("codec") ?? "";
  element("simulcast", HTMLInputElement).checked = query.get("simulcast") !== "0";
}
function listen() {
  on("publish", "submit", (event) => {
    event.preventDefault();
    say("Starting …");
    publish(readForm()).catch((error) => say(error instanceof Error ? error.message : String(error), true));
  });
  on("publish-stop", "click", () => void millrace.publisher?.stop());
  on("open", "submit", (event) => {
    event.preventDefault();
    watch(element("open-name", HTMLInputElement).value.trim());
  });
  on("meet", "submit", (event) => {
    event.preventDefault();
    location.assign(`/room/${encodeURIComponent(element("room", HTMLInputElement).value.trim())}`);
  });
  on("stop", "click", () => {
    void millrace.watcher?.stop();
    millrace.player?.stop();
  });
  on("full", "click", () => void element("screen", HTMLElement).requestFullscreen());
  on("sound", "click", () => video.muted = !video.muted);
  video.addEventListener("volumechange", () => {
    const button = element("sound", HTMLElement);
    button.textContent = video.muted ? "Sound on" : "Sound off";
    button.setAttribute("aria-pressed", String(!video.muted));
  });
  tokenField.addEventListener("change", () => {
    sessionStorage.setItem(TOKEN_KEY, tokenField.value);
    void refresh();
  });
  addEventListener("pagehide", () => {
    leave();
    void millrace.publisher?.stop();
  });
}
async function startPage() {
  window.millrace = millrace;
  video = element("video", HTMLVideoElement);
  tokenField = element("token", HTMLInputElement);
  tokenField.value = sessionStorage.getItem(TOKEN_KEY) ?? "";
  fillForm();
  listen();
  element("stop", HTMLButtonElement).disabled = true;
  setInterval(() => void refresh(), LIST_EVERY_MS);
  const wanted = query.get("watch");
  if (wanted) watch(wanted);
  const played = query.get("play");
  if (played) void loadHls().catch(() => void 0);
  void showRooms();
  await refresh();
  const hasDemo = millrace.streams.some((stream) => stream.name === "demo");
  if (hasDemo) element("room", HTMLInputElement).value = "demo";
  if (millrace.watcher || millrace.player) return;
  if (played) play(played);
  else if (hasDemo) watch("demo");
}
async function showRooms() {
  const page = await fetch("/room/any", { method: "HEAD" }).catch(() => null);
  element("rooms", HTMLElement).hidden = !page?.ok;
}
function on(id, type, action) {
  element(id, HTMLElement).addEventListener(type, action);
}
function small(text2) {
  const node = document.createElement("small");
  node.textContent = text2;
  return node;
}
function element(id, type) {
  const found = document.getElementById(id);
  if (found instanceof type) return found;
  throw new Error(`the page has no ${type.name} #${id}`);
}

// src/app.ts
if (typeof document === "undefined") keepTime();
else void startPage();
