"use strict";
// Say why the socket was closed, and offer to open it again.
window.WebSocket = class extends WebSocket {
  constructor(address) {
    super(address);
    this.addEventListener("close", (event) => {
      const lost = event.code === 1006 ? "The connection to gputop was lost." : "The screen was closed.";
      document.getElementById("words").textContent = event.reason || lost;
      document.getElementById("again").hidden = false;
      document.body.classList.add("-ended");
    });
  }
};
const terminal = document.getElementById("terminal");
// Set here and not by the server, so that a forwarded port works, too. textual.js opens every .textual-terminal.
terminal.dataset.sessionWebsocketUrl = new URL("ws", location.href).href.replace(/^http/, "ws");
terminal.classList.add("textual-terminal");
// Keys work at once, without a click first.
addEventListener("load", () => document.querySelector("#terminal textarea")?.focus());
