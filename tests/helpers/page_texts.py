"""Every English text of the user's pages that a language must have, gathered from templates, modules and tables."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tacit
from helpers.program_texts import every_program_text
from tacit.field.device import device_state, directory
from tacit.web import budget, frame, sent, sharing

SOURCE = Path(tacit.__file__).parent
PAGES = (
    *(
        "base",
        "own",
        "for_you",
        "history",
        "imported",
        "joining",
        "left_out",
        "mine",
        "peers",
        "preview",
        "question",
        "sent",
    ),
    *("sharing", "trouble", "erased", "app"),
)
MODULES = (
    *(
        "web/own.py",
        "web/for_you.py",
        "web/history.py",
        "web/mine.py",
        "web/peers.py",
        "web/sharing.py",
        "web/sent.py",
        "web/chart.py",
    ),
    *("web/words.py", "field/device/device_state.py", "field/device/directory.py", "wire/status.py"),
    *("serving/recommender.py", "field/device/interests.py", "field/device/alone.py"),
)
TEXT = re.compile(r"""\bt\((?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
COUNT = re.compile(r"""count\("(\w+)"(?:, "(\w+)")?\)""")


def in_templates() -> set[str]:
    """Return the texts and counts of the templates."""
    found: set[str] = set()
    for name in PAGES:
        page = (SOURCE / "web" / "templates" / f"{name}.html").read_text(encoding="utf-8")
        found |= {double or single for double, single in TEXT.findall(page)}
        found |= {f"{{n}} {word}" for one, many in COUNT.findall(page) for word in (one, many or one + "s")}
    return found


def in_modules() -> set[str]:
    """Return the texts that modules translate or say, and the titles of pages."""
    found: set[str] = set()
    for name in MODULES:
        for node in ast.walk(ast.parse((SOURCE / name).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            place = {"translate": 0, "say": 0, "page_response": 2}.get(called)
            if place is not None and len(node.args) > place:
                found |= {
                    part.value
                    for part in ast.walk(node.args[place])
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return found


def in_tables() -> set[str]:
    """Return the texts that stand in tables and are translated where they are shown."""
    found = {text for _, text in sharing.SAYINGS} | {*budget.WORDS, *budget.WORDS.values()} | {*frame.SCRIPT_TEXTS}
    found |= {text for state in sent.STATES.values() for text in state[:2]}
    found |= {sent.describe_leak(leak)[0] for leak in (0.0, 0.3, 0.9)}
    found |= {
        *device_state.BADGES.values(),
        *device_state._SENTENCES.values(),
        device_state._NEW,
        directory.TRUST,
        directory.WATCHED,
    }
    found |= {*frame.NAMED.values(), "For you", "the start", "There is no such page", "That did not work"}
    found |= {"You are a member of {group}. Nothing of your history was sent. Check Sharing next. {trust}"}
    return found | {
        "Hints about “{title}” may be sent again, as your slider says.",
        "{n} days",
        "{n} hours",
        "{n} minutes",
    }


def every_text() -> set[str]:
    """Return all of them."""
    found = in_templates() | in_modules() | in_tables() | every_program_text()
    return {text for text in found if re.search("[A-Za-z]{2}", text) and not text.startswith("@")}
