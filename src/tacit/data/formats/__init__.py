"""Parsers of official formats: bytes as published in, labelled columns out. One file per publisher."""
