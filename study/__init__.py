"""This project's own evidence, which is not installed: records, claims, costs, figures; run by `make study`."""
