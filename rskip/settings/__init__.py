"""Typed settings: read from YAML, JSON and `key=value`, checked against their type, refused with what is wrong.

Settings are msgspec Structs or dataclasses. `text` reads YAML, JSON and `key=value` as plain values, `check` makes
settings of them, `errors` says what is wrong with one.
"""
