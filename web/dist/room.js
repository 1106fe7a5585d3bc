// src/access.ts
var NoToken = class extends Error {
};
async function askForToken(room, name2) {
  const response = await fetch("/api/livekit/tokens", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ room, name: name2, identity: identityFor(name2) })
  });
  if (response.ok) return (await response.json()).token;
  if (response.status === 401) throw new NoToken("This server lets in who has a token. Paste yours, or open the link that has it.");
  const problem = await response.json().catch(() => ({}));
  throw new NoToken(`The server gives out no token here: ${problem.detail ?? `HTTP ${response.status}`}`);
}
function identityFor(name2) {
  const random = [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0"));
  return `${name2}-${random.join("")}`;
}
function nameOf(token) {
  try {
    const text2 = atob((token.split(".")[1] ?? "").replace(/-/g, "+").replace(/_/g, "/"));
    const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(text2, (c) => c.charCodeAt(0))));
    return claims.name ?? "";
  } catch {
    return "";
  }
}
async function refusal(token) {
  const response = await fetch(`/rtc/validate?access_token=${encodeURIComponent(token)}`).catch(() => null);
  return response && !response.ok ? await response.text() : null;
}

// src/lobby.ts
import { createAudioAnalyser, createLocalAudioTrack, createLocalVideoTrack, VideoPresets } from "./livekit.js";

// src/page.ts
function byId(id, type) {
  const found = document.getElementById(id);
  if (found instanceof type) return found;
  throw new Error(`the page has no ${type.name} #${id}`);
}
function make(tag, classes = "", ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...children);
  return element;
}
function icon(name2) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "use"));
  use.setAttribute("href", `#icon-${name2}`);
  return svg;
}

// src/lobby.ts
var NAME_KEY = "millrace.name";
var LEVEL_EVERY_MS = 100;
var Lobby = class {
  camera = null;
  microphone = null;
  stopMeter = () => {
  };
  /** Until somebody has chosen, the browser does. */
  isFirst = true;
  /** What is wrong with each of them. */
  notes = /* @__PURE__ */ new Map();
  name = byId("name", HTMLInputElement);
  token = byId("token", HTMLInputElement);
  constructor(join2) {
    this.name.value = localStorage.getItem(NAME_KEY) ?? "";
    for (const kind of ["camera", "microphone"]) {
      byId(kind, HTMLSelectElement).addEventListener("change", () => void this.take(kind));
    }
    byId("join", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit(join2);
    });
  }
  /** Shows the room, and the camera. */
  async open() {
    byId("lobby", HTMLElement).hidden = false;
    const media = navigator.mediaDevices;
    if (!media) return this.say("Browsers give out camera and microphone on https and on localhost only: you can watch and listen.");
    media.ondevicechange = () => void this.list();
    await Promise.all([this.take("camera"), this.take("microphone")]);
    this.isFirst = false;
    await this.list();
  }
  /** A token that was brought along; its name is who it is for. */
  give(token, name2) {
    this.token.value = token;
    if (name2) this.name.value = name2;
    this.name.readOnly = name2 !== "";
  }
  /** Asks for a token. */
  askForToken() {
    byId("token-label", HTMLElement).hidden = false;
    this.token.focus();
  }
  problem(text2) {
    byId("problem", HTMLElement).textContent = text2;
  }
  async submit(join2) {
    const button = byId("join-button", HTMLButtonElement);
    localStorage.setItem(NAME_KEY, this.name.value);
    button.disabled = true;
    this.problem("");
    const { camera, microphone } = this;
    try {
      await join2({ name: this.name.value.trim(), token: this.token.value.trim(), camera, microphone });
      this.close();
    } catch (error) {
      this.problem(error instanceof Error ? error.message : String(error));
    } finally {
      button.disabled = false;
    }
  }
  /** What is used goes with who uses it. */
  close() {
    if (navigator.mediaDevices) navigator.mediaDevices.ondevicechange = null;
    this.stopMeter();
    this.camera?.detach(byId("preview", HTMLVideoElement));
    this.camera = this.microphone = null;
    byId("lobby", HTMLElement).hidden = true;
  }
  /** Takes the device that is chosen. */
  async take(kind) {
    const wanted = byId(kind, HTMLSelectElement).value;
    const deviceId = wanted ? { exact: wanted } : void 0;
    this.leave(kind);
    this.notes.delete(kind);
    try {
      if (wanted || this.isFirst) await (kind === "camera" ? this.takeCamera(deviceId) : this.takeMicrophone(deviceId));
    } catch (error) {
      this.notes.set(kind, `${kind === "camera" ? "No camera" : "No microphone"}: ${reason(error)}`);
    }
    this.say([...this.notes.values()].join("\n"));
  }
  async takeCamera(deviceId) {
    this.camera = await createLocalVideoTrack({ resolution: VideoPresets.h720.resolution, ...deviceId && { deviceId } });
    this.camera.attach(byId("preview", HTMLVideoElement));
  }
  async takeMicrophone(deviceId) {
    this.microphone = await createLocalAudioTrack({ echoCancellation: true, noiseSuppression: true, ...deviceId && { deviceId } });
    const { analyser, calculateVolume, cleanup } = createAudioAnalyser(this.microphone);
    const level = byId("level", HTMLMeterElement);
    const resume = () => void analyser.context.resume();
    addEventListener("pointerdown", resume, { once: true });
    const timer = setInterval(() => level.value = calculateVolume(), LEVEL_EVERY_MS);
    this.stopMeter = () => {
      removeEventListener("pointerdown", resume);
      clearInterval(timer);
      level.value = 0;
      void cleanup();
      this.stopMeter = () => {
      };
    };
  }
  leave(kind) {
    if (kind === "microphone") this.stopMeter();
    this[kind]?.stop();
    this[kind] = null;
  }
  /** The devices by their names, which browsers tell once they have given one out. */
  async list() {
    const devices = await navigator.mediaDevices.enumerateDevices();
    for (const [kind, none] of [["camera", "No camera"], ["microphone", "No microphone"]]) {
      const found = devices.filter((device) => device.kind === (kind === "camera" ? "videoinput" : "audioinput") && device.deviceId);
      const current = this[kind]?.mediaStreamTrack.getSettings().deviceId ?? "";
      const options = found.map((device, index) => new Option(device.label || `${kind} ${index + 1}`, device.deviceId));
      const select = byId(kind, HTMLSelectElement);
      select.replaceChildren(...options, new Option(none, ""));
      select.value = found.some((device) => device.deviceId === current) ? current : "";
    }
  }
  /** Beside the preview. */
  say(text2) {
    byId("preview-note", HTMLElement).textContent = text2 || (this.camera ? "" : "Your camera is off.");
  }
};
function reason(error) {
  const name2 = error instanceof Error ? error.name : "";
  if (name2 === "NotAllowedError") return "the browser may not use it. Allow it in the address bar.";
  if (name2 === "NotFoundError" || name2 === "OverconstrainedError") return "there is none.";
  if (name2 === "NotReadableError") return "somebody else uses it.";
  return error instanceof Error ? error.message : String(error);
}

// src/chat.ts
var TOPIC = "lk.chat";
var MESSAGES_MAX = 500;
var Chat = class {
  unread = 0;
  panel = byId("chat", HTMLElement);
  button = byId("chat-button", HTMLButtonElement);
  messages = byId("messages", HTMLElement);
  text = byId("message", HTMLInputElement);
  room = null;
  constructor() {
    this.button.addEventListener("click", () => this.open(Boolean(this.panel.hidden)));
    byId("chat-close", HTMLButtonElement).addEventListener("click", () => this.open(false));
    this.panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.open(false);
    });
    byId("send", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.send();
    });
  }
  /** Listens in a room; what was said in another is gone. */
  enter(room) {
    this.room = room;
    this.messages.replaceChildren();
    this.open(false);
    this.count(0);
    room.registerTextStreamHandler(TOPIC, async (reader, { identity }) => {
      const from = room.remoteParticipants.get(identity);
      const text2 = await reader.readAll().catch(() => null);
      if (text2 !== null && this.room === room) this.add(from?.name || identity, text2, false);
    });
  }
  async send() {
    const text2 = this.text.value.trim();
    if (!text2 || !this.room) return;
    this.text.value = "";
    try {
      await this.room.localParticipant.sendText(text2, { topic: TOPIC });
      this.add(this.room.localParticipant.name || "You", text2, true);
    } catch (error) {
      this.text.value = text2;
      this.add("Not sent", error instanceof Error ? error.message : String(error), true);
    }
  }
  add(who, text2, isOwn) {
    const time = (/* @__PURE__ */ new Date()).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const said = make("li", isOwn ? "own" : "", make("b", "", who), " ", make("small", "", time), make("p", "", text2));
    this.messages.append(said);
    while (this.messages.children.length > MESSAGES_MAX) this.messages.firstElementChild?.remove();
    said.scrollIntoView({ block: "nearest" });
    if (this.panel.hidden) this.count(this.unread + 1);
  }
  open(isOpen) {
    const hadFocus = this.panel.contains(document.activeElement);
    this.panel.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) {
      this.count(0);
      this.messages.lastElementChild?.scrollIntoView({ block: "nearest" });
      this.text.focus();
    } else if (hadFocus) this.button.focus();
  }
  count(unread) {
    this.unread = unread;
    const badge = byId("unread", HTMLElement);
    badge.hidden = unread === 0;
    badge.textContent = String(unread);
    badge.setAttribute("aria-label", `${unread} unread`);
  }
};

// src/grid.ts
var GAP = 8;
var WIDTH_MIN = 150;
var WIDE = 16 / 9;
var SQUARE = 1;
function tileWidth(width, height, count, ratio) {
  let best = 0;
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const across = (width - GAP * (columns - 1)) / columns;
    const down = (height - GAP * (rows - 1)) / rows * ratio;
    best = Math.max(best, Math.min(across, down));
  }
  return Math.floor(Math.min(width, Math.max(best, WIDTH_MIN)));
}
function keepPlaced(box, mayBeSquare) {
  const place = () => {
    const { clientWidth, clientHeight, children } = box;
    if (children.length === 0) return;
    const ratio = mayBeSquare && clientHeight > clientWidth && clientWidth > 2 * WIDTH_MIN ? SQUARE : WIDE;
    box.style.setProperty("--ratio", String(ratio));
    box.style.setProperty("--tile", `${tileWidth(clientWidth, clientHeight, children.length, ratio)}px`);
  };
  new ResizeObserver(place).observe(box);
  new MutationObserver(place).observe(box, { childList: true });
}

// src/meeting.ts
import { DisconnectReason, Room, RoomEvent, Track as Track2 } from "./livekit.js";

// src/tile.ts
import { Track } from "./livekit.js";

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
    (await this.pc.getStats()).forEach((entry) => now.set(entry.id, entry));
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
    for (const entry of now.values()) {
      const gained = (field) => Math.max(0, number(entry[field]) - number(this.before.get(entry.id)?.[field]));
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
          flow.jitterBufferMs = emitted > 0 ? 1e3 * gained("jitterBufferDelay") / emitted : null;
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
            bitrate: 8 * gained("bytesSent") / seconds
          });
        }
      } else if (entry.type === "remote-inbound-rtp") {
        flow.loss = Math.max(flow.loss, number(entry["fractionLost"]));
      } else if (entry.type === "candidate-pair" && entry["nominated"] === true) {
        if (entry["currentRoundTripTime"] !== void 0) flow.roundTripMs = 1e3 * number(entry["currentRoundTripTime"]);
      } else if (entry.type === "transport") {
        flow.cipher = text(entry["srtpCipher"]);
      }
    }
    if (received + lost > 0) flow.loss = lost / (received + lost);
    flow.layers.sort((a, b) => a.width - b.width);
    return flow;
  }
  /** What inbound and outbound entries have in common. */
  media(flow, entry, codec, bytes, seconds) {
    flow.bytes += bytes;
    if (entry["kind"] === "video") {
      flow.videoBitrate += 8 * bytes / seconds;
      flow.videoCodec = codec;
      flow.width = Math.max(flow.width, number(entry["frameWidth"]));
      flow.height = Math.max(flow.height, number(entry["frameHeight"]));
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

// src/view.ts
function kilobits(bitsPerSecond) {
  return bitsPerSecond >= 1e6 ? `${(bitsPerSecond / 1e6).toFixed(2)} Mbit/s` : `${Math.round(bitsPerSecond / 1e3)} kbit/s`;
}

// src/tile.ts
var Tile = class {
  constructor(participant, isScreen) {
    this.participant = participant;
    this.isScreen = isScreen;
    this.video.playsInline = this.video.muted = true;
    this.muted.title = "The microphone is off";
    this.button.type = "button";
    this.button.setAttribute("aria-pressed", "false");
    this.button.addEventListener("click", () => this.showNumbers(Boolean(this.numbers.hidden)));
    this.numbers.hidden = true;
    const avatar = make("div", "avatar");
    avatar.setAttribute("aria-hidden", "true");
    avatar.append(make("span"));
    this.element.append(avatar, this.video, make("div", "plate", this.muted, this.name), this.button, this.numbers);
    this.element.dataset["identity"] = participant.identity;
    this.element.dataset["source"] = isScreen ? "screen" : "camera";
  }
  participant;
  isScreen;
  element = make("article", "tile");
  /** What the numbers say; tests look here, too. */
  flow = { video: null, audio: null };
  video = make("video");
  name = make("span", "who");
  muted = make("span", "muted", icon("mic-off"));
  numbers = make("dl", "numbers");
  button = make("button", "ask", icon("numbers"));
  picture = null;
  sound = null;
  meters = /* @__PURE__ */ new WeakMap();
  get wantsNumbers() {
    return !this.numbers.hidden;
  }
  showNumbers(isShown) {
    this.numbers.hidden = !isShown;
    this.button.setAttribute("aria-pressed", String(isShown));
    if (isShown) void this.measure();
  }
  /** Shows what the participant has now. */
  update() {
    const { participant, isScreen } = this;
    const name2 = participant.name || participant.identity;
    const whose = participant.isLocal ? `${name2} (you)` : name2;
    this.name.textContent = isScreen ? `${whose}: screen` : whose;
    this.element.setAttribute("aria-label", this.name.textContent);
    this.button.setAttribute("aria-label", `Numbers of ${this.name.textContent}`);
    this.initials(name2);
    const [video, audio] = this.publications();
    this.show(video);
    this.hear(audio);
    this.muted.hidden = isScreen || audio !== void 0 && !audio.isMuted;
    this.element.dataset["speaking"] = String(!isScreen && participant.isSpeaking);
    this.element.dataset["mirrored"] = String(!isScreen && participant.isLocal);
  }
  /** Reads the statistics once. */
  async measure() {
    this.flow = { video: await this.read(this.picture), audio: await this.read(this.sound ?? this.ownSound()) };
    if (!this.numbers.hidden) this.numbers.replaceChildren(...this.rows().map(([term, value]) => row(term, value)));
  }
  remove() {
    this.picture?.detach(this.video);
    this.sound?.detach().forEach((element) => element.remove());
    this.element.remove();
  }
  publications() {
    const { Camera, Microphone, ScreenShare, ScreenShareAudio } = Track.Source;
    const sources = this.isScreen ? [ScreenShare, ScreenShareAudio] : [Camera, Microphone];
    const [video, audio] = sources.map((source) => this.participant.getTrackPublication(source));
    return [video, audio];
  }
  show(publication) {
    const track = publication?.track ?? null;
    if (this.picture !== track) {
      this.picture?.detach(this.video);
      track?.attach(this.video);
      this.picture = track;
    }
    this.element.dataset["picture"] = String(track !== null && !publication?.isMuted);
  }
  /** Nobody hears himself. */
  hear(publication) {
    const track = this.participant.isLocal ? null : publication?.track ?? null;
    if (this.sound === track) return;
    this.sound?.detach().forEach((element) => element.remove());
    if (track) this.element.append(track.attach());
    this.sound = track;
  }
  ownSound() {
    return this.publications()[1]?.track ?? null;
  }
  async read(track) {
    if (!track) return null;
    const meter = this.meters.get(track) ?? new Meter({ getStats: async () => await track.getRTCStatsReport() ?? /* @__PURE__ */ new Map() });
    this.meters.set(track, meter);
    return await meter.read();
  }
  rows() {
    const { video, audio } = this.flow;
    const has = (flow) => flow !== null && flow.bytes > 0;
    const losses = [video, audio].filter(has).map((flow) => flow.loss);
    return [
      ["Resolution", has(video) && video.width ? `${video.width} × ${video.height}` : "–"],
      ["Frames/s", has(video) ? video.framesPerSecond.toFixed(0) : "–"],
      ["Video", has(video) ? `${kilobits(video.videoBitrate)} ${video.videoCodec}` : "–"],
      ["Audio", has(audio) ? `${kilobits(audio.audioBitrate)} ${audio.audioCodec}` : "–"],
      ["Loss", losses.length > 0 ? `${(100 * Math.max(...losses)).toFixed(1)} %` : "–"],
      ["Layer", has(video) ? this.layer(video) : "–"],
      ["Connection", this.participant.connectionQuality]
    ];
  }
  /** Of one's own, what is sent; of others', which of what they send. */
  layer(flow) {
    const sent = flow.layers.filter((layer) => layer.framesPerSecond > 0);
    if (this.participant.isLocal) return sent.map((layer) => layer.rid || "one").join(", ") || "–";
    const layers = [...this.publications()[0]?.trackInfo?.layers ?? []].sort((a, b) => a.width - b.width);
    if (layers.length < 2) return "the only one";
    const distance = ({ width, height }) => Math.abs(width * height - flow.width * flow.height);
    const nearest = layers.reduce((best, layer, index) => distance(layer) < distance(layers[best] ?? layer) ? index : best, 0);
    return `${nearest + 1} of ${layers.length}`;
  }
  initials(name2) {
    const words = name2.split(/[\s-]+/).filter(Boolean);
    const text2 = words.slice(0, 2).map((word) => [...word][0]?.toUpperCase() ?? "").join("");
    const place = this.element.querySelector(".avatar span");
    if (place && place.textContent !== text2) place.textContent = text2;
  }
};
function row(term, value) {
  return make("div", "", make("dt", "", term), make("dd", "", value));
}

// src/meeting.ts
var MEASURE_EVERY_MS = 1e3;
var CHANGES = [
  RoomEvent.ParticipantConnected,
  RoomEvent.ParticipantDisconnected,
  RoomEvent.ParticipantNameChanged,
  RoomEvent.ParticipantPermissionsChanged,
  RoomEvent.TrackSubscribed,
  RoomEvent.TrackUnsubscribed,
  RoomEvent.TrackPublished,
  RoomEvent.TrackUnpublished,
  RoomEvent.TrackMuted,
  RoomEvent.TrackUnmuted,
  RoomEvent.LocalTrackPublished,
  RoomEvent.LocalTrackUnpublished,
  RoomEvent.ActiveSpeakersChanged,
  RoomEvent.AudioPlaybackStatusChanged,
  RoomEvent.Connected,
  RoomEvent.Reconnecting,
  RoomEvent.SignalReconnecting,
  RoomEvent.Reconnected
];
var SETTINGS = { adaptiveStream: true, dynacast: true };
var Meeting = class {
  /** `left` hears why it is over. */
  constructor(left) {
    this.left = left;
    keepPlaced(byId("stage", HTMLElement), false);
    keepPlaced(byId("people", HTMLElement), true);
    this.on("mic-button", (me) => me.setMicrophoneEnabled(!me.isMicrophoneEnabled));
    this.on("camera-button", (me) => me.setCameraEnabled(!me.isCameraEnabled));
    this.on("screen-button", (me) => me.setScreenShareEnabled(!me.isScreenShareEnabled, { audio: true }));
    byId("numbers-button", HTMLButtonElement).addEventListener("click", () => this.toggleNumbers());
    byId("leave-button", HTMLButtonElement).addEventListener("click", () => void this.room?.disconnect());
    byId("listen-button", HTMLButtonElement).addEventListener("click", () => void this.room?.startAudio());
    byId("screen-button", HTMLElement).hidden = !navigator.mediaDevices?.getDisplayMedia;
    setInterval(() => this.measure(), MEASURE_EVERY_MS);
  }
  left;
  room = null;
  tiles = /* @__PURE__ */ new Map();
  chat = new Chat();
  isDue = false;
  /** Joins; what went wrong is thrown. */
  async enter(url, token, entry) {
    const room = new Room(SETTINGS);
    this.chat.enter(room);
    for (const event of CHANGES) room.on(event, () => this.change());
    room.on(RoomEvent.MediaDevicesError, (error) => this.say(error.message));
    try {
      await room.connect(url, token);
    } catch (error) {
      await room.disconnect();
      throw error;
    }
    this.room = room;
    room.on(RoomEvent.Disconnected, (reason2) => this.leave(room, reason2));
    byId("meeting", HTMLElement).hidden = false;
    this.say("");
    this.render();
    await this.bring(room, entry);
  }
  /** Publishes what somebody comes with. Who may not, or is refused, is in the room all the same. */
  async bring(room, { name: name2, camera, microphone }) {
    const me = room.localParticipant;
    if (name2 && !me.name) await me.setName(name2).catch(() => void 0);
    for (const track of [microphone, camera]) {
      if (track && me.permissions?.canPublish) await me.publishTrack(track).catch((error) => this.say(error.message));
      else track?.stop();
    }
    this.render();
  }
  leave(room, reason2) {
    if (this.room !== room) return;
    this.room = null;
    for (const tile of this.tiles.values()) tile.remove();
    this.tiles.clear();
    byId("meeting", HTMLElement).hidden = true;
    this.left(farewell(reason2));
  }
  /** Several changes at once are shown once. */
  change() {
    if (this.isDue) return;
    this.isDue = true;
    queueMicrotask(() => {
      this.isDue = false;
      this.render();
    });
  }
  render() {
    const { room } = this;
    if (!room) return;
    const people = [...room.remoteParticipants.values(), room.localParticipant];
    const wanted = /* @__PURE__ */ new Map();
    for (const person of people) {
      wanted.set(`${person.sid}/camera`, [person, false]);
      if (person.getTrackPublication(Track2.Source.ScreenShare)?.track) wanted.set(`${person.sid}/screen`, [person, true]);
    }
    for (const [key, tile] of this.tiles) {
      if (wanted.get(key)?.[0] === tile.participant) continue;
      tile.remove();
      this.tiles.delete(key);
    }
    for (const [key, [person, isScreen]] of wanted) this.place(key, person, isScreen);
    byId("stage", HTMLElement).hidden = ![...this.tiles.values()].some((tile) => tile.isScreen);
    byId("room-name", HTMLElement).textContent = room.name;
    byId("count", HTMLElement).textContent = people.length === 1 ? "only you" : `${people.length} people`;
    byId("connection", HTMLElement).textContent = room.state === "connected" ? "" : "Reconnecting …";
    byId("listen-button", HTMLElement).hidden = room.canPlaybackAudio;
    this.showControls(room.localParticipant);
  }
  place(key, person, isScreen) {
    let tile = this.tiles.get(key);
    if (!tile) {
      tile = new Tile(person, isScreen);
      this.tiles.set(key, tile);
      const box = byId(isScreen ? "stage" : "people", HTMLElement);
      const last = box.querySelector("[data-mirrored=true]");
      if (last && !person.isLocal) last.before(tile.element);
      else box.append(tile.element);
      if (byId("numbers-button", HTMLElement).getAttribute("aria-pressed") === "true") tile.showNumbers(true);
    }
    tile.update();
  }
  showControls(me) {
    const mayPublish = me.permissions?.canPublish ?? true;
    const states = { mic: me.isMicrophoneEnabled, camera: me.isCameraEnabled, screen: me.isScreenShareEnabled };
    for (const [name2, isOn] of Object.entries(states)) {
      const button = byId(`${name2}-button`, HTMLButtonElement);
      button.setAttribute("aria-pressed", String(isOn));
      button.disabled = !mayPublish;
      button.title = mayPublish ? "" : "Your token lets you watch only";
    }
  }
  on(id, act) {
    const button = byId(id, HTMLButtonElement);
    button.addEventListener("click", () => {
      if (!this.room || button.ariaBusy === "true") return;
      button.ariaBusy = "true";
      this.say("");
      const failed = (error) => {
        if (id !== "screen-button" || error.name !== "NotAllowedError") this.say(error.message);
      };
      void act(this.room.localParticipant).catch(failed).finally(() => {
        button.ariaBusy = null;
        this.render();
      });
    });
  }
  toggleNumbers() {
    const button = byId("numbers-button", HTMLButtonElement);
    const isShown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isShown));
    for (const tile of this.tiles.values()) tile.showNumbers(isShown);
  }
  measure() {
    for (const tile of this.tiles.values()) if (tile.wantsNumbers) void tile.measure();
  }
  say(text2) {
    byId("notice", HTMLElement).textContent = text2;
  }
};
function farewell(reason2) {
  switch (reason2) {
    case DisconnectReason.CLIENT_INITIATED:
      return "";
    case DisconnectReason.DUPLICATE_IDENTITY:
      return "Somebody else joined with your token, so you are out.";
    case DisconnectReason.PARTICIPANT_REMOVED:
      return "You were removed from the room.";
    case DisconnectReason.ROOM_DELETED:
    case DisconnectReason.ROOM_CLOSED:
      return "The room was closed.";
    case DisconnectReason.SERVER_SHUTDOWN:
      return "The server has ended.";
    default:
      return "The connection is lost.";
  }
}

// src/room.ts
var name = decodeURIComponent(location.pathname.split("/")[2] ?? "");
var lobby = new Lobby(join);
var meeting = new Meeting((why) => {
  document.title = `${name} · millrace`;
  lobby.problem(why);
  void lobby.open();
});
async function join(entry) {
  const token = entry.token || await tokenFromServer(entry.name);
  try {
    await meeting.enter(location.origin.replace(/^http/, "ws"), token, entry);
  } catch (error) {
    const why = await refusal(token) ?? (error instanceof Error ? error.message : String(error));
    if (entry.token) lobby.askForToken();
    throw new Error(`You cannot join: ${why}.`);
  }
}
async function tokenFromServer(who) {
  try {
    return await askForToken(name, who);
  } catch (error) {
    if (error instanceof NoToken) lobby.askForToken();
    throw error;
  }
}
window.meeting = meeting;
document.title = `${name} · millrace`;
byId("lobby-room", HTMLElement).textContent = name;
var given = new URLSearchParams(location.search).get("token");
if (given) lobby.give(given, nameOf(given));
void lobby.open();
