"""Line plots that compare systems, as SVG."""

import io
import warnings
from typing import Dict, Optional

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure


def line_plot(
    lines: Dict[str, Dict[str, float]],
    across: str,
    up: str,
    counts: Dict[str, int],
    dashed: Optional[dict] = None,
) -> Markup:
    """Draw a plot with a line for each system, and return it as SVG.

    Args:
        lines: system -> label of the point on the horizontal axis -> value.
        across: label of the horizontal axis.
        up: label of the vertical axis.
        counts: label of the point -> number of segments or items behind its values, in the order of
            the horizontal axis.  Points without a count are left out.
        dashed: label of the point -> chance accuracy, drawn as a dashed line; None for no line.

    Returns:
        An ``<svg>`` element; names and labels are escaped.
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    at = {place: number for number, place in enumerate(counts)}
    for name, line in lines.items():
        shown = {place: value for place, value in line.items() if place in at}
        axes.plot([at[p] for p in shown], list(shown.values()), "-o", ms=4, label=_plain(name))
    if dashed:
        known = {place: value for place, value in dashed.items() if place in at}
        axes.plot(
            [at[p] for p in known], list(known.values()), "--", color="gray", label="by chance"
        )
    labels = [f"{_plain(place)}\n({count:,})" for place, count in counts.items()]
    axes.set_xticks(range(len(labels)), labels)
    if len(labels) > 8:
        axes.tick_params(axis="x", rotation=60)
    axes.set_xlabel(_plain(across))
    axes.set_ylabel(_plain(up))
    axes.grid(alpha=0.3)
    # Passed explicitly, because matplotlib leaves out labels that begin with an underscore.
    axes.legend(handles=axes.lines, labels=[str(line.get_label()) for line in axes.lines])
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{across}{up}"}):
        stream = io.StringIO()
        with warnings.catch_warnings():
            # The text stays text, which browsers show in fonts of their own.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return Markup(text[text.index("<svg") :])


def _plain(text: str) -> str:
    """Escape dollar signs, because matplotlib would read the text between them as a formula."""
    return str(text).replace("$", r"\$")
