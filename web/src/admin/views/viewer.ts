// One viewer of a reflected stream, and those who are gone: what became of them.

import { make } from "../../page.js";
import { path } from "../api.js";
import { age, bytes, count, duration } from "../format.js";
import { to, View, type Context } from "../view.js";
import { back, ending } from "./parts.js";
import { tell, type Told } from "./told.js";

interface Story extends Told<Happened> {
  viewer: string;
  stream: string;
  address: string | null;
  worker: number | null;
  hls: boolean;
  sent_bytes: number | null;
  behind_bytes: number | null;
  skips: number;
  full: number | null;
}

type Happened = { at: number } & (
  | { event: "came_over" }
  | { event: "joined" | "behind"; bytes: number; seconds: number | null }
  | { event: "skipped"; times: number }
);

export function viewer(context: Context, id: string): View {
  const view = new View(context);
  const end = make("button", "danger", "End viewer");
  end.type = "button";
  end.addEventListener("click", () => ending(view, "viewer", () => id, () => ["api", "reflect", "viewers", id]).run(undefined));
  return tell<Happened, Story>(view, {
    route: "reflect",
    title: "Reflect",
    what: "viewer",
    id,
    at: path(["api", "reflect", "viewers", id, "story"]),
    heading: (story) => `Viewer of ${story.stream}`,
    facts: (story) => [
      ["Here for", duration((story.ended?.at ?? Date.now() / 1000) - story.since)],
      ["Address", story.address],
      ["By", story.hls ? "HLS" : story.worker === null ? "a copy" : "bytes"],
      ["Worker", story.worker],
      ["Sent", story.sent_bytes === null ? null : bytes(story.sent_bytes)],
      ["Behind", story.behind_bytes === null ? null : bytes(story.behind_bytes)],
      ["Skips", count(story.skips)],
      ["Had no room", story.full === null ? null : `${count(story.full)} times`],
    ],
    says,
    isBad: ({ event }) => event === "skipped",
    tools: end,
  });
}

function says(event: Happened): string {
  switch (event.event) {
    case "came_over":
      return "Came from the process before";
    case "joined":
      return `Began ${far(event)} behind the newest byte`;
    case "behind":
      return `Was behind most: by ${far(event)}`;
    case "skipped":
      return event.times === 1
        ? "Was too slow for what is kept, and went on at the newest picture"
        : `Was too slow again: the last of ${count(event.times)} times`;
  }
}

function far(event: { bytes: number; seconds: number | null }): string {
  return event.seconds === null ? bytes(event.bytes) : `${bytes(event.bytes)} (${event.seconds.toFixed(1)} s)`;
}

/** Those of whom it is still known what became of them. */
export function ended(context: Context): View {
  const view = new View(context);
  const stream = context.route.query.get("stream") ?? undefined;
  view.add(back("reflect", "Reflect", stream ? `gone, of ${stream}` : "gone"));
  view.addList<Story>(
    {
      name: "Viewers who are gone",
      id: (story) => story.viewer,
      link: (story) => to(["reflect", "viewer", story.viewer]),
      empty: "None is gone.",
      columns: [
        { title: "Went", width: "7rem", text: (story) => `${age(story.ended?.at ?? 0)} ago`, value: (story) => -(story.ended?.at ?? 0) },
        { title: "Why", width: "minmax(7rem, 1fr)", text: (story) => story.ended?.why.replaceAll("_", " ") ?? "" },
        { title: "Stream", width: "minmax(7rem, 2fr)", text: (story) => story.stream },
        { title: "Address", width: "minmax(8rem, 1.5fr)", isExtra: true, text: (story) => story.address ?? "–" },
        { title: "Skips", width: "5rem", isNumber: true, text: (story) => count(story.skips), value: (story) => story.skips },
        { title: "Sent", width: "6.5rem", isNumber: true, isExtra: true, text: (story) => bytes(story.sent_bytes ?? NaN), value: (story) => story.sent_bytes ?? 0 },
        {
          title: "Was here for",
          width: "7rem",
          isNumber: true,
          isExtra: true,
          text: (story) => duration((story.ended?.at ?? story.since) - story.since),
          value: (story) => (story.ended?.at ?? story.since) - story.since,
        },
      ],
    },
    path(["api", "reflect", "viewers", "ended"], { stream }),
  );
  return view;
}

/** The way to those who are gone. */
export function gone(stream: string | undefined): HTMLElement {
  const link = make("a", "", "Viewers who are gone");
  link.href = to(["reflect", "viewer", "ended"], stream ? { stream } : {});
  return make("p", "", link);
}
