// One allocation of the relay, and those that have ended: what became of them.

import { make } from "../../page.js";
import { path } from "../api.js";
import { age, bytes, count, duration } from "../format.js";
import { to, View, type Context } from "../view.js";
import { back, ending } from "./parts.js";
import { tell, type Told } from "./told.js";

interface Traffic {
  packets: number;
  bytes: number;
}

interface Story extends Told<Happened> {
  allocation: string;
  user: string;
  worker: number;
  client: string;
  server: string;
  transport: string;
  relayed: string[];
  expires_in: number | null;
  sent: Traffic;
  received: Traffic;
  dropped: number;
  refreshes: number;
  refused: number;
}

type Happened = { at: number } & (
  | { event: "began"; lifetime: number }
  | { event: "permitted" | "connects"; peer: string }
  | { event: "bound"; channel: number; peer: string }
  | { event: "not_connected" }
  | { event: "refused"; request: string; code: number; peer: string | null }
  | { event: "gave_back"; family: string }
  | { event: "denied"; permissions: number; channels: number }
  | { event: "flows"; sent: boolean; received: boolean }
  | { event: "over_bandwidth"; packets: number }
);

export function allocation(context: Context, id: string): View {
  const view = new View(context);
  const end = make("button", "danger", "End allocation");
  end.type = "button";
  end.addEventListener("click", () => ending(view, "allocation", () => id, () => ["api", "relay", "allocations", id]).run(undefined));
  return tell<Happened, Story>(view, {
    route: "relay",
    title: "Relay",
    what: "allocation",
    id,
    at: path(["api", "relay", "allocations", id, "story"]),
    heading: (story) => `Allocation of ${story.user}`,
    facts: (story) => [
      ["Here for", duration((story.ended?.at ?? Date.now() / 1000) - story.since)],
      ["Runs out in", story.expires_in === null ? null : duration(story.expires_in)],
      ["Client", `${story.client} by ${story.transport.toUpperCase()}`],
      ["Server", story.server],
      ["Relayed", story.relayed.join(", ")],
      ["Worker", story.worker],
      ["Sent", `${count(story.sent.packets)} packets, ${bytes(story.sent.bytes)}`],
      ["Got", `${count(story.received.packets)} packets, ${bytes(story.received.bytes)}`],
      ["Over a bandwidth", story.dropped === 0 ? null : count(story.dropped)],
      ["Refreshed", `${count(story.refreshes)} times`],
      ["Refused requests", story.refused === 0 ? null : count(story.refused)],
    ],
    says,
    isBad: ({ event }) => ["not_connected", "refused", "denied", "over_bandwidth"].includes(event),
    tools: end,
  });
}

function says(event: Happened): string {
  switch (event.event) {
    case "began":
      return `Began, for ${duration(event.lifetime)} unless it is refreshed`;
    case "permitted":
      return `Permits ${event.peer}`;
    case "bound":
      return `Channel 0x${event.channel.toString(16)} stands for ${event.peer}`;
    case "connects":
      return `Wants a connection to ${event.peer}`;
    case "not_connected":
      return "A peer could not be reached";
    case "refused":
      return `Refused with ${event.code}: ${event.request.replaceAll("_", " ")}${event.peer === null ? "" : ` for ${event.peer}`}`;
    case "gave_back":
      return `Gave back its address of ${event.family === "ipv4" ? "IPv4" : "IPv6"}`;
    case "denied":
      return `Other rules took ${count(event.permissions)} permissions and ${count(event.channels)} channels away`;
    case "flows":
      if (event.sent && event.received) return "Data moves both ways";
      if (event.sent) return "Its client sends, and nothing comes from peers";
      return event.received ? "Peers send, and nothing comes from its client" : "Nothing moves";
    case "over_bandwidth":
      return `${count(event.packets)} datagrams were over a bandwidth`;
  }
}

/** Those of which it is still known what became of them. */
export function ended(context: Context): View {
  const view = new View(context);
  const user = context.route.query.get("user") ?? undefined;
  view.add(back("relay", "Relay", user ? `ended, of ${user}` : "ended"));
  view.addList<Story>(
    {
      name: "Allocations that have ended",
      id: (story) => story.allocation,
      link: (story) => to(["relay", story.allocation]),
      empty: "None has ended.",
      columns: [
        { title: "Ended", width: "7rem", text: (story) => `${age(story.ended?.at ?? 0)} ago`, value: (story) => -(story.ended?.at ?? 0) },
        { title: "Why", width: "minmax(8rem, 1fr)", text: (story) => story.ended?.why.replaceAll("_", " ") ?? "" },
        { title: "User", width: "minmax(7rem, 2fr)", text: (story) => story.user },
        { title: "Client", width: "minmax(10rem, 2fr)", isExtra: true, text: (story) => `${story.client} ${story.transport}` },
        { title: "Sent", width: "6.5rem", isNumber: true, text: (story) => bytes(story.sent.bytes), value: (story) => story.sent.bytes },
        { title: "Got", width: "6.5rem", isNumber: true, text: (story) => bytes(story.received.bytes), value: (story) => story.received.bytes },
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
    path(["api", "relay", "allocations", "ended"], { user }),
  );
  return view;
}

/** The way to those that have ended. */
export function gone(user: string | undefined): HTMLElement {
  const link = make("a", "", "Allocations that have ended");
  link.href = to(["relay", "ended"], user ? { user } : {});
  return make("p", "", link);
}
