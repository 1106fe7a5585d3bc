// Runs in the page, and as the worker that keeps time for the test picture.

import { startPage } from "./main.js";
import { keepTime } from "./ticker.js";

if (typeof document === "undefined") keepTime();
else void startPage();
