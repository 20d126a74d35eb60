"""Files of devices and coordinators: one SQLite file each, upgraded when an older version wrote it."""
