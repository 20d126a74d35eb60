"""What the FedNCF paper prints (Perifanis and Efraimidis, Knowledge-Based Systems 242, 2022)."""

from __future__ import annotations

PAPER = "Perifanis and Efraimidis, Knowledge-Based Systems 2022"
DATASETS = ("ml-100k", "ml-1m", "lastfm-2k", "foursquare-nyc")
GROUPS = {"ml-100k": 20, "ml-1m": 120, "lastfm-2k": 50, "foursquare-nyc": 50}  # |c|, section 4.2
RULES = ("mf-fedavg", "fedavg", "simple-avg")
MODELS = ("fed-gmf", "fed-mlp", "fed-neumf")
LAYERS = (48, 24, 12, 6)
FACTORS = 12

TABLE_5 = {  # HR@10 of fed-gmf by rule
    "ml-100k": (0.59, 0.56, 0.55),
    "ml-1m": (0.56, 0.54, 0.52),
    "lastfm-2k": (0.62, 0.59, 0.58),
    "foursquare-nyc": (0.21, 0.16, 0.12),
}
TABLE_6 = {  # (HR@10, NDCG@10), federated and centralised
    "ml-100k": {
        "fed-gmf": (0.59, 0.33),
        "fed-mlp": (0.43, 0.23),
        "fed-neumf": (0.61, 0.34),
        "gmf": (0.68, 0.42),
        "mlp": (0.61, 0.35),
        "neumf": (0.69, 0.42),
    },
    "ml-1m": {
        "fed-gmf": (0.56, 0.31),
        "fed-mlp": (0.44, 0.24),
        "fed-neumf": (0.58, 0.33),
        "gmf": (0.69, 0.41),
        "mlp": (0.63, 0.36),
        "neumf": (0.70, 0.41),
    },
    "lastfm-2k": {
        "fed-gmf": (0.62, 0.47),
        "fed-mlp": (0.57, 0.39),
        "fed-neumf": (0.63, 0.43),
        "gmf": (0.87, 0.72),
        "mlp": (0.80, 0.62),
        "neumf": (0.89, 0.77),
    },
    "foursquare-nyc": {
        "fed-gmf": (0.21, 0.14),
        "fed-mlp": (0.28, 0.19),
        "fed-neumf": (0.33, 0.22),
        "gmf": (0.35, 0.21),
        "mlp": (0.34, 0.22),
        "neumf": (0.36, 0.23),
    },
}
TABLE_7 = {  # thousands of FLOPs: mean, least, most; KB sent
    "ml-100k": {
        "fed-gmf": (17.0, 3.2, 117.9, 21),
        "fed-mlp": (1510.4, 285.6, 10524.4, 33),
        "fed-neumf": (1532.9, 289.1, 10653.3, 55),
    },
    "ml-1m": {
        "fed-gmf": (26.5, 3.2, 370.0, 46),
        "fed-mlp": (2365.0, 286.0, 33044.0, 58),
        "fed-neumf": (2394.0, 289.0, 33449.0, 105),
    },
    "lastfm-2k": {
        "fed-gmf": (18.5, 0.8, 417.4, 150),
        "fed-mlp": (1657.0, 71.4, 37257.0, 162),
        "fed-neumf": (1677.0, 72.3, 37713.0, 310),
    },
    "foursquare-nyc": {
        "fed-gmf": (13.5, 1.4, 114.2, 461),
        "fed-mlp": (1200.2, 128.5, 10195.9, 473),
        "fed-neumf": (1214.9, 130.1, 10320.9, 920),
    },
}
PER_SAMPLE = {"fed-gmf": 32, "fed-mlp": 2856, "fed-neumf": 2891}  # what table 7 comes to, per sample, on all four
OBSERVATIONS = {  # table 4: least, most, mean
    "ml-100k": (20, 737, 106.04),
    "ml-1m": (20, 2314, 165.6),
    "lastfm-2k": (5, 2609, 116.03),
    "foursquare-nyc": (9, 714, 84.05),
}
SHARES = (0.5, 0.7, 0.8, 0.9, 1.0)  # of users who take part, figure 8
INSTANCES = (100, 1000, 2000, 5000, 10000)  # figure 7
