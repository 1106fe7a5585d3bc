// What several views have.

import { make } from "../../page.js";
import { change, path } from "../api.js";
import { confirm } from "../dialog.js";
import { to, type View } from "../view.js";

/** The button of a row that ends what the row is about. */
export function ending<Row>(
  view: View,
  what: string,
  name: (row: Row) => string,
  at: (row: Row) => string[],
): { label: string; run: (row: Row) => void } {
  return {
    label: "End",
    run: (row) =>
      confirm({
        title: `End ${what} ${name(row)}`,
        says: "Clients are told as if they had ended it themselves, or hear nothing; some come again by themselves.",
        label: "End",
        run: () => change("DELETE", path(at(row))),
        done: () => view.reload(),
      }),
  };
}

/** Where one is, and the way back. */
export function back(route: string, title: string, here: string): HTMLElement {
  const link = make("a", "", title);
  link.href = to([route]);
  const trail = make("nav", "trail", link, " › ", make("b", "", here));
  trail.setAttribute("aria-label", "Where this is");
  return trail;
}

/** Facts as names and values; those that nobody knows are left out. */
export function facts(pairs: [string, string | number | null | undefined][]): HTMLElement {
  const list = make("dl", "facts");
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(make("div", "", make("dt", "", name), make("dd", "", String(value))));
  }
  return list;
}
