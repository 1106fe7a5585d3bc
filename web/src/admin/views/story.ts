// What became of one session: what its path carried, which layer it got and when its picture stood still, drawn over its time, and
// each event in words.

import { make } from "../../page.js";
import { path, read } from "../api.js";
import { bits, count, duration } from "../format.js";
import { to, type View } from "../view.js";
import { repeat } from "./sessions.js";

export interface Story {
  session: string;
  stream: string;
  role: string;
  since: number;
  ended: { at: number; why: string } | null;
  forgotten: number;
  events: Happened[];
}

/** Times are seconds since 1970; layers are counted from 0, the smallest. */
export type Happened = { at: number } & (
  | { event: "path"; remote: string; protocol: string }
  | { event: "layer"; track: number; from: number | null; to: number | null; temporal_max: number | null; why: string }
  | { event: "estimate"; bps: number }
  | { event: "nack" | "fell_behind"; packets: number }
  | { event: "keyframe_request"; count: number }
  | { event: "freeze"; track: number; cause: string }
  | { event: "moves"; track: number; after_ms: number }
  | { event: "sends"; track: number; layers: number[] }
  | { event: "loses"; percent: number }
);

const CAUSES: Record<string, string> = {
  publisher: "nothing of it comes from its publisher",
  keyframe: "it waits for a keyframe",
  bandwidth: "the path carries less than the least that can be sent",
  backlog: "what was sent is not through yet",
  loss: "more is lost than can be repaired in time",
  path: "nothing comes from the viewer any more",
  cut_off: "its TCP connection is gone",
};

const REASONS: Record<string, string> = {
  begins: "it is the first",
  bandwidth: "by what the path carries",
  wish: "as the viewer wants it",
  publisher: "the publisher sends others",
  keyframe: "it had to wait for a keyframe",
};

/** The story of a session, asked for anew while it is seen. */
export function tell(view: View, id: string): HTMLElement {
  const at = path(["api", "sessions", id, "story"]);
  const [place, problem] = [make("div", "story"), make("p", "error")];
  problem.setAttribute("role", "alert");
  let known: Story | undefined;
  const save = make("button", "", "Download as JSON");
  save.type = "button";
  save.disabled = true;
  save.addEventListener("click", () => known && download(known));
  repeat(view, async () => {
    // What has ended does not change any more.
    if (known?.ended) return;
    try {
      known = await read<Story>(at, view.signal);
      save.disabled = false;
      problem.textContent = "";
      place.replaceChildren(drawn(known), listed(known));
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
    }
  });
  const section = make("section", "small", make("div", "line", make("h2", "", "What became of it"), save), problem, place);
  section.setAttribute("aria-label", "What became of it");
  return section;
}

function download(story: Story): void {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(story, null, 2)], { type: "application/json" }));
  link.download = `session-${story.session}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function listed(story: Story): HTMLElement {
  const rows = make("ol", "events");
  for (const event of story.events) rows.append(row(event.at, says(event), event.event === "freeze" ? "bad" : ""));
  if (story.forgotten > 0) rows.append(make("li", "faint", `${count(story.forgotten)} events between the first and these are forgotten.`));
  if (story.ended) rows.append(row(story.ended.at, `Ended: ${story.ended.why.replaceAll("_", " ")}`));
  return rows;
}

/** One line: when, and what. */
export function row(at: number, text: string, classes = ""): HTMLElement {
  const time = make("time", "", new Date(at * 1000).toLocaleTimeString([], { hour12: false }));
  time.dateTime = time.title = new Date(at * 1000).toISOString();
  return make("li", classes, time, text);
}

export function says(event: Happened): string {
  switch (event.event) {
    case "path":
      return `Reached at ${event.remote} by ${event.protocol.toUpperCase()}`;
    case "layer":
      return `${gets(event.track, event.from, event.to, event.temporal_max)}: ${REASONS[event.why] ?? event.why}`;
    case "estimate":
      return `The path carries ${bits(event.bps)}`;
    case "nack":
      return `Asked for ${count(event.packets)} lost packets again`;
    case "keyframe_request":
      return `Asked for ${event.count === 1 ? "a keyframe" : `${count(event.count)} keyframes`}`;
    case "fell_behind":
      return `Fell behind, and never got ${count(event.packets)} packets`;
    case "freeze":
      return `Picture ${event.track} stands still: ${CAUSES[event.cause] ?? event.cause}`;
    case "moves":
      return `Picture ${event.track} moves again, after ${duration(event.after_ms / 1000)}`;
    case "sends":
      return event.layers.length === 0
        ? `Sends nothing of track ${event.track}`
        : `Sends ${event.layers.length === 1 ? "one layer" : `${event.layers.length} layers`} of track ${event.track}`;
    case "loses":
      return `Loses ${event.percent} % of what it sends, on the way here`;
  }
}

function gets(track: number, from: number | null, next: number | null, temporal: number | null): string {
  const fewer = temporal === null ? "" : `, ${temporal + 1} of its temporal layers`;
  if (next === null) return `Gets nothing of track ${track}`;
  if (from === null || from === next) return `Gets layer ${next + 1} of track ${track}${fewer}`;
  return `Layer ${from + 1} of track ${track} becomes ${next + 1}${fewer}`;
}

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [1000, 60];

/** Estimate and layers as steps from the session's begin to its end, or to now; red where a picture stood still. */
function drawn(story: Story): HTMLElement {
  // A publisher has none of it.
  if (!story.events.some(({ event }) => ["estimate", "layer", "freeze"].includes(event))) return make("div");
  const end = story.ended?.at ?? Date.now() / 1000;
  const span = Math.max(end - story.since, 1);
  const x = (at: number): number => (WIDTH * Math.min(Math.max(at - story.since, 0), span)) / span;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${freezes(story).length} times a picture stood still in ${duration(span)}`);
  const add = (name: string, attributes: Record<string, string | number>): void => {
    const shape = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, String(value));
    svg.append(shape);
  };
  for (const [from, until] of freezes(story)) {
    add("rect", { class: "freeze", x: x(from), y: 0, width: Math.max(x(until ?? end) - x(from), 2), height: HEIGHT });
  }
  const estimates = story.events.flatMap((event): [number, number][] => (event.event === "estimate" ? [[event.at, event.bps]] : []));
  add("path", { class: "estimate", d: steps(estimates, x(end), x) });
  const layers = story.events.flatMap((event): [number, number][] =>
    event.event === "layer" ? [[event.at, event.to === null ? 0 : event.to + 1]] : [],
  );
  add("path", { class: "layer", d: steps(layers, x(end), x) });
  const legend = make("p", "legend", make("span", "key key-1", "what the path carries"), make("span", "key key-2", "layer"));
  return make("figure", "timeline", svg as unknown as HTMLElement, legend);
}

/** A line that goes on until the next value, as high as the largest. */
function steps(values: [number, number][], end: number, x: (at: number) => number): string {
  const most = Math.max(...values.map(([, value]) => value), 1);
  const y = (value: number): number => HEIGHT - 2 - ((HEIGHT - 6) * value) / most;
  const line = values.map(([at, value], index) => `${index === 0 ? "M" : "H"}${x(at)}${index === 0 ? ` ${y(value)}` : `V${y(value)}`}`);
  return line.length === 0 ? "" : `${line.join("")}H${end}`;
}

/** From when until when, if that is over. */
function freezes(story: Story): [number, number | undefined][] {
  const found: [number, number | undefined][] = [];
  const open = new Map<number, number>();
  for (const event of story.events) {
    if (event.event === "freeze" && !open.has(event.track)) open.set(event.track, found.push([event.at, undefined]) - 1);
    const index = event.event === "moves" ? open.get(event.track) : undefined;
    if (event.event !== "moves" || index === undefined) continue;
    found[index] = [event.at - event.after_ms / 1000, event.at];
    open.delete(event.track);
  }
  return found;
}

/** The way to a session's story. */
export function link(id: string): HTMLElement {
  const made = make("a", "", "What became of it");
  made.href = to(["sessions", id]);
  return make("p", "", made);
}
