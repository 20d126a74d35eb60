"""A federated method of one's own: the example keeps the contract, and every broken rule is refused by its name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import ConfigError
from tacit.field.coordinator.trial import try_round
from tacit.methods import registry
from tacit.methods.base import Federated, FederatedSpec, names, register
from tacit.testing import ContractError, check_federated, two_tastes
from tacit.types import Array, Clients, Config, Model
from tacit.wire.federation import Federation

EXAMPLE = Path(__file__).parents[3] / "examples" / "pfedrec.py"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The example's module; its method is unknown again afterwards."""
    spec = importlib.util.spec_from_file_location("pfedrec_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["pfedrec_example"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del registry._REGISTERED["pfedrec_example", "pfedrec"]
    del sys.modules["pfedrec_example"]


def made(example: ModuleType, **given: Any) -> Any:
    return example.PFedRec(example.PFedRecConfig(**given))


def test_the_example_keeps_the_contract_runs_in_the_lab_and_could_be_founded(example: ModuleType) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 100
    check_federated(made(example))
    given = {"source": "town", "users": 60, "places": 50}
    run = tacit.run(tacit.Experiment(method={"name": "pfedrec", "epochs": 3}, data=given))
    assert 0 <= run.metrics["NDCG@10"] <= 1
    catalog = two_tastes()[1]
    try_round(Federation.create("ab" * 16, "own", "pfedrec", {}, catalog), catalog)


def undeclared_array(method: Any) -> None:
    init = method.init
    method.init = lambda *given: replace(init(*given), shared={**init(*given).shared, "extra": np.zeros(1)})


def undeclared_private(method: Any) -> None:
    init = method.init
    method.init = lambda *given: replace(init(*given), private={**init(*given).private, "own": np.zeros((40, 1))})


def other_type(method: Any) -> None:
    method.spec = replace(method.spec, private={"head": "float64"})


def first_value_of_the_cohort(method: Any) -> None:
    init = method.init

    def together(clients: Clients, *rest: Any) -> Model:
        model = init(clients, *rest)
        return Model(model.shared, {"head": model.private["head"] + np.float32(len(clients))})

    method.init = together


def table_never_filled(method: Any) -> None:
    method.spec = replace(method.spec, other_tables=("layers",))
    shapes = method.shapes
    method.shapes = lambda shared: {**shapes(replace_missing(shared)), "layers": (1, 1)}


def replace_missing(shared: Mapping[str, Array]) -> Mapping[str, Array]:
    return {**shared, "layers": np.zeros((1, 1))}


def rows_twice(method: Any) -> None:
    plan = method.plan

    def twice(*given: Any) -> Any:
        found = plan(*given)
        return replace(found, parts=found.parts * 2)

    method.plan = twice


def few_rows_claimed(method: Any) -> None:
    method.most_rows = lambda shared: {"items": 1}


def input_changed(method: Any) -> None:
    learn = method.learn

    def careless(model: Model, *rest: Any) -> Any:
        model.shared["items"][0] += 1
        return learn(model, *rest)

    method.learn = careless


def private_sent(method: Any) -> None:
    def leaking(model: Model, clients: Clients, plan: Any, sink: Any, key: Any) -> Any:
        rows = plan.parts[0]
        sink.put(0, np.repeat(model.private["head"], np.diff(rows.ptr), axis=0))
        return model.private

    method.learn = leaking


def other_bits_alone(method: Any) -> None:
    learn = method.learn

    def together(model: Model, clients: Clients, plan: Any, sink: Any, key: Any) -> Any:
        found = learn(model, clients, plan, sink, key)
        return {"head": found["head"] * np.float32(1 + len(clients))}

    method.learn = together


def draws_by_position(method: Any) -> None:
    learn = method.learn

    def in_turn(model: Model, clients: Clients, *rest: Any) -> Any:
        found = learn(model, clients, *rest)
        return {"head": found["head"] + np.arange(len(clients), dtype=np.float32)[:, None]}

    method.learn = in_turn


def other_sum_at_once(method: Any) -> None:
    learn = method.learn

    def one_too_many(model: Model, clients: Clients, plan: Any, sink: Any, key: Any) -> Any:
        total = sink.direct()
        if total is not None:
            total.sums["items"][0, 0] += 1
        return learn(model, clients, plan, sink, key)

    method.learn = one_too_many


def other_count_at_once(method: Any) -> None:
    learn = method.learn

    def one_too_many(model: Model, clients: Clients, plan: Any, sink: Any, key: Any) -> Any:
        total = sink.direct()
        if total is not None:
            total.counts["items"][0] += 1
        return learn(model, clients, plan, sink, key)

    method.learn = one_too_many


def other_shape(method: Any) -> None:
    method.apply = lambda shared, total, ring: {"items": np.concatenate([shared["items"]] * 2, axis=1)}


def unmarked(method: Any) -> None:
    plan = method.plan

    def harmless(*given: Any) -> Any:
        found = plan(*given)
        return replace(found, parts=tuple(replace(part, sensitive=False) for part in found.parts))

    method.plan = harmless


def rows_lost_on_growth(method: Any) -> None:
    method.grow = lambda shared, before, after: dict(shared)  # a new item never gets a row


def no_scores(method: Any) -> None:
    method.score = lambda shared, private, clients: np.full((len(clients), 3), np.nan)


BROKEN: dict[str, Callable[[Any], None]] = {
    "declares-shared": undeclared_array,
    "declares-private": undeclared_private,
    "inits-alone": first_value_of_the_cohort,
    "fills-tables": table_never_filled,
    "bounds-rows": few_rows_claimed,
    "repeats-rows": rows_twice,
    "inputs-untouched": input_changed,
    "keeps-private": private_sent,
    "learns-alone": other_bits_alone,
    "ignores-order": draws_by_position,
    "message-is-total": other_sum_at_once,
    "keeps-shapes": other_shape,
    "marks-own-rows": unmarked,
    "scores-everything": no_scores,
    "grows": rows_lost_on_growth,
}


@pytest.mark.parametrize("rule", BROKEN)
def test_every_broken_rule_is_refused_by_its_name(example: ModuleType, rule: str) -> None:
    method = made(example)
    BROKEN[rule](method)
    with pytest.raises(ContractError) as refused:
        check_federated(method)
    assert refused.value.rule == rule


def test_a_count_that_messages_do_not_give_is_refused(example: ModuleType) -> None:
    method = made(example)
    other_count_at_once(method)
    with pytest.raises(ContractError) as refused:
        check_federated(method)
    assert refused.value.rule == "message-is-total"


def test_every_rule_has_a_method_that_breaks_it() -> None:
    assert check_federated.__doc__ is not None
    said = check_federated.__doc__.partition("in this order:")[2].replace("\n", " ").strip().rstrip(".")
    assert {rule.strip() for rule in said.split(",")} == BROKEN.keys()


def test_a_private_array_of_another_type_is_refused(example: ModuleType) -> None:
    method = made(example)
    other_type(method)
    with pytest.raises(ContractError) as refused:
        check_federated(method)
    assert refused.value.rule == "declares-private"


@pytest.mark.parametrize(
    ("body", "missing"),
    [({}, "apply, init, learn, plan, schedule, score"), ({"__doc__": None, "bases": ()}, "none of")],
    ids=["unfinished", "no method"],
)
def test_a_class_that_is_no_whole_method_is_refused_when_it_registers(body: dict[str, Any], missing: str) -> None:
    bases = body.pop("bases", (Federated,))
    with pytest.raises(ConfigError, match=missing):
        register("half", Config)(type("Half", bases, {"__doc__": "Half a method.", **body}))
    assert "half" not in registry.methods()


def test_what_a_spec_lets_clients_receive() -> None:
    spec = FederatedSpec(
        item_tables=("items",), client_tables=("people",), downloads=("items", "people"), constants=("steps",)
    )
    shared = {"items": np.arange(6).reshape(3, 2), "people": np.arange(4)[:, None], "steps": np.array(5), "m": 0}
    received = spec.received(shared, np.array([2, 0]))
    assert received.keys() == {"items", "people", "steps"}
    assert received["people"].tolist() == [[2], [0]]


# --- in a federation ------------------------------------------------------------------------------------------------

SCHEDULED = [(name, option) for name in names("federated") for option in registry.build(name).spec.schedule_options]


@pytest.mark.parametrize(("name", "option"), SCHEDULED)
def test_options_that_a_federation_does_not_read_are_refused(name: str, option: str) -> None:
    value = registry.entry(name).config.model_fields[option].default
    with pytest.raises(ConfigError, match=f"method.{option}"):
        Federation.create("ab" * 16, "x", name, {option: value}, two_tastes()[1])


@pytest.mark.parametrize("name", names("federated"))
def test_every_federated_method_passes_its_trial_round(name: str) -> None:
    catalog = two_tastes()[1]
    given = {"fpl": {"local_steps": 3}, "fed-svd": {"factors": 6}}.get(name, {})
    federation = Federation.create("ab" * 16, "x", name, given, catalog)
    try_round(federation, catalog)
    assert federation.built.spec.tables


def other_dtype(method: Any) -> None:
    method.apply = lambda shared, total, ring: {"items": shared["items"].astype(np.float64)}


def lost_array(method: Any) -> None:
    method.apply = lambda shared, total, ring: {}


def applied_in_place(method: Any) -> None:
    def apply(shared: Any, total: Any, ring: Any) -> Any:
        shared["items"] += 1
        return shared

    method.apply = apply


def scored_from_elsewhere(method: Any) -> None:
    method.score = lambda shared, private, clients: shared["of the server"]


def test_what_cannot_run_is_refused_by_its_trial_round(example: ModuleType) -> None:
    catalog = two_tastes()[1]
    changes = (other_dtype, lost_array, applied_in_place, scored_from_elsewhere)
    for broken in (undeclared_array, other_type, other_shape, *changes):
        federation = Federation.create("ab" * 16, "x", "pfedrec", {}, catalog)
        broken(federation.built)
        with pytest.raises(ConfigError, match="cannot run in a federation"):
            try_round(federation, catalog)


def test_a_centralised_or_gossip_method_is_refused_for_what_it_is() -> None:
    for name, why in (("ease", "one place"), ("pepper", "no server")):
        with pytest.raises(ConfigError, match=why):
            Federation.create("ab" * 16, "x", name, {}, two_tastes()[1])
