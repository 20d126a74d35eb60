"""Pages on this machine: a user's own, and the lab's. They read what is on disk and use no interface of their own."""
