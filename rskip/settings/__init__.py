"""Reads typed settings from YAML, JSON and `key=value`, and checks them.

Settings are msgspec Structs or dataclasses. `text` reads YAML, JSON and `key=value` as plain values, `check` converts
these to settings, and `errors` describes a wrong setting.
"""
