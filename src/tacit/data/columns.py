"""Which column plays which role: usual names are recognised, anything else is mapped by `data.columns`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tacit.errors import ConfigError, DataError, nearest

_USUAL = {
    "user": (
        "user userid uid person personid people customer customerid reviewerid client clientid visitor "
        "visitorid userindex u sessionid useraccount member memberid account"
    ),
    "item": (
        "item itemid iid movie movieid venue venueid product productid asin artist artistid song songid track "
        "trackid book bookid isbn poi poiid place placeid business businessid location locationid article "
        "articleid parentasin work workid i newsid gameid showid recipeid restaurantid mid film filmid "
        "itemindex"
    ),
    "rating": (
        "rating ratings score stars overall value weight count plays playcount r listeningcount preference "
        "interaction star ratingvalue userrating bookrating"
    ),
    "timestamp": (
        "timestamp time date datetime ts unixtime utc utctime unixreviewtime when ratedat createdat eventtime "
        "t ratingtimestamp reviewtime checkintime datetimeutc"
    ),
    "lat": "lat latitude",
    "lon": "lon lng long longitude",
    "category": "category categories genre genres type categoryname venuecategory tags",
    "title": "title name itemname movietitle itemtitle venuename productname",
    "split": "split part",
}
ROLES: dict[str, tuple[str, ...]] = {role: tuple(names.split()) for role, names in _USUAL.items()}
"""What each role is usually called, letters and digits only, best first."""


def normalise_column(name: str) -> str:
    """Return a column name as it is compared: 'user_id:token' and 'UserID' are both 'userid'."""
    return re.sub(r"[^0-9a-z]", "", name.split(":", 1)[0].strip().lower())


def check_roles(mapping: Mapping[str, str]) -> None:
    """Refuse a mapping of roles that do not exist."""
    for role in mapping:
        if role not in ROLES:
            raise ConfigError(f"data.columns has no role '{role}'.", nearest(role, ROLES))


def find_columns(seen: Sequence[str], mapping: Mapping[str, str], where: str) -> dict[str, int]:
    """Return role -> position of its column; the mapping wins, usual names come next."""
    check_roles(mapping)
    found: dict[str, int] = {}
    for role, name in mapping.items():
        if name not in seen:
            raise DataError(
                f"{where}: there is no column '{name}' for '{role}'; columns seen: {_list_columns(seen)}.",
                nearest(name, seen),
            )
        found[role] = list(seen).index(name)
    taken = set(found.values())
    words = [normalise_column(name) for name in seen]
    for role, names in ROLES.items():
        if role in found:
            continue
        for name in names:
            if name in words and words.index(name) not in taken:
                found[role] = words.index(name)
                taken.add(found[role])
                break
    for role, at in found.items():
        if list(seen).count(seen[at]) > 1:
            raise DataError(
                f"{where}: more than one column is called '{seen[at]}', which is the {role}.", "Rename one of them."
            )
    missing = [role for role in ("user", "item") if role not in found]
    if missing:
        raise DataError(
            f"{where}: no column for {' and '.join(missing)}; columns seen: {_list_columns(seen)}.",
            f"Name it with data.columns, for example columns: {{{missing[0]}: {seen[0] if seen else 'NAME'}}}.",
        )
    return found


def is_header(seen: Sequence[str]) -> bool:
    """Return whether these words look like a header: they name at least a user or an item."""
    words = {normalise_column(name) for name in seen}
    return bool(words & set(ROLES["user"])) or bool(words & set(ROLES["item"]))


def _list_columns(seen: Sequence[str]) -> str:
    return (", ".join(f"'{name}'" for name in seen[:20]) or "none") + (", ..." if len(seen) > 20 else "")
