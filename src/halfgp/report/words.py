"""Numbers as people write them: with units, and with as many digits as mean something."""

from __future__ import annotations

import math

FULL = "█"
EIGHTHS = " ▏▎▍▌▋▊▉"


def number(value: float | None, digits: int = 4) -> str:
    """Rounded to significant digits, with a true minus sign; a dash for what is not there."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        text = f"{mantissa}·10{_raised(int(exponent))}"
    return text.replace("-", "−")


def count(value: int) -> str:
    """With separators: 12,345."""
    return f"{value:,}"


def plural(value: int, noun: str) -> str:
    """So many of something: "1 row", "2,000 rows"; "passes" and "coordinates" alike."""
    ending = "" if value == 1 else "es" if noun.endswith("s") else "s"
    return f"{value:,} {noun}{ending}"


def duration(seconds: float) -> str:
    """Milliseconds to hours."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """Bytes to terabytes, in powers of ten as disks and `memory_limit` have them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def percent(share: float, digits: int = 1) -> str:
    """A share of one: 0.953 is 95.3 %."""
    return f"{100 * share:.{digits}f} %"


def bar(share: float, width: int = 20) -> str:
    """A bar of block characters, full at 1."""
    eighths = round(8 * width * min(max(share, 0.0), 1.0))
    return (FULL * (eighths // 8) + EIGHTHS[eighths % 8]).strip()


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
