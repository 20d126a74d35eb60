"""A reason is a code with parameters, its words are in one place, and its public form is about no single user."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import reason_tables
from tacit.errors import AbortedError, ConfigError, MessageError, SecureSumError, WireError
from tacit.languages.sentences import Sentence, read_sentence, write_sentence
from tacit.reasons import PARAMETERS, ROUND, WORDINGS, ReasonCode, RoundReason, Value, describe_reason

SAMPLES: dict[str, Value] = {"kind": "shares", "list": "roster", "phase": "vectors", "table": "items", "share": 0.25}
NAMING = 7_654_321  # stands in no template and is no count


def sample(code: ReasonCode) -> RoundReason:
    """A reason with everything it may carry."""
    wording = WORDINGS[code]
    told = {name: SAMPLES.get(name, 3) for name in wording.public} | dict.fromkeys(wording.personal, NAMING)
    return RoundReason(code, told)


def test_every_code_is_worded_and_every_word_has_a_code() -> None:
    assert set(WORDINGS) == set(ReasonCode)
    used = {name for wording in WORDINGS.values() for name in (*wording.public, *wording.personal)}
    assert used == set(PARAMETERS)


@pytest.mark.parametrize("code", ReasonCode)
def test_what_is_personal_is_in_no_words_and_not_in_the_public_form(code: ReasonCode) -> None:
    reason, wording = sample(code), WORDINGS[code]
    assert not any(PARAMETERS[name].is_personal for name in wording.public)
    assert all(PARAMETERS[name].is_personal for name in wording.personal)
    told = describe_reason(reason)
    assert told == describe_reason(reason.public())
    for text in (str(told), json.dumps(reason.public().as_dict()), repr(reason.public())):
        assert str(NAMING) not in text
    assert reason.public().parameters.keys() == wording.public


@pytest.mark.parametrize("code", ReasonCode)
def test_words_are_whole_sentences(code: ReasonCode) -> None:
    for text in describe_reason(sample(code)):
        assert text[0].isupper() or text[0].isdigit()
        assert text.endswith(".")
        assert "{" not in text


@pytest.mark.parametrize("code", ReasonCode)
def test_a_reason_survives_json_copies_and_processes(code: ReasonCode) -> None:
    reason = sample(code)
    assert RoundReason.from_json(reason.to_json()) == reason
    assert copy.deepcopy(reason) == pickle.loads(pickle.dumps(reason)) == reason
    assert hash(reason) == hash(reason.public())


def test_parameters_are_those_that_the_code_declares() -> None:
    for given in ({}, {"answered": 1}, {"answered": 1, "needed": 2, "sender": 3}):
        with pytest.raises(ValueError, match="too-few-answers"):
            RoundReason(ReasonCode.TOO_FEW_ANSWERS, given)


def test_what_another_version_wrote_is_kept_and_not_shown() -> None:
    for text in ('{"code": "of tomorrow", "parameters": {"who": 7654321}}', "Person 7654321 lied.", "[]", "7"):
        reason = RoundReason.from_json(text)
        assert (reason.code, reason.parameters["text"]) == (ReasonCode.LEGACY, text)
        assert not reason.public().parameters


def test_counts_are_worded_with_their_nouns() -> None:
    for answered, said in ((1, "1 device answered"), (1200, "1,200 devices answered")):
        reason = RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": answered, "needed": 2000})
        assert describe_reason(reason).what.startswith(said)


def test_numbers_of_arrays_are_worded_like_others() -> None:
    counts, share = np.arange(1, 4, dtype=np.int32), np.float32(0.25)
    text = Sentence("{left:device}, {n:,}, {share:.2f}", left=counts[2], n=np.int64(1200), share=share)
    assert text == "3 devices, 1,200, 0.25"
    assert read_sentence(json.loads(json.dumps(write_sentence(text)))) == text


def test_an_error_has_the_words_of_its_reason_and_names_no_user() -> None:
    error = AbortedError.because(ReasonCode.TOO_FEW_SHARES, left=2, needed=3, participant=NAMING)
    said = describe_reason(RoundReason(ReasonCode.TOO_FEW_SHARES, {"left": 2, "needed": 3}))
    assert (error.message, error.hint) == (f"{said.what} {said.meaning}", said.remedy)
    assert str(NAMING) not in str(error)
    assert error.public() == {"reason": {"code": "too-few-shares", "parameters": {"left": 2, "needed": 3}}}
    assert pickle.loads(pickle.dumps(error)).reason == error.reason
    assert (error.code, error.reason is not None and error.reason.parameters["participant"]) == (
        ReasonCode.TOO_FEW_SHARES,
        NAMING,
    )


def test_an_error_of_a_round_without_a_code_of_its_own_has_that_of_its_kind() -> None:
    for error, code in (
        (WireError("It ends early.", ""), ReasonCode.MALFORMED_MESSAGE),
        (MessageError("It ends early."), ReasonCode.MALFORMED_MESSAGE),
        (SecureSumError("A secret cannot be split."), ReasonCode.SECURE_AGGREGATION_FAILED),
        (AbortedError("Too many."), ReasonCode.SECURE_AGGREGATION_FAILED),
        (ConfigError("No option 'pi'."), None),
    ):
        assert error.code == code
    assert ConfigError("No option 'pi'.").public() == {"error": "ConfigError"}


def test_the_tables_of_the_docs_hold_every_code_as_it_is_worded() -> None:
    for page, make in reason_tables.TABLES.items():
        text = page.read_text(encoding="utf-8")
        assert reason_tables.renewed(text, make()) == text, f"{page.name} is old; run tools/reason_tables.py"
    every, pages = (page.read_text(encoding="utf-8") for page in reason_tables.TABLES)
    for code, wording in WORDINGS.items():
        assert f"| `{code}` |" in every
        assert (f"| `{code}` |" in pages) == (ROUND in wording.about)
