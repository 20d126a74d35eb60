"""The notice of a trial, which operator and user both read."""

from __future__ import annotations

from tacit.protocols.secure_aggregation.device_policy import DevicePolicy


def describe_trial(devices: int) -> str:
    """Return what a trial that begins with so few devices means.

    >>> describe_trial(5)[:54]
    'This is a trial: masked rounds begin with 5 devices. A'
    """
    usual, here = DevicePolicy(), DevicePolicy().in_trial(devices)
    return (
        f"This is a trial: masked rounds begin with {devices} devices. A sum has {here.n_min} participants at least, "
        f"instead of {usual.n_min}, and {here.k_min} behind each row, instead of {usual.k_min}: it hides each of them "
        "less. Use it for tests, not for people who did not agree to that."
    )
