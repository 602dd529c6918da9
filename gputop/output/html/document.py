"""The frame of every page: its colours, light and dark, its fonts, and how it prints. No script, no request."""

from __future__ import annotations

from gputop.output.html.markup import element, join, text

# Levels, shares and causes each have one colour, here only; text keeps 4.5:1 on its ground in both (WCAG 2.2, 1.4.3).
_STYLE = """
:root { color-scheme: light dark;
  --ground: #ffffff; --card: #f6f8fa; --text: #1f2328; --dim: #59636e; --rule: #d1d9e0; --track: #e6eaef;
  --green: #116243; --yellow: #744200; --red: #b3151f; --info: #0550ae; --grey: #59636e;
  --c-compute: #1f883d; --c-comm: #0969da; --c-copy: #8250df; --c-idle: #d29922;
  --c-data: #cf222e; --c-after_sync: #bc4c00; --c-allocator: #9a6700; --c-launching: #8250df;
  --c-launch_latency: #bf3989; --c-dependency: #0969da; --c-kernel_gap: #57606a; --c-unknown: #afb8c1; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #0d1117; --card: #161b22; --text: #d8dee4; --dim: #9198a1; --rule: #30363d; --track: #262c34;
  --green: #3fb970; --yellow: #e3b341; --red: #ff7b72; --info: #58a6ff; --grey: #9198a1;
  --c-compute: #3fb950; --c-comm: #58a6ff; --c-copy: #bc8cff; --c-idle: #d29922;
  --c-data: #ff7b72; --c-after_sync: #f0883e; --c-allocator: #d4a72c; --c-launching: #bc8cff;
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
.red { --level: var(--red); } .yellow { --level: var(--yellow); } .green, .grey-green { --level: var(--green); }
.info { --level: var(--info); } .grey { --level: var(--grey); }
.level { color: var(--level); font-weight: 600; }
.bar { display: flex; height: 1.5rem; border-radius: .25rem; overflow: hidden; background: var(--track); }
.bar.thin { height: .8rem; min-width: 6rem; }
.bar span { display: block; height: 100%; min-width: 0; }
.strip { position: relative; height: 1.6rem; background: var(--track); border-radius: .25rem; overflow: hidden; }
.strip span { position: absolute; top: 0; bottom: 0; min-width: 2px; background: var(--c-idle); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .5rem 0 0; padding: 0; list-style: none; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: .15em; margin-right: .4em; }
.facts { display: flex; flex-wrap: wrap; gap: .6rem 2rem; margin: 1rem 0; }
.facts div { min-width: 6rem; } .facts b { display: block; font-size: 1.25rem; font-weight: 600; }
.facts small { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--dim); font-weight: 500; font-size: .85rem; text-align: left; vertical-align: bottom; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; white-space: nowrap; padding-right: 1.1rem; }
td.wide { width: 38%; } td.name { overflow-wrap: anywhere; }
ul.notes { padding-left: 1.2rem; margin: .4rem 0; }
@media print { html { font-size: 11.7px; } body { max-width: none; padding: 0; font-size: 11px; }
  h2 { break-after: avoid; }
  .verdict, tr, .bar, .strip { break-inside: avoid; } .scroll { overflow: visible; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is loaded and nothing runs, whatever the texts in the page contain."""


def document(title: str, *body: object, footer: str = "") -> str:
    """A whole page as text."""
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n"
    )
    inside = join((*body, element("footer", footer) if footer else ""))
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n{inside}\n</body>\n</html>\n'
