// What of the host hurts the server: the list of `millrace doctor`.

import { make } from "../../page.js";
import { read } from "../api.js";
import { View, type Context } from "../view.js";

interface Finding {
  check: string;
  severity: string;
  says: string;
  seen: string;
  mend: string | null;
}

const ORDER = ["fault", "warning", "note", "ok"];

export function health(context: Context): View {
  const view = new View(context);
  const place = make("ul", "findings");
  const state = make("p", "faint", "Looking at the host …");
  state.setAttribute("role", "status");
  view.add(make("h2", "", "This host")).add(state).add(place);
  read<Finding[]>("/api/admin/doctor", view.signal).then(
    (findings) => {
      const rank = (finding: Finding) => ORDER.indexOf(finding.severity.toLowerCase());
      findings.sort((one, other) => rank(one) - rank(other));
      const counts = ORDER.map((name, index) => [findings.filter((finding) => rank(finding) === index).length, name] as const);
      const found = counts.filter(([count]) => count > 0).map(([count, name]) => `${count} ${name}${count > 1 && name !== "ok" ? "s" : ""}`);
      const hurts = findings.some((finding) => rank(finding) < 2);
      state.textContent = `${hurts ? "" : "Nothing here hurts: "}${found.join(", ")}.`;
      place.replaceChildren(...findings.map(item));
    },
    (error: unknown) => {
      if (!view.signal.aborted) state.textContent = error instanceof Error ? error.message : String(error);
    },
  );
  return view;
}

function item(finding: Finding): HTMLElement {
  const severity = finding.severity.toLowerCase();
  const parts = [
    make("span", `severity ${severity}`, severity),
    make("b", "", finding.check),
    make("span", "says", finding.says),
    make("code", "seen", finding.seen),
  ];
  if (finding.mend) parts.push(make("code", "mend", finding.mend));
  return make("li", "", ...parts);
}
