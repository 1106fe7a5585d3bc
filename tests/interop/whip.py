"""What the Python programs have in common: WHIP and WHEP (RFC 9725) over HTTP, and how they report."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request

# A watcher has enough with so many audio packets of each stream: two seconds.
AUDIO_PACKETS = 100


class Refused(Exception):
    """The server's answer is none; `status` says why."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


def exchange(url, offer):
    """Posts an offer; returns the answer and the session's address."""
    request = urllib.request.Request(url, offer.encode(), {"Content-Type": "application/sdp"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.read().decode(), urllib.parse.urljoin(url, response.headers["Location"])
    except urllib.error.HTTPError as error:
        raise Refused(error.code) from error


def close(location):
    """Ends a session."""
    urllib.request.urlopen(urllib.request.Request(location, method="DELETE"), timeout=10).close()


def say(value):
    """One line of JSON for the runner."""
    print(json.dumps(value), flush=True)


def enough(one, frames):
    """Whether a watcher has got what it waits for of one stream."""
    return "refused" in one or (one["video"]["frames"] >= frames and one["audio"]["packets"] >= AUDIO_PACKETS)


def wait_for_end_of_input():
    """Returns when the runner closes our input, or is gone itself."""
    # Not by `sys.stdin`, whose lock a thread would still hold when the program ends.
    while os.read(0, 4096):
        pass
