// What became of something, as events with their times: asked for anew until it has ended, and to be kept as JSON.

import { make } from "../../page.js";
import { read } from "../api.js";
import { count } from "../format.js";
import { type View } from "../view.js";
import { back, facts } from "./parts.js";
import { repeat } from "./sessions.js";
import { row } from "./story.js";

/** Times are seconds since 1970. */
export interface Told<Event extends { at: number }> {
  since: number;
  ended: { at: number; why: string } | null;
  forgotten: number;
  events: Event[];
}

export interface Telling<Event extends { at: number }, Story extends Told<Event>> {
  /** The view that it belongs to, by its route and its title; and what it is, with its number. */
  route: string;
  title: string;
  what: string;
  id: string;
  /** Where its story is. */
  at: string;
  heading: (story: Story) => string;
  facts: (story: Story) => Parameters<typeof facts>[0];
  says: (event: Event) => string;
  isBad: (event: Event) => boolean;
  /** What can be done with it while it is there. */
  tools: HTMLElement;
}

/** Fills a view with the story of one. */
export function tell<Event extends { at: number }, Story extends Told<Event>>(view: View, telling: Telling<Event, Story>): View {
  const [place, problem] = [make("div", "one"), make("p", "error")];
  problem.setAttribute("role", "alert");
  let known: Story | undefined;
  const save = make("button", "", "Download as JSON");
  save.type = "button";
  save.disabled = true;
  save.addEventListener("click", () => known && download(`${telling.what}-${telling.id}.json`, known));
  repeat(view, async () => {
    // What has ended does not change any more.
    if (known?.ended) return;
    try {
      known = await read<Story>(telling.at, view.signal);
      save.disabled = false;
      problem.textContent = "";
      telling.tools.hidden = known.ended !== null;
      place.replaceChildren(
        make("h2", "", telling.heading(known)),
        facts(telling.facts(known)),
        make("h2", "", "What became of it"),
        listed(known, telling),
      );
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
      telling.tools.hidden = true;
    }
  });
  return view.add(back(telling.route, telling.title, telling.id)).add(problem).add(place).add(make("div", "line", save, telling.tools));
}

function listed<Event extends { at: number }, Story extends Told<Event>>(story: Story, telling: Telling<Event, Story>): HTMLElement {
  const rows = make("ol", "events");
  for (const event of story.events) rows.append(row(event.at, telling.says(event), telling.isBad(event) ? "bad" : ""));
  if (story.forgotten > 0) rows.append(make("li", "faint", `${count(story.forgotten)} events between the first and these are forgotten.`));
  if (story.ended) rows.append(row(story.ended.at, `Ended: ${story.ended.why.replaceAll("_", " ")}`));
  return rows;
}

function download(name: string, story: unknown): void {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(story, null, 2)], { type: "application/json" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
