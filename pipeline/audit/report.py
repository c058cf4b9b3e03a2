"""The audit as one self-contained HTML page without scripts: verdict, checks, plots and example rows.

All inline SVG and CSS; the page follows the reader's light or dark theme.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..vocab.vocabulary import Vocabulary
from .checks import Audit, Check
from .decode import Token, decode_row

MAX_BARS = 64
NUM_TOKENS_SHOWN = 20
CHART_WIDTH, CHART_HEIGHT = 520, 200
LEFT, BOTTOM = 56, 26

LABELS = {"sop": ("in order", "swapped"), "none": ("one segment", "–")}
MARKS = {"ok": ("✓", "holds", "good"), "bad": ("✕", "fails", "bad"), "info": ("·", "for information", "soft")}
HEADLINES = (
    "rows",
    "tokens",
    "IsNext",
    "pairs in order",
    "masked share",
    "padding at fixed length",
)

STYLE = """
:root { color-scheme: light dark;
  --page: #f6f6f3; --card: #fff; --ink: #16181d; --soft: #5d626c; --line: #e2e2dc; --grid: #ececE6;
  --a: #2a78d6; --b: #d9622b; --a-tint: #e8f1fc; --b-tint: #fdeee6;
  --mask: #5b3fb5; --mask-ink: #fff; --random: #c02d46; --keep: #0c7f5c; --good: #0c7f5c; --bad: #c02d46; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14161a; --card: #1c1f25; --ink: #eceef2; --soft: #a0a6b1; --line: #2e323a; --grid: #282c33;
  --a: #5a9df0; --b: #f0885a; --a-tint: #1b2a3e; --b-tint: #3a261c;
  --mask: #9d86f0; --mask-ink: #14161a; --random: #f27389; --keep: #45c496; --good: #45c496; --bad: #f27389; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 0; } .soft { color: var(--soft); } .note { color: var(--soft); font-size: 13px; margin-bottom: 12px; }
.kicker { color: var(--soft); font-size: 13px; letter-spacing: .04em; text-transform: uppercase; margin-bottom: 8px; }
.good { color: var(--good); } .bad { color: var(--bad); }
.chips { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 14px; }
.chips span { border: 1px solid var(--line); border-radius: 99px; padding: 1px 10px; font-size: 13px;
  background: var(--card); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 26px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 20px; }
.tile b { display: block; font-size: 25px; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.tile b + b { font-size: 17px; color: var(--soft); }
.card { margin-bottom: 16px; min-width: 0; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
.grid .card { margin: 0; } .grid + .card, .card + .grid { margin-top: 16px; }
@media (max-width: 800px) { .grid { grid-template-columns: minmax(0, 1fr); } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } td { font-variant-numeric: tabular-nums; }
td.mark { width: 24px; font-weight: 700; } tr.info td { color: var(--soft); }
td.bad { font-weight: 600; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
.band { fill: var(--grid); } .gridline { stroke: var(--grid); } .axis { stroke: var(--soft); }
.bar-a { fill: var(--a); } .bar-b { fill: var(--b); } .bar-m { fill: var(--mask); }
rect:hover { opacity: .7; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); margin: 2px 0 10px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.row { padding: 14px 0 12px; border-top: 1px solid var(--line); }
.row p { line-height: 2.25; overflow-wrap: anywhere; }
.row .head { display: flex; gap: 12px; font-size: 13px; color: var(--soft); line-height: 1.5; }
.label { font-weight: 650; color: var(--ink); }
.seg-a, .seg-b { padding: 3px 2px; border-radius: 4px;
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.seg-a { background: var(--a-tint); } .seg-b { background: var(--b-tint); }
.sep { color: var(--soft); font-size: 12px; }
ruby { ruby-position: over; white-space: nowrap; } rt { font-size: 11px; color: var(--soft); }
ruby > span { border-radius: 4px; padding: 1px 4px; }
.mask { background: var(--mask); color: var(--mask-ink); font-size: 12px; } .random { color: var(--random);
  border: 1.5px solid var(--random); } .kept { color: var(--keep); border-bottom: 2.5px dotted var(--keep); }
"""


def render_report(
    audit: Audit,
    rows: Sequence[Mapping[str, Any]],
    vocabulary: Vocabulary,
    other: Audit | None = None,
    names: tuple[str, str] = ("This corpus", "The other"),
) -> str:
    """Return the page for `audit`, with example `rows` of instances (as ``pa.Table.to_pylist`` gives them).

    With `other`, the two corpora are shown side by side under `names`.
    """
    audits = [(names[0], audit)] if other is None else [(names[0], audit), (names[1], other)]
    parts = [
        *(_verdict(name, one, alone=other is None) for name, one in audits),
        _tiles(audits),
        '<div class="grid">',
        *_charts(audits),
        "</div>",
        _examples(rows, vocabulary, _labels(audit)),
        _check_table(audits),
    ]
    title = "Audit of instances"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>\n{_lines(parts)}\n</main></body></html>\n"
    )


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(parts)


def _verdict(name: str, audit: Audit, *, alone: bool) -> str:
    judged = [check for check in audit.checks if check.verdict != "info"]
    failed = audit.failed
    if failed:
        some = ", ".join(check.name for check in failed[:3]) + (" …" if len(failed) > 3 else "")
        count = f"{len(failed)} of {len(judged)} checks {'fails' if len(failed) == 1 else 'fail'}"
        line = f'<span class="bad">{count}</span>: {escape(some)}'
    else:
        line = f'<span class="good">All {len(judged)} checks hold.</span> The corpus matches its configuration.'
    options = "".join(f"<span>{escape(_option(key, value))}</span>" for key, value in audit.config.items())
    kicker = "Audit of pre-training instances" if alone else f"Audit of pre-training instances · {name}"
    return f'<p class="kicker">{escape(kicker)}</p><h1>{line}</h1><div class="chips">{options}</div><br>'


def _option(name: str, value: object) -> str:
    shown = " / ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"{name.replace('_', ' ')} {shown}"


def _tiles(audits: Sequence[tuple[str, Audit]]) -> str:
    """Return the headline figures, those of a second corpus below the first's."""
    tiles = []
    for name in HEADLINES:
        checks = [check for _, audit in audits for check in audit.checks if check.name == name]
        figures = "".join(f"<b>{escape(check.measured.split(' (')[0])}</b>" for check in checks)
        if figures:
            tiles.append(f'<div class="tile">{figures}<span>{name}</span></div>')
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _check_table(audits: Sequence[tuple[str, Audit]]) -> str:
    """Return all checks, one per line; two corpora have their columns side by side."""
    names = list(dict.fromkeys(check.name for _, audit in audits for check in audit.checks))
    found = [{check.name: check for check in audit.checks} for _, audit in audits]
    heads = [name for name, _ in audits] if len(audits) > 1 else ["Measured"]
    head = "".join(f"<th></th><th>{escape(title)}</th><th>Expected</th>" for title in heads)
    lines = [_check_line(name, [checks.get(name) for checks in found]) for name in names]
    table = f'<div class="scroll"><table><tr><th>Check</th>{head}</tr>{_lines(lines)}</table></div>'
    return _card("Checks", "Intervals are 95 % intervals; the checks allow for chance.", table)


def _check_line(name: str, checks: Sequence[Check | None]) -> str:
    verdicts = {check.verdict for check in checks if check}
    cells = [f'<td class="{"bad" if "bad" in verdicts else ""}">{escape(name)}</td>']
    for check in checks:
        if check is None:
            cells.append("<td></td><td></td><td></td>")
            continue
        sign, meaning, colour = MARKS[check.verdict]
        cells.append(f'<td class="mark {colour}" title="{meaning}">{sign}</td>')
        cells.append(f'<td class="{"bad" if check.verdict == "bad" else ""}">{escape(check.measured)}</td>')
        cells.append(f'<td class="soft">{escape(check.asked)}</td>')
    return f'<tr class="{"info" if verdicts == {"info"} else ""}">{"".join(cells)}</tr>'


def _charts(audits: Sequence[tuple[str, Audit]]) -> Iterator[str]:
    """Yield the plots, corpus by corpus for each kind of plot."""
    mirror = (
        "Share of rows by length in tokens. The two halves should mirror each other, so that length does not give away "
        "the label."
    )
    falls = "Share of masks by position in the row. It falls off as rows end, and is 0 at [CLS]."
    gives = "How well a single measure of a row predicts its label; 0.5 is chance. The grey band is the tolerance."
    titled = [(f" · {name}" if len(audits) > 1 else "", audit) for name, audit in audits]
    for name, audit in titled:
        zero, one = _labels(audit)
        legend = _legend(("--a", f"label 0: {zero}"), ("--b", f"label 1: {one} (downwards)"))
        yield _card(f"Row lengths{name}", mirror, legend + _mirrored(*audit.lengths))
    for name, audit in titled:
        yield _card(f"Positions of the masks{name}", falls, _histogram(audit.mask_positions))
    for name, audit in titled:
        yield _card(f"Most frequently masked{name}", "Original tokens by share of all masks.", _ranking(audit))
    for name, audit in titled:
        curves = [check for check in audit.checks if check.name.startswith("AUC")]
        if curves:
            yield _card(f"What gives the label away{name}", gives, _auc_plot(curves))


def _card(title: str, note: str, body: str) -> str:
    return f'<section class="card"><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{body}</section>'


def _labels(audit: Audit) -> tuple[str, str]:
    """Return what labels 0 and 1 mean."""
    return LABELS.get(audit.config["pairing"], ("IsNext", "NotNext"))


def _legend(*entries: tuple[str, str]) -> str:
    items = "".join(f'<span><i style="background: var({colour})"></i>{name}</span>' for colour, name in entries)
    return f'<div class="legend">{items}</div>'


def _bins(counts: Sequence[int]) -> tuple[np.ndarray, int]:
    """Sum neighbours until at most `MAX_BARS` bins are left; return the sums and the number of values per bin."""
    width = -(-len(counts) // MAX_BARS)
    padded = np.zeros(-(-len(counts) // width) * width)
    padded[: len(counts)] = counts
    return padded.reshape(-1, width).sum(axis=1), width


def _svg(body: Iterable[str], title: str, height: int = CHART_HEIGHT) -> str:
    return f'<svg viewBox="0 0 {CHART_WIDTH} {height}" role="img" aria-label="{escape(title)}">{_lines(body)}</svg>'


def _axis(width: int, num_bins: int, y: float) -> Iterator[str]:
    """Yield the horizontal axis of bins of `width` values, at height `y`, with about six round ticks."""
    last = width * num_bins
    step = next(step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384) if last / step <= 8)
    yield f'<line class="axis" x1="{LEFT}" x2="{CHART_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
    for value in range(0, last + 1, step):
        x = LEFT + (CHART_WIDTH - LEFT) * value / last
        anchor = "end" if value > 0.97 * last else "middle"
        yield f'<text x="{x:.1f}" y="{CHART_HEIGHT - 6}" text-anchor="{anchor}">{value}</text>'


def _bars(shares: np.ndarray, width: int, base: float, scale: float, style: str, what: str) -> Iterator[str]:
    """Yield bars on the line `base`, upwards for a positive `scale` (pixels per share), with values as tooltips."""
    step = (CHART_WIDTH - LEFT) / len(shares)
    for index, share in enumerate(shares.tolist()):
        height = abs(share * scale)
        if height:
            top = base - height if scale > 0 else base
            first, last = index * width, (index + 1) * width - 1
            span = f"{first}" if first == last else f"{first} to {last}"
            yield (
                f'<rect class="{style}" x="{LEFT + index * step + 0.5:.1f}" y="{top:.1f}" width="{step - 1:.1f}" '
                f'height="{height:.1f}"><title>{what} {span}: {share:.2%}</title></rect>'
            )


def _scale_line(share: float, y: float) -> str:
    return (
        f'<line class="gridline" x1="{LEFT}" x2="{CHART_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.1%}</text>'
    )


def _mirrored(up: Sequence[int], down: Sequence[int]) -> str:
    """Plot two histograms of the same measure, one upwards and one downwards, as shares of all rows."""
    (above, width), (below, _) = _bins(up), _bins(down)
    total = max(above.sum() + below.sum(), 1)
    above, below = above / total, below / total
    highest = max(above.max(), below.max(), 1e-9)
    half = (CHART_HEIGHT - BOTTOM) / 2
    scale = (half - 8) / highest
    return _svg(
        [
            _scale_line(highest, half - highest * scale),
            _scale_line(highest, half + highest * scale),
            *_bars(above, width, half, scale, "bar-a", "label 0, length"),
            *_bars(below, width, half, -scale, "bar-b", "label 1, length"),
            *_axis(width, len(above), half),
        ],
        "Row lengths by label",
    )


def _histogram(counts: Sequence[int]) -> str:
    bins, width = _bins(counts)
    shares = bins / max(bins.sum(), 1)
    base = CHART_HEIGHT - BOTTOM
    scale = (base - 10) / max(shares.max(), 1e-9)
    return _svg(
        [
            _scale_line(float(shares.max()), base - shares.max() * scale),
            *_bars(shares, width, base, scale, "bar-m", "position"),
            *_axis(width, len(shares), base),
        ],
        "Masks by position in the row",
    )


def _ranking(audit: Audit) -> str:
    """Plot the most frequently masked tokens as horizontal bars in two columns."""
    total = max(sum(audit.mask_positions), 1)
    top = audit.top_masked[:NUM_TOKENS_SHOWN]
    largest = max((count for _, count in top), default=1) or 1
    half, line = (len(top) + 1) // 2, 22
    column = CHART_WIDTH / 2
    body = []
    for index, (token, count) in enumerate(top):
        x, y = column * (index // max(half, 1)), line * (index % max(half, 1))
        length = (column - 150) * count / largest
        body.append(
            f'<text x="{x + 84:.0f}" y="{y + 15}" text-anchor="end">{escape(token)}</text>'
            f'<rect class="bar-m" x="{x + 92:.0f}" y="{y + 4}" width="{length:.1f}" height="14" rx="2">'
            f"<title>{escape(token)}: {count:,} times</title></rect>"
            f'<text x="{x + 98 + length:.1f}" y="{y + 15}">{count / total:.2%}</text>'
        )
    return _svg(body, "Most frequently masked tokens", height=max(line * half, line))


def _auc_plot(checks: Sequence[Check]) -> str:
    """Plot areas under the curve as dots with their intervals, around a line at 0.5."""
    low, high, left, line = 0.35, 0.65, 150, 34

    def x_of(value: float) -> float:
        return left + (CHART_WIDTH - left - 50) * (min(max(value, low), high) - low) / (high - low)

    height = line * len(checks)
    body = []
    for tick in (0.4, 0.45, 0.5, 0.55, 0.6):
        style = "axis" if tick == 0.5 else "gridline"
        body.append(f'<line class="{style}" x1="{x_of(tick):.1f}" x2="{x_of(tick):.1f}" y1="0" y2="{height}"/>')
        body.append(f'<text x="{x_of(tick):.1f}" y="{height + 18}" text-anchor="middle">{tick:.2f}</text>')
    for index, check in enumerate(checks):
        y = line * index + line / 2
        if check.tolerance:
            x, width = x_of(0.5 - check.tolerance), x_of(0.5 + check.tolerance) - x_of(0.5 - check.tolerance)
            body.append(f'<rect class="band" x="{x:.1f}" y="{y - 9}" width="{width:.1f}" height="18" rx="4"/>')
        name = check.name.removeprefix("AUC of ").removesuffix(" for the label")
        start, stop = check.interval or (check.value, check.value)
        colour = "var(--bad)" if check.verdict == "bad" else "var(--a)"
        body.append(
            f'<g stroke="{colour}" fill="{colour}"><title>{start:.4f} to {stop:.4f}</title>'
            f'<line x1="{x_of(start):.1f}" x2="{x_of(stop):.1f}" y1="{y}" y2="{y}" stroke-width="3"/>'
            f'<circle cx="{x_of(check.value):.1f}" cy="{y}" r="5"/></g>'
            f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            f'<text x="{CHART_WIDTH}" y="{y + 4}" text-anchor="end">{check.value:.3f}</text>'
        )
    return _svg(body, "Areas under the curve", height=height + 26)


def _examples(rows: Sequence[Mapping[str, Any]], vocabulary: Vocabulary, labels: tuple[str, str]) -> str:
    legend = (
        '<div class="legend"><span><i style="background: var(--a)"></i>segment A</span>'
        '<span><i style="background: var(--b)"></i>segment B</span>'
        '<span><ruby><span class="mask">[MASK]</span></ruby> masked</span>'
        '<span><ruby><span class="random">token</span></ruby> replaced at random</span>'
        '<span><ruby><span class="kept">token</span></ruby> kept, but predicted</span></div>'
    )
    examples = _lines(_example(row, vocabulary, labels) for row in rows)
    return _card("Example rows", "The original is shown above each token to predict.", legend + examples)


def _example(row: Mapping[str, Any], vocabulary: Vocabulary, labels: tuple[str, str]) -> str:
    tokens = decode_row(row, vocabulary)
    text = ""
    for segment in ("a", "b"):
        words = "".join(_token(token) for token in tokens if token.segment == segment and token.role != "special")
        specials = [
            f'<span class="sep"> {t.text} </span>' for t in tokens if t.segment == segment and t.role == "special"
        ]
        # [CLS] opens the first segment; a [SEP] closes each.
        text += "".join(specials[:-1]) + (f'<span class="seg-{segment}">{words}</span>' if words else "")
        text += "".join(specials[-1:])
    facts = [f"{len(tokens)} tokens", f"{len(row['masked_lm_ids'])} to predict", f"A of document {row['document_a']}"]
    facts += [f"B of document {row['document_b']}"] if row["segment_b_start"] < len(tokens) else []
    head = f'<span class="label">{labels[row["next_sentence_label"]]}</span>'
    head += "".join(f"<span>{fact}</span>" for fact in facts)
    return f'<div class="row"><div class="head">{head}</div><p>{text}</p></div>'


def _token(token: Token) -> str:
    """Return one token as HTML, with a space before it if it starts a word."""
    space = "" if _continues(token.original) else " "
    if token.role in ("a", "b"):
        return space + escape(token.text.removeprefix("##") if _continues(token.text) else token.text)
    above = "" if token.role == "kept" else f"<rt>{escape(token.original)}</rt>"
    shown = f'<span class="{token.role}" title="{escape(token.original)}">{escape(token.text)}</span>'
    return f"{space}<ruby>{shown}{above}</ruby>"


def _continues(piece: str) -> bool:
    return piece.startswith("##") and len(piece) > 2
