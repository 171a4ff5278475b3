"""A jinja2 environment in which no template can hang or fill the memory.

Three rules do it. No value grows past a limit: its size, which is its characters and elements with shared parts counted
each time, is checked when it is made, and before that where one step could overshoot by much. So no single operation
takes long. The clock is looked at in every block and before every operation that costs time. And what is made
altogether is limited too, so that no number of variables adds up to much. Filters, tests and methods are those that
such templates use and that have been looked at; anything else is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, Final, cast

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace

from engine.text.meter import Meter

_MARGIN: Final = 64
"""The longest indent, date format or set of characters to strip: their length multiplies the cost of what they do."""

_FILTERS: Final = (  # noqa: SIM905
    "abs attr capitalize count d default dictsort e escape first float groupby int items last length list lower map "
    "max min reject rejectattr reverse safe select selectattr sort string title truncate unique upper"
).split()
_TESTS: Final = (  # noqa: SIM905
    "boolean callable defined divisibleby eq equalto even false filter float ge gt in integer iterable le lt mapping "
    "ne none number odd sameas sequence string test true undefined == != < <= > >="
).split()
_METHODS: Final[Mapping[type, frozenset[str]]] = {
    str: frozenset(
        (  # noqa: SIM905
            "capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit islower "
            "isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind "
            "rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
        ).split()
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    int: frozenset(),
    float: frozenset(),
}

# Conversions whose width and precision have at most two digits, and no names, so that each takes one argument.
# Possessive, or a format that does not match would be tried in exponentially many ways.
_PERCENT_FORMAT: Final = re.compile(r"(?:[^%]|%%|%[-+ #0]*+\d{0,2}+(?:\.\d{1,2}+)?+[sdif])*+")
_BRACE_FORMAT: Final = re.compile(r"(?:[^{}]|\{\{|\}\}|\{\w*+(?::[-+ ,<>=^0]*+\d{0,2}+(?:\.\d{1,2}+)?+[sdf]?+)?+\})*+")
_FIELD: Final = 100


class TemplateRefusal(Exception):
    """A template called `raise_exception`."""


class MeteredContext(Context):
    """The variables of one rendering, and its meter."""

    meter: Meter

    def derived(self, locals: dict[str, Any] | None = None) -> MeteredContext:
        context = cast("MeteredContext", super().derived(locals))
        context.meter = self.meter
        return context


class _Code(CodeGenerator):
    """Writes the meter into the Python code of a template."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("context.meter.tick()")
        super().blockvisit(nodes, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        literal = sum(len(child.data) for child in node.nodes if isinstance(child, nodes.TemplateData))
        self.writeline(f"context.meter.write({literal})")
        super().visit_Output(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("context.meter.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._kept(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._kept(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._kept(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        self._kept(super().visit_Filter, node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        self._kept(super().visit_Call, node, frame, forward_caller=forward_caller)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self._timed(super().visit_Compare, node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        # A slice is a new value, an item is not.
        visit = self._kept if isinstance(node.arg, nodes.Slice) else self._timed
        visit(super().visit_Getitem, node, frame)

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:
        self._timed(super().visit_Test, node, frame)

    def _kept(self, visit: Callable[..., None], node: nodes.Node, frame: Frame, **options: bool) -> None:
        self.write("context.meter.keep(")
        visit(node, frame, **options)
        self.write(")")

    def _timed(self, visit: Callable[..., None], node: nodes.Node, frame: Frame) -> None:
        self.write("(context.meter.tick() or ")
        visit(node, frame)
        self.write(")")


class _Generation(Extension):
    """`{% generation %}` marks replies for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Namespace(Namespace):
    """As jinja2's, but its names cannot shadow Python's own, and printing it does not print what it holds."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"the name {name!r} is not allowed in a namespace")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of chat templates. Contexts made by it need their `meter` set before rendering."""

    code_generator_class = _Code
    context_class = MeteredContext
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        # Unoptimised, or constant expressions would be worked out unmetered while compiling.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_written,
            extensions=[_Generation, loopcontrols],
        )
        self.filters = {name: FILTERS[name] for name in _FILTERS} | {
            "format": _format,
            "indent": _indent,
            "join": _join,
            "replace": _replace,
            "tojson": _tojson,
            "trim": _trim,
        }
        self.tests = {name: TESTS[name] for name in _TESTS}
        self.globals = {
            "range": self.globals["range"],
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
            "namespace": _namespace,
            "raise_exception": _raise_exception,
        }

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, methods in _METHODS.items():
            if isinstance(obj, kind):
                return attr in methods
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter = cast("MeteredContext", __context).meter
        meter.tick()
        method = getattr(__obj, "__wrapped__", __obj)  # str.format comes wrapped by jinja2
        if isinstance(text := getattr(method, "__self__", None), str):
            _check_method(meter, text, method.__name__, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter = cast("MeteredContext", context).meter
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, (str, list, tuple)) and isinstance(times, int):
                    meter.allow(meter.size(value) * times)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > 64:
                raise SecurityError("a power of more than 64 bits is not allowed")
        elif operator == "%" and isinstance(left, str):
            if not _PERCENT_FORMAT.fullmatch(left):
                raise SecurityError(f"the format {left[:_FIELD]!r} is not allowed")
            meter.allow(len(left) + meter.size(right) + _FIELD * left.count("%"))
        return meter.keep(super().call_binop(context, operator, left, right))

    def call_filter(
        self, name: str, value: Any, args: Any = None, kwargs: Any = None, context: Any = None, eval_ctx: Any = None
    ) -> Any:
        context.meter.tick()
        return super().call_filter(name, value, args, kwargs, context, eval_ctx)

    def call_test(
        self, name: str, value: Any, args: Any = None, kwargs: Any = None, context: Any = None, eval_ctx: Any = None
    ) -> Any:
        context.meter.tick()
        return super().call_test(name, value, args, kwargs, context, eval_ctx)


def _check_method(meter: Meter, text: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of a text's method whose cost or result would be out of proportion. Wrong types are left to it."""
    if name not in _METHODS[str]:
        raise SecurityError(f"the method {name!r} of a text is not allowed")
    if name == "replace" and len(args) >= 2:
        _check_replace(meter, text, args[0], args[1])
    elif name == "join" and args:
        _check_join(meter, text, args[0])
    elif name in ("strip", "lstrip", "rstrip") and args:
        _check_margin(args[0])
    elif name == "format":
        if not _BRACE_FORMAT.fullmatch(text):
            raise SecurityError(f"the format {text[:_FIELD]!r} is not allowed")
        meter.allow(len(text) + text.count("{") * (meter.size([*args, *kwargs.values()]) + _FIELD))


def _check_replace(meter: Meter, text: str, old: object, new: object) -> None:
    if isinstance(old, str) and isinstance(new, str):
        places = text.count(old) if old else len(text) + 1
        meter.allow(len(text) + places * len(new))


def _check_join(meter: Meter, separator: str, items: object) -> None:
    if not isinstance(items, Sized):
        raise SecurityError(f"a {type(items).__name__} cannot be joined")
    meter.allow(meter.size(items) + len(separator) * len(items))


def _check_margin(value: object) -> None:
    if (value if isinstance(value, int) else len(str(value))) > _MARGIN:
        raise SecurityError(f"an indent or a set of more than {_MARGIN} characters is not allowed")


@pass_context
def _written(context: MeteredContext, value: object) -> str:
    """What an output expression prints."""
    context.meter.size(value)
    text = str(value)
    context.meter.write(len(text))
    return text


@pass_context
def _tojson(
    context: MeteredContext,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As `json.dumps`, without the HTML escapes of jinja2's own filter; chat templates are written for this one."""
    _check_margin(indent or 0)
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    pieces = []
    length = 0
    for piece in encoder.iterencode(value):
        context.meter.tick()
        length += len(piece)
        context.meter.allow(length)
        pieces.append(piece)
    return "".join(pieces)


@pass_context
def _join(context: MeteredContext, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    _check_join(context.meter, str(d), value)
    return cast(str, FILTERS["join"](context.eval_ctx, value, d, attribute))


@pass_context
def _replace(context: MeteredContext, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    _check_replace(context.meter, str(s), str(old), str(new))
    return cast(str, FILTERS["replace"](context.eval_ctx, s, old, new, count))


@pass_context
def _indent(context: MeteredContext, s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    _check_margin(width)
    context.meter.allow(len(str(s)) + _MARGIN * (str(s).count("\n") + 1))
    return cast(str, FILTERS["indent"](s, width, first, blank))


@pass_context
def _format(context: MeteredContext, value: Any, *args: Any) -> str:
    return cast(str, context.environment.call_binop(context, "%", str(value), args))  # type: ignore[attr-defined]


def _trim(value: Any, chars: str | None = None) -> str:
    _check_margin(chars or "")
    return cast(str, FILTERS["trim"](value, chars))


def _namespace(*args: Any, **kwargs: Any) -> _Namespace:
    made = _Namespace()
    for name, value in dict(*args, **kwargs).items():
        made[name] = value
    return made


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))
