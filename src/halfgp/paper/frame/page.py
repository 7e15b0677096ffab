"""The page: every result in the order of the paper, each claim with its verdict. All text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from halfgp.paper.frame import store
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.fingerprints import modules_of, path_of, source_of
from halfgp.paper.frame.part import Claim, Part, Table, Verdict
from halfgp.paper.frame.store import Result, Status
from halfgp.report import words
from halfgp.report.page import style_sheet
from halfgp.report.pictures import embedded

Found = Sequence[tuple[Part, Result]]

SHOWN = ("halfgp.paper.parts.", "halfgp.paper.studies.")  # of the code, what is about a part

MODES = {
    "quick": "This is the quick report: every part on small samples, in minutes. Sizes stand in the notes.",
    "full": "",
}


def build_page(contents: Sequence[Part], context: Context) -> str:
    """HTML in one piece, without scripts and addresses, from what is kept in the output."""
    template = Template(files("halfgp.paper.frame").joinpath("page.html").read_text(encoding="utf-8"))
    kept = ((part, store.read(context.output, part.name)) for part in contents)
    found = [(part, result) for part, result in kept if result is not None]
    return template.substitute(
        style=style_sheet(),
        subtitle=escape(_subtitle(contents, found)),
        notices=_notices(contents, found, context),
        tiles=_tiles(found),
        summary=_summary(found),
        main="".join(_section(*pair, context) for pair in found if not _in_appendix(pair[0])),
        appendix="".join(_section(*pair, context) for pair in found if _in_appendix(pair[0])),
        made_with=escape(_made_with(found)),
    )


def _in_appendix(part: Part) -> bool:
    return part.place.startswith("Appendix")


def _subtitle(contents: Sequence[Part], found: Found) -> str:
    claims = sum(len(result.claims) for _, result in found)
    seconds = sum(result.seconds for _, result in found)
    return (
        f"{len(found)} of {len(contents)} figures and tables, {words.plural(claims, 'claim')}, measured in"
        f" {words.duration(seconds)}."
    )


def _notices(contents: Sequence[Part], found: Found, context: Context) -> str:
    """What a reader must know before the verdicts."""
    texts = [MODES[context.mode]]
    for status, verb in ((Status.FAILED, "failed"), (Status.SKIPPED, "skipped")):
        names = [part.short_place for part, result in found if result.status is status]
        if names:
            texts.append(f"{words.plural(len(names), 'part')} {verb}: {', '.join(names)}.")
    texts += [
        f"Required, but {claim.verdict.value}: {part.place}: {claim.text}"
        for part, result in found
        for claim in result.claims
        if claim.required and claim.verdict is not Verdict.HOLDS
    ]
    ran = {part.name for part, _ in found}
    absent = [part.short_place for part in contents if part.name not in ran]
    if absent:
        texts.append(f"Not run yet: {', '.join(absent)}.")
    return "".join(f'<p class="notice">{escape(text)}</p>' for text in texts if text)


def _tiles(found: Found) -> str:
    """How many claims have each verdict."""
    verdicts = [claim.verdict for _, result in found for claim in result.claims]
    return "".join(
        f'<div class="tile {_css(verdict)}"><span class="value">{verdicts.count(verdict)}</span>'
        f'<span class="label">{escape(verdict.value)}</span></div>'
        for verdict in Verdict
    )


def _summary(found: Found) -> str:
    """Every claim in a row, with a link to its part."""
    rows = "".join(
        f'<tr><td><a href="#{escape(part.name)}">{escape(part.short_place)}</a></td>'
        f"<td>{escape(claim.text)}</td><td>{_badge(claim.verdict)}</td></tr>"
        for part, result in found
        for claim in result.claims
    )
    head = "<thead><tr><th>part</th><th>claim</th><th>verdict</th></tr></thead>"
    return f'<table class="summary">{head}<tbody>{rows}</tbody></table>'


def _section(part: Part, result: Result, context: Context) -> str:
    head = f'<h3><span class="place">{escape(part.place)}</span> {escape(part.title)}</h3>'
    done = result.status is Status.DONE
    if not done:
        head += f'<p class="notice">{escape(result.status.value.capitalize())}: {escape(result.reason)}</p>'
    figures = _figures(part, result, context) if done else []
    if done and part.table is not None:
        head += _table(part.table(result.data))
    shown = f'<div class="figures">{"".join(figures)}</div>' if figures else ""
    told = "".join(_claim(claim) for claim in result.claims) + _about(part, result, context)
    # Where there is room, one picture or two stand beside as many claims; more stand above.
    layout = "beside" if 0 < len(figures) <= min(2, len(result.claims)) else "above"
    body = f'<div class="{layout}">{shown}<div>{told}</div></div>'
    return f'<article id="{escape(part.name)}">{head}{body}</article>'


def _figures(part: Part, result: Result, context: Context) -> list[str]:
    if part.panels is None:
        return []
    panels = part.panels(result.data)
    paths = store.picture_paths(context.output, part.name)
    return [
        _figure(
            embedded(
                path.read_text(encoding="utf-8"),
                f"{part.name}-{k}",
                f"{part.place}, {part.title}{': ' * bool(panel.title)}{panel.title}",
            ),
            panel.title,
            panel.caption,
        )
        for k, (panel, path) in enumerate(zip(panels, paths, strict=True))
    ]


def _figure(svg: str, title: str, caption: str) -> str:
    heading = f"<h4>{escape(title)}</h4>" if title else ""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{heading}{svg}{below}</figure>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.heading)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in table.rows
    )
    caption = f'<p class="about">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'<div class="card wide"><table class="figures-of"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{caption}"
    )


def _claim(claim: Claim) -> str:
    facts = (("the paper", claim.paper), ("measured", claim.measured), ("why", claim.reason))
    shown = "".join(f"<dt>{label}</dt><dd>{escape(text)}</dd>" for label, text in facts if text)
    return (
        f'<div class="card claim"><p>{_badge(claim.verdict)} <strong>{escape(claim.text)}</strong></p>'
        f"<dl>{shown}</dl></div>"
    )


def _badge(verdict: Verdict) -> str:
    return f'<span class="badge {_css(verdict)}">{escape(verdict.value)}</span>'


def _css(verdict: Verdict) -> str:
    return verdict.name.lower().replace("_", "-")


def _about(part: Part, result: Result, context: Context) -> str:
    """What was measured, warnings, time, and the code that did it."""
    note = f'<p class="about note">{escape(result.note)}</p>' if result.note else ""
    given = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
    count = words.plural(len(result.warnings), "warning")
    warned = f"<details><summary>{count}</summary><ul>{given}</ul></details>" if given else ""
    older = "" if store.is_current(part, result, context) else ", by earlier code or data"
    sources = "".join(
        f"<h4>{escape(path_of(module))}</h4><pre>{escape(source_of(module))}</pre>"
        for module in modules_of(part.module)
        if module.startswith(SHOWN) or module == part.module
    )
    code = (
        f"<details><summary>{words.duration(result.seconds)}{older} · <code>{escape(path_of(part.module))}"
        f"</code></summary>{sources}</details>"
    )
    return f"{note}{warned}{code}"


def _made_with(found: Found) -> str:
    """Versions and machines of all results; more than one where a run was resumed elsewhere."""
    made = {" · ".join(f"{k} {v}" for k, v in r.versions.items()) + f"; on {r.machine}" for _, r in found}
    return " And with ".join(f"{text}." for text in sorted(made))
