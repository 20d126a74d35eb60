"""What the FPL papers print, as data. None stands for a figure that cannot be read in our copy.

SAC'21: V. W. Anelli et al., How to put users in control of their data in federated top-N recommendation with learning
to rank (SAC 2021), table 2. JIIS'22: the journal version (JIIS 2022), tables 2 to 6. Thesis: A. Ferrara, chapter 4.
"""

from __future__ import annotations

ACCURACY = ("Precision@10", "Recall@10")
DIVERSITY = ("ItemCoverage@10", "Gini@10")

Table = dict[str, tuple[float | None, float | None]]

# JIIS'22 table 2 and thesis table 4.2: precision and recall at 10.
TABLE_2: dict[str, Table] = {
    "foursquare-brazil": {
        "random": (0.00013, 0.00015),
        "most-popular": (0.01909, 0.02375),
        "user-knn": (0.10600, 0.13480),
        "item-knn": (0.07716, 0.09607),
        "multi-vae": (0.10320, 0.13153),
        "bpr-mf": (0.07702, 0.09494),
        "fcf": (0.03089, 0.03749),
        "sFPL": (0.07757, 0.09581),
        "sFPL+": (0.08682, 0.11004),
        "pFPL": (0.07771, 0.09582),
        "pFPL+": (0.08733, 0.11085),
    },
    "foursquare-canada": {
        "random": (0.00030, 0.00035),
        "most-popular": (0.04239, 0.04679),
        "user-knn": (0.07639, 0.07533),
        "item-knn": (0.04006, 0.03881),
        "multi-vae": (0.06060, 0.06317),
        "bpr-mf": (0.03694, 0.03650),
        "fcf": (0.03724, 0.03836),
        "sFPL": (0.04515, 0.04550),
        "sFPL+": (0.05701, 0.05665),
        "pFPL": (0.04582, 0.04637),
        "pFPL+": (0.05761, 0.05755),
    },
    "foursquare-italy": {
        "random": (0.00030, 0.00029),
        "most-popular": (0.04634, 0.05506),
        "user-knn": (0.06881, 0.07833),
        "item-knn": (0.04663, 0.05356),
        "multi-vae": (0.10421, 0.21324),  # of 14 % of the users only: the others got no list
        "bpr-mf": (0.04560, 0.05458),
        "fcf": (0.03126, 0.03708),
        "sFPL": (0.04701, 0.05600),
        "sFPL+": (0.05595, 0.06229),
        "pFPL": (0.04642, 0.05465),
        "pFPL+": (0.05565, 0.06291),
    },
    "ml-1m": {
        "random": (0.00871, 0.00283),
        "most-popular": (0.10224, 0.03924),
        "user-knn": (0.12613, 0.06701),
        "item-knn": (0.08873, 0.05475),
        "multi-vae": (0.11735, 0.06192),
        "bpr-mf": (0.11911, 0.05817),
        "fcf": (0.10760, 0.04392),
        "sFPL": (0.11805, 0.05902),
        "sFPL+": (0.11599, 0.05571),
        "pFPL": (0.12275, 0.05806),
        "pFPL+": (None, None),
    },
}

# JIIS'22 table 3 and thesis table 4.3: item coverage and Gini at 10.
TABLE_3: dict[str, Table] = {
    "foursquare-brazil": {
        "random": (46120, 0.70946),
        "most-popular": (19, 0.00020),
        "user-knn": (3083, 0.01159),
        "item-knn": (16535, 0.07449),
        "multi-vae": (5503, 0.02117),
        "bpr-mf": (2552, 0.00756),
        "fcf": (911, 0.00095),
        "sFPL": (1581, 0.00561),
        "sFPL+": (5200, 0.01449),
        "pFPL": (2114, 0.00638),
        "pFPL+": (3820, 0.01106),
    },
    "foursquare-canada": {
        "random": (10815, 0.26809),
        "most-popular": (18, 0.00030),
        "user-knn": (609, 0.00321),
        "item-knn": (4393, 0.05404),
        "multi-vae": (1044, 0.00652),
        "bpr-mf": (1216, 0.00998),
        "fcf": (504, 0.00174),
        "sFPL": (451, 0.00243),
        "sFPL+": (1510, 0.01259),
        "pFPL": (425, 0.00213),
        "pFPL+": (1214, 0.00981),
    },
    "foursquare-italy": {
        "random": (10478, 0.28914),
        "most-popular": (19, 0.00035),
        "user-knn": (577, 0.00282),
        "item-knn": (3241, 0.03293),
        "multi-vae": (165, 0.02336),
        "bpr-mf": (19, 0.00036),
        "fcf": (403, 0.00158),
        "sFPL": (18, 0.00036),
        "sFPL+": (932, 0.00789),
        "pFPL": (96, 0.00056),
        "pFPL+": (936, 0.00725),
    },
    "ml-1m": {
        "random": (3666, 0.85426),
        "most-popular": (118, 0.00569),
        "user-knn": (737, 0.04636),
        "item-knn": (2134, 0.19292),
        "multi-vae": (1476, 0.09259),
        "bpr-mf": (1444, 0.08508),
        "fcf": (829, 0.01305),
        "sFPL": (1041, 0.06608),
        "sFPL+": (1326, 0.02513),
        "pFPL": (901, 0.04933),
        "pFPL+": (792, 0.01451),
    },
}

# The pi that was best, under tables 2 and 3 of JIIS'22; not printed for MovieLens.
BEST_PI: dict[str, dict[str, float]] = {
    "foursquare-brazil": {"sFPL": 0.5, "sFPL+": 0.9, "pFPL": 0.8, "pFPL+": 0.8},
    "foursquare-canada": {"sFPL": 0.1, "sFPL+": 0.4, "pFPL": 0.1, "pFPL+": 0.3},
    "foursquare-italy": {"sFPL": 0.4, "sFPL+": 0.2, "pFPL": 1.0, "pFPL+": 0.1},
}

# JIIS'22 table 4, Brazil: total communication cost in 10^12 vectors, and precision at 10, for pi = 0.1, ..., 1.0.
TABLE_4: dict[str, tuple[tuple[float, float], ...]] = {
    "sFPL": (
        (1.27623, 0.06961),
        (1.27623, 0.07327),
        (1.27624, 0.07551),
        (1.27624, 0.07686),
        (1.27624, 0.07757),
        (1.27624, 0.07733),
        (1.27625, 0.07714),
        (1.27625, 0.07730),
        (1.27625, 0.07724),
        (1.27625, 0.07702),
    ),
    "sFPL+": (
        (1.41913, 0.03347),
        (1.41924, 0.05241),
        (1.41934, 0.06269),
        (1.41944, 0.06949),
        (1.41955, 0.07298),
        (1.41965, 0.08121),
        (1.41975, 0.08506),
        (1.41985, 0.08660),
        (1.41996, 0.08682),
        (1.42006, 0.08523),
    ),
    "pFPL": (
        (1.27623, 0.07026),
        (1.27623, 0.07366),
        (1.27624, 0.07497),
        (1.27624, 0.07582),
        (1.27624, 0.07671),
        (1.27624, 0.07723),
        (1.27625, 0.07758),
        (1.27625, 0.07771),
        (1.27625, 0.07726),
        (1.27625, 0.07703),
    ),
    "pFPL+": (
        (0.99339, 0.04358),
        (0.99347, 0.05022),
        (0.99354, 0.05598),
        (0.99361, 0.06382),
        (0.99368, 0.07648),
        (0.99375, 0.08247),
        (0.99383, 0.08590),
        (0.99390, 0.08733),
        (0.99397, 0.08699),
        (0.99404, 0.08582),
    ),
}

TOP_LEVEL = (
    "Arts & Entertainment",
    "College & University",
    "Food",
    "Nightlife Spot",
    "Outdoors & Recreation",
    "Professional & Other Places",
    "Residence",
    "Shop & Service",
    "Travel & Transport",
)

# JIIS'22 table 5: the bias of the training data towards each category, in the order of TOP_LEVEL.
TABLE_5: dict[str, tuple[float, ...]] = {
    "foursquare-brazil": (1.4949, 0.6289, 1.1024, 1.3286, 1.1340, 0.6424, 0.5202, 0.8314, 1.3699),
    "foursquare-canada": (1.7224, 0.8310, 1.0879, 1.6594, 0.9719, 0.6610, 0.4134, 0.8087, 1.2328),
    "foursquare-italy": (1.4130, 0.8221, 0.9317, 1.3559, 1.3292, 0.7868, 0.4171, 0.8482, 1.2678),
}

# JIIS'22 table 6: bias disparity of the lists, in the order of TOP_LEVEL; Brazil only.
TABLE_6: dict[str, dict[str, tuple[float, ...]]] = {
    "foursquare-brazil": {
        "random": (-0.325, 0.559, -0.080, -0.245, -0.143, 0.549, 0.911, 0.203, -0.273),
        "most-popular": (-1.000, -1.000, -0.302, -1.000, -0.999, -1.000, -1.000, -1.000, 6.660),
        "user-knn": (0.445, -0.832, 0.261, -0.213, 0.162, -0.842, -0.969, -0.431, 0.621),
        "item-knn": (0.346, 0.140, 0.068, -0.102, 0.153, -0.347, -0.381, -0.227, 0.083),
        "multi-vae": (0.393, -0.723, 0.223, -0.315, 0.194, -0.776, -0.911, -0.310, 0.572),
        "bpr-mf": (0.301, -0.712, 0.232, -0.710, 0.142, -0.758, -0.992, -0.434, 1.165),
        "fcf": (-0.464, -0.968, 0.687, -0.910, 0.135, -0.960, -0.994, -0.946, 1.239),
        "sFPL": (0.272, -0.738, 0.263, -0.756, 0.161, -0.814, -0.997, -0.368, 1.072),
        "sFPL+": (0.311, -0.675, 0.160, -0.396, 0.278, -0.806, -0.903, -0.291, 0.812),
        "pFPL": (0.253, -0.813, 0.218, -0.613, 0.143, -0.739, -0.992, -0.479, 1.239),
        "pFPL+": (0.154, -0.566, 0.190, -0.351, 0.345, -0.764, -0.913, -0.410, 0.778),
    }
}
