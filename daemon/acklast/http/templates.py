"""Templates of a request: Jinja, in a sandbox, with what is put in made fit for the place where it lands.

A template is the operator's, the values are a stranger's. So in a URL every value is percent-encoded, in a
header no value may hold a control character, and an expression whose value is missing or null fails: half a
request is worse than none. What a failure says names the template and the field, never a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FIELDS: Final = frozenset({"key", "lane", "type", "run", "deadline", "payload", "body", "headers", "secrets"})
"""What a template can name."""

Values: TypeAlias = Mapping[str, Any]
_Finish: TypeAlias = Callable[[Any], Any]

_EMPTY: Final = "\ue000"
"""Stands for an empty value in a URL until it is known whether it landed in the path."""
_FIELD: Final = re.compile(r"[A-Za-z_][\w-]{0,60}\Z", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEAD: Final = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?=[/?]|\Z)")
_URL: Final = re.compile(r"""[!$-;=?-\[\]_a-z|~%]*\Z""")
_EXAMPLE: Final = '"https://api.example/orders/{{ key }}"'
_LONGEST: Final = 8192
"""Of a rendered URL or header: what servers commonly take."""


class BadTemplate(ValueError):  # noqa: N818 - named for what is true, not for being an error
    """The template itself is wrong; the text says how, for an error line of the configuration."""


class Unrenderable(Exception):  # noqa: N818 - named for what is true, not for being an error
    """The job has not what the template asks for. ``detail`` holds no value of the job."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class _Unfit(Exception):  # noqa: N818 - as above
    """A value that may not stand where it was put."""


class _Missing(StrictUndefined):
    """Fails at every use, and says only its name: Jinja's own sentence may show what surrounds it."""

    @property
    def _undefined_message(self) -> str:
        name = self._undefined_name
        return f"{_plain_name(name)} is missing"


def _plain_name(name: object) -> str:
    # A name that the job itself supplied (payload[payload.which]) is a value of the job.
    return name if isinstance(name, str) and _FIELD.match(name) else "an item"


class _Encoded(str):
    """Percent-encoded already."""

    __slots__ = ()


def _path(value: Any) -> _Encoded:
    """The filter ``path``: a value whose slashes are slashes of the URL."""
    return _Encoded(quote(_text(value), safe="/"))


class _Sandbox(ImmutableSandboxedEnvironment):
    """In a table a name means its item: ``payload.items`` is what the job holds, not a method."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment(finish: _Finish) -> _Sandbox:
    env = _Sandbox(undefined=_Missing, finalize=finish, autoescape=False, keep_trailing_newline=True)
    env.globals.clear()  # range, cycler, namespace: nothing that a request is made of
    env.filters["path"] = _path
    return env


# --- values in their places --------------------------------------------------------------------------


def _text(value: Any) -> str:
    """A value as text, as JSON would write a scalar."""
    match value:
        case Undefined():
            return str(value)  # raises, with the name
        case None:
            raise _Unfit("a value is null")
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case datetime():
            return value.isoformat()
        case _:
            raise _Unfit("a value is a list or a table: name an item of it, or use the filter tojson")


def _in_url(value: Any) -> str:
    if isinstance(value, _Encoded):
        return value or _EMPTY
    return quote(_text(value), safe="") or _EMPTY


_TEXT_ENV: Final = _environment(_text)
_URL_ENV: Final = _environment(_in_url)
_JSON_ENV: Final = _environment(lambda value: value)


def _compiled(env: _Sandbox, text: str) -> Template:
    try:
        tree = env.parse(text)
        unknown = meta.find_undeclared_variables(tree) - FIELDS
        template = env.from_string(text)
    except TemplateSyntaxError as error:
        raise BadTemplate(f"is no template: {error.message}") from None
    except TemplateError as error:
        raise BadTemplate(f"is no template: {type(error).__name__}") from None
    if unknown:
        raise BadTemplate(f"names {', '.join(sorted(unknown))}: known are {', '.join(sorted(FIELDS))}")
    return template


def _rendered(place: str, render: Callable[[], Any]) -> Any:
    try:
        return render()
    except (TemplateError, _Unfit) as error:
        said = str(error) if isinstance(error, _Unfit) or "is missing" in str(error) else type(error).__name__
        raise Unrenderable(f"{place}: {said}") from None
    except Exception as error:  # whatever a filter or an operator makes of a value
        raise Unrenderable(f"{place}: {type(error).__name__}") from None


def fields_named(text: str) -> set[str]:
    """The fields that a template names; none where it is no template, which its compilation says."""
    try:
        return meta.find_undeclared_variables(_TEXT_ENV.parse(text))
    except TemplateError:
        return set()


def secrets_named(text: str) -> set[str]:
    """The secrets that a template names; none where it is no template, which its compilation says."""
    try:
        tree = _TEXT_ENV.parse(text)
    except TemplateError:
        return set()
    attributes = {node.attr for node in tree.find_all(nodes.Getattr) if _is_secrets(node.node)}
    items = [node.arg for node in tree.find_all(nodes.Getitem) if _is_secrets(node.node)]
    return attributes | {str(arg.value) for arg in items if isinstance(arg, nodes.Const)}


def _is_secrets(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "secrets"


# --- the templates -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """A template of text. ``place`` is how errors name it, such as ``headers.Authorization``."""

    place: str
    template: Template

    @classmethod
    def of(cls, place: str, text: str) -> Text:
        """Raises ``BadTemplate``."""
        return cls(place, _compiled(_TEXT_ENV, text))

    def render(self, values: Values) -> str:
        """Raises ``Unrenderable``."""
        text: str = _rendered(self.place, lambda: self.template.render(values))
        return text

    def header(self, values: Values) -> str:
        """The value of a header: no control character, and no surrounding white space. Raises as above."""
        text = self.render(values).strip(" \t")
        if _CONTROL.search(text):
            raise Unrenderable(f"{self.place}: a control character")
        if _SURROGATE.search(text):
            raise Unrenderable(f"{self.place}: half a surrogate pair")
        if len(text) > _LONGEST:
            raise Unrenderable(f"{self.place}: longer than {_LONGEST} characters")
        return text


@dataclass(frozen=True, slots=True)
class Url:
    """A template of an absolute URL. Scheme and host are literal: no job may choose where its secrets go."""

    place: str
    template: Template

    @classmethod
    def of(cls, place: str, text: str) -> Url:
        """Raises ``BadTemplate``."""
        _check_head(text)
        for literal in _literals(_URL_ENV, text):
            if not _URL.match(literal):
                raise BadTemplate(
                    "holds what no URL may hold: percent-encode spaces and other special characters, no '#'"
                )
        return cls(place, _compiled(_URL_ENV, text))

    def render(self, values: Values) -> str:
        """Raises ``Unrenderable``: also where a value would change the path's own segments."""
        text: str = _rendered(self.place, lambda: self.template.render(values))
        path, _, _ = text.partition("?")
        if _EMPTY in path:
            raise Unrenderable(f"{self.place}: a value in the path is empty")
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise Unrenderable(f"{self.place}: a value in the path is a dot segment")
        text = text.replace(_EMPTY, "")
        if len(text) > _LONGEST or not _URL.match(text):
            raise Unrenderable(f"{self.place}: no URL, or longer than {_LONGEST} characters")
        return text


def _check_head(text: str) -> None:
    literal = text.split("{{", 1)[0].split("{%", 1)[0]
    if "://" in literal and "@" in literal.partition("://")[2].partition("/")[0]:
        raise BadTemplate("must hold no user and password: put them into a header, from secrets")
    if not _HEAD.match(literal) or (literal != text and not re.search(r"//[^/?]+[/?]", literal)):
        raise BadTemplate(f"must be absolute, with scheme and host written out, such as {_EXAMPLE}")


def _literals(env: _Sandbox, text: str) -> list[str]:
    try:
        tree = env.parse(text)
    except TemplateError:
        return []  # said by the compilation
    return [data.data for data in tree.find_all(nodes.TemplateData)]


@dataclass(frozen=True, slots=True)
class Json:
    """JSON whose texts are templates. A text that is one expression alone gives its value, type and all."""

    render: Callable[[Values], Any]

    @classmethod
    def of(cls, place: str, value: Any) -> Json:
        """From a table, a list or a text of the configuration. Raises ``BadTemplate``."""
        return cls(_json(place, value))


def _json(place: str, value: Any) -> Callable[[Values], Any]:
    match value:
        case str():
            return _json_text(place, value)
        case Mapping():
            fields = {str(key): _json(f"{place}.{key}", item) for key, item in value.items()}
            return lambda values: {key: item(values) for key, item in fields.items()}
        case list() | tuple():
            items = [_json(f"{place}[{index}]", item) for index, item in enumerate(value)]
            return lambda values: [item(values) for item in items]
        case datetime():
            text = value.isoformat()
            return lambda values: text
        case _:
            return lambda values: value


def _json_text(place: str, text: str) -> Callable[[Values], Any]:
    if source := _sole_expression(text):
        try:
            _compiled(_JSON_ENV, text)
            expression = _JSON_ENV.compile_expression(source, undefined_to_none=False)
        except BadTemplate as error:
            raise BadTemplate(f"({place}) {error}") from None
        return lambda values: _rendered(place, lambda: _json_value(expression(values)))
    try:
        template = Text.of(place, text)
    except BadTemplate as error:
        raise BadTemplate(f"({place}) {error}") from None
    return template.render


def _sole_expression(text: str) -> str | None:
    """The source between the braces, where the template is one expression and nothing besides."""
    stripped = text.strip()
    if not (stripped.startswith("{{") and stripped.endswith("}}")):
        return None
    try:
        body = _JSON_ENV.parse(stripped).body
    except TemplateError:
        return None
    if len(body) != 1 or not isinstance(body[0], nodes.Output) or len(body[0].nodes) != 1:
        return None
    return None if isinstance(body[0].nodes[0], nodes.TemplateData) else stripped[2:-2].strip("-+ \t\n")


def _json_value(value: Any) -> Any:
    if isinstance(value, Undefined):
        raise _Unfit(str(value._undefined_message))
    return value.isoformat() if isinstance(value, datetime) else value
