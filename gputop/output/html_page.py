"""Frame of every page: its colours, light and dark, its fonts, and how it prints.

No script, no request.
"""

from __future__ import annotations

from gputop.output.html import element, join, text

# Levels, shares and causes each have one colour, here only; text keeps 4.5:1 on its ground in both (WCAG 2.2, 1.4.3).
_STYLE = """
:root { color-scheme: light dark;
  --ground: #ffffff; --card: #f6f8fa; --text: #1f2328; --dim: #59636e; --rule: #d1d9e0; --track: #e6eaef;
  --green: #116243; --yellow: #744200; --red: #b3151f; --info: #0550ae; --grey: #59636e;
  --c-compute: #1f883d; --c-comm: #0969da; --c-copy: #8250df; --c-idle: #d29922;
  --c-data: #cf222e; --c-after_sync: #bc4c00; --c-allocator: #9a6700; --c-launching: #8250df;
  --c-module_load: #6e5494; --c-host_work: #a40e26;
  --c-work: #1f883d; --c-not_working: #a8201f; --c-waiting: #d29922; --c-information: #4a90d9;
  --c-launch_latency: #bf3989; --c-dependency: #0969da; --c-kernel_gap: #57606a; --c-unknown: #afb8c1; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #0d1117; --card: #161b22; --text: #d8dee4; --dim: #9198a1; --rule: #30363d; --track: #262c34;
  --green: #3fb970; --yellow: #e3b341; --red: #ff7b72; --info: #58a6ff; --grey: #9198a1;
  --c-compute: #3fb950; --c-comm: #58a6ff; --c-copy: #bc8cff; --c-idle: #d29922;
  --c-data: #ff7b72; --c-after_sync: #f0883e; --c-allocator: #d4a72c; --c-launching: #bc8cff;
  --c-module_load: #a98fd1; --c-host_work: #ffa198; --c-work: #3fb950;
  --c-launch_latency: #f778ba; --c-dependency: #58a6ff; --c-kernel_gap: #8b949e; --c-unknown: #6e7681; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 68rem; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
h3 { font-size: .95rem; margin: 1.4rem 0 .4rem; }
p { margin: .3rem 0; } .dim, footer { color: var(--dim); } footer { margin-top: 2.5rem; font-size: .85rem; }
code, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .92em; }
.verdict { border: 1px solid var(--rule); border-left: .4rem solid var(--level); border-radius: .4rem;
  padding: .8rem 1rem; background: var(--card); margin: 1rem 0; }
.verdict .head { font-weight: 650; color: var(--level); font-size: 1.08rem; }
.verdict .id { float: right; margin-left: 1rem; color: var(--dim); font-size: .85rem; }
.verdict .do { margin-top: .5rem; font-weight: 600; } .verdict .best { color: var(--green); font-weight: 600; }
.red { --level: var(--red); } .yellow { --level: var(--yellow); } .green { --level: var(--green); }
.info { --level: var(--info); } .grey { --level: var(--grey); }
.level { color: var(--level); font-weight: 600; }
.bar { display: flex; height: 1.5rem; border-radius: .25rem; overflow: hidden; background: var(--track); }
.bar.thin { height: .8rem; min-width: 6rem; }
.bar span { display: block; height: 100%; min-width: 0; }
.strip { position: relative; height: 1.6rem; background: var(--track); border-radius: .25rem; overflow: hidden; }
.strip span { position: absolute; top: 0; bottom: 0; min-width: 2px; background: var(--c-idle); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .5rem 0 0; padding: 0; list-style: none; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: .15em; margin-right: .4em; }
.scroll { overflow-x: auto; margin: .7rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.2rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.tile { border: 1px solid var(--rule); border-radius: .5rem; padding: .7rem .9rem; background: var(--card); }
.tile b { display: block; font-size: 1.25rem; line-height: 1.4; font-weight: 700; white-space: nowrap;
  color: var(--level, var(--text)); }
.tile small { display: block; font-size: .82rem; line-height: 1.35; }
.gpu { border: 1px solid var(--rule); border-radius: .5rem; overflow: hidden; margin: .9rem 0; break-inside: avoid; }
.gpu header { display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .45rem .8rem; background: var(--card); }
.gpu header span:last-child { margin-left: auto; }
.gpu header.alarm { background: #a01b1b; color: #ffffff; font-weight: 600; }
.gpu .chart { display: grid; grid-template-columns: 5.2rem 1fr; gap: 0 .6rem; padding: .6rem .8rem 0; }
.gpu dl { margin: 0; display: grid; grid-template-columns: 1fr auto; gap: .1rem .4rem; align-content: start;
  font-size: .85rem; font-variant-numeric: tabular-nums; }
.gpu dt { color: var(--dim); } .gpu dd { margin: 0; text-align: right; font-weight: 700; }
.gpu .said { padding: .2rem .8rem .6rem; margin-left: calc(5.2rem + .6rem); }
@media (max-width: 34rem) { .gpu .chart { grid-template-columns: 1fr; } .gpu .said { margin-left: 0; }
  .gpu dl { grid-template-columns: repeat(6, auto); justify-content: start; gap: 0 .5rem; margin-bottom: .3rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); } body { padding: 1.2rem .9rem 2rem; } }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--dim); font-weight: 500; font-size: .85rem; text-align: left; vertical-align: bottom; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; white-space: nowrap; padding-right: 1.1rem; }
td.wide { width: 38%; min-width: 4rem; } td.name { overflow-wrap: anywhere; min-width: 7.5rem; }
td.key { white-space: nowrap; }
@media (max-width: 44rem) { .stacks thead { display: none; } .stacks tr { display: block; padding: .5rem 0;
  border-bottom: 1px solid var(--rule); } .stacks td { display: inline-block; border: 0; padding: .1rem .9rem .1rem 0;
  min-width: 0; text-align: left; white-space: normal; } .stacks td.name { display: block; }
  .stacks td:not(.name)::before { content: attr(data-name) " "; color: var(--dim); font-size: .85rem; } }
pre { background: var(--card); padding: .5rem .8rem; overflow-x: auto; }
ul.notes { padding-left: 1.2rem; margin: .4rem 0; }
@media print { html { font-size: 11.7px; } body { max-width: none; padding: 0; font-size: 11px; }
  h2 { break-after: avoid; }
  .verdict, tr, .bar, .strip { break-inside: avoid; } .scroll { overflow: visible; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is loaded and nothing runs, whatever the texts in the page contain."""


def document(title: str, *body: object, footer: str = "") -> str:
    """A whole page."""
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n"
    )
    inside = join((*body, element("footer", footer) if footer else ""))
    return (
        "<!DOCTYPE html>\n<html "
        f'lang="en">\n<head>\n{head}</head>\n<body>\n{inside}\n</body>\n</html>\n'
    )
