"""What a user likes, what they hid, and in which language they read: it is kept on the device and never leaves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tacit.errors import ConfigError, nearest
from tacit.field.device.interests import Interests
from tacit.field.device.settings import find_item
from tacit.field.device.store import Store
from tacit.languages import languages
from tacit.languages.sentences import Sentence
from tacit.types import Catalog, Label


class Preferences:
    """The preferences in a device's file; names of items are looked up in the catalogue."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog]) -> None:
        self._store, self._catalog = store, catalog

    def hide(self, named: Label) -> None:
        """Never recommend an item again."""
        item = self._catalog().item_ids[find_item(named, self._catalog())]
        with self._store.transaction():
            self._store.put_json("hidden", sorted({*self.hidden, item}, key=str))

    def unhide(self, item: Label) -> None:
        """Let an item be recommended again."""
        with self._store.transaction():
            self._store.put_json("hidden", [hidden for hidden in self.hidden if hidden != item])

    @property
    def language(self) -> str:
        """The language of the user's page; empty: the browser's."""
        return str(self._store.get_json("language") or "")

    @language.setter
    def language(self, code: str) -> None:
        if code and code not in languages():
            raise ConfigError(
                Sentence("There are no texts in the language '{code}'.", code=code), nearest(code, languages())
            )
        with self._store.transaction():
            self._store.put_json("language", code)

    @property
    def hidden(self) -> list[Label]:
        """Items that the user has hidden."""
        found: list[Label] = self._store.get_json("hidden") or []
        return found

    def choose_interests(self, names: Sequence[str]) -> Interests:
        """Store titles, ids or categories that the user likes; they stand in for a history while there is none."""
        found = Interests.find(names, self._catalog())
        with self._store.transaction():
            self._store.put_json("interests", found.to_json())
        return found

    @property
    def interests(self) -> Interests:
        """What the user has chosen; it never leaves this device."""
        return Interests.read(self._store.get_json("interests"))
