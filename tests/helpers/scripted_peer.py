"""Peers of several networks in a process of its own, over Zenoh, that do what standard input says: one command a line.

Each command begins with the place of its network in the lists of the arguments.

    reach   print whether all others can be reached
    begin   begin a period; prints the numbers of the peers that get a model
    send N  send the waiting model to peer N; prints whether it was acknowledged
    lose N  note that the model to peer N was not acknowledged
    end     end the period
    models  print a digest of all arrays

usage: scripted_peer.py NUMBER FILES ROUTERS NUMBERS LISTEN, all but the first lists in JSON, with one part per network
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from tacit.field.device import Device
from tacit.field.peer.peer_device import PeerDevice, PeerSend
from tacit.field.peer.runner import send_peer_message
from tacit.field.peer.zenoh_carrier import ZenohCarrier
from tacit.protocols.overlay import first_views, offer_peers
from tacit.random import Key

KEY = Key(7).child("learn")


def digest_arrays(models: dict[str, object]) -> str:
    """Return one digest of all arrays of a peer."""
    digest = hashlib.sha256()
    for name in sorted(models):
        digest.update(name.encode() + np.ascontiguousarray(models[name]).tobytes())
    return digest.hexdigest()


class ScriptedPeer:
    """One device, with the numbers and the offers of a simulation."""

    def __init__(self, path: str, at: int, addresses: list[str], numbers: dict[str, int], listen: list[str]) -> None:
        n = len(numbers)
        self.device = Device.open(Path(path), "peers among peers")
        self.peer = PeerDevice(
            self.device,
            number_of=lambda id: int(numbers[id.hex()]),
            offer=lambda number, wanted: offer_peers(KEY, number, np.array([at]), np.arange(n), wanted)[0],
        )
        views = first_views(n, self.peer.member.network.built.config.view, "preferential", KEY)
        self.peer.file.state.view = [int(other) for other in views[at] if other >= 0]
        self.peer.warm_up()
        self.carrier = ZenohCarrier(self.peer.seal, addresses, listen)
        self.carrier.open(self.peer.identity.id, self.peer.receive)
        self.ids = {number: bytes.fromhex(id) for id, number in numbers.items()}
        self.waiting: dict[int, PeerSend] = {}

    def do(self, command: str, *rest: str) -> object:
        if command == "reach":
            return all(self.carrier.reaches(id) for id in self.ids.values() if id != self.peer.identity.id)
        if command == "begin":
            self.waiting = {send.number: send for send in self.peer.begin_period()}
            return sorted(self.waiting)
        if command in ("send", "lose"):
            send = self.waiting.pop(int(rest[0]))
            return self.peer.settle(
                send, send_peer_message(self.carrier, send, self.peer.seal) if command == "send" else None
            )
        if command == "end":
            self.peer.end_period()
            return None
        return digest_arrays(dict(self.peer.file.state.models))

    def close(self) -> None:
        self.carrier.close()
        self.device.close()


def main() -> None:
    """Do what standard input says, until it ends."""
    at, paths, addresses, numbers, listen = int(sys.argv[1]), *map(json.loads, sys.argv[2:6])
    peers = [ScriptedPeer(*of) for of in zip(paths, [at] * len(paths), addresses, numbers, listen, strict=True)]
    print("ready", flush=True)
    for line in sys.stdin:
        which, *command = line.split()
        print(json.dumps(peers[int(which)].do(*command)), flush=True)
    for peer in peers:
        peer.close()


if __name__ == "__main__":
    main()
