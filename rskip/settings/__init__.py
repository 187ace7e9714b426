"""Typed settings: read from YAML, JSON and `key=value`, checked against their type, refused with what is wrong.

Settings are msgspec Structs or dataclasses. `text` reads YAML and JSON as plain values, `check` makes settings
of them, `override` sets single keys, `schema` describes a type for other programs.
"""
