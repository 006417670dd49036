"""Line plots as SVG text, with nothing but Python: panels side by side over one legend.

    panel = Panel("learning rate 1e-3", "step", "reward")
    panel.line([(1, 0.3), (2, 0.4)], colour="#1f6feb", dashed=False)
    write_svg(path, [panel], [("none", "#1f6feb", False)])
"""

import math
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 330, 240, 58, 30, 40, 12


@dataclass
class Panel:
    title: str
    x_label: str
    y_label: str
    logarithmic: bool = False  # of y; values <= 0 are left out
    x_ticks: list | None = None  # [(x, text)], for categories
    lines: list = field(default_factory=list)
    points: list = field(default_factory=list)
    y_range: tuple | None = None

    def line(self, points, colour, dashed=False):
        self.lines.append(([p for p in points if self.shown(p[1])], colour, dashed))

    def point(self, x, y, colour, hollow=False):
        if self.shown(y):
            self.points.append((x, y, colour, hollow))

    def shown(self, y):
        return y is not None and math.isfinite(y) and (y > 0 or not self.logarithmic)

    def values(self):
        all_points = [p for points, _, _ in self.lines for p in points] + [(x, y) for x, y, _, _ in self.points]
        return [p[0] for p in all_points], [p[1] for p in all_points]


def nice_ticks(low, high, count=5):
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def share_ranges(panels):
    """One y range for panels side by side, so that they can be compared."""
    values = [y for panel in panels for y in panel.values()[1]]
    if not values:
        return
    low, high = min(values), max(values)
    if panels[0].logarithmic:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)
    elif high == low:
        low, high = low - 0.5, high + 0.5
    for panel in panels:
        panel.y_range = (low, high)


def draw(panel, at):
    xs, _ = panel.values()
    ticks_x = panel.x_ticks or [(v, f"{v:g}") for v in nice_ticks(min(xs, default=0), max(xs, default=1) or 1)]
    x_low, x_high = min([x for x, _ in ticks_x] + xs), max([x for x, _ in ticks_x] + xs)
    if panel.x_ticks:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    y_low, y_high = panel.y_range or (0, 1)
    scale = math.log10 if panel.logarithmic else float
    right, bottom = WIDTH - GAP, HEIGHT - BOTTOM

    def px(x):
        return at + LEFT + (right - LEFT) * (x - x_low) / ((x_high - x_low) or 1)

    def py(y):
        return bottom - (bottom - TOP) * (scale(y) - scale(y_low)) / ((scale(y_high) - scale(y_low)) or 1)

    if panel.logarithmic:
        ticks_y = [(10.0**e, f"1e{e}") for e in range(round(math.log10(y_low)), round(math.log10(y_high)) + 1)]
    else:
        ticks_y = [(v, f"{v:.3g}") for v in nice_ticks(y_low, y_high)]
    out = [f'<text x="{at + (LEFT + right) / 2:.1f}" y="18" class="title">{escape(panel.title)}</text>']
    for value, text in ticks_y:
        out.append(f'<path class="grid" d="M{at + LEFT} {py(value):.1f}H{at + right}"/>'
                   f'<text x="{at + LEFT - 5}" y="{py(value) + 4:.1f}" class="y">{escape(text)}</text>')  # fmt: skip
    for value, text in ticks_x:
        out.append(f'<text x="{px(value):.1f}" y="{bottom + 15}" class="x">{escape(text)}</text>')
    out.append(f'<path class="axis" d="M{at + LEFT} {TOP}V{bottom}H{at + right}"/>'
               f'<text x="{at + (LEFT + right) / 2:.1f}" y="{HEIGHT - 8}" class="x">{escape(panel.x_label)}</text>'
               f'<text class="x" transform="translate({at + 13} {(TOP + bottom) / 2}) rotate(-90)">{escape(panel.y_label)}</text>')  # fmt: skip
    for points, colour, dashed in panel.lines:
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in points)
        if path:
            dash = ' stroke-dasharray="5 3"' if dashed else ""
            out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
    for x, y, colour, hollow in panel.points:
        out.append(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3.2" stroke="{colour}" fill="{"#fff" if hollow else colour}"/>')
    return out


def write_svg(path, panels, legend):
    """Writes panels over one legend, [(text, colour, dashed)]. For equal y ranges call share_ranges first."""
    columns = 4
    height = HEIGHT + 8 + 18 * math.ceil(len(legend) / columns)
    width = WIDTH * len(panels)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
           "<style>.title{font-size:12px;text-anchor:middle;font-weight:600}.x{text-anchor:middle}.y{text-anchor:end}"
           ".grid{stroke:#ddd}.axis{stroke:#555;fill:none}</style>", f'<rect width="{width}" height="{height}" fill="#fff"/>']  # fmt: skip
    for i, panel in enumerate(panels):
        out += draw(panel, i * WIDTH)
    for i, (text, colour, dashed) in enumerate(legend):
        x, y = LEFT + (i % columns) * (width - LEFT) // columns, HEIGHT + 12 + 18 * (i // columns)
        dash = ' stroke-dasharray="5 3"' if dashed else ""
        out.append(f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="2"{dash}/><text x="{x + 28}" y="{y + 4}">{escape(text)}</text>')
    path.write_text("\n".join(out + ["</svg>"]) + "\n")
