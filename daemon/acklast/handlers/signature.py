"""What a handler's signature asks for, read once when it is decorated.

Everything that cannot work is refused here, at import, because the alternative is a lane of dead letters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias, get_type_hints

from acklast.handlers.context import Context

Parameters: TypeAlias = list[inspect.Parameter]

_SHAPES = "Write it as (payload) or (payload, ctx)"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Function:
    """A handler or a reconcile function, and how to call it."""

    call: Callable[..., Any]
    takes_context: bool
    threaded: bool
    """A plain ``def``: it runs in a thread, and nothing can cancel it."""
    source: str
    """The file that defines it; tells its own frames from a library's in a traceback."""

    def __call__(self, payload: Any, context: Context) -> Any:
        """What the function returns: a coroutine where it is ``async def``."""
        return self.call(payload, context) if self.takes_context else self.call(payload)


def function_of(function: Callable[..., Any]) -> Function:
    """Read a function's shape.

    Raises:
        TypeError: it is no function of ``(payload)`` or ``(payload, ctx)``, or it yields.
    """
    name = name_of(function)
    _refuse_generators(function, name)
    return Function(
        call=function,
        takes_context=_takes_context(_parameters(function, name), name),
        threaded=not is_async(function),
        source=_code_owner(function).__code__.co_filename,
    )


def payload_annotation(function: Callable[..., Any]) -> Any:
    """The type of the first parameter; ``Any`` where it has none.

    Only that one annotation is evaluated: the others may name what is imported for type checking alone.

    Raises:
        TypeError: the annotation cannot be evaluated, or is the context's.
    """
    name = name_of(function)
    annotation = _parameters(function, name)[0].annotation
    if annotation is inspect.Parameter.empty:
        return Any
    annotation = _evaluated(annotation, _code_owner(function).__globals__, name)
    if annotation is Context:
        raise TypeError(f"{name} takes the context first. Put the payload first: (payload, ctx)")
    return annotation


def name_of(function: Callable[..., Any]) -> str:
    """How error messages name a function."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _parameters(function: Callable[..., Any], name: str) -> Parameters:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"{name} has no signature that can be read ({error}). {_SHAPES}") from error


def _takes_context(parameters: Parameters, name: str) -> bool:
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    if any(p.kind in _VARIADIC for p in parameters):
        raise TypeError(f"{name} takes * or ** parameters, so what to pass is a guess. {_SHAPES}")
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError(f"{name} has a keyword-only parameter without a default. Give it one. {_SHAPES}")
    if len(positional) not in (1, 2):
        raise TypeError(f"{name} takes {len(positional)} positional parameters. {_SHAPES}")
    if len(positional) == 1:
        return False
    second = positional[1]
    if second.default is not second.empty and second.name not in ("ctx", "context"):
        raise TypeError(
            f"{name}: the second parameter gets the context, and {second.name!r} has a default of its own. "
            f"Name it ctx, or make it keyword-only"
        )
    return True


def _refuse_generators(function: Callable[..., Any], name: str) -> None:
    if not callable(function):
        raise TypeError(f"{name} cannot be called. Decorate a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} yields. A handler returns its result once: use return")
    if isinstance(function, type):
        raise TypeError(f"{name} is a class. Decorate a function, or register a method of an instance")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is a handler too
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _code_owner(function: Callable[..., Any]) -> Any:
    """The function underneath partials, wrappers and callable objects: it has globals and a code."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    return inner if hasattr(inner, "__code__") else inner.__call__


def _evaluated(annotation: Any, names: dict[str, Any], name: str) -> Any:
    holder = SimpleNamespace(__annotations__={"payload": annotation})
    try:
        return get_type_hints(holder, globalns=names, include_extras=True)["payload"]
    except Exception as error:
        raise TypeError(
            f"{name}: the payload's annotation {annotation!r} cannot be evaluated ({error}). "
            f"Define or import the type at module level, above the handler"
        ) from error
