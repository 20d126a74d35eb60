"""The words of the generated town: what its places, parts and owners are called."""

from __future__ import annotations

KINDS: dict[str, tuple[str, ...]] = {
    "Food & drink": ("Café", "Bakery", "Trattoria", "Noodle Bar", "Tea Room", "Brewery"),
    "Culture": ("Museum", "Cinema", "Theatre", "Jazz Club"),
    "Shops": ("Bookshop", "Market", "Record Store", "Florist"),
    "Outdoors & sport": ("Garden", "Climbing Hall", "Swimming Pool", "Yoga Studio"),
}
"""Categories by the kind they belong to."""

CATEGORIES: tuple[str, ...] = tuple(name for names in KINDS.values() for name in names)
KIND_OF: tuple[str, ...] = tuple(kind for kind, names in KINDS.items() for _ in names)

DISTRICTS: dict[str, tuple[str, float, float]] = {
    "Harbour": ("Waterfront", -1.9, -0.6),
    "Old Town": ("Centre", 0.0, 0.0),
    "Cathedral Hill": ("Centre", 0.5, 0.8),
    "Station": ("Centre", 0.9, -0.4),
    "University": ("North Side", 0.3, 2.1),
    "Mill Quarter": ("North Side", -1.1, 1.7),
    "Orchard Park": ("North Side", 1.9, 2.6),
    "Fishmarket": ("Waterfront", -1.5, -1.8),
    "Lighthouse": ("Waterfront", -3.0, -1.5),
    "Vineyards": ("South Side", 1.2, -2.3),
    "Tannery": ("South Side", 0.1, -1.6),
    "Southgate": ("South Side", 2.4, -1.2),
}
"""Neighbourhoods: the side of town, and kilometres east and north of the Old Town."""

PRICES: tuple[str, ...] = ("modest", "fair", "fine")

OWNERS: tuple[str, ...] = (
    "Lindo",
    "Amber",
    "Rossi",
    "Okafor",
    "Marisol",
    "Bergman",
    "Haddad",
    "Nakamura",
    "Silva",
    "Petit",
    "Novak",
    "Iris",
    "Aldous",
    "Bianchi",
    "Castell",
    "Dufour",
    "Ekström",
    "Fontana",
    "Greco",
    "Holloway",
    "Ivanov",
    "Jansen",
    "Kaya",
    "Laurent",
    "Moreau",
    "Nilsen",
    "Ortega",
    "Pavlov",
    "Quintero",
    "Ricci",
    "Sato",
    "Tanaka",
    "Ueda",
    "Vargas",
    "Winter",
    "Xavier",
    "Yilmaz",
    "Zanetti",
    "Abara",
    "Bloom",
    "Cohen",
    "Diaz",
    "Eriksen",
    "Farah",
    "Gallo",
    "Hansen",
    "Ito",
    "Jovanović",
    "Keller",
    "Lemaire",
)
