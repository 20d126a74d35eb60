"""Learn from a data frame, look at the quality, recommend, save, load: `python examples/first_run.py`."""

from pathlib import Path
from tempfile import mkdtemp

import polars as pl

import tacit

breakfast, dinner = ["tea", "milk", "bread", "jam", "oats", "honey"], ["rice", "soup", "kale", "beans", "fish", "figs"]
baskets = {
    "ada": [breakfast[i] for i in (0, 1, 2, 3, 4)],
    "ben": [breakfast[i] for i in (1, 2, 3, 4, 5)],
    "cleo": [breakfast[i] for i in (0, 2, 3, 5, 4)],
    "dan": [dinner[i] for i in (0, 1, 2, 3, 4)],
    "eve": [dinner[i] for i in (1, 2, 3, 4, 5)],
    "finn": [dinner[i] for i in (5, 0, 2, 4, 1)],
}
bought = [(user, item) for user, items in baskets.items() for item in items]
frame = pl.DataFrame(bought, schema=["user", "item"], orient="row").with_row_index("timestamp")

method = {"name": "ease", "reg": 1.0}
run = tacit.run(tacit.Experiment(method=method, evaluation={"k": [3]}), tacit.load(frame))
print(f"{run.result['users']} people, HR@3 = {run.metrics['HR@3']:.2f}")
for found in run.recommend("ada", k=2):
    print(f"{found.title}: {found.why}")

folder = Path(mkdtemp()) / "model"
run.recommender.save(folder)
stranger = tacit.Recommender.load(folder).recommend_for(["rice", "soup"], k=1)
print(f"someone with rice and soup: {stranger[0].title}, {stranger[0].why}")
