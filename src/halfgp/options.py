"""Options, each declared once: its default, its check and its words, from which everything else follows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, field, fields, replace
from numbers import Integral, Real
from textwrap import fill
from typing import Any, TypeVar

from halfgp.errors import InputError

Check = Callable[[str, Any], None]
Self = TypeVar("Self", bound="Options")


def option(default: Any, check: Check, words: str, more: str = "") -> Any:
    """A field of `Options`.

    Args:
        default: its value where nothing is said.
        check: called as check(name, value); raises an `InputError` that names what cannot be.
        words: a sentence about it, for documentation and for the command line.
        more: further sentences, for documentation alone.
    """
    return field(default=default, metadata={"check": check, "words": words, "more": more})


class Options:
    """Options that go together: base of frozen dataclasses whose fields are made by `option`."""

    def check(self: Self, where: str = "") -> Self:
        """Itself, or an `InputError` that names what cannot be, as `group__name` within others."""
        for declared in declarations(type(self)):
            declared.metadata["check"](f"{where}{declared.name}", getattr(self, declared.name))
        return self

    def as_dict(self) -> dict[str, Any]:
        """Values by name."""
        return {declared.name: getattr(self, declared.name) for declared in declarations(type(self))}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Values by name, as scikit-learn asks for them; those of groups within as `group__name`."""
        found = self.as_dict()
        for name, value in list(found.items()):
            if deep and isinstance(value, Options):
                found |= {f"{name}__{inner}": part for inner, part in value.get_params().items()}
        return found

    def with_params(self: Self, **changes: Any) -> Self:
        """The same with some values changed, each by its name, or as `group__name` within a group."""
        whole = {name: value for name, value in changes.items() if "__" not in name}
        _refuse_unknown(type(self), whole)
        changed = replace(self, **whole)  # type: ignore[type-var]
        for name, value in changes.items():
            group, inside, inner = name.partition("__")
            if inside:
                _refuse_unknown(type(self), {group: value})
                part = getattr(changed, group)
                if not isinstance(part, Options):
                    raise InputError(f"`{group}` has no option `{inner}`: it is {part!r:.80}.")
                changed = replace(changed, **{group: part.with_params(**{inner: value})})  # type: ignore[type-var]
        return changed

    def __repr__(self) -> str:
        """What differs from the defaults."""
        said = [
            f"{declared.name}={getattr(self, declared.name)!r}"
            for declared in declarations(type(self))
            if getattr(self, declared.name) is not declared.default
            and getattr(self, declared.name) != declared.default
        ]
        return f"{type(self).__name__}({', '.join(said)})"


def declarations(options: type[Options]) -> tuple[Field[Any], ...]:
    """Its fields, in their order."""
    return fields(options)  # type: ignore[arg-type]


def words_of(options: type[Options], name: str) -> str:
    """The sentence about an option."""
    return str(next(d for d in declarations(options) if d.name == name).metadata["words"])


def documented(cls: type[Any]) -> type[Any]:
    """A decorator: what was declared, written into the docstring."""
    lines = [inspect.cleandoc(cls.__doc__ or ""), "", "Attributes:"]
    for declared in declarations(cls):
        text = f"{declared.name}: {declared.metadata['words']} {declared.metadata['more']}".rstrip()
        lines.append(fill(text, 106, initial_indent=" " * 4, subsequent_indent=" " * 8))
    cls.__doc__ = "\n".join(lines)
    return cls


def signature_of(options: type[Options]) -> inspect.Signature:
    """Of a constructor that takes these options, the first by position and the others by name."""
    parameter = inspect.Parameter
    of_self = parameter("self", parameter.POSITIONAL_ONLY)
    first, *others = declarations(options)
    return inspect.Signature(
        [
            of_self,
            parameter(first.name, parameter.POSITIONAL_OR_KEYWORD, default=first.default),
            *(parameter(d.name, parameter.KEYWORD_ONLY, default=d.default) for d in others),
        ]
    )


def _refuse_unknown(options: type[Options], given: dict[str, Any]) -> None:
    known = [declared.name for declared in declarations(options)]
    for name in given:
        if name not in known:
            raise InputError(f"There is no option `{name}`; there are {', '.join(known)}.")


# ------------------------------------------------------------------------------------------------- checks


def is_integer(value: object) -> bool:
    """Of Python or NumPy, as a grid of parameters holds them; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def one_of(*known: str) -> Check:
    """A name from a list."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, str) or value not in known:
            raise InputError(f"`{name}` must be one of {', '.join(known)}; got {value!r}.")

    return check


def count(least: int, most: int | None = None, none: bool = False) -> Check:
    """An integer within bounds, or None where that is allowed."""

    def check(name: str, value: Any) -> None:
        if value is None and none:
            return
        if not is_integer(value) or value < least:
            also = ", or None" if none else ""
            raise InputError(f"`{name}` must be an integer of at least {least}{also}; got {value!r}.")
        if most is not None and value > most:
            raise InputError(f"`{name}` must be at most {most}; got {value!r}.")

    return check


def positive(none: bool = False) -> Check:
    """A positive finite number, or None where that is allowed."""

    def check(name: str, value: Any) -> None:
        if value is None and none:
            return
        real = isinstance(value, Real) and not isinstance(value, bool)
        if not real or not 0.0 < float(value) < float("inf"):
            raise InputError(f"`{name}` must be a positive finite number; got {value!r}.")

    return check


def flag(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise InputError(f"`{name}` must be True or False; got {value!r}.")


def group(cls: type[Options]) -> Check:
    """Options of that class, each of which is checked."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, cls):
            raise InputError(f"`{name}` must be a `{cls.__name__}`, or None for its defaults; got {value!r}.")
        value.check(f"{name}__")

    return check
