"""Sentences that operators read in several places: of a trial, and of users who did not agree to another method."""

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


def describe_unagreed(devices: int) -> str:
    """Return what is known of users who were asked to agree to another method.

    >>> describe_unagreed(1)
    '1 user has not agreed to the new method yet, as far as is known: their device has sent nothing since the change.'
    """
    who = "1 user has" if devices == 1 else f"{devices} users have"
    theirs = "their device has" if devices == 1 else "their devices have"
    return f"{who} not agreed to the new method yet, as far as is known: {theirs} sent nothing since the change."
