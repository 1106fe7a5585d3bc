// The page: one stage to watch on, the lists of streams, and a form to publish. State lives in the watcher, the player
// and the publisher; this file only shows it and passes on what a person does.
//
// Addresses: `/` plays the stream `demo` when it is live; `/?watch=NAME` watches at once, and `/?play=NAME` plays a
// reflected stream; `/?publish=NAME` fills in the form, with `&source=`, `&codec=`, `&simulcast=0` and `&size=960x540` if wanted.

import { Player, loadHls } from "./player.js";
import { Publisher, type PublishOptions } from "./publish.js";
import { reflected, streams, type Reflected, type Stream } from "./signal.js";
import { kilobits, showLayers, showPlaying, showStats } from "./view.js";
import { Watcher } from "./watch.js";

const LIST_EVERY_MS = 2000;
const TOKEN_KEY = "millrace.token";

const query = new URLSearchParams(location.search);
let video: HTMLVideoElement;
let tokenField: HTMLInputElement;

/** What tests and the console may look at. */
const millrace = {
  watcher: null as Watcher | null,
  player: null as Player | null,
  publisher: null as Publisher | null,
  streams: [] as Stream[],
  reflected: [] as Reflected[],
  watch,
  play,
  publish,
  refresh,
};

declare global {
  interface Window {
    millrace: typeof millrace;
  }
}

function watch(name: string): Watcher {
  leave();
  const watcher = new Watcher(name, tokenField.value, (watcher) => {
    if (millrace.watcher === watcher) showWatcher(watcher);
  });
  millrace.watcher = watcher;
  video.srcObject = null;
  showWatcher(watcher);
  showStreams();
  return watcher;
}

/** Plays a reflected stream. */
function play(name: string): Player {
  leave();
  const known = () => millrace.reflected.find((stream) => stream.name === name);
  const player = new Player(name, known, tokenField.value, video, (player) => {
    if (millrace.player === player) showPlayer(player);
  });
  millrace.player = player;
  showPlayer(player);
  showStreams();
  return player;
}

/** Whatever is on the stage ends. */
function leave(): void {
  void millrace.watcher?.stop();
  millrace.player?.stop();
  millrace.watcher = null;
  millrace.player = null;
}

async function publish(options: Partial<PublishOptions> & { name: string }): Promise<Publisher> {
  await millrace.publisher?.stop();
  const defaults = { source: "picture", simulcast: true, codec: "", width: 1280, height: 720 } as const;
  const publisher = await Publisher.start({ ...defaults, token: tokenField.value, ...options }, (publisher) => {
    if (millrace.publisher === publisher) showPublisher(publisher);
  });
  millrace.publisher = publisher;
  showPublisher(publisher);
  void refresh();
  return publisher;
}

async function refresh(): Promise<void> {
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

function showWatcher(watcher: Watcher): void {
  const { state } = watcher;
  showState(watcher.name, state.kind, {
    connecting: "Connecting …",
    live: "",
    waiting: "why" in state ? `Waiting for ${watcher.name} …\n${state.why}` : "",
    refused: "why" in state ? `Not allowed: ${state.why}\nIs the token right?` : "",
    stopped: "Stopped",
  }[state.kind]);
  // Not before there is a track: a source without any would hold back the page's load event.
  if (video.srcObject !== watcher.stream && watcher.stream.getTracks().length > 0) video.srcObject = watcher.stream;
  if (state.kind === "live" && video.paused) void video.play().catch(() => undefined);
  showStats(watcher);
  const tracks = millrace.streams.find((stream) => stream.name === watcher.name)?.tracks;
  showLayers(watcher, tracks?.find((track) => track.kind === "video")?.rids ?? []);
}

function showPlayer(player: Player): void {
  const { state } = player;
  showState(player.name, state.kind, {
    connecting: "Connecting …",
    live: "",
    waiting: "why" in state ? `Waiting for ${player.name} …\n${state.why}` : "",
    refused: "why" in state ? `Not allowed: ${state.why}\nIs the token right?` : "",
    elsewhere: "why" in state ? state.why : "",
    stopped: "Stopped",
  }[state.kind]);
  showLayers(null, []);
  showPlaying(player, millrace.reflected.find((stream) => stream.name === player.name));
}

function showState(name: string, kind: string, overlay: string): void {
  element("watching", HTMLElement).textContent = name;
  const label = element("state", HTMLElement);
  label.dataset["kind"] = kind;
  label.textContent = kind === "elsewhere" ? "" : kind;
  element("overlay", HTMLElement).textContent = overlay;
  element("stop", HTMLButtonElement).disabled = kind === "stopped";
}

function showStreams(problem = ""): void {
  const broadcasts = millrace.streams.map((stream) =>
    entry(stream.name, summary(stream), stream.name === millrace.watcher?.name, () => watch(stream.name)),
  );
  const empty = problem || (millrace.reflected.length > 0 ? "" : "None yet. Publish one below.");
  showList("streams", broadcasts, empty, problem !== "");
  const byHttp = millrace.reflected.map((stream) =>
    entry(stream.name, summaryOf(stream), stream.name === millrace.player?.name, () => play(stream.name)),
  );
  element("reflected-title", HTMLElement).hidden = byHttp.length === 0;
  showList("reflected", byHttp, "", false);
}

function entry(name: string, text: string, isCurrent: boolean, chosen: () => void): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.append(name, small(text));
  button.setAttribute("aria-current", String(isCurrent));
  button.addEventListener("click", chosen);
  return button;
}

/** What has the focus keeps it. */
function showList(id: string, items: HTMLButtonElement[], empty: string, isError: boolean): void {
  const list = element(id, HTMLElement);
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
  if (items.length === 0) {
    const text = document.createElement("p");
    text.textContent = empty;
    text.classList.toggle("error", isError);
    list.replaceChildren(...(empty ? [text] : []));
    return;
  }
  list.replaceChildren(
    ...items.map((button) => {
      const item = document.createElement("li");
      item.append(button);
      return item;
    }),
  );
  items[focused]?.focus();
}

function summary(stream: Stream): string {
  const codecs = stream.tracks.map((track) => track.codec + (track.rids.length > 1 ? ` ×${track.rids.length}` : ""));
  return [stream.state, viewers(stream.viewers), ...codecs].join(" · ");
}

function summaryOf(stream: Reflected): string {
  const type = (stream.content_type ?? "").replace(/;.*/, "");
  const known = [stream.live ? "live" : "no source", viewers(stream.viewers), stream.rate ? kilobits(stream.rate) : ""];
  return [...known, stream.hls ? `${type}, HLS` : type].filter((text) => text !== "").join(" · ");
}

function viewers(count: number): string {
  return count === 1 ? "1 viewer" : `${count} viewers`;
}

function showPublisher(publisher: Publisher): void {
  const running = publisher.state !== "stopped";
  element("publish-start", HTMLElement).hidden = running;
  element("publish-stop", HTMLElement).hidden = !running;
  const preview = element("preview", HTMLVideoElement);
  preview.hidden = !running;
  if (running && preview.srcObject !== publisher.stream) {
    preview.srcObject = publisher.stream;
    void preview.play().catch(() => undefined);
  }
  say(running ? `${publisher.options.name}: ${publisher.state}` : publisher.why, !running);
  const table = element("publish-layers", HTMLTableElement);
  const layers = publisher.flow?.layers ?? [];
  table.hidden = !running || layers.length === 0;
  table.tBodies[0]?.replaceChildren(
    ...layers.map((layer) => {
      const row = document.createElement("tr");
      const rate = Math.round(layer.bitrate / 1000);
      for (const text of [layer.rid || "–", `${layer.width}×${layer.height}`, layer.framesPerSecond.toFixed(0), rate]) {
        row.insertCell().textContent = String(text);
      }
      return row;
    }),
  );
}

function say(text: string, error = false): void {
  const place = element("publish-state", HTMLElement);
  place.textContent = text;
  place.classList.toggle("error", error);
}

function readForm(): PublishOptions {
  const [width, height] = (query.get("size") ?? "1280x720").split("x").map(Number);
  return {
    name: element("name", HTMLInputElement).value.trim(),
    token: tokenField.value,
    source: element("source", HTMLSelectElement).value as PublishOptions["source"],
    codec: element("codec", HTMLSelectElement).value,
    simulcast: element("simulcast", HTMLInputElement).checked,
    width: width || 1280,
    height: height || 720,
  };
}

function fillForm(): void {
  element("name", HTMLInputElement).value = query.get("publish") ?? `stream-${Math.random().toString(36).slice(2, 6)}`;
  element("source", HTMLSelectElement).value = query.get("source") ?? "picture";
  element("codec", HTMLSelectElement).value = query.get("codec") ?? "";
  element("simulcast", HTMLInputElement).checked = query.get("simulcast") !== "0";
}

function listen(): void {
  on("publish", "submit", (event) => {
    event.preventDefault();
    say("Starting …");
    publish(readForm()).catch((error: unknown) => say(error instanceof Error ? error.message : String(error), true));
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
  on("sound", "click", () => (video.muted = !video.muted));
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

export async function startPage(): Promise<void> {
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
  // Beside the list, which says whether it is HLS.
  if (played) void loadHls().catch(() => undefined);
  void showRooms();
  await refresh();
  const hasDemo = millrace.streams.some((stream) => stream.name === "demo");
  if (hasDemo) element("room", HTMLInputElement).value = "demo";
  if (millrace.watcher || millrace.player) return;
  if (played) play(played);
  else if (hasDemo) watch("demo");
}

/** Where there are rooms, each has a page. */
async function showRooms(): Promise<void> {
  const page = await fetch("/room/any", { method: "HEAD" }).catch(() => null);
  element("rooms", HTMLElement).hidden = !page?.ok;
}

function on(id: string, type: string, action: (event: Event) => void): void {
  element(id, HTMLElement).addEventListener(type, action);
}

function small(text: string): HTMLElement {
  const node = document.createElement("small");
  node.textContent = text;
  return node;
}

function element<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (found instanceof type) return found;
  throw new Error(`the page has no ${type.name} #${id}`);
}
