"""The field: coordinator and devices brought together, in one process or over a network."""

import os

# Flower reads these when it is imported: it must not call home, from a device least of all.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
