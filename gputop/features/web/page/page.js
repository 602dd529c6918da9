"use strict";
// The key comes in the fragment of the address that `gputop serve` printed. No browser sends a fragment to a server, and
// sessionStorage belongs to this tab and to this port: no other program on this machine is ever sent the key.
const STORED = "gputop key";

function keyOfThisTab() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) sessionStorage.setItem(STORED, given);
    return given || sessionStorage.getItem(STORED);
  } catch {
    return given; // A browser that keeps nothing: it works until the page is loaded again.
  }
}

const key = keyOfThisTab();
// Out of the address bar, the history and pictures of the screen.
if (location.hash) history.replaceState(null, "", location.pathname);
addEventListener("hashchange", () => location.reload());

function tell(words, again) {
  document.getElementById("words").textContent = words;
  document.getElementById("again").hidden = !again;
  document.body.classList.add("told");
}

const REASONS = {
  1001: "gputop serve was ended.",
  1006: "The connection to gputop was lost.",
  4403: "This is not the address of the gputop that is running: open the one that it printed.",
};

// textual.js makes the socket; the key goes before everything that it sends.
window.WebSocket = class extends WebSocket {
  constructor(address) {
    super(address);
    this.addEventListener("open", () => this.send(JSON.stringify(["key", key])));
    this.addEventListener("close", (event) => tell(REASONS[event.code] || event.reason || "The screen was closed.", event.code !== 4403));
  }
};

const terminal = document.getElementById("terminal");
if (key) {
  // Set here and not by the server, so that a forwarded port works, too.
  terminal.dataset.sessionWebsocketUrl = (location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/ws";
  terminal.classList.add("textual-terminal");
} else {
  tell("Open the address that gputop serve printed, with its token.", false);
}
// Keys work at once, without a click first; textual.js has opened the terminal by then.
addEventListener("load", () => document.querySelector("#terminal textarea")?.focus());
document.getElementById("again").onclick = () => { location.reload(); return false; };
