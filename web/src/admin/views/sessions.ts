// Sessions of streams, and one of them: what it is, how it does, and what can be done with it.

import { make } from "../../page.js";
import { change, path, read, Refused } from "../api.js";
import { confirm } from "../dialog.js";
import { age, bits, bytes, count, duration, percent } from "../format.js";
import { to, View, type Context } from "../view.js";
import { back, ending, facts } from "./parts.js";
import { tell, type Story } from "./story.js";

interface Session {
  id: string;
  stream: string;
  role: string;
  connected: boolean;
  since: number;
  worker: number;
  address: string | null;
  subject: string | null;
  ends: number | null;
  statistics?: Statistics | null;
}

interface Statistics {
  packets_sent: number;
  bytes_sent: number;
  packets_received: number;
  bytes_received: number;
  packets_resent: number;
  packets_skipped: number;
  nacks_received: number;
  keyframe_requests_received: number;
  loss: number;
  round_trip_ms: number | null;
  estimate: number | null;
  layers: { mid: string; current: number | null; target: number | null; layer_count: number; rid: string | null }[];
}

/** How often one session is asked for. */
const LOOK_EVERY_MS = 2000;

export function sessions(context: Context): View {
  const [, id] = context.route.parts;
  const view = new View(context);
  if (id === "ended") return ended(view);
  if (id !== undefined) return one(view, id);
  const { query } = context.route;
  const [stream, worker] = [query.get("stream") ?? undefined, query.get("worker") ?? undefined];
  const of = [stream && `stream ${stream}`, worker && `worker ${worker}`].filter(Boolean).join(", ");
  if (of) view.add(back("sessions", "All sessions", of));
  const gone = make("a", "", "Sessions that have ended");
  gone.href = to(["sessions", "ended"], stream ? { stream } : {});
  view.add(make("p", "", gone));
  view.addList<Session>(
    {
      name: "Sessions",
      id: (session) => session.id,
      link: (session) => to(["sessions", session.id]),
      action: ending(view, "session", (session) => session.id, (session) => ["api", "sessions", session.id]),
      empty: "There is no session.",
      columns: [
        { title: "Id", width: "5rem", text: (session) => session.id, value: (session) => Number(session.id) },
        { title: "Stream", width: "minmax(7rem, 2fr)", text: (session) => session.stream },
        { title: "Role", width: "6.5rem", text: (session) => session.role },
        { title: "State", width: "7rem", isExtra: true, text: (session) => (session.connected ? "connected" : "connecting") },
        { title: "Address", width: "minmax(8rem, 1.5fr)", isExtra: true, text: (session) => session.address ?? "–" },
        { title: "Subject", width: "minmax(6rem, 1fr)", isExtra: true, text: (session) => session.subject ?? "–" },
        { title: "Worker", width: "5.5rem", isNumber: true, isExtra: true, text: (session) => String(session.worker), value: (session) => session.worker },
        { title: "Here for", width: "7rem", isNumber: true, isExtra: true, text: (session) => age(session.since), value: (session) => -session.since },
      ],
    },
    path(["api", "sessions"], { stream, worker }),
  );
  return view;
}

type Gone = Omit<Story, "events" | "forgotten"> & { address: string | null; subject: string | null };

/** Those of which it is still known what became of them. */
function ended(view: View): View {
  const stream = view.query.get("stream") ?? undefined;
  view.add(back("sessions", "Sessions", stream ? `ended, of ${stream}` : "ended"));
  view.addList<Gone>(
    {
      name: "Sessions that have ended",
      id: (session) => session.session,
      link: (session) => to(["sessions", session.session]),
      empty: "None has ended.",
      columns: [
        { title: "Ended", width: "7rem", text: (session) => `${age(session.ended?.at ?? 0)} ago`, value: (session) => -(session.ended?.at ?? 0) },
        { title: "Why", width: "minmax(8rem, 1fr)", text: (session) => session.ended?.why.replaceAll("_", " ") ?? "" },
        { title: "Stream or room", width: "minmax(7rem, 2fr)", text: (session) => session.stream },
        { title: "Role", width: "6.5rem", isExtra: true, text: (session) => session.role },
        { title: "Address", width: "minmax(8rem, 1.5fr)", isExtra: true, text: (session) => session.address ?? "–" },
        { title: "Subject", width: "minmax(6rem, 1fr)", isExtra: true, text: (session) => session.subject ?? "–" },
        {
          title: "Was here for",
          width: "7rem",
          isNumber: true,
          isExtra: true,
          text: (session) => duration((session.ended?.at ?? session.since) - session.since),
          value: (session) => (session.ended?.at ?? session.since) - session.since,
        },
      ],
    },
    path(["api", "sessions", "ended"], { stream }),
  );
  return view;
}

function one(view: View, id: string): View {
  const place = make("div", "one");
  const problem = make("p", "error");
  problem.setAttribute("role", "alert");
  const tools = actions(view, id);
  view.add(back("sessions", "Sessions", id)).add(problem).add(place).add(tools).add(tell(view, id));
  repeat(view, async () => {
    // One that has ended does not come back.
    if (tools.hidden) return;
    try {
      const session = await read<Session>(path(["api", "sessions", id]), view.signal);
      problem.textContent = "";
      for (const each of tools.querySelectorAll<HTMLElement>(".of-viewers")) each.hidden = session.role === "publisher";
      place.replaceChildren(make("h2", "", `${session.role === "publisher" ? "Publisher" : "Viewer"} of ${session.stream}`), of(session), ...how(session.statistics));
    } catch (error) {
      tools.hidden = error instanceof Refused && error.status === 404;
      problem.textContent = tools.hidden ? "It is not there any more." : error instanceof Error ? error.message : String(error);
    }
  });
  return view;
}

function of(session: Session): HTMLElement {
  return facts([
    ["State", session.connected ? "connected" : "connecting"],
    ["Here for", age(session.since)],
    ["Address", session.address],
    ["Subject", session.subject],
    ["Worker", session.worker],
    ["Ends in", session.ends === null ? null : duration(session.ends - Date.now() / 1000)],
  ]);
}

/** What the worker has counted. */
export function how(statistics: Statistics | null | undefined): HTMLElement[] {
  if (!statistics) return [];
  const counted = facts([
    ["Round trip", statistics.round_trip_ms === null ? null : `${statistics.round_trip_ms.toFixed(1)} ms`],
    ["Loss", percent(statistics.loss)],
    ["Bandwidth, as estimated", statistics.estimate === null ? null : bits(statistics.estimate)],
    ["Sent", `${count(statistics.packets_sent)} packets, ${bytes(statistics.bytes_sent)}`],
    ["Received", `${count(statistics.packets_received)} packets, ${bytes(statistics.bytes_received)}`],
    ["Sent again", count(statistics.packets_resent)],
    ["Skipped", count(statistics.packets_skipped)],
    ["NACKs", count(statistics.nacks_received)],
    ["Keyframes asked for", count(statistics.keyframe_requests_received)],
    ...statistics.layers.map(
      (layer): [string, string] => [
        `Layer of ${layer.mid}`,
        `${layer.rid ?? layer.current ?? "–"} (${(layer.current ?? -1) + 1} of ${layer.layer_count})`,
      ],
    ),
  ]);
  return [make("h2", "", "How it does"), counted];
}

function actions(view: View, id: string): HTMLElement {
  const layer = make("select", "of-viewers");
  for (const [text, value] of [["any layer", ""], ["the smallest", "0"], ["up to the second", "1"], ["up to the third", "2"]]) {
    const option = make("option", "", text ?? "");
    option.value = value ?? "";
    layer.append(option);
  }
  layer.setAttribute("aria-label", "Largest layer");
  const limit = make("button", "of-viewers", "Limit layer");
  limit.type = "button";
  limit.addEventListener("click", () =>
    confirm({
      title: `Limit session ${id}`,
      says: `The viewer gets ${layer.selectedOptions[0]?.textContent ?? ""}, until it or somebody else says otherwise.`,
      label: "Limit",
      run: () => change("POST", path(["api", "sessions", id, "layer"]), { spatial_max: layer.value === "" ? null : Number(layer.value) }),
    }),
  );
  const end = make("button", "danger", "End session");
  end.type = "button";
  end.addEventListener("click", () => ending(view, "session", () => id, () => ["api", "sessions", id]).run(undefined));
  return make("div", "line", layer, limit, end);
}

/** Does something now, and every two seconds while the view is seen. */
export function repeat(view: View, act: () => Promise<void>): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const run = async (): Promise<void> => {
    await act();
    if (!view.signal.aborted) timer = setTimeout(() => void run(), LOOK_EVERY_MS);
  };
  view.signal.addEventListener("abort", () => clearTimeout(timer));
  void run();
}
