"""What others print of recommenders with differential privacy, and of FedNCF without any.

Units, data and metrics differ, so these figures stand beside ours and are not compared by number. Each says what was
read of it: a table, or an abstract only.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit.studies import fedncf_published
from tacit.studies.sheets import Sheet


@dataclass(frozen=True)
class PublishedGuarantee:
    """A figure of a paper: what it protects, whom one must trust, on which data, and what is printed."""

    work: str
    unit: str
    trusted: str
    data: str
    epsilon: str
    figure: str
    read: str


WORKS = (
    PublishedGuarantee(
        "Minto et al. 2021 (Brave)",
        "a client, per update; k updates cost k times as much",
        "nobody: local noise (and a proxy that shuffles)",
        "MovieLens, 50,000 people x 5,000 items; the whole set",
        "per update",
        "HR@10 .68; above .5",
        "abstract",
    ),
    PublishedGuarantee(
        "NoisyAdam: Bu et al. 2020",
        "one rating",
        "a server that reads all ratings",
        "MovieLens 1M",
        "10.6 (central limit), 15.4 (moments); delta 1e-6",
        "RMSE .915; .893 without noise",
        "table 4",
    ),
    PublishedGuarantee(
        "DPALS: Chien et al. 2021",
        "a client (joint)",
        "a server that reads all histories; kept items by exact counts",
        "MovieLens 10M and 20M",
        "up to 10",
        "6 percentage points below the same method without noise",
        "abstract, code",
    ),
    PublishedGuarantee(
        "Nicolas et al. 2025, private power method",
        "see the paper",
        "nobody: noise inside a secure sum",
        "recommendation data",
        "see the paper",
        "variance of the noise does not grow with the rank",
        "abstract",
    ),
    PublishedGuarantee(
        "PriviRec: Nicolas et al. 2025",
        "none: sums are exact",
        "nobody, for single messages: secure sums",
        "Gowalla, Yelp2018, Amazon-Book",
        "none",
        "near centralised graph filters",
        "abstract",
    ),
)


def list_published(source: str) -> Sheet:
    """Return what is printed elsewhere, FedNCF's figures on the same data first."""
    columns = ["work", "what is protected", "who is trusted", "data", "epsilon", "printed", "read"]
    lines = []
    for name, (hits, ndcg) in fedncf_published.TABLE_6.get(source, {}).items():
        if name.startswith("fed-"):
            work = f"FedNCF, {name}: Perifanis and Efraimidis 2022"
            unit = "nothing is bounded"
            lines.append(
                [
                    work,
                    unit,
                    "the server, for updates",
                    source,
                    "none",
                    f"NDCG@10 {ndcg:.2f}, HR@10 {hits:.2f}",
                    "table 6",
                ]
            )
    lines += [[one.work, one.unit, one.trusted, one.data, one.epsilon, one.figure, one.read] for one in WORKS]
    return Sheet("Published by others, not comparable by number", columns, lines)
