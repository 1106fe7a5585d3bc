// One session of the pump, and one participant of a room.

import { make } from "../../page.js";
import { change, path, read } from "../api.js";
import { confirm } from "../dialog.js";
import { age, bits, bytes, count, duration } from "../format.js";
import { to, View, type Context } from "../view.js";
import { back, ending, facts } from "./parts.js";
import type { Participant, PumpSession } from "./products.js";
import { how, repeat } from "./sessions.js";
import { link, row } from "./story.js";

interface Played extends PumpSession {
  position: number;
  trouble: { error: string } | null;
  statistics: Record<string, number | string> & { activity: string };
  story: { at: number; event: string; packet: number }[];
}

interface Member extends Participant {
  sessions: { id: string; worker: number | null; statistics: Parameters<typeof how>[0] }[];
}

/** A place that is filled again and again with what a path has. */
function watch<T>(view: View, at: string, show: (found: T) => HTMLElement[]): HTMLElement {
  const [place, problem] = [make("div", "one"), make("p", "error")];
  problem.setAttribute("role", "alert");
  repeat(view, async () => {
    try {
      place.replaceChildren(...show(await read<T>(at, view.signal)));
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
    }
  });
  return make("div", "", problem, place);
}

export function played(context: Context, id: string): View {
  const view = new View(context);
  const at = path(["pump", "sessions", id]);
  view.add(back("pump", "Pump", id));
  view.add(
    watch<Played>(view, at, (session) => [
      make("h2", "", session.title),
      facts([
        ["State", session.reason ?? (session.paused ? "paused" : session.statistics.activity)],
        ["At", duration(session.position)],
        ["Speed", `×${session.scale}`],
        ["Destination", session.destination],
        ["Rate", bits(session.rate)],
        ["Worker", session.worker],
        ["Trouble", session.trouble?.error],
        ["Datagrams", count(Number(session.statistics["datagrams"]))],
        ["Sent", bytes(Number(session.statistics["bytes"]))],
        ["Underruns", count(Number(session.statistics["underruns"]))],
        ["Latest burst", `${Number(session.statistics["late_max_ms"]).toFixed(2)} ms`],
        ["Delay factor, worst", `${Number(session.statistics["delay_factor_max_ms"]).toFixed(2)} ms`],
        ["Lost packets", count(Number(session.statistics["lost_packets"]))],
        ["Continuity errors", count(Number(session.statistics["continuity_errors"]))],
      ]),
      make("h2", "", "What became of it"),
      make(
        "ol",
        "events",
        ...session.story.map(({ at, event, packet }) =>
          row(at, `${event[0]?.toUpperCase() ?? ""}${event.slice(1)} at packet ${count(packet)} of the title`, event === "starved" ? "bad" : ""),
        ),
      ),
    ]),
  );
  const button = (label: string, title: string, says: string, run: () => Promise<void>, classes = ""): HTMLElement => {
    const made = make("button", classes, label);
    made.type = "button";
    made.addEventListener("click", () => confirm({ title, says, label, run }));
    return made;
  };
  const seconds = make("input");
  const label = make("label", "line", seconds, "seconds from the start");
  seconds.type = "number";
  seconds.min = seconds.value = "0";
  const seek = button("Seek to", `Seek in session ${id}`, "It goes on at that time of its title; its clock and counters run on.", () =>
    change("PATCH", at, { seek: Number(seconds.value) }),
  );
  const end = make("button", "danger", "End session");
  end.type = "button";
  end.addEventListener("click", () => ending(view, "session", () => id, () => ["pump", "sessions", id]).run(undefined));
  return view.add(
    make(
      "div",
      "line",
      button("Pause", `Pause session ${id}`, "It sends nothing until it is told to go on.", () => change("PATCH", at, { paused: true })),
      button("Go on", `Let session ${id} go on`, "It sends again.", () => change("PATCH", at, { paused: false })),
      seek,
      label,
      end,
    ),
  );
}

export function member(context: Context, room: string, identity: string): View {
  const view = new View(context);
  const parts = ["api", "livekit", "rooms", room, "participants", identity];
  const trail = back("rooms", "Rooms", identity);
  const of = make("a", "", room);
  of.href = to(["rooms", room]);
  trail.lastElementChild?.before(of, " › ");
  view.add(trail);
  view.add(
    watch<Member>(view, path(parts), (who) => [
      make("h2", "", who.name || who.identity),
      facts([
        ["State", who.state],
        ["Here for", age(who.since)],
        ["Publishes", `${who.publishes} tracks`],
        ["Gets", `${who.gets} tracks`],
        ["SDK", `${who.sdk} ${who.version}`],
      ]),
      ...who.sessions.flatMap((session) => [...how(session.statistics), link(session.id)]),
    ]),
  );
  const end = make("button", "danger", "Remove");
  end.type = "button";
  end.addEventListener("click", () => ending(view, "participant", () => identity, () => parts).run(undefined));
  return view.add(make("div", "line", end));
}
