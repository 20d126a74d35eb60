"""What Belal et al. (2022) printed: tables 2 to 8 and the figures that the text gives numbers for. In per cent."""

from __future__ import annotations

METHODS = ("fedavg", "reptile", "fedfast", "dec-fedavg", "model-age", "dec-reptile", "pepper")
CUTS = (20, 10, 5)

_HR = {
    "foursquare-nyc": (
        (32.42, 24.0, 18.30), (31.59, 23.25, 18.10), (37.12, 26.27, 18.94), (37.00, 28.10, 20.44),
        (38.54, 26.87, 20.16), (38.58, 28.99, 22.70), (45.93, 32.59, 25.90),
    ),
    "ml-100k": (
        (79.69, 64.4, 47.59), (79.49, 62.6, 44.1), (82.79, 67.80, 50.00), (74.9, 55.0, 40.7),
        (73.69, 55.5, 42.4), (70.19, 51.60, 36.29), (79.29, 61.20, 47.59),
    ),
}  # fmt: skip
_NDCG = {
    "foursquare-nyc": (
        (16.61, 14.37, 12.66), (17.12, 14.36, 13.38), (18.41, 15.69, 13.30), (18.75, 17.39, 15.37),
        (19.07, 16.81, 14.92), (22.04, 19.61, 17.63), (23.10, 20.44, 19.24),
    ),
    "ml-100k": (
        (41.03, 37.35, 32.07), (40.07, 35.80, 29.83), (44.14, 40.34, 34.50), (36.17, 31.79, 27.56),
        (37.47, 33.06, 29.81), (34.0, 29.05, 24.14), (40.09, 35.60, 32.53),
    ),
}  # fmt: skip
_F1 = {
    "foursquare-nyc": (
        (32.87, 28.62, 21.50), (35.00, 31.53, 23.86), (33.35, 30.56, 23.18), (21.82, 18.70, 16.03),
        (20.48, 18.60, 17.19), (27.28, 25.46, 21.19), (34.05, 32.44, 26.38),
    ),
    "gowalla-nyc": (
        (21.35, 18.53, 15.37), (20.90, 17.07, 13.46), (21.80, 18.28, 15.09), (11.30, 10.18, 9.13),
        (9.92, 8.59, 7.64), (9.10, 7.66, 6.05), (23.63, 20.66, 17.15),
    ),
}  # fmt: skip
_TABLES = {"HR": _HR, "NDCG": _NDCG, "F1": _F1}

ALPHA = {0.0: 70.49, 0.4: 79.29, 1.0: 75.49}  # HR@20 on MovieLens 100K, by the share of random peers (figure 8)
VIEW = {3: (79.0, 283.0), 6: (80.0, 136.0)}  # HR@20 and rounds until peers converge (table 8)
ROUNDS = {"pepper": 283.0, "model-age": 410.0, "dec-reptile": 490.0}  # figure 9b


def published_value(data: str, method: str, metric: str) -> float | None:
    """Return a printed number as a fraction: `published_value("ml-100k", "pepper", "HR@20")`; none where there is none.

    >>> published_value("ml-100k", "pepper", "HR@20"), published_value("ml-1m", "pepper", "HR@20")
    (0.7929, None)
    """
    name, _, cut = metric.partition("@")
    table = _TABLES.get(name, {}).get(data)
    if table is None or method not in METHODS or not cut.isdigit() or int(cut) not in CUTS:
        return None
    return round(table[METHODS.index(method)][CUTS.index(int(cut))] / 100, 6)
