"""What tests share: small federations and datasets, ways to wait, a browser. No test file imports another one."""
