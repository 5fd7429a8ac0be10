"""Shapes that an artifact is built for: `--shapes 'x:1x3x224x224..8x3x224x224'`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optcc.errors import ConfigError

if TYPE_CHECKING:
    from optcc.graph.signature import Dim, Signature, TensorSpec

__all__ = ["InputShapes", "ShapeProfile", "parse_shapes", "profile_for"]

_BATCH = (1, 1, 16)
"""Least, typical and largest batch where nothing else is said."""

Span = tuple[int, int, int]
"""Least, typical and largest size of one dim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShapes:
    """Least, typical and largest shape of one input."""

    name: str
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    @property
    def is_static(self) -> bool:
        """Whether one shape only."""
        return self.min == self.opt == self.max


@dataclass(frozen=True, slots=True)
class ShapeProfile:
    """All inputs, in signature order.

    Attributes:
        source: Where the sizes come from: `--shapes`, `samples`, `static`, `default`.
    """

    inputs: tuple[InputShapes, ...]
    source: str


def parse_shapes(text: str) -> dict[str, InputShapes]:
    """Read the text of `--shapes`.

    Inputs are separated by commas. Each is `NAME:SHAPE`, `NAME:MIN..MAX` or `NAME:MIN..OPT..MAX`,
    a shape being sizes with `x` between. With MIN and MAX alone, OPT is MIN.

    Raises:
        ConfigError: The text cannot be read; the faulty part is named.
    """
    shapes: dict[str, InputShapes] = {}
    for part in (p.strip() for p in text.split(",")):
        name, colon, spans = part.rpartition(":")
        if not colon or not name:
            raise ConfigError(
                f"--shapes has {part!r}, which is not NAME:SHAPE",
                hint="write for example --shapes 'x:1x3x224x224..8x3x224x224'",
            )
        if name in shapes:
            raise ConfigError(f"--shapes names input {name!r} twice")
        shapes[name] = _parse_spans(name, spans)
    return shapes


def _parse_spans(name: str, text: str) -> InputShapes:
    parts = [_parse_shape(name, t) for t in text.split("..")]
    if len(parts) > 3:
        raise ConfigError(
            f"--shapes gives {len(parts)} shapes for {name!r}, at most 3 are possible"
        )
    least, largest = parts[0], parts[-1]
    typical = parts[1] if len(parts) == 3 else least
    if not len(least) == len(typical) == len(largest):
        raise ConfigError(f"--shapes gives shapes of different rank for {name!r}: {text}")
    if any(not a <= b <= c for a, b, c in zip(least, typical, largest, strict=True)):
        raise ConfigError(f"--shapes for {name!r} is not in rising order: {text}")
    return InputShapes(name=name, min=least, opt=typical, max=largest)


def _parse_shape(name: str, text: str) -> tuple[int, ...]:
    sizes = text.strip().split("x") if text.strip() else []
    if any(not s.isdecimal() or int(s) < 1 for s in sizes):
        raise ConfigError(
            f"--shapes has the shape {text!r} for {name!r}, sizes must be whole numbers from 1",
            hint="write for example 1x3x224x224",
        )
    return tuple(map(int, sizes))


def profile_for(
    signature: Signature,
    text: str | None,
    observed: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
) -> ShapeProfile:
    """Decide the sizes of every input.

    A fixed dim keeps its size. A free dim takes it from `--shapes`, else from the samples; the
    batch (a free first dim, and every dim that carries the same symbol) is 1 to 16 at least.

    Args:
        signature: Of the model.
        text: Of `--shapes`, or None.
        observed: Shapes of the samples by input name.

    Raises:
        ConfigError: `--shapes` contradicts the model, or a free dim has no source; the hint is
            then a `--shapes` line to paste.
    """
    given = parse_shapes(text) if text is not None else {}
    _check_given(given, signature)
    seen = {name: list(map(tuple, shapes)) for name, shapes in (observed or {}).items() if shapes}
    _check_seen(seen, signature)
    spans = _Spans(signature, given, seen)
    inputs = [spans.of(spec) for spec in signature.inputs]
    missing = [s.name for s, found in zip(signature.inputs, inputs, strict=True) if found is None]
    if missing:
        raise _no_source(missing[0], signature, spans)
    return ShapeProfile(tuple(i for i in inputs if i is not None), spans.source())


class _Spans:
    """Sizes of free dims from all sources, tied together where dims share a symbol."""

    def __init__(
        self,
        signature: Signature,
        given: Mapping[str, InputShapes],
        seen: Mapping[str, Sequence[tuple[int, ...]]],
    ) -> None:
        self.given, self.seen = given, seen
        self.by_symbol: dict[str, Span] = {}
        self.batch = {s.dims[0] for s in signature.inputs if s.dims and isinstance(s.dims[0], str)}
        self.used: set[str] = set()
        for spec in signature.inputs:
            self._tie(spec)

    def _tie(self, spec: TensorSpec) -> None:
        for index, dim in enumerate(spec.dims or ()):
            own = self._own(spec.name, index)
            if isinstance(dim, str) and own is not None:
                low, typical, high = self.by_symbol.get(dim, own)
                self.by_symbol[dim] = (min(low, own[0]), typical, max(high, own[2]))

    def _own(self, name: str, index: int) -> Span | None:
        """What the user or the samples say of this very dim."""
        if name in self.given:
            shapes = self.given[name]
            return shapes.min[index], shapes.opt[index], shapes.max[index]
        sizes = sorted(shape[index] for shape in self.seen.get(name, ()))
        return (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None

    def span(self, spec: TensorSpec, index: int, dim: Dim) -> Span | None:
        """Return the sizes of one dim, or None when nothing tells them."""
        if isinstance(dim, int):
            return dim, dim, dim
        tied = self.by_symbol.get(dim) if dim is not None else None
        found = tied or self._own(spec.name, index)
        if found is not None:
            self.used.add("--shapes" if self.given else "samples")
        if spec.name in self.given or not (index == 0 or dim in self.batch):
            return found
        if self.given and tied is not None:
            return tied
        self.used.add("default")
        if found is None:
            return _BATCH
        return min(found[0], _BATCH[0]), found[1], max(found[2], _BATCH[2])

    def of(self, spec: TensorSpec) -> InputShapes | None:
        """Return the shapes of one input, or None when a dim has no source."""
        dims = spec.dims if spec.dims is not None else self._free_dims(spec.name)
        if dims is None:
            return None
        spans = [self.span(spec, index, dim) for index, dim in enumerate(dims)]
        known = [s for s in spans if s is not None]
        if len(known) < len(spans):
            return None
        least, typical, largest = (tuple(s[k] for s in known) for k in range(3))
        return InputShapes(name=spec.name, min=least, opt=typical, max=largest)

    def _free_dims(self, name: str) -> tuple[Dim, ...] | None:
        """Dims of an input without a rank: as many as the user or the samples show."""
        if name in self.given:
            return (None,) * len(self.given[name].min)
        return (None,) * len(self.seen[name][0]) if name in self.seen else None

    def source(self) -> str:
        """Name the strongest source in use."""
        order = ("--shapes", "samples", "default")
        return next((s for s in order if s in self.used), "static")


def _check_given(given: Mapping[str, InputShapes], signature: Signature) -> None:
    specs = {s.name: s for s in signature.inputs}
    for name, shapes in given.items():
        if name not in specs:
            near = difflib.get_close_matches(name, specs, n=1, cutoff=0.0)
            raise ConfigError(
                f"--shapes names {name!r}, the inputs are {', '.join(map(repr, specs))}",
                hint=f"did you mean {near[0]!r}?" if near else None,
            )
        for shape in (shapes.min, shapes.max):
            _check_fits("--shapes", specs[name], shape)


def _check_seen(seen: Mapping[str, Sequence[tuple[int, ...]]], signature: Signature) -> None:
    for spec in signature.inputs:
        for shape in dict.fromkeys(seen.get(spec.name, ())):
            _check_fits("a sample", spec, shape)


def _check_fits(who: str, spec: TensorSpec, shape: tuple[int, ...]) -> None:
    if spec.dims is None:
        return
    fits = len(spec.dims) == len(shape) and all(
        not isinstance(d, int) or d == n for d, n in zip(spec.dims, shape, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"{who} gives {_text(shape)} for input {spec.name!r}, which is {_dims_text(spec)}"
        )


def _no_source(name: str, signature: Signature, spans: _Spans) -> ConfigError:
    line = ",".join(_suggestion(s, spans) for s in signature.inputs if _is_free(s))
    spec = next(s for s in signature.inputs if s.name == name)
    return ConfigError(
        f"input {name!r} has free dims ({_dims_text(spec)}) and nothing tells their sizes",
        hint=f"give samples, or adjust and add: --shapes '{line}'",
        where=f"input {name!r}",
    )


def _is_free(spec: TensorSpec) -> bool:
    return spec.dims is None or any(not isinstance(d, int) for d in spec.dims)


def _suggestion(spec: TensorSpec, spans: _Spans) -> str:
    """A line that can be pasted: known sizes as they are, guesses for the rest."""
    dims = spec.dims if spec.dims is not None else (None,)
    guess = (64, 224, 512) if len(dims) == 4 else (1, 64, 128)
    sizes = [spans.span(spec, index, dim) or guess for index, dim in enumerate(dims)]
    return f"{spec.name}:" + "..".join(_text(tuple(s[k] for s in sizes)) for k in (0, 2))


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _dims_text(spec: TensorSpec) -> str:
    if spec.dims is None:
        return "of unknown rank"
    return "x".join("?" if d is None else str(d) for d in spec.dims) or "a scalar"
