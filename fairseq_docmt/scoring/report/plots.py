"""Line plots that compare systems, as SVG."""

import io
from typing import Dict, Optional

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure


def line_plot(
    lines: Dict[str, Dict[str, float]], across: str, up: str, dashed: Optional[dict] = None
) -> Markup:
    """Plot one line per system.

    Args:
        lines: system -> position on the horizontal axis, in order -> value.
        across, up: labels of the horizontal and the vertical axis.
        dashed: chance level as a dashed line: position -> value; None for no such line.

    Returns:
        An ``<svg>`` element; names and labels are escaped.
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    # Collect all positions first: a line that lacks some must not change their order.
    places = list(dict.fromkeys(place for line in lines.values() for place in line))
    at = {place: number for number, place in enumerate(places)}
    for name, line in lines.items():
        axes.plot([at[p] for p in line], list(line.values()), "-o", ms=4, label=_plain(name))
    if dashed:
        known = {place: value for place, value in dashed.items() if place in at}
        axes.plot(
            [at[p] for p in known], list(known.values()), "--", color="gray", label="by chance"
        )
    axes.set_xticks(range(len(places)), [_plain(place) for place in places])
    if len(places) > 8:
        axes.tick_params(axis="x", rotation=60)
    axes.set_xlabel(_plain(across))
    axes.set_ylabel(_plain(up))
    axes.grid(alpha=0.3)
    # Passed explicitly, because matplotlib leaves out labels that begin with an underscore.
    axes.legend(handles=axes.lines, labels=[str(line.get_label()) for line in axes.lines])
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{across}{up}"}):
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return Markup(text[text.index("<svg") :])


def _plain(text: str) -> str:
    """Escape dollar signs, which matplotlib would read as mathematics."""
    return str(text).replace("$", r"\$")
