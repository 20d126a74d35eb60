"""Export a scorer as an ONNX graph: linear models, and GMF, MLP and NeuMF. Needs the extra `onnx`.

A model that scores from a history has the input `history` [users, n_items], 1 where an item is in it. A model with a
vector per user has the input `user` [users, width]: the vector stays outside, and the file holds nothing of any user.
The output `scores` is [users, n_items]. Whether a model is linear in its input is measured, as in `export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import MethodError, missing_extra
from tacit.methods.base import score_clients
from tacit.methods.parts.neural import Neural
from tacit.models.ncf import NCF
from tacit.numerics import one_blas_thread
from tacit.serving.export import CHECKED, FORMAT, TOLERANCE, history_matrix, write_description
from tacit.serving.recommender import Recommender
from tacit.types import Array, Clients, Floats, Model

OPSET = 17  # of 2022: runtimes of the last years read it
IR_VERSION = 8


def export_onnx(recommender: Recommender, folder: Path | str) -> dict[str, Any]:
    """Write `model.onnx`, `items.json` and `export.json` into a folder; return what `export.json` says."""
    try:
        import onnx
    except ImportError:
        raise missing_extra("An export to ONNX", "onnx") from None
    folder, method, model = Path(folder), recommender.method, recommender.model
    if isinstance(method, Neural):
        graph = _NCFGraph(method.shape, method.by_name(model.shared)).build()
        given, width = "user", method.shape.width
    elif model.private:
        given, (bias, rows) = "user", _vector_matrix(recommender)
        graph, width = _linear_graph(given, bias, rows), len(rows)
    else:
        given, (bias, rows) = "history", history_matrix(recommender)
        graph, width = _linear_graph(given, bias, rows), len(rows)
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="tacit"
    )
    onnx.checker.check_model(made)
    about = {
        "format": FORMAT,
        "method": recommender.name,
        "n_items": recommender.catalog.n_items,
        "input": given,
        "width": width,
    }
    write_description(recommender, about, folder)
    onnx.save(made, str(folder / "model.onnx"))
    return about


def _vector_matrix(recommender: Recommender) -> tuple[Floats, Floats]:
    """Return b [n_items] and W [width, n_items] of a model whose scores are b + vector @ W; another is refused."""
    private, n_items = recommender.model.private, recommender.catalog.n_items
    refused = MethodError(
        f"The scores of '{recommender.name}' do not follow from one vector per user by a matrix.",
        "Serve it with `tacit.Recommender.load`.",
    )
    if len(private) != 1:
        raise refused
    (name, vectors), *_ = private.items()
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise refused
    width, sample = vectors.shape[1], np.arange(min(CHECKED, len(vectors)))
    probes = np.concatenate([np.zeros((1, width)), np.eye(width)]).astype(vectors.dtype)
    found = [_score_vector(recommender, name, probe) for probe in probes]
    bias, rows = found[0], np.stack(found[1:]) - found[0] if width else np.zeros((0, n_items), np.float32)
    wanted = recommender.score(sample)
    apart = np.abs(bias + vectors[sample] @ rows - wanted).max(initial=0.0)
    if not apart <= TOLERANCE * np.abs(wanted).max(initial=0.0):
        raise refused
    return bias, rows


def _score_vector(recommender: Recommender, name: str, vector: Array) -> Floats:
    """Return the scores of a user with this vector and no history: nothing of a real one gets into the file."""
    model = Model(recommender.model.shared, {name: vector[None]})
    new_user = Clients(np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(0, np.int32), recommender.catalog.n_items)
    with one_blas_thread():
        scores: Floats = score_clients(recommender.method, model, new_user)[0]
    return scores


def _linear_graph(given: str, bias: Floats, rows: Floats) -> Any:
    """Return the graph of scores = bias + input @ rows."""
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", [given, "rows"], ["sums"]),
        helper.make_node("Add", ["sums", "bias"], ["scores"]),
    ]
    return _finish(nodes, given, len(rows), {"rows": rows, "bias": bias})


class _NCFGraph:
    """The graph of one NCF shape: product half, tower half, and the head that weighs both."""

    def __init__(self, shape: NCF, tables: Mapping[str, Array]) -> None:
        self.shape, self.tables = shape, tables
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, name: str, value: Array) -> str:
        """Keep numbers of the model in the file."""
        self.constants[name] = value
        return name

    def columns(self, begin: int, end: int, name: str) -> str:
        """Return a range of columns of the user's vector."""
        bounds = {"begin": begin, "end": end, "axis": 1}
        given = [self.constant(f"{name}_{what}", np.array([value], np.int64)) for what, value in bounds.items()]
        return self.node("Slice", "user", *given)

    def product(self) -> str:
        """Return the product half: (users * head) @ items.T, [users, n_items]."""
        d, head, items = self.shape.product, self.tables["head"], self.tables["items"]
        weighed = head[:d, None] * items[:, :d].T
        return self.node("MatMul", self.columns(0, d, "product"), self.constant("product_items", weighed))

    def tower(self) -> str:
        """Return the tower half, [users, n_items]: the first layer is a sum of a user's and an item's part."""
        d, f, t = self.shape.product, self.shape.factors, self.tables
        users = self.node(
            "MatMul", self.columns(d, self.shape.width, "tower"), self.constant("layer1_users", t["layer1"][:f])
        )
        users = self.node("Unsqueeze", users, "tower_axis")  # [users, 1, h]
        items = np.asarray(t["items"][:, d:] @ t["layer1"][f:] + t["bias1"], np.float32)  # [n_items, h]
        h = self.node("Relu", self.node("Add", users, self.constant("layer1_items", items)))  # [users, n_items, h]
        for k in range(2, len(self.shape.layers) + 1):
            h = self.node("MatMul", h, self.constant(f"layer{k}", t[f"layer{k}"]))
            h = self.node("Relu", self.node("Add", h, self.constant(f"bias{k}", t[f"bias{k}"])))
        return self.node("MatMul", h, self.constant("head", t["head"][d:]))

    def build(self) -> Any:
        """Return the whole graph."""
        halves = [*([self.product()] if self.shape.product else []), *([self.tower()] if self.shape.layers else [])]
        total = halves[0] if len(halves) == 1 else self.node("Add", *halves)
        from onnx import helper

        self.nodes.append(
            helper.make_node("Add", [total, self.constant("head_bias", self.tables["head_bias"])], ["scores"])
        )
        return _finish(self.nodes, "user", self.shape.width, self.constants)


def _finish(nodes: list[Any], given: str, width: int, constants: Mapping[str, Array]) -> Any:
    """Return a graph with one input and one output; real numbers are written in single precision."""
    from onnx import TensorProto, helper, numpy_helper

    kept = [
        numpy_helper.from_array(
            np.ascontiguousarray(value, np.float32 if value.dtype.kind == "f" else value.dtype), name
        )
        for name, value in constants.items()
    ]
    put_in = helper.make_tensor_value_info(given, TensorProto.FLOAT, ["users", width])
    put_out = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["users", "items"])
    return helper.make_graph(nodes, "scorer", [put_in], [put_out], kept)
