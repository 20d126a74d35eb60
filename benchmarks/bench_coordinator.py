"""What one coordinator carries: rounds of light devices in its own process, at 100, 1,000 and 10,000 of them.

A light device looks for messages, fetches one, and stores an answer where the fleet's API would; it has no socket, no
TLS and does not learn. So this is what the coordinator's own part costs: posting, being looked at, looking for answers.
`look` is that of a device without a message while all others have one waiting; sockets and TLS add about 3.6 ms to
each request.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
import time
from pathlib import Path

from tacit.data import DataConfig, load
from tacit.field.carriers.flower_messages import wrap_reply
from tacit.field.carriers.superlink import SuperLink
from tacit.field.certificates import make_certificates
from tacit.field.coordinator import CoordinatorJournal
from tacit.types import Catalog
from tacit.wire.federation import Federation

ANSWER = 34_000  # bytes: about what fpl sends of 800 items
SIZES = (100, 1000, 10_000)


def answer_all(link: SuperLink, nodes: list[int]) -> None:
    """Let every light device look until it has answered once."""
    state, run, content = link._state, link._run, bytes(ANSWER)
    waiting = list(nodes)
    while waiting:
        left = []
        for node in waiting:
            found = state.get_message_ins(node, 1)
            if not found:
                left.append(node)
                continue
            reply, session = wrap_reply(content, found[0]), state.start_session(run)
            _, missing = state.store_message_and_object_tree(reply.head, reply.tree, session)
            for name in missing:
                state.store_object(run, session, name, reply.objects[name])
        waiting = left
        time.sleep(0.05)


def measure(n_devices: int) -> dict[str, float]:
    """Return what a round of so many devices costs."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-bench-"))
    whole = load(DataConfig(source="town")).catalog
    catalog = Catalog(whole.item_ids, whole.titles, whole.categories)
    federation = Federation.create("ef" * 16, "bench", "fpl", {"factors": 12}, catalog)
    journal = CoordinatorJournal.create(folder / "journal.db", federation, catalog, seed=1)
    tls = make_certificates(folder / "tls", "127.0.0.1")
    link = SuperLink(journal, "127.0.0.1", 0, tls.certificate, tls.key)
    link._nodes = {number: link._state.add_node(secrets.token_bytes(97)) for number in range(1, n_devices + 1)}
    nodes = list(link._nodes.values())
    for node in nodes:
        link._state.activate_node(node, 3600.0)
    request = bytes(42_000)
    link.offer(dict.fromkeys(link._nodes, request))
    idle = link._state.add_node(secrets.token_bytes(97))
    link._state.activate_node(idle, 3600.0)
    looked = time.thread_time()
    for _ in range(20):
        link._state.get_message_ins(idle, 1)
    look = (time.thread_time() - looked) / 20
    answering = threading.Thread(target=answer_all, args=(link, nodes), daemon=True)
    started, wall, own = time.process_time(), time.perf_counter(), time.thread_time()
    answering.start()
    n_answers = sum(1 for _ in link.ask(dict.fromkeys(link._nodes, request), 600))
    spent, waited, own = time.process_time() - started, time.perf_counter() - wall, time.thread_time() - own
    answering.join(60)
    link.close()
    assert n_answers == n_devices
    return {
        "devices": n_devices,
        "wall_seconds": round(waited, 2),
        "cpu_ms_per_answer": round(1000 * spent / n_devices, 2),
        "coordinator_ms_per_answer": round(1000 * own / n_devices, 2),
        "look_us": round(1e6 * look, 1),
    }


def main() -> None:
    """Print one line for each number of devices."""
    for n_devices in SIZES:
        print(json.dumps({"bench": "coordinator", **measure(n_devices)}), flush=True)


if __name__ == "__main__":
    main()
