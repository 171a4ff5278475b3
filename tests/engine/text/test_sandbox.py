"""No chat template can hang the engine, fill its memory or reach out of its sandbox."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from engine.errors import UnsupportedModelError
from engine.text import ChatTemplate
from engine.types import Message

SECONDS = 0.3
# One operation that is just within the limits may take some of this, on a machine that does other things too.
PATIENCE = 10.0
MEMORY = 150_000_000

TOO_LONG = {
    "nested ranges": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that filters everything": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}"
    "{% endfor %}",
    "a loop that looks everything up": "{% set xs = range(99999) | list %}"
    "{% for a in range(100000, 199999) if a in xs %}{% endfor %}",
    "a filter that looks everything up": "{% set xs = range(99999) | list %}{{ xs | reject('in', xs) | list }}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "a recursive loop": "{% for i in range(99999) recursive %}{% if loop.depth < 9 %}{{ loop(range(99999)) }}"
    "{% endif %}{% endfor %}",
    "a cycle": "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = loop.cycle(1, 2) %}{% endfor %}"
    "{% endfor %}",
    "a list in a list in a list": "{% set ns = namespace(a=[]) %}{% for i in range(99999) %}{% set ns.a = [ns.a] %}"
    "{% endfor %}",
}
TOO_MUCH = {
    "a product": "{{ 'a' * 10 ** 9 }}",
    "a product the other way round": "{{ 10 ** 9 * 'a' }}",
    "a product of lists": "{{ ([1] * 10 ** 9) | length }}",
    "text over and over": "{% for a in range(99999) %}{% for b in range(99999) %}some text{% endfor %}{% endfor %}",
    "a long text over and over": "{% for a in range(99999) %}" + "y" * 30_000 + "{% endfor %}",
    "a macro of a long text over and over": "{% macro f() %}{% for a in range(99999) %}"
    + "y" * 30_000
    + "{% endfor %}{% endmacro %}{{ f() | length }}",
    "sums": "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "concatenations": "{% set s = 'ab' %}" + "{% set s = s ~ s %}" * 60,
    "macros of macros": "{% macro f(s) %}{{ s }}{{ s }}{% endmacro %}{% set s = 'ab' %}" + "{% set s = f(s) %}" * 60,
    "blocks of blocks": "{% set s = 'ab' %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 60,
    "lists of the same list": "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
    "tuples of the same tuple": "{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + "{{ a == a }}",
    "objects of the same object": "{% set a = {} %}" + "{% set a = {'x': a, 'y': a} %}" * 60 + "{{ a | tojson }}",
    "replacements": "{{ ('a' * 200000).replace('a', 'b' * 200000) | length }}",
    "replacements by the filter": "{{ ('a' * 200000) | replace('a', 'b' * 200000) | length }}",
    "replacements of nothing": "{{ ('a' * 200000).replace('', 'b' * 200000) | length }}",
    "joins": "{{ ('b' * 200000).join(('a ' * 90000).split()) | length }}",
    "joins by the filter": "{{ range(99999) | join('b' * 200000) | length }}",
    "joins of the same text": "{% set s = 'b' * 200000 %}{{ ''.join([s, s, s]) | length }}",
    "replacements in many": "{% set s = 'b' * 200000 %}"
    "{{ range(99999) | map('string') | map('replace', '1', s) | list | length }}",
    "JSON separators": "{{ range(99999) | list | tojson(separators=('a' * 200000, ':')) | length }}",
    "a format with many fields": "{{ ('{0}' * 50000).format('a' * 200000) | length }}",
    "many variables": "{% set b = 'é' * 250000 %}" + "".join(f"{{% set v{i} = b ~ {i} %}}" for i in range(1500)),
    "many slices": "{% set b = 'é' * 250000 %}" + "".join(f"{{% set v{i} = b[1:] %}}" for i in range(1500)),
    "a big number": "{% set ns = namespace(x=9) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "a number in base 16": "{{ ('f' * 200000) | int(0, 16) }}",
}
NOT_ALLOWED = {
    "a long range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "a power": "{{ 10 ** 10 ** 10 }}",
    "a wide field": "{{ '%1000000000d' % 1 }}",
    "a wide field of the filter": "{{ '%1000000000d' | format(1) }}",
    "a field as wide as an argument": "{{ '%*d' % (1000000000, 1) }}",
    "a precise field": "{{ '%.1000000000f' % 1.5 }}",
    "a wide field in braces": "{{ '{:1000000000}'.format(1) }}",
    "a field in braces as wide as an argument": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "a format that can be read in many ways": "{{ ('%00d' * 40 ~ '%x') % 1 }}",
    "a format in braces that can be read in many ways": "{{ ('{:00d}' * 40 ~ '{x!r}').format(1) }}",
    "a format map": "{{ '{:9}'.format_map({}) }}",
    "a wide text": "{{ 'a'.center(1000000000) }}",
    "wide tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "a wide indent": "{{ 'a\nb' | indent(1000000000) }}",
    "a wide indent of JSON": "{{ [1] | tojson(indent=1000000000) }}",
    "many characters to strip": "{{ 'a'.strip('c' * 200000) }}",
    "many characters to trim": "{{ 'a' | trim('c' * 200000) }}",
    "a batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "lorem ipsum": "{{ lipsum(n=1000000) }}",
    "Python's insides": "{{ ''.__class__.__mro__ }}",
    "the insides of a method": "{{ messages.append.__self__.clear() }}",
    "the insides of a function": "{{ raise_exception.__globals__['json'] }}",
    "a namespace with a name of Python's": "{% set n = namespace(__class__=1) %}",
    "changing the messages": "{% set _ = messages.append(1) %}",
    "another file": "{% include '/etc/passwd' %}",
    "itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a long number": "{{ " + "9" * 60_000 + " }}",
    "a long source": " " * 70_000,
}


def render(source: str, seconds: float = SECONDS) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>", seconds=seconds).render([Message("user", "hi")])


def cases(*groups: dict[str, str]) -> list[object]:
    return [pytest.param(source, id=name) for group in groups for name, source in group.items()]


@pytest.mark.parametrize("source", cases(TOO_LONG))
def test_a_template_is_stopped_when_its_time_is_up(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(UnsupportedModelError, match=r"was stopped: it (ran for more than 0\.3 seconds|built)"):
        render(source)
    assert time.monotonic() - start < PATIENCE


@pytest.mark.parametrize("source", cases(TOO_MUCH))
def test_a_template_is_stopped_before_it_makes_too_much(source: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"was stopped: it (built|wrote)"):
        render(source, seconds=60)


@pytest.mark.parametrize("name", ["many variables", "joins by the filter", "sums", "a long text over and over"])
def test_a_template_is_stopped_before_it_takes_too_much_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedModelError, match=r"was stopped: it (built|wrote)"):
            render(TOO_MUCH[name], seconds=60)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("source", cases(NOT_ALLOWED))
def test_what_cannot_be_bounded_or_reaches_outside_is_refused(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(UnsupportedModelError, match="raw text"):
        render(source)
    assert time.monotonic() - start < PATIENCE


def test_a_namespace_does_not_print_what_it_holds() -> None:
    nested = "".join(f"{{% set n{i + 1} = namespace(a=n{i}, b=n{i}) %}}" for i in range(60))
    assert render("{% set n0 = namespace(a=1) %}" + nested + "{{ n60 }}") == "<namespace>"


def test_long_conversations_are_within_the_limits() -> None:
    source = (
        "{% set ns = namespace(out='') %}{% for m in messages %}"
        "{% set ns.out = ns.out ~ m.role ~ ': ' + m.content | trim ~ '\n' %}{% endfor %}{{ ns.out }}"
    )
    messages = [Message("user", "word " * 20_000), Message("assistant", "é" * 50_000)] * 10
    rendered = ChatTemplate(source, bos="", eos="").render(messages)
    assert rendered == "".join(f"{m.role}: {m.content.strip()}\n" for m in messages)
