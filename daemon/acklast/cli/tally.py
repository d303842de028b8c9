"""What an enqueue came to: counts, and the items that were not accepted, told as they come."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from acklast.cli.order import Source
from acklast.cli.output import plain, safe, say_json
from acklast.errors import Exit
from acklast_topology.items import FINE, Enqueued, Fate


def _say(text: str) -> None:
    sys.stdout.write(f"{safe(text)}\n")


@dataclass(frozen=True, slots=True)
class Item:
    """One row's fate. ``line`` counts from 1: where it starts in the file, or its place in a query."""

    line: int
    key: str | None
    fate: Fate
    detail: str = ""

    @classmethod
    def of(cls, told: Enqueued) -> Item:
        source: Source = told.source
        return cls(source.line, told.job.key if told.job else None, told.fate, told.detail)


@dataclass(slots=True)
class Tally:
    """Counts items. Those not accepted are printed at once, so that a million of them need no memory."""

    run: str
    lane: str
    as_json: bool = False
    say: Callable[[str], None] = _say
    counts: Counter[Fate] = field(default_factory=Counter)
    dry: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else the summary has, and its lines for people."""
    below: tuple[str, ...] = ()

    def add(self, told_of: Enqueued) -> None:
        self.counts[told_of.fate] += 1
        if told_of.fine:
            return
        item = Item.of(told_of)
        if self.as_json:
            say_json(item)
        else:
            self.say(told(item))

    @property
    def rows(self) -> int:
        return self.counts.total()

    @property
    def complete(self) -> bool:
        """Whether every row so far is accepted, now or before."""
        return FINE.issuperset(fate for fate, count in self.counts.items() if count)

    @property
    def exit(self) -> Exit:
        return Exit.OK if self.complete else Exit.INCOMPLETE

    def summary(self, *, ended: bool) -> dict[str, Any]:
        """The last JSON line. ``complete`` is whether the whole file was read and all of it accepted."""
        counts = {fate.value: self.counts[fate] for fate in Fate}
        return {
            "run": self.run,
            "lane": self.lane,
            "rows": self.rows,
            "counts": counts,
            "complete": ended and self.complete,
            **self.more,
        }

    def tell(self, *, ended: bool) -> None:
        """Print the summary; ``ended`` is false where not the whole input was read."""
        if self.as_json:
            say_json(self.summary(ended=ended))
            return
        if self.dry:
            _say("dry run: nothing was promised or published")
        _say(f"run {self.run}, lane {self.lane}: {self.rows} rows{'' if ended else ', not the whole input'}")
        for fate in Fate:
            if self.counts[fate] or fate is Fate.ACCEPTED:
                meaning = DRY_MEANINGS.get(fate, MEANINGS[fate]) if self.dry else MEANINGS[fate]
                _say(f"  {fate:<10} {self.counts[fate]:>9}  {meaning}")
        for line in self.below:
            _say(line)


MEANINGS = {
    Fate.ACCEPTED: "promised and confirmed",
    Fate.AGAIN: "promised before, not started yet; published again and confirmed",
    Fate.DUPLICATE: "known already with the same content; nothing to do",
    Fate.CONFLICT: "the key has other content already; that job is untouched. Use another key",
    Fate.MALFORMED: "no job; correct the row",
    Fate.RETURNED: "the broker has no queue for it; run 'acklast topology apply'",
    Fate.REFUSED: "the broker did not take it; see its queue's length, then repeat the command",
    Fate.UNKNOWN: "no answer; repeat the command, which is safe",
}


DRY_MEANINGS = {
    Fate.ACCEPTED: "new: would be promised and published",
    Fate.AGAIN: "promised already, not started yet; would be published again",
}


def told(item: Item) -> str:
    """One item that was not accepted, on one line."""
    values = plain(item)
    key = f" {values['key']}" if item.key else ""
    return f"line {item.line}{key}: {item.fate}{f' ({item.detail})' if item.detail else ''}"
